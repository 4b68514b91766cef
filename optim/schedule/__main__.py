"""The learning rate of a run's configuration, step by step: a table, and a picture of it.

    python -m optim.schedule --config configs/FILE.yaml [--every N] [--plot FILE.png]

Prints the steps at which the schedule's formula changes and every N-th step. Of the file it reads
the groups ``optimizer`` and ``schedule``; single settings can be given too, such as
``--schedule.warmup_steps 100``.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import ArgumentError, ArgumentParser

from optim.optimizers import OptimizerConfig
from optim.schedule import ScheduleConfig, build_rate, corners

PROGRAM = "python -m optim.schedule"


def rates(schedule: ScheduleConfig, peak: float, every: int | None) -> Iterator[tuple[int, float]]:
    """Steps, counted from 1, and their rates: the corners of the schedule and every n-th step.

    Args:
        schedule: of the run.
        peak: the optimizer's learning rate.
        every: n; None: a twentieth of the schedule.
    """
    rate = build_rate(schedule)
    at = corners(schedule)
    every = every or max(1, at[-1] // 20)
    for step in sorted({*at, *range(every, at[-1] + 1, every)}):
        yield step, rate(step, peak)


def plot(schedule: ScheduleConfig, peak: float, path: Path) -> None:
    """Draw the rate of every step to a file; its ending chooses the format.

    Raises:
        ValueError: matplotlib does not know the format.
    """
    # not at the top: it takes longer to import than everything else does to run
    from matplotlib.figure import Figure

    steps, values = zip(*rates(schedule, peak, every=1), strict=True)
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.plot(steps, values)
    axes.set(xlabel="step", ylabel="learning rate", title=f"schedule {schedule.name}")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


def main(arguments: list[str]) -> int:
    """Print the table; returns the exit code."""
    parser = ArgumentParser(
        prog=PROGRAM,
        description="The learning rate of a run, step by step.",
        exit_on_error=False,
        allow_abbrev=False,
    )
    parser.add_argument("--config", type=str, required=True, help="YAML of a run")
    parser.add_argument("--every", type=int, help="print every n-th step; default: a twentieth")
    parser.add_argument("--plot", type=str, help="also draw the rate to this file, such as r.png")
    parser.add_class_arguments(OptimizerConfig, "optimizer")
    parser.add_class_arguments(ScheduleConfig, "schedule")
    # the file first, so that options win over it
    named = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    named.add_argument("--config")
    path = named.parse_known_args(arguments)[0].config
    try:
        parser.set_defaults(_groups(Path(path)) if path else {})
        settings = parser.instantiate(parser.parse_args(arguments))
    except (ArgumentError, TypeError, KeyError) as error:
        raise ValueError(f"{path}: {error}" if path else str(error)) from error
    if settings.every is not None and settings.every < 1:
        raise ValueError(f"--every {settings.every} must be at least 1")
    print(f"{'step':>8}  rate")
    for step, rate in rates(settings.schedule, settings.optimizer.learning_rate, settings.every):
        print(f"{step:>8}  {rate:.6e}")
    if settings.plot is not None:
        plot(settings.schedule, settings.optimizer.learning_rate, Path(settings.plot))
        print(f"drawn: {settings.plot}")
    return 0


def _groups(path: Path) -> dict[str, Any]:
    """The settings of the two groups, as dotted names."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"--config {path}: cannot be read as YAML: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"--config {path}: holds no settings")
    groups = {name: content.get(name) or {} for name in ("optimizer", "schedule")}
    return {
        f"{name}.{key}": value for name, group in groups.items() for key, value in group.items()
    }


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (ValueError, OSError) as error:
        print(f"{PROGRAM}: error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)
