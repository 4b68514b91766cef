"""The accuracy curve as text."""

import math
from dataclasses import dataclass

# more rows than this are thinned out
MOST_ROWS = 40
_EIGHTHS = " ▏▎▍▌▋▊▉"


@dataclass(frozen=True)
class Point:
    """One evaluation.

    Attributes:
        samples: trained before it.
        seconds: since run_start.
        accuracy: a share; NaN if the log holds no number.
    """

    samples: int
    seconds: float
    accuracy: float


def draw(points: list[Point], target: float | None, width: int, blocks: bool) -> list[str]:
    """A row per evaluation: samples, seconds, accuracy and a bar, with the target marked.

    Args:
        points: in order.
        target: accuracy to mark; None for no mark.
        width: columns there are.
        blocks: whether block characters can be shown; else ASCII.
    """
    if not points:
        return ["no evaluation yet"]
    mark = "│" if blocks else "|"
    header = f"{'samples':>13} {'seconds':>10} {'accuracy':>9}  "
    bar_width = max(10, min(width, 100) - len(header) - 8)
    accuracies = [point.accuracy for point in points if math.isfinite(point.accuracy)]
    top = max([*accuracies, target or 0.0]) or 1.0
    legend = "" if target is None else f"{mark} = target {target:g}"
    lines = [(header + legend).rstrip()]
    for point in _thinned(points):
        bar = _bar(point.accuracy / top * bar_width, bar_width + 1, blocks)
        if target is not None:
            column = round(target / top * bar_width)
            bar = bar[:column] + mark + bar[column + 1 :]
        row = f"{point.samples:>13,} {point.seconds:>10,.1f} {point.accuracy:>9.4f}  {bar}"
        lines.append(row.rstrip())
    if len(points) > MOST_ROWS:
        lines.append(f"({len(lines) - 1} of {len(points)} evaluations shown)")
    return lines


def _thinned(points: list[Point]) -> list[Point]:
    stride = math.ceil(len(points) / MOST_ROWS)
    # counted from the end: the last one decides
    return points[::-1][::stride][::-1]


def _bar(length: float, width: int, blocks: bool) -> str:
    length = max(0.0, length) if math.isfinite(length) else 0.0
    if not blocks:
        return ("#" * round(length)).ljust(width)
    eighths = round(length * 8)
    return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8]).ljust(width)
