"""One step: gradient, clip, optimizer, schedule; and what becomes of a gradient not finite."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from bert.batch import Batch
from bert.loss import PretrainStats
from optim.clipping import Clip, first_not_finite
from optim.precision import Precision
from optim.schedule import Schedule
from optim.sync import GradSync


@dataclass(frozen=True)
class Update:
    """What one step came to on this rank.

    Attributes:
        stats: of this rank's micro-batches.
        grad_norm: of the reduced gradient, before a clip that follows the reduction.
        learning_rate: used; 0 for a step that was skipped.
    """

    stats: PretrainStats
    grad_norm: float
    learning_rate: float


class Learner:
    """Takes steps, and skips those whose gradient is not finite if it is told to.

    A skipped step leaves weights, optimizer and schedule as they were. All ranks look at the same
    reduced gradient, so they agree.

    Args:
        sync, optimizer, schedule, clip, precision: what a step needs.
        may_skip: skip such a step; else it ends the run. With fp16 skipping is part of the method.
        max_skipped: so many skipped steps in a row end the run.

    Attributes:
        skipped: steps so far.
    """

    def __init__(
        self,
        sync: GradSync,
        optimizer: torch.optim.Optimizer,
        schedule: Schedule,
        clip: Clip,
        precision: Precision,
        *,
        may_skip: bool,
        max_skipped: int,
    ) -> None:
        self.sync = sync
        self.precision = precision
        self.skipped = 0
        self._optimizer = optimizer
        self._schedule = schedule
        self._clip = clip
        self._may_skip = may_skip or precision.scales
        self._max_skipped = max_skipped
        self._skipped_in_a_row = 0
        self._updates = 0

    def step(self, micro_batches: Sequence[Batch]) -> Update:
        """One step of this rank.

        Raises:
            ValueError: the gradient is not finite and may not, or not again, be skipped.
        """
        self._optimizer.zero_grad()
        stats: PretrainStats = self.sync.forward_backward(micro_batches)
        norm = float(self._clip([parameter for _, parameter in self.sync.parameters()]))
        if not math.isfinite(norm):
            self._skip(norm)
            return Update(stats, norm, 0.0)
        self.precision.update(finite=True)
        self._skipped_in_a_row = 0
        self._updates += 1
        rate = self._schedule.set_rate(self._updates)
        self._optimizer.step()
        self.sync.after_step()
        return Update(stats, norm, rate)

    def _skip(self, norm: float) -> None:
        self.skipped += 1
        self._skipped_in_a_row += 1
        where = (
            f"step {self._updates + self.skipped}: the gradient of "
            f"{first_not_finite(self.sync.parameters()) or 'several parameters'} is not finite"
        )
        if not self._may_skip:
            raise ValueError(
                f"{where}; lower optimizer.learning_rate, or set train.not_finite skip"
            )
        if self.precision.exhausted:
            raise ValueError(f"{where} with a loss scale of {self.precision.scale:g}, the least")
        if self._skipped_in_a_row >= self._max_skipped:
            raise ValueError(
                f"{where}, {self._skipped_in_a_row} times in a row (train.max_skipped_steps); "
                "lower optimizer.learning_rate"
            )
        self.precision.update(finite=False)
