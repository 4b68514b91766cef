"""The loader's promises: any step found at once, the same batches however they are assembled."""

import itertools
import threading
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from dataprep.blocks import SampleBlock, offsets_of
from dataprep.lengths import LengthHistogram
from dataprep.order import OrderConfig
from train import dali
from train.data import DataConfig, Dataset, EvaluationBatches, StepBatches, TrainingBatches
from train.data.prefetch import Prefetched
from train.distributed import World

ALONE = World(0, 1, torch.device("cpu"))


def contents(step: StepBatches) -> list:
    return [
        (batch.lengths, *((t.dtype, t.tolist()) for t in batch._tensors().values()))
        for batch in step.micro_batches
    ]


def load(folder: Path, count: int, start=(0, 0), preload: bool = False, **settings) -> list:
    dataset = Dataset(folder)
    dataset.open(preload)
    config = DataConfig("", "", **settings)
    with closing(TrainingBatches(dataset, config, ALONE, seed=3, start=start)) as batches:
        return list(itertools.islice(batches, count))


def test_a_run_goes_on_at_any_step(prepared: Path) -> None:
    order = {"order": OrderConfig(remainder="keep")}
    dataset = Dataset(prepared / "train")
    steps = -(-dataset.samples // 32)
    whole = load(prepared / "train", steps + 5, batch=32, **order)
    for cut in (0, 3, steps - 2, steps - 1, steps + 1):
        after = load(prepared / "train", 3, start=whole[cut].resume, batch=32, **order)
        expected = whole[cut + 1 : cut + 4]
        assert [(s.epoch, s.step_in_epoch) for s in after] == [
            (s.epoch, s.step_in_epoch) for s in expected
        ]
        assert list(map(contents, after)) == list(map(contents, expected))


@pytest.mark.parametrize("step", [-1, 10_000])
def test_a_step_that_the_epoch_has_not_is_refused(prepared: Path, step: int) -> None:
    with pytest.raises(ValueError, match=f"step {step} of epoch 1, which has .* steps; start at"):
        load(prepared / "train", 1, start=(1, step))


class FakeDataset:
    """Of 20 million samples, made when asked for; counts how often."""

    histogram = LengthHistogram({10: 8_000_000, 20: 12_000_000})

    def __init__(self) -> None:
        self.asked: list[np.ndarray] = []

    def block(self, places: np.ndarray) -> SampleBlock:
        self.asked.append(places)
        lengths, ones = self.histogram.length_at(places), np.ones(len(places), np.int64)
        return SampleBlock(
            tokens=np.repeat(places % 30_000, lengths).astype(np.uint16),
            token_offsets=offsets_of(lengths),
            second_segment_start=(lengths // 2).astype(np.uint16),
            next_sentence_label=np.zeros(len(places), np.uint8),
            mlm_positions=ones.astype(np.uint16),
            mlm_ids=ones.astype(np.uint16),
            mlm_offsets=offsets_of(ones),
        )


def test_step_a_million_is_found_without_those_before_it() -> None:
    dataset = FakeDataset()
    config = DataConfig("", "", batch=4, prefetch=2)
    batches = TrainingBatches(dataset, config, ALONE, seed=3, start=(2, 1_000_000))  # type: ignore[arg-type]
    with closing(batches):
        step = next(iter(batches))
    assert (step.epoch, step.step_in_epoch, step.resume) == (2, 1_000_000, (2, 1_000_001))
    places = batches.order(2).places(1_000_000, np.arange(1))[0]
    assert np.array_equal(dataset.asked[0], places)
    assert len(dataset.asked) <= 5  # this one, and what was prefetched


@pytest.mark.parametrize("scheme", ["presorted", "random", "exchange", "packed"])
def test_all_schemes_load_what_their_order_says(prepared: Path, scheme: str) -> None:
    order = OrderConfig(scheme=scheme, row_tokens=48)
    dataset = Dataset(prepared / "train")
    dataset.open()
    config = DataConfig("", "", batch=4, width=2, accumulation=2, order=order)
    plan = TrainingBatches(dataset, config, ALONE, seed=3).order(0)
    micro_batch = plan.micro_batch_of_column(2)
    for number, step in enumerate(load(prepared / "train", 6, batch=4, width=2, accumulation=2,
                                       order=order)):  # fmt: skip
        places = plan.places(number, np.arange(2))
        expected = []
        for slot, part in itertools.product(range(2), range(2)):
            chosen = places[slot][(micro_batch == part) & (places[slot] >= 0)]
            samples = [dataset.sample(place) for place in chosen.tolist()]
            expected.append(sorted(sample.tokens.tolist() for sample in samples))
        found = [
            sorted(t.tolist() for t in batch.tokens_T.split(list(batch.lengths)))
            for batch in step.micro_batches
        ]
        assert found == expected


def test_preloaded_stripes_give_the_same(prepared: Path) -> None:
    mapped, loaded = (load(prepared / "train", 5, preload=preload) for preload in (False, True))
    assert list(map(contents, mapped)) == list(map(contents, loaded))


def test_preloading_more_than_the_bound_is_refused(prepared: Path, monkeypatch) -> None:
    dataset = Dataset(prepared / "train")
    dataset.check_preload(1)
    monkeypatch.setattr(
        dataset, "manifest", SimpleNamespace(files=[SimpleNamespace(bytes=3 << 20)])
    )
    with pytest.raises(ValueError, match="3 MiB of stripes, data.preload_limit_mb is 2; raise it"):
        dataset.check_preload(2)


def test_stopping_does_not_wait_for_what_is_under_way() -> None:
    busy, go_on = threading.Event(), threading.Event()

    def slow():
        yield 1
        busy.set()
        go_on.wait(60)
        yield 2

    ahead = Prefetched(slow(), 1)
    assert next(ahead) == 1
    assert busy.wait(60)
    ahead.stop()  # returns although the thread is still at work
    assert not go_on.is_set() and ahead._thread.is_alive()
    go_on.set()
    ahead.join()
    assert not ahead._thread.is_alive()


def test_a_full_queue_does_not_keep_the_thread() -> None:
    ahead = Prefetched(itertools.count(), 2)
    assert [next(ahead) for _ in range(3)] == [0, 1, 2]
    ahead.join()
    assert not ahead._thread.is_alive()


def test_the_end_and_errors_are_passed_on_in_their_turn() -> None:
    def broken():
        yield from range(3)
        raise OSError("gone")

    assert list(Prefetched(iter(range(5)), 2)) == [0, 1, 2, 3, 4]
    ahead, found = Prefetched(broken(), 1), []
    with pytest.raises(OSError, match="gone"):
        for item in ahead:
            found.append(item)
    assert found == [0, 1, 2]
    with pytest.raises(OSError, match="gone"):
        next(ahead)


@pytest.mark.parametrize(
    "settings",
    [
        {"batch": 4, "accumulation": 2, "width": 2},
        {"batch": 40, "width": 3, "order": OrderConfig(remainder="keep")},
        {"batch": 6, "order": OrderConfig(scheme="packed", row_tokens=48)},
    ],
)
def test_dali_gives_the_same_batches_to_the_bit(prepared: Path, settings: dict) -> None:
    if not dali.dali_installed():
        pytest.skip("needs NVIDIA DALI: pip install 'bert-sprint[dali]'")
    dataset = Dataset(prepared / "train")
    count = dataset.samples // (settings["batch"] * settings.get("width", 1)) + 3
    native = load(prepared / "train", count, **settings)
    through = load(prepared / "train", count, loader="dali", **settings)
    assert [(s.epoch, s.step_in_epoch, s.resume, contents(s)) for s in native] == [
        (s.epoch, s.step_in_epoch, s.resume, contents(s)) for s in through
    ]


def test_without_dali_its_loader_is_refused(monkeypatch) -> None:
    monkeypatch.setattr(dali, "dali_installed", lambda: False)
    with pytest.raises(ValueError, match=r"pip install 'bert-sprint\[dali\]', or set data.loader"):
        dali.check_dali()


@pytest.mark.parametrize(("samples", "ranks"), [(10, 3), (2, 4), (10, 1), (7, 7)])
def test_the_evaluation_deals_neighbours_in_length_and_drops_none(
    prepared: Path, samples: int, ranks: int
) -> None:
    class Part(Dataset):
        @property
        def samples(self) -> int:
            return samples

    dataset = Part(prepared / "evaluation")
    dataset.open()
    config = DataConfig("", "", evaluation_batch=2)
    found = []
    for rank in range(ranks):
        for batch in EvaluationBatches(dataset, config, World(rank, ranks, torch.device("cpu"))):
            assert 1 <= batch.samples <= 2
            found += [t.tolist() for t in batch.tokens_T.split(list(batch.lengths))]
    assert sorted(found) == sorted(dataset.sample(i).tokens.tolist() for i in range(samples))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("loader", ["native", "dali"])
def test_batches_on_the_device_are_the_same(prepared: Path, loader: str) -> None:
    if loader == "dali" and not dali.dali_installed():
        pytest.skip("needs NVIDIA DALI: pip install 'bert-sprint[dali]'")
    dataset = Dataset(prepared / "train")
    dataset.open()
    config = DataConfig("", "", loader=loader, accumulation=2)  # type: ignore[arg-type]
    world = World(0, 1, torch.device("cuda", 0))
    expected = load(prepared / "train", 20, accumulation=2)
    with closing(TrainingBatches(dataset, config, world, seed=3)) as batches:
        for found, wanted in zip(itertools.islice(batches, 20), expected, strict=True):
            assert all(batch.tokens_T.is_cuda for batch in found.micro_batches)
            assert contents(found) == contents(wanted)
