"""Slots without a sample join a step with zero weight: the gradient is that of the samples."""

import itertools
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from ranks import on_ranks

from bert.batch import Batch, FlatSamples, pack, pack_flat
from bert.config import BertConfig
from bert.model import BertForPreTraining
from dataprep.order import OrderConfig
from optim.precision import Precision
from optim.sync import SyncConfig, build_sync
from train.data import DataConfig, Dataset, TrainingBatches, synthetic_batch
from train.distributed import World

NONE = np.zeros(0, np.int64)


def empty() -> Batch:
    return pack_flat(FlatSamples(NONE, NONE, NONE, NONE, NONE, NONE, NONE))


def build(settings: dict, attention: str = "grouped") -> BertForPreTraining:
    config = BertConfig(**{**settings, "attention": attention})
    return BertForPreTraining(config, torch.Generator().manual_seed(0)).double()


def gradients(model: BertForPreTraining) -> dict[str, torch.Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("attention", ["grouped", "padded"])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_an_empty_batch_has_losses_and_gradients_of_zero(
    settings: dict, attention: str, dropout: float
) -> None:
    chances = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    model = build({**settings["model"], **chances}, attention)
    stats = model(empty())
    assert stats.to_vector().tolist() == [0.0] * 6
    stats.loss(empty().counts).backward()
    found = gradients(model)
    assert found.keys() == dict(model.named_parameters()).keys()
    assert all(not gradient.any() for gradient in found.values())


def one_sample_of_two_ranks(rank: int, settings: dict, folder: str, clip: str, slots: int) -> tuple:
    """The gradient of a step in which rank 0 has a sample and nobody else has any."""
    dataset = Dataset(Path(folder))
    dataset.open()
    sample = pack([dataset.sample(5)])
    model = build(settings)
    sync = build_sync(
        SyncConfig(clip=clip, bucket_cap_mb=0.002, max_norm=1e9),  # type: ignore[arg-type]
        model,
        Precision("fp32"),
    )
    sync.settle(synthetic_batch(model.config, 100, 50))
    model.zero_grad()
    first = [sample, *[empty()] * (slots - 1)]
    stats = sync.forward_backward(first if rank == 0 else [empty()] * slots)
    dist.all_reduce(counts := stats.to_vector())
    return gradients(model), counts, sync.buckets


@pytest.mark.parametrize("clip", ["global_after", "bucket_before", "rank_before"])
@pytest.mark.parametrize("slots", [1, 2])
def test_two_ranks_with_one_sample_get_its_gradient(
    settings: dict, prepared: Path, clip: str, slots: int
) -> None:
    folder = str(prepared / "train")
    results = on_ranks(2, one_sample_of_two_ranks, settings["model"], folder, clip, slots)
    dataset = Dataset(prepared / "train")
    dataset.open()
    sample = pack([dataset.sample(5)])
    model = build(settings["model"])
    stats = model(sample)
    stats.loss(sample.counts).backward()
    for found, counts, buckets in results:
        assert buckets > 1 or clip == "rank_before"
        torch.testing.assert_close(counts, stats.to_vector())
        for name, gradient in gradients(model).items():
            torch.testing.assert_close(found[name], gradient, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize(("batch", "width", "accumulation"), [(4, 2, 2), (3, 4, 3)])
def test_with_keep_an_epoch_trains_on_every_sample_once(
    prepared: Path, batch: int, width: int, accumulation: int
) -> None:
    dataset = Dataset(prepared / "train")
    dataset.open()
    config = DataConfig(
        "",
        "",
        batch=batch,
        width=width,
        accumulation=accumulation,
        order=OrderConfig(remainder="keep"),
    )
    assert dataset.samples % (batch * width)
    seen: list[tuple[int, ...]] = []
    for rank in range(2):
        world = World(rank, 2, torch.device("cpu"))
        with closing(TrainingBatches(dataset, config, world, seed=3)) as batches:
            for step in itertools.takewhile(lambda step: step.epoch == 0, batches):
                assert len(step.micro_batches) == width // 2 * accumulation
                for micro in step.micro_batches:
                    parts = micro.tokens_T.split(list(micro.lengths))
                    seen += [tuple(part.tolist()) for part in parts]
    every = [tuple(dataset.sample(i).tokens.tolist()) for i in range(dataset.samples)]
    assert sorted(seen) == sorted(every)
