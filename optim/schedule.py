"""The learning rate as a pure function of the step.

Steps count from 1: ``multiplier(1)`` belongs to the first update.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch


@dataclass(frozen=True)
class ScheduleConfig:
    """How the learning rate moves.

    Args:
        name: linear (up from 0 over the warm-up, then down to 0 at the end) or constant (after the
            warm-up)
        warmup_steps: steps of the warm-up; the last of them has the peak rate
        training_steps: the step at which the linear schedule reaches 0
    """

    name: Literal["linear", "constant"] = "linear"
    warmup_steps: int = 0
    training_steps: int = 10_000

    def __post_init__(self) -> None:
        if self.warmup_steps < 0:
            raise ValueError(f"schedule.warmup_steps {self.warmup_steps} must not be negative")
        if self.training_steps <= self.warmup_steps:
            raise ValueError(
                f"schedule.training_steps {self.training_steps} must lie beyond the "
                f"{self.warmup_steps} warm-up steps"
            )


def linear(step: int, warmup_steps: int, training_steps: int) -> float:
    """step/warmup_steps up to the warm-up's end, then (T - step)/(T - warmup_steps), at least 0."""
    if step <= warmup_steps:
        return step / warmup_steps
    return max(0.0, (training_steps - step) / (training_steps - warmup_steps))


def constant(step: int, warmup_steps: int) -> float:
    """step/warmup_steps up to the warm-up's end, then 1."""
    return step / warmup_steps if step <= warmup_steps else 1.0


def build_multiplier(config: ScheduleConfig) -> Callable[[int], float]:
    """The schedule of a configuration as a function of the step.

    Raises:
        ValueError: no such schedule; the valid names are listed.
    """
    schedules: dict[str, Callable[[int], float]] = {
        "linear": lambda step: linear(step, config.warmup_steps, config.training_steps),
        "constant": lambda step: constant(step, config.warmup_steps),
    }
    if config.name not in schedules:
        raise ValueError(f"schedule.name '{config.name}'; choose one of: {', '.join(schedules)}")
    return schedules[config.name]


class Schedule:
    """Sets the rate of every parameter group before a step."""

    def __init__(self, config: ScheduleConfig, optimizer: torch.optim.Optimizer) -> None:
        self._multiplier = build_multiplier(config)
        self._optimizer = optimizer
        self._peaks = [group["lr"] for group in optimizer.param_groups]

    def set_rate(self, step: int) -> float:
        """Set the rates for this step, counted from 1; returns the first group's."""
        multiplier = self._multiplier(step)
        for group, peak in zip(self._optimizer.param_groups, self._peaks, strict=True):
            group["lr"] = peak * multiplier
        return float(self._optimizer.param_groups[0]["lr"])
