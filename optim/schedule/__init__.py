"""The learning rate as a pure function of the step.

Steps count from 1: the first update is step 1. The formulas below are written in the number s that
their source gives an update, s = step - 1 + ``first_step``.

==========  ======================================  =============================================
name        rate after the warm-up                  where from, and how it counts
==========  ======================================  =============================================
constant    peak
linear      end + (peak - end) (E - s)/(E - U)      down from U, the end of the warm-up
polynomial  end + (peak - end) (1 - s/E)^power      MLPerf's TensorFlow reference (optimization.py
                                                    of language_model/tensorflow/bert), first_step
                                                    0; NVIDIA's submissions, first_step 0 if
                                                    start_warmup_step is 0 and else 1
two_piece   end + (peak - end) ((E - s)/(E - W))^p  Samsung's submission to training v2.0,
                                                    first_step 1
==========  ======================================  =============================================

During the warm-up, while s - start < W, the rate is peak (s - start)/W and at least 0. Here W is
``warmup_steps``, start ``start_warmup_step``, U = start + W, E ``decay_steps`` (else
``training_steps``), end ``end_learning_rate``; from E on the rate is ``end``. ``polynomial`` and
``two_piece`` may jump where the warm-up ends; ``linear`` does not.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch

# (step, peak rate) -> rate
Rate = Callable[[int, float], float]


@dataclass(frozen=True)
class ScheduleConfig:
    """How the learning rate moves.

    Args:
        name: linear (from the end of the warm-up down to the end rate), constant, polynomial
            (MLPerf's reference and NVIDIA: a decay that counts from step 0) or two_piece (Samsung:
            a decay that counts from step warmup_steps); the formulas are in optim/schedule.py
        warmup_steps: length of the line from 0 to the peak
        start_warmup_step: the step at which that line is 0; below 0 the run begins on its way up
        training_steps: the step at which the schedule ends, at the end rate
        decay_steps: the step at which the end rate is reached, if before training_steps
        end_learning_rate: the rate at the end of the decay
        power: exponent of a polynomial or two_piece decay
        first_step: the number that the schedule's formula gives to the first update; MLPerf's
            TensorFlow reference counts from 0
    """

    name: Literal["linear", "constant", "polynomial", "two_piece"] = "linear"
    warmup_steps: int = 0
    training_steps: int = 10_000
    start_warmup_step: int = 0
    decay_steps: int | None = None
    end_learning_rate: float = 0.0
    power: float = 1.0
    first_step: Literal[0, 1] = 1

    @property
    def warmup_end(self) -> int:
        """The first step after the warm-up, as the formula counts."""
        return self.start_warmup_step + self.warmup_steps

    @property
    def decay_end(self) -> int:
        """The first step at the end rate, as the formula counts."""
        return self.training_steps if self.decay_steps is None else self.decay_steps

    def __post_init__(self) -> None:
        if self.warmup_steps < 0:
            raise ValueError(f"schedule.warmup_steps {self.warmup_steps} must not be negative")
        if self.first_step not in (0, 1):
            raise ValueError(f"schedule.first_step {self.first_step} must be 0 or 1")
        if not 0 < self.power < math.inf:
            raise ValueError(f"schedule.power {self.power} must be above 0")
        if not 0 <= self.end_learning_rate < math.inf:
            raise ValueError(
                f"schedule.end_learning_rate {self.end_learning_rate} must not be negative"
            )
        self._check_use()
        self._check_order()

    def _check_use(self) -> None:
        """Refuse a setting that the schedule would not use."""
        unused = {"linear": ("power",), "constant": ("power", "end_learning_rate", "decay_steps")}
        for name in unused.get(self.name, ()):
            if getattr(self, name) != getattr(ScheduleConfig, name):
                raise ValueError(
                    f"schedule.{name} {getattr(self, name)} has no use in schedule {self.name}; "
                    f"leave it out or choose another schedule.name"
                )

    def _check_order(self) -> None:
        """Refuse a schedule whose end does not come after all of its parts."""
        field = "training_steps" if self.decay_steps is None else "decay_steps"
        if self.decay_end <= self.warmup_end:
            raise ValueError(
                f"schedule.{field} {self.decay_end} must lie beyond step {self.warmup_end}, where "
                f"the warm-up ends (start_warmup_step {self.start_warmup_step} + warmup_steps "
                f"{self.warmup_steps})"
            )
        begin = self.warmup_steps if self.name == "two_piece" else 0
        if self.decay_end <= begin:
            raise ValueError(
                f"schedule.{field} {self.decay_end} must lie beyond step {begin}, from which the "
                f"decay of schedule {self.name} counts"
            )
        if self.decay_end > self.training_steps:
            raise ValueError(
                f"schedule.decay_steps {self.decay_end} must not lie beyond "
                f"schedule.training_steps {self.training_steps}"
            )


def warm_up(step: int, start: int, length: int) -> float:
    """The share of the peak rate: (step - start)/length, at least 0."""
    return max(0.0, (step - start) / length)


def decay(step: int, begin: int, end: int, power: float = 1.0) -> float:
    """The share of the way that is left: ((end - step)/(end - begin))^power, 0 from ``end`` on.

    Above 1 before ``begin``.
    """
    return float(max(0.0, (end - step) / (end - begin)) ** power)


# name -> what is left of the way from peak to end rate, at the formula's step after the warm-up
_SHARES: dict[str, Callable[[ScheduleConfig, int], float]] = {
    "linear": lambda config, s: decay(s, config.warmup_end, config.decay_end),
    "constant": lambda config, s: 1.0,
    "polynomial": lambda config, s: decay(s, 0, config.decay_end, config.power),
    "two_piece": lambda config, s: decay(s, config.warmup_steps, config.decay_end, config.power),
}


def build_rate(config: ScheduleConfig) -> Rate:
    """The schedule of a configuration as a function of the step and the peak rate.

    Raises:
        ValueError: no such schedule; the valid names are listed.
    """
    if config.name not in _SHARES:
        raise ValueError(f"schedule.name '{config.name}'; choose one of: {', '.join(_SHARES)}")
    share = _SHARES[config.name]
    end = config.end_learning_rate

    def rate(step: int, peak: float) -> float:
        s = step - 1 + config.first_step
        if s < config.warmup_end:
            return peak * warm_up(s, config.start_warmup_step, config.warmup_steps)
        return end + (peak - end) * share(config, s)

    return rate


def corners(config: ScheduleConfig) -> list[int]:
    """The steps, counted from 1, at which a schedule's formula changes, with those just before.

    Begins with step 1 and ends with the schedule.
    """
    numbers = [config.warmup_end - 1, config.warmup_end, config.training_steps]
    if config.name != "constant":
        numbers += [config.decay_end - 1, config.decay_end]
    steps = {number + 1 - config.first_step for number in numbers}
    return sorted({1} | {step for step in steps if step > 1})


class Schedule:
    """Sets the rate of every parameter group before a step.

    A group's peak is its rate at first use. It is kept in the group as ``initial_lr``, and so in
    the optimizer's state: a schedule made after that state was loaded has the same peak, not the
    rate of the step at which it was saved.

    Raises:
        ValueError: the end rate is above a peak.
    """

    def __init__(self, config: ScheduleConfig, optimizer: torch.optim.Optimizer) -> None:
        self._rate = build_rate(config)
        self._optimizer = optimizer
        self._peaks = [
            float(group.setdefault("initial_lr", group["lr"])) for group in optimizer.param_groups
        ]
        if config.end_learning_rate > min(self._peaks):
            raise ValueError(
                f"schedule.end_learning_rate {config.end_learning_rate} must not exceed "
                f"optimizer.learning_rate {min(self._peaks)}"
            )

    def set_rate(self, step: int) -> float:
        """Set the rates for this step, counted from 1; returns the first group's."""
        for group, peak in zip(self._optimizer.param_groups, self._peaks, strict=True):
            group["lr"] = self._rate(step, peak)
        return float(self._optimizer.param_groups[0]["lr"])
