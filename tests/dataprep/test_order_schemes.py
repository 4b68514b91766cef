"""Every scheme of ordering samples: each sample at most once, equal slots, any step at once."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from dataprep.lengths import LengthHistogram
from dataprep.order import Order, OrderConfig, build_order
from dataprep.order.load import imbalance, loads_of

SCHEMES = {
    "presorted": OrderConfig(),
    "random": OrderConfig("random"),
    "strata": OrderConfig("strata", strata_bins=(40, 90, 128), strata_counts=(2, 1, 1)),
    "exchange": OrderConfig("exchange"),
    "exchange in twos": OrderConfig("exchange", group=2, deal="snake"),
    "strata, exchange": OrderConfig(
        "exchange", strata_bins=(40, 128), strata_counts=(1, 1), group=2, with_strata=True
    ),
    "packed": OrderConfig("packed", row_tokens=128),
}
KEEP = ["presorted", "random", "exchange", "exchange in twos", "packed"]
ONE_STEP = ["presorted", "random", "exchange", "exchange in twos"]  # of any 24 samples
WITHOUT_STRATA = [name for name in SCHEMES if "strata" not in name]


def histogram(samples: int, seed: int = 0) -> LengthHistogram:
    lengths = np.random.default_rng(seed).choice([5, 9, 40, 41, 100, 128], samples)
    values, counts = np.unique(lengths, return_counts=True)
    return LengthHistogram(dict(zip(values.tolist(), counts.tolist(), strict=True)))


def order_of(name: str, samples: int = 1003, epoch: int = 0, keep: bool = False) -> Order:
    config = replace(SCHEMES[name], remainder="keep" if keep else "drop")
    return build_order(config, histogram(samples), 4, 6, seed=7, epoch=epoch)


def everything(order: Order, read: bool = False) -> np.ndarray:
    """[steps, W, C] place by place."""
    find = order.reads if read else order.places
    return np.stack([find(step, np.arange(order.width)) for step in range(order.steps)])


@pytest.mark.parametrize(
    ("name", "samples"),
    [(name, samples) for name in SCHEMES for samples in (95, 1003)]
    + [(name, samples) for name in ONE_STEP for samples in (24, 30, 47)],
)
def test_a_sample_appears_once_or_is_left_out(name: str, samples: int) -> None:
    for epoch in (0, 1):
        order = order_of(name, samples, epoch)
        places = everything(order)
        trained = places[places >= 0]
        together = sorted([*trained.tolist(), *order.left_out.tolist()])
        assert together == list(range(samples))
        assert order.left_out.tolist() == sorted(order.left_out.tolist())
        if name in ONE_STEP:
            assert len(order.left_out) == samples % 24


@pytest.mark.parametrize("samples", [20, 30, 47, 96, 1003])
@pytest.mark.parametrize("name", KEEP)
def test_keep_trains_on_all_and_only_the_last_step_is_short(name: str, samples: int) -> None:
    order = order_of(name, samples, keep=True)
    places = everything(order)
    assert sorted(places[places >= 0].tolist()) == list(range(samples))
    assert len(order.left_out) == 0
    if name != "packed":  # whose rows hold unequal numbers of samples anyway
        assert (places[:-1] >= 0).all()
        taken = (places[-1] >= 0).sum(axis=1)
        assert taken.sum() == (samples - 1) % 24 + 1
        assert taken.max() - taken.min() <= 1


@pytest.mark.parametrize("name", ["presorted", "random"])
def test_keep_makes_a_step_of_fewer_samples_than_slots(name: str) -> None:
    order = order_of(name, samples=3, keep=True)
    assert order.steps == 1
    assert (order.places(0, np.arange(4)) >= 0).sum(axis=1).tolist() == [1, 1, 1, 0]
    assert order.lengths(0, np.array([3])).tolist() == [[0] * 6]


def test_the_samples_of_a_short_step_are_spread_over_micro_batches() -> None:
    order = order_of("presorted", samples=24 + 12, keep=True)
    taken = (order.places(1, np.arange(4)) >= 0).tolist()
    assert taken == [[True, False, True, False, True, False]] * 4


@pytest.mark.parametrize("name", SCHEMES)
def test_slots_take_equally_many_samples(name: str) -> None:
    order = order_of(name)
    places = everything(order)
    assert places.shape == (order.steps, 4, order.columns)
    if name != "packed":
        assert (places >= 0).all()


@pytest.mark.parametrize("name", SCHEMES)
def test_any_step_of_any_slots_is_that_of_the_whole(name: str) -> None:
    whole = everything(order_of(name))
    for step in (len(whole) - 1, 0, 5):  # each time an order that has found nothing yet
        for slots in ([3], [0, 2], [1, 3]):
            found = order_of(name).places(step, np.array(slots))
            np.testing.assert_array_equal(found, whole[step, slots])


@pytest.mark.parametrize("name", SCHEMES)
def test_epochs_and_seeds_differ_and_repeat(name: str) -> None:
    first, second = everything(order_of(name)), everything(order_of(name, epoch=1))
    np.testing.assert_array_equal(first, everything(order_of(name)))
    assert not np.array_equal(first, second)
    left = [order_of(name, epoch=epoch).left_out.tolist() for epoch in range(4)]
    assert len({tuple(places) for places in left}) == 4


@pytest.mark.parametrize("name", SCHEMES)
def test_companions_change_between_epochs(name: str) -> None:
    def pairs(epoch: int) -> set[tuple[int, int]]:
        rows = everything(order_of(name, epoch=epoch)).reshape(-1, order_of(name).width * 6)
        pairs = set()
        for row in rows.tolist():
            present = sorted(place for place in row if place >= 0)
            pairs |= {(a, b) for i, a in enumerate(present) for b in present[i + 1 :]}
        return pairs

    first, second = pairs(0), pairs(1)
    # a pair meets again by chance alone, in one step of some tens
    assert len(first & second) < 0.1 * len(first)


@pytest.mark.parametrize("name", WITHOUT_STRATA)
def test_the_length_mix_is_the_datasets_own(name: str) -> None:
    samples, epochs = 1003, 40
    dataset = histogram(samples)
    counts: Counter[int] = Counter()
    for epoch in range(epochs):
        order = order_of(name, samples, epoch)
        counts.update(dataset.length_at(order.left_out).tolist())
    total = sum(counts.values())
    shares = dataset.counts / samples
    found = np.array([counts[length] for length in dataset.lengths.tolist()])
    # rows of one pattern are left out together: at most three samples at once
    deviation = 3 * np.sqrt(total * shares * (1 - shares))
    assert (abs(found - total * shares) < 4 * deviation).all()


@pytest.mark.parametrize("name", SCHEMES)
def test_neighbours_of_a_document_do_not_meet_in_neighbouring_steps(name: str) -> None:
    """Places of one length that follow one another, as if all were of one document."""
    dataset = LengthHistogram({20: 3000, 60: 3000, 110: 3000})
    config = SCHEMES[name]
    order = build_order(config, dataset, 4, 6, seed=3, epoch=0)
    step_of = np.full(dataset.samples, -1)
    for step, places in enumerate(everything(order)):
        step_of[places[places >= 0]] = step
    before, after = step_of[:2999], step_of[1:3000]
    both = (before >= 0) & (after >= 0)
    correlation = np.corrcoef(before[both], after[both])[0, 1]
    assert abs(correlation) < 4 / np.sqrt(both.sum())
    own = np.corrcoef(np.arange(2999)[both], before[both])[0, 1]
    assert abs(own) < 4 / np.sqrt(both.sum())


@pytest.mark.parametrize("name", SCHEMES)
def test_step_tokens_do_not_wave(name: str) -> None:
    order = build_order(SCHEMES[name], histogram(30_000), 4, 6, seed=5, epoch=0)
    tokens = loads_of(order, np.arange(order.steps)).tokens.sum(axis=1).astype(float)
    centred = tokens - tokens.mean()
    if centred.any():
        correlation = (centred[1:] * centred[:-1]).mean() / centred.var()
        assert abs(correlation) < 4 / np.sqrt(order.steps)


def test_shards_of_equal_size_and_samples_of_one_length() -> None:
    order = build_order(OrderConfig(), LengthHistogram({128: 8 * 400}), 8, 16, 1, 0)
    assert order.steps == 25
    assert sorted(everything(order).ravel().tolist()) == list(range(3200))


def test_two_ranks_and_an_odd_number_of_samples_take_equal_steps_in_two_epochs() -> None:
    for remainder, steps in (("drop", 500), ("keep", 501)):
        for epoch in (0, 1):
            config = OrderConfig(remainder=remainder)
            order = build_order(config, histogram(4001), 2, 4, 1, epoch)
            ranks = [
                [order.places(step, np.array([rank])) for step in range(order.steps)]
                for rank in (0, 1)
            ]
            assert [len(steps_of_rank) for steps_of_rank in ranks] == [steps, steps]
            assert len(order.left_out) == (1 if remainder == "drop" else 0)


@pytest.mark.parametrize("name", ["exchange", "exchange in twos", "strata, exchange"])
def test_an_exchange_hands_on_what_its_group_has_read(name: str) -> None:
    order = order_of(name)
    reads, places = everything(order, read=True), everything(order)
    assert not np.array_equal(reads, places)
    for slot in range(4):
        group = list(order.group_of(slot))
        assert slot in group and len(group) == (4 if name == "exchange" else 2)
        for step in range(order.steps):
            np.testing.assert_array_equal(
                np.sort(reads[step, group], axis=None), np.sort(places[step, group], axis=None)
            )
    lengths = order.histogram.length_at(places)
    assert (np.diff(lengths, axis=2) >= 0).all()


@pytest.mark.parametrize("name", ["exchange", "exchange in twos"])
def test_after_a_short_exchange_missing_samples_come_last(name: str) -> None:
    order = order_of(name, samples=24 + 9, keep=True)
    present = order.places(1, np.arange(4)) >= 0
    assert present.sum() == 9
    assert (present[:, :-1] >= present[:, 1:]).all()


def test_plain_and_snake_deals_of_eight_samples() -> None:
    dataset = LengthHistogram({length: 1 for length in range(1, 9)})
    plain, snake = (
        build_order(OrderConfig("exchange", deal=deal), dataset, 2, 4, 0, 0).lengths(
            0, np.arange(2)
        )
        for deal in ("plain", "snake")
    )
    assert plain.tolist() == [[1, 3, 5, 7], [2, 4, 6, 8]]
    assert snake.tolist() == [[1, 4, 5, 8], [2, 3, 6, 7]]


def test_without_exchange_a_slot_is_alone() -> None:
    order = order_of("random")
    assert list(order.group_of(2)) == [2]
    np.testing.assert_array_equal(everything(order), everything(order, read=True))


def test_strata_take_their_counts() -> None:
    order = order_of("strata", samples=3000)
    lengths = order.lengths(3, np.arange(4))
    ranges = np.searchsorted([40, 90, 128], lengths)
    assert (
        ranges.tolist() == [[0, 0, 0, 1, 1, 2]] * 4 or ranges.tolist() == [[0, 0, 0, 1, 2, 2]] * 4
    )


@pytest.mark.parametrize(
    ("batch", "counts"), [(16, [6, 3, 2, 5]), (4, [1, 1, 1, 1]), (5, [2, 1, 1, 1])]
)
def test_strata_are_scaled_to_the_batch(batch: int, counts: list[int]) -> None:
    dataset = LengthHistogram({100: 500, 200: 500, 300: 500, 500: 500})
    order = build_order(OrderConfig("strata"), dataset, 2, batch, 0, 0)
    assert (
        np.bincount(np.searchsorted([128, 256, 384, 512], order.lengths(0, np.arange(2))[1]))[
            :4
        ].tolist()
        == counts
    )


@pytest.mark.parametrize("name", SCHEMES)
def test_micro_batches_take_equally_many_columns(name: str) -> None:
    order = order_of(name)
    for accumulation in (1, 2, 3, 6):
        members = np.bincount(order.micro_batch_of_column(accumulation))
        assert members.tolist() == [order.columns // accumulation] * accumulation
    with pytest.raises(ValueError, match=r"accumulation 4 must divide the 6 samples"):
        order.micro_batch_of_column(4)


def test_presorted_slots_are_the_most_equal_of_all() -> None:
    found = {}
    for name in SCHEMES:
        order = build_order(SCHEMES[name], histogram(4000), 4, 6, seed=2, epoch=0)
        loads = loads_of(order, np.arange(order.steps))
        found[name] = imbalance(loads.tokens).mean()
    assert min(found, key=lambda name: found[name]) == "presorted"
    assert found["presorted"] < 1.005
    assert found["random"] == max(found.values())


@pytest.mark.parametrize("name", SCHEMES)
def test_a_step_beyond_the_epoch_and_a_width_of_nothing_are_refused(name: str) -> None:
    order = order_of(name)
    for step in (-1, order.steps):
        with pytest.raises(IndexError, match=f"step {step} of an epoch of {order.steps} steps"):
            order.places(step, np.arange(4))
    with pytest.raises(ValueError, match="width 0 must be at least 1"):
        build_order(replace(SCHEMES[name], group=None), histogram(500), 0, 6, 0, 0)
