"""The order of samples: multisets, equal slots, unbiased lengths, changing companions."""

import numpy as np
import pytest

from dataprep.lengths import LengthHistogram, read_histogram
from dataprep.order import Presorted, micro_batch_of_slice, permute


def histogram(samples: int, seed: int = 0) -> LengthHistogram:
    lengths = np.random.default_rng(seed).choice([5, 9, 40, 41, 100, 128], samples)
    values, counts = np.unique(lengths, return_counts=True)
    return LengthHistogram(dict(zip(values.tolist(), counts.tolist(), strict=True)))


def all_places(plan: Presorted) -> np.ndarray:
    slots = np.arange(plan.width)
    return np.stack([plan.places(step, slots) for step in range(plan.steps)])


@pytest.mark.parametrize("epoch", [0, 3])
@pytest.mark.parametrize(
    ("width", "batch", "samples"),
    [(1, 1, 1), (2, 4, 8), (2, 4, 15), (2, 4, 1001), (3, 5, 29), (8, 16, 255), (8, 3, 5000)],
)
def test_each_sample_at_most_once_an_epoch_and_only_the_remainder_sits_out(
    width: int, batch: int, samples: int, epoch: int
) -> None:
    plan = Presorted(histogram(samples), width, batch, seed=11, epoch=epoch)
    places = all_places(plan).ravel()
    kept = samples - samples % (width * batch)
    assert len(places) == kept
    assert len(set(places.tolist())) == kept
    assert places.min() >= 0 and places.max() < samples


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_any_number_of_ranks_of_a_width_gives_the_same_global_batches(ranks: int) -> None:
    plan = Presorted(histogram(500), width=4, batch=8, seed=1, epoch=2)
    for step in (0, plan.steps - 1):
        whole = plan.places(step, np.arange(4))
        parts = [plan.places(step, np.arange(rank, 4, ranks)) for rank in range(ranks)]
        for rank, part in enumerate(parts):
            np.testing.assert_array_equal(part, whole[rank::ranks])


@pytest.mark.parametrize(("width", "batch"), [(1024, 16), (8, 56)])
def test_slots_and_steps_are_equally_long_on_wikipedia_lengths(
    shared_data, width: int, batch: int
) -> None:
    plan = Presorted(
        read_histogram(shared_data / "lengths" / "wikipedia_512.tsv"), width, batch, 5, epoch=0
    )
    steps = np.linspace(0, plan.steps - 1, 40).astype(int)
    tokens = np.stack([plan.lengths(step, np.arange(width)).sum(1) for step in steps])
    assert (tokens.max(1) / tokens.mean(1)).max() < 1.01
    assert tokens.mean(1).std() / tokens.mean() < 0.02


def test_slots_are_equally_long_on_any_lengths() -> None:
    plan = Presorted(histogram(4000), width=8, batch=16, seed=3, epoch=0)
    lengths = np.stack([plan.lengths(step, np.arange(8)).sum(1) for step in range(plan.steps)])
    # a row is of one length or of two neighbouring ones, so most steps are exactly equal
    assert np.median(lengths.max(1) / lengths.mean(1)) == 1.0


def test_lengths_ascend_within_a_slot_and_come_from_every_slice() -> None:
    plan = Presorted(histogram(3000), width=2, batch=10, seed=3, epoch=1)
    for step in (0, 7, plan.steps - 1):
        lengths = plan.lengths(step, np.arange(2))
        assert (np.diff(lengths, axis=1) >= 0).all()


def test_epochs_differ_in_order_companions_and_remainder() -> None:
    lengths = histogram(1003)
    first, second = (Presorted(lengths, 2, 5, seed=9, epoch=epoch) for epoch in (0, 1))
    assert not np.array_equal(first.left_out, second.left_out)

    def companions(plan: Presorted) -> dict[int, frozenset[int]]:
        return {
            place: frozenset(step.ravel().tolist())
            for step in all_places(plan)
            for place in step.ravel().tolist()
        }

    before, after = companions(first), companions(second)
    shared = [len(before[p] & after[p]) - 1 for p in before.keys() & after.keys()]
    # 9 of about 1,000 others each time: hardly one in common
    assert np.mean(shared) < 0.5


def test_the_plan_repeats_itself_and_depends_on_the_seed() -> None:
    one, same, other = (Presorted(histogram(300), 2, 4, seed, 0) for seed in (1, 1, 2))
    np.testing.assert_array_equal(all_places(one), all_places(same))
    assert not np.array_equal(all_places(one), all_places(other))


def test_step_tokens_do_not_wave() -> None:
    plan = Presorted(histogram(40_000), width=2, batch=16, seed=3, epoch=0)
    tokens = np.array([plan.lengths(step, np.arange(2)).sum() for step in range(plan.steps)])
    centred = tokens - tokens.mean()
    correlation = (centred[1:] * centred[:-1]).mean() / centred.var()
    assert abs(correlation) < 4 / np.sqrt(plan.steps)


def test_every_place_is_left_out_equally_often() -> None:
    lengths, epochs = histogram(103), 4000
    counts = np.zeros(103)
    for epoch in range(epochs):
        counts[Presorted(lengths, 2, 5, seed=1, epoch=epoch).left_out] += 1
    expected = epochs * 3 / 103
    assert abs(counts - expected).max() < 5 * np.sqrt(expected)


@pytest.mark.parametrize("samples", [15, 103, 1007])
def test_exactly_the_remainder_is_left_out(samples: int) -> None:
    lengths = LengthHistogram(dict.fromkeys(range(1, samples + 1), 1))  # nothing to swap with
    for epoch in range(5):
        plan = Presorted(lengths, 2, 4, seed=3, epoch=epoch)
        dealt = set(all_places(plan).ravel().tolist())
        assert dealt == set(range(samples)) - set(plan.left_out.tolist())


def test_a_dataset_of_less_than_a_step_is_refused() -> None:
    with pytest.raises(ValueError, match=r"7 samples, less than one step of 2 x 4 = 8"):
        Presorted(histogram(7), 2, 4, 0, 0)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1000, 65_537])
def test_permute_is_a_permutation(size: int) -> None:
    moved = permute(np.arange(size), size, np.array([12345], np.uint64))
    assert sorted(moved.tolist()) == list(range(size))


def test_permutations_of_four_are_equally_likely() -> None:
    keys = np.arange(24_000, dtype=np.uint64)[:, None] * np.uint64(0x9E3779B97F4A7C15)
    moved = permute(np.arange(4)[None, :].repeat(len(keys), 0), 4, keys)
    _, counts = np.unique(moved, axis=0, return_counts=True)
    assert len(counts) == 24
    chi_square = ((counts - 1000) ** 2 / 1000).sum()
    assert chi_square < 60  # 23 degrees of freedom: beyond 60 once in 30,000 times


def test_slices_are_dealt_to_and_fro() -> None:
    assert micro_batch_of_slice(8, 2).tolist() == [0, 1, 1, 0, 0, 1, 1, 0]
    assert micro_batch_of_slice(6, 3).tolist() == [0, 1, 2, 2, 1, 0]
    with pytest.raises(
        ValueError, match=r"accumulation 3 must divide the 8 samples.*\[1, 2, 4, 8\]"
    ):
        micro_batch_of_slice(8, 3)
