"""When a run evaluates and when it stops, with everything that costs time left out."""

import itertools

import numpy as np
import pytest
import torch

from bert.batch import Sample, pack
from bert.loss import PretrainStats
from optim.communication import StepTimes
from optim.precision import Precision
from train.data import StepBatches
from train.distributed import World
from train.learner import Update
from train.trainer import TrainConfig, Trainer

NO_PLACES = np.empty((1, 0), np.int64)


class Alone(World):
    """A world of one rank without a process group."""

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor


class NoLearner:
    """Takes steps of ten samples that change nothing."""

    precision = Precision("fp32")
    skipped = 0

    def __init__(self) -> None:
        self.sync = self

    def step(self, micro_batches) -> Update:
        counts = torch.tensor([0.0, 0.0, 0.0, 0.0, 0.0, 10.0], dtype=torch.float64)
        return Update(PretrainStats.from_vector(counts), 1.0, 0.1)

    def report(self):
        return StepTimes(), 0.0


def accuracies(*values: float):
    """Evaluations that give these accuracies, of 1,000 masked tokens, one after the other."""
    vectors = [[0.0, value * 1000, 1000.0, 0.0, 0.0, 8.0] for value in values]
    stats = iter([PretrainStats.from_vector(torch.tensor(v, dtype=torch.float64)) for v in vectors])
    return lambda: next(stats)


def train(evaluate, on_eval=None, **settings):
    sample = Sample(
        torch.arange(5).numpy(), 2, torch.tensor([1]).numpy(), torch.tensor([1]).numpy(), 0
    )
    batches = (
        StepBatches(0, step, [pack([sample])], NO_PLACES, (0, step + 1))
        for step in itertools.count()
    )
    config = TrainConfig(
        **{
            "target_accuracy": 0.25,
            "max_samples": 100,
            "evaluation_interval": 24,
            **settings,
        }
    )
    world = Alone(0, 1, torch.device("cpu"))
    trainer = Trainer(config, NoLearner(), batches, evaluate, world, on_eval=on_eval)
    return trainer.train(global_batch=10)


def test_an_accuracy_equal_to_the_target_reaches_it() -> None:
    result = train(accuracies(0.249, 0.25))
    assert (result.reached, result.samples, result.steps) == (True, 50, 5)
    assert result.accuracy == 0.25


def test_evaluations_come_when_so_many_samples_are_done_and_at_the_end() -> None:
    result = train(accuracies(0.1, 0.1, 0.1, 0.1, 0.1), max_samples=109)
    assert [record.samples for record in result.evaluations] == [30, 50, 80, 100]
    assert not result.reached and result.samples == 100


def test_an_interval_shorter_than_a_step_evaluates_each_step() -> None:
    result = train(accuracies(0.1, 0.2, 0.3), evaluation_interval=1)
    assert [record.samples for record in result.evaluations] == [10, 20, 30]
    assert result.reached


def test_a_better_accuracy_before_the_last_is_no_success() -> None:
    assert not train(accuracies(0.2, 0.1, 0.1, 0.1)).reached


@pytest.mark.parametrize("answer", [False, None, True])
def test_on_eval_may_stop_the_run(answer) -> None:
    result = train(accuracies(0.1, 0.1, 0.1, 0.1), on_eval=lambda record: answer)
    assert len(result.evaluations) == (1 if answer is False else 4)
    assert not result.reached
