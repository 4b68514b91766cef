"""Loader and evaluation: what each rank gets, and accuracy independent of how it is cut."""

import itertools
import threading
from contextlib import closing
from pathlib import Path

import pytest
import torch

from bert.batch import pack
from bert.config import BertConfig
from bert.loss import PretrainStats
from bert.model import BertForPreTraining
from train.data import DataConfig, Dataset, EvaluationBatches, TrainingBatches, synthetic_batch
from train.distributed import World
from train.evaluation import Evaluator


def world(rank: int, size: int) -> World:
    return World(rank, size, torch.device("cpu"))


def steps_of(prepared: Path, rank: int, ranks: int, count: int, **config: int):
    settings = DataConfig(str(prepared / "train"), str(prepared / "evaluation"), **config)
    dataset = Dataset(prepared / "train")
    dataset.open()
    with closing(TrainingBatches(dataset, settings, world(rank, ranks), seed=3)) as batches:
        return list(itertools.islice(batches, count))


def samples_of(step) -> list[tuple[int, ...]]:
    found = []
    for batch in step.micro_batches:
        tokens = batch.tokens_T.split(list(batch.lengths))
        found += [tuple(one.tolist()) for one in tokens]
    return found


def test_two_ranks_share_the_batches_of_one(prepared: Path) -> None:
    whole = steps_of(prepared, 0, 1, 30, batch=4, width=2)
    parts = [steps_of(prepared, rank, 2, 30, batch=4, width=2) for rank in (0, 1)]
    for one, first, second in zip(whole, *parts, strict=True):
        assert sorted(samples_of(one)) == sorted(samples_of(first) + samples_of(second))
        assert len(one.micro_batches) == 2 and len(first.micro_batches) == 1


def test_an_epoch_gives_each_sample_at_most_once_and_the_next_differs(prepared: Path) -> None:
    dataset = Dataset(prepared / "train")
    dataset.open()
    steps = dataset.samples // 8
    everything = [tuple(dataset.sample(i).tokens.tolist()) for i in range(dataset.samples)]
    ranks = [steps_of(prepared, rank, 2, 2 * steps, batch=4) for rank in (0, 1)]
    epochs = [[], []]
    for rank in ranks:
        for step in rank:
            epochs[step.epoch] += samples_of(step)
    for epoch in epochs:
        assert len(epoch) == 8 * steps
        left = list(everything)
        for sample in epoch:  # a multiset difference: raises where one comes once too often
            left.remove(sample)
    assert samples_of(ranks[0][0]) != samples_of(ranks[0][steps])


@pytest.mark.parametrize("accumulation", [1, 2, 4])
def test_micro_batches_cut_the_same_step(prepared: Path, accumulation: int) -> None:
    whole = steps_of(prepared, 0, 1, 3, batch=4)
    cut = steps_of(prepared, 0, 1, 3, batch=4, accumulation=accumulation)
    for one, several in zip(whole, cut, strict=True):
        assert len(several.micro_batches) == accumulation
        assert sorted(samples_of(one)) == sorted(samples_of(several))


def test_the_loader_ends_its_thread_and_passes_errors_on(prepared: Path, monkeypatch) -> None:
    before = threading.active_count()
    steps_of(prepared, 0, 1, 3, batch=4)
    assert threading.active_count() == before

    def broken(self, places):
        raise ValueError("stripe vanished")

    monkeypatch.setattr(Dataset, "block", broken)
    with pytest.raises(ValueError, match="stripe vanished"):
        steps_of(prepared, 0, 1, 1, batch=4)
    assert threading.active_count() == before


def test_before_the_iteration_no_stripe_is_opened(prepared: Path, monkeypatch) -> None:
    monkeypatch.setattr("train.data.dataset.Shard", None)
    config = DataConfig(str(prepared / "train"), str(prepared / "evaluation"))
    dataset = Dataset(prepared / "train")
    TrainingBatches(dataset, config, world(0, 1), seed=3)
    EvaluationBatches(dataset, config, world(0, 1))
    with pytest.raises(TypeError):
        dataset.open()


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 16])
def test_the_evaluation_drops_nothing(prepared: Path, ranks: int) -> None:
    config = DataConfig("", "", evaluation_batch=4)
    dataset = Dataset(prepared / "evaluation")
    dataset.open()
    sizes = []
    for rank in range(ranks):
        batches = list(EvaluationBatches(dataset, config, world(rank, ranks)))
        sizes.append(sum(batch.samples for batch in batches))
    assert sum(sizes) == 10
    assert max(sizes) - min(sizes) <= 1


class AllRanks(World):
    """Adds up what ranks that take turns in one process hand in."""

    handed_in: torch.Tensor

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        self.handed_in.add_(tensor)
        return self.handed_in.clone()


@pytest.mark.parametrize("ranks", [2, 3, 12])
@pytest.mark.parametrize("batch", [1, 4])
def test_accuracy_does_not_depend_on_ranks_and_batch(
    prepared: Path, settings: dict, ranks: int, batch: int
) -> None:
    torch.manual_seed(0)
    dropout = {"hidden_dropout_prob": 0.5}  # which an evaluation must not apply
    model = BertForPreTraining(BertConfig(**{**settings["model"], **dropout})).double()
    dataset = Dataset(prepared / "evaluation")
    dataset.open()
    # taught the labels of some of the samples by heart, so that there is something to count
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    some = pack([dataset.sample(i) for i in range(10)])
    for _ in range(60):
        optimizer.zero_grad()
        model(some).loss(some.counts).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        whole = model(some)
    model.train()
    assert 0.02 < whole.mlm_accuracy < 0.98

    total = torch.zeros(6, dtype=torch.float64)
    for rank in range(ranks):
        member = AllRanks(rank, ranks, torch.device("cpu"))
        object.__setattr__(member, "handed_in", total)
        batches = EvaluationBatches(dataset, DataConfig("", "", evaluation_batch=batch), member)
        stats: PretrainStats = Evaluator(model, batches, member)()
    assert stats.mlm_accuracy == float(whole.mlm_correct) / float(whole.mlm_count)
    assert stats.mlm_loss == pytest.approx(whole.mlm_loss, rel=1e-12)
    assert (float(stats.nsp_count), model.training) == (10, True)


def test_synthetic_batches_fit_the_model(settings: dict) -> None:
    config = BertConfig(**settings["model"])
    batch = synthetic_batch(config, tokens=150, longest=48)
    assert batch.lengths == (6, 48, 48, 48)
    assert max(synthetic_batch(config, 150, 512).lengths) == config.max_position_embeddings
    BertForPreTraining(config)(batch).loss(batch.counts).backward()
