"""Samples that move between ranks are those that the order says, and the bytes are counted."""

import itertools
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from ranks import on_ranks

from dataprep.blocks import SampleBlock
from dataprep.order import OrderConfig
from train.data import DataConfig, Dataset, TrainingBatches
from train.data.steps import StepBatches
from train.distributed import World
from train.exchange import build_exchange, groups_of_ranks

STEPS = 9


def config_of(scheme: dict, width: int) -> DataConfig:
    return DataConfig(train="", evaluation="", batch=4, width=width, order=OrderConfig(**scheme))


def contents(step: StepBatches) -> list:
    return [
        (batch.lengths, *(tensor.tolist() for tensor in batch._tensors().values()))
        for batch in step.micro_batches
    ]


def exchanged(rank: int, folder: str, scheme: dict, width: int) -> tuple[list, list, int]:
    """What a rank gets through messages, what it would read directly, and the bytes it sent."""
    world = World(rank, dist.get_world_size(), torch.device("cpu"))
    dataset = Dataset(Path(folder))
    dataset.open()
    config = config_of(scheme, width)
    direct = TrainingBatches(dataset, config, world, seed=3)
    order = direct.order(0)
    start = (0, order.steps - 5)  # so that an epoch ends in between, maybe with a short step
    direct = TrainingBatches(dataset, config, world, seed=3, start=start)
    exchange = build_exchange(
        order, width, world, dataset.histogram, dataset.header.max_predictions
    )
    assert exchange is not None
    through = TrainingBatches(dataset, config, world, seed=3, start=start, exchange=exchange)
    found = []
    with closing(direct), closing(through):
        for batches in (through, direct):
            steps = []
            for step in itertools.islice(batches, STEPS):
                dist.all_reduce(torch.ones(1))  # as a training step would
                steps.append((step.epoch, step.step_in_epoch, step.resume, contents(step)))
            found.append(steps)
    return found[0], found[1], exchange.bytes_sent


@pytest.mark.parametrize(
    ("ranks", "width", "scheme"),
    [
        (2, 2, {"scheme": "exchange"}),
        (2, 8, {"scheme": "exchange", "group": 4, "deal": "snake"}),
        (4, 4, {"scheme": "exchange", "group": 2}),
        (4, 8, {"scheme": "exchange", "remainder": "keep", "deal": "snake"}),
    ],
)
def test_each_rank_ends_with_what_it_would_have_read_itself(
    prepared: Path, ranks: int, width: int, scheme: dict
) -> None:
    results = on_ranks(ranks, exchanged, str(prepared / "train"), scheme, width)
    dataset = Dataset(prepared / "train")
    assert [step[0] for step in results[0][0]] == [0] * 5 + [1] * 4
    for through, direct, sent in results:
        assert through == direct
        assert sent > 0
    # what goes over is less than all that is read: 2 bytes a token, and the masked ones
    longest = int(dataset.histogram.lengths[-1])
    most = 2 * (3 + longest + 2 * dataset.header.max_predictions)
    assert sum(sent for *_, sent in results) <= (STEPS + 2 + 1) * width * 4 * most


def orders(scheme: dict, width: int, dataset: Dataset):
    world = World(0, 1, torch.device("cpu"))
    return TrainingBatches(dataset, config_of(scheme, width), world, seed=3).order(0)


def test_slots_that_exchange_within_a_rank_need_no_message(prepared: Path) -> None:
    dataset = Dataset(prepared / "train")
    order = orders({"scheme": "exchange"}, 8, dataset)
    alone = World(0, 1, torch.device("cpu"))
    assert build_exchange(order, 8, alone, dataset.histogram, 8) is None
    order = orders({"scheme": "presorted"}, 8, dataset)
    assert groups_of_ranks(order, 8, 4) == [[0], [1], [2], [3]]


def test_groups_of_slots_become_groups_of_ranks(prepared: Path) -> None:
    dataset = Dataset(prepared / "train")
    in_twos = orders({"scheme": "exchange", "group": 2}, 8, dataset)
    assert groups_of_ranks(in_twos, 8, 8) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert groups_of_ranks(in_twos, 8, 4) == [[0, 1], [2, 3]]
    assert groups_of_ranks(in_twos, 8, 2) == [[0, 1]]
    in_fours = orders({"scheme": "exchange", "group": 4}, 8, dataset)
    assert groups_of_ranks(in_fours, 8, 2) == [[0, 1]]


def test_an_empty_block_is_no_sample() -> None:
    assert len(SampleBlock.empty()) == 0 and SampleBlock.empty().lengths.dtype == np.int64
