"""From what the ranks measured to rows, a table and a figure."""

import math
import statistics
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy import stats

from benchmarks.gradient_overlap.rank import MODES, WIRES

TIMELINE_MODES = ("global_after", "bucket_before", "rank_before")


def rows_of(
    rate: str, seconds: dict[str, list[float]], exposed: dict[str, list[float]]
) -> list[dict[str, Any]]:
    """A row for each mode and wire; times are medians over the rounds, in seconds.

    Ratios are taken round by round, see ``ratio_interval``; ``hidden`` is 1 - exposed / that of
    rank_before, see ``hidden_interval``.
    """
    compute = statistics.median(seconds["compute"])
    rows = []
    for mode in MODES:
        for wire in WIRES:
            name = f"{mode} {wire}"
            communication = statistics.median(seconds[f"communication {wire}"])
            row: dict[str, Any] = {
                "rate": rate,
                "mode": mode,
                "wire": wire,
                "step_s": statistics.median(seconds[name]),
                "compute_s": compute,
                "communication_s": communication,
                "exposed_s": statistics.median(exposed[name]),
                "limit_s": max(compute, communication),
                "hidden": hidden_interval(exposed[name], exposed[f"rank_before {wire}"]),
            }
            for other in ("none", "global_after"):
                row[f"ratio_to_{other}"] = ratio_interval(seconds[name], seconds[f"{other} {wire}"])
            rows.append(row)
    return rows


def ratio_interval(steps: list[float], others: list[float]) -> list[float]:
    """The geometric mean of ratios taken round by round, and its 95 % interval: [low, mean, high].

    The interval is that of Student's t on the logarithms.
    """
    logs = np.log(np.array(steps) / np.array(others))
    if not logs.any():
        return [1.0, 1.0, 1.0]
    spread = stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / math.sqrt(len(logs))
    return [float(np.exp(logs.mean() + sign * spread)) for sign in (-1, 0, 1)]


def hidden_interval(exposed: list[float], others: list[float]) -> list[float]:
    """1 - the ratio of the medians, and its 95 % interval: [low, share, high].

    The interval is from 2,000 bootstrap samples of rounds, drawn for both alike.
    """

    def hidden(mine: np.ndarray, theirs: np.ndarray, axis: int = -1) -> np.ndarray:
        share: np.ndarray = 1 - np.median(mine, axis=axis) / np.median(theirs, axis=axis)
        return share

    mine, theirs = np.array(exposed), np.array(others)
    share = float(hidden(mine, theirs))
    if np.ptp(mine / theirs) == 0:
        return [share, share, share]
    interval = stats.bootstrap(
        (mine, theirs),
        hidden,
        paired=True,
        n_resamples=2000,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return [float(interval.low), share, float(interval.high)]


def print_table(rows: list[dict[str, Any]]) -> None:
    """The rows as a table, times in milliseconds."""
    table = Table("rate", "clip", "wire", "step", "compute", "comm.", "exposed", "limit",
                  "hidden, %", "ratio to none", "ratio to global_after")  # fmt: skip
    for row in rows:
        times = [
            row[f"{name}_s"] for name in ("step", "compute", "communication", "exposed", "limit")
        ]
        hidden = [100 * share for share in row["hidden"]]
        ratios = [
            "{1:.3f} ({0:.3f} - {2:.3f})".format(*row[f"ratio_to_{other}"])
            for other in ("none", "global_after")
        ]
        table.add_row(
            row["rate"],
            row["mode"],
            row["wire"],
            *(f"{1000 * t:.0f}" for t in times),
            "{1:.0f} ({0:.0f} - {2:.0f})".format(*hidden),
            *ratios,
        )
    Console(width=150).print(table)


def median_timeline(seconds: list[float], timelines: list[dict[str, Any]]) -> dict[str, Any]:
    """The timeline of the round whose step took the (lower) median time."""
    return timelines[seconds.index(statistics.median_low(seconds))]


def draw(rate: str, timelines: dict[str, dict[str, Any]], path: Path) -> None:
    """One step of each mode as bars: the backward pass above, the buckets' all-reduces below."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(len(timelines), 1, sharex=True, figsize=(9, 5))
    for axis, (mode, timeline) in zip(axes, timelines.items(), strict=True):
        end = timeline["gradients_ready"]
        axis.broken_barh([(0, 1000 * end)], (1.1, 0.8), color="#4477aa")
        spans = [(1000 * a, 1000 * (b - a)) for a, b in timeline["all_reduces"]]
        axis.broken_barh(spans, (0.1, 0.8), color="#ee9944", edgecolor="white", linewidth=0.5)
        axis.set_yticks([0.5, 1.5], ["all-reduce", "backward"])
        axis.set_ylim(0, 2)
        axis.set_title(mode, loc="left", fontsize=10)
    axes[-1].set_xlabel(f"milliseconds since the backward pass began ({rate}, fp32)")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
