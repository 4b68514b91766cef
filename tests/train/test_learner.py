"""Steps whose gradient is not finite: skipped and counted, or the end of the run."""

import math

import pytest
import torch
from torch import nn

from bert.loss import PretrainStats
from optim.clipping import build_clipping
from optim.communication import StepTimes
from optim.optimizers import OptimizerConfig, build_optimizer
from optim.precision import Precision
from optim.schedule import Schedule, ScheduleConfig
from train.learner import Learner


class Scripted:
    """A GradSync that leaves the gradients it was given, one a step."""

    buckets = 1

    def __init__(self, gradients: list[float]) -> None:
        self.module = nn.Linear(2, 2)
        self._gradients = iter(gradients)

    def parameters(self):
        return self.module.named_parameters()

    def forward_backward(self, micro_batches) -> PretrainStats:
        value = next(self._gradients)
        self.module.weight.grad = torch.ones(2, 2)
        self.module.bias.grad = torch.full((2,), value)
        return PretrainStats.zeros()

    def report(self):
        return StepTimes(), 0.0

    def after_step(self) -> None:
        """Nothing."""


def learner(gradients: list[float], precision: str = "fp32", **settings) -> Learner:
    sync = Scripted(gradients)
    optimizer = build_optimizer(OptimizerConfig(learning_rate=1.0), sync.parameters())
    schedule = Schedule(ScheduleConfig("linear", warmup_steps=10, training_steps=20), optimizer)
    choices = {"may_skip": False, "max_skipped": 3, **settings}
    clip = build_clipping("global_after", 1.0)
    return Learner(sync, optimizer, schedule, clip, Precision(precision), **choices)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_by_default_it_ends_the_run_and_names_step_and_parameter(bad: float) -> None:
    ours = learner([1.0, bad])
    ours.step([])
    before = ours.sync.module.weight.detach().clone()
    with pytest.raises(ValueError, match=r"step 2: the gradient of bias is not finite; lower"):
        ours.step([])
    assert torch.equal(before, ours.sync.module.weight)


def test_a_skipped_step_changes_nothing_and_the_schedule_waits() -> None:
    ours = learner([1.0, math.nan, math.inf, 1.0], may_skip=True)
    rates, weights = [], []
    for _ in range(4):
        rates.append(ours.step([]).learning_rate)
        weights.append(ours.sync.module.weight.detach().clone())
    assert rates == [0.1, 0.0, 0.0, 0.2]
    assert torch.equal(weights[0], weights[2]) and not torch.equal(weights[2], weights[3])
    assert ours.skipped == 2


def test_so_many_in_a_row_end_the_run() -> None:
    ours = learner([math.nan, math.nan, 1.0, *[math.nan] * 3], may_skip=True)
    for _ in range(5):
        ours.step([])
    with pytest.raises(ValueError, match=r"3 times in a row \(train.max_skipped_steps\)"):
        ours.step([])
    assert ours.skipped == 5


def test_fp16_halves_its_scale_and_stops_at_the_floor_with_the_reason() -> None:
    ours = learner([math.inf] * 40, "fp16", max_skipped=1000)
    for expected in (32768.0, 16384.0):
        ours.step([])
        assert ours.precision.scale == expected
    with pytest.raises(ValueError, match="with a loss scale of 1, the least"):
        for _ in range(40):
            ours.step([])
    assert ours.skipped == 17


def test_the_gradient_is_clipped_once() -> None:
    ours = learner([3.0])
    norm = ours.step([]).grad_norm
    assert norm == pytest.approx(math.sqrt(4 + 2 * 9))
    left = torch.cat([p.grad.flatten() for _, p in ours.sync.parameters()]).norm()
    assert float(left) == pytest.approx(1.0, rel=1e-5)
