"""What the official checker lets through and a result still must not have.

A gate is a function of a log's events and of the target that yields problems, one line each.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from results.mllog import Event, of_key

# of closed runs in all rounds with BERT but 0.7
CLOSED_TARGET = 0.72

# in a log once; the checker only warns when one comes again with the same value
ONCE = (
    "submission_benchmark",
    "submission_org",
    "submission_division",
    "submission_status",
    "submission_platform",
    "seed",
    "global_batch_size",
    "gradient_accumulation_steps",
    "opt_name",
    "opt_base_learning_rate",
    "init_stop",
    "run_start",
    "run_stop",
    "train_samples",
    "eval_samples",
)

Gate = Callable[[list[Event], float | None], Iterator[str]]


def failed_gates(events: list[Event], target: float | None) -> list[str]:
    """The problems of a log, in words.

    Args:
        events: all of the log.
        target: the accuracy that ends a run; None if unknown: then the last evaluation must at
            least be better than all before it.
    """
    return [problem for gate in _GATES for problem in gate(events, target)]


def _status(events: list[Event], target: float | None) -> Iterator[str]:
    for stop in of_key(events, "run_stop"):
        status = stop.metadata.get("status")
        if status == "aborted":
            reason = stop.metadata.get("reason")
            yield "the run was aborted" + (f": {reason}" if reason else "")
        elif status != "success":
            yield f"run_stop has status {status!r}, neither success nor aborted"


def _order(events: list[Event], target: float | None) -> Iterator[str]:
    starts, stops = of_key(events, "run_start"), of_key(events, "run_stop")
    if not starts or not stops:
        return
    if stops[0].line < starts[0].line:
        yield f"run_stop (line {stops[0].line}) stands before run_start (line {starts[0].line})"
    elif stops[0].time_ms < starts[0].time_ms:
        yield f"run_stop is {starts[0].time_ms - stops[0].time_ms:.0f} ms earlier than run_start"


def _once(events: list[Event], target: float | None) -> Iterator[str]:
    counts = Counter(event.key for event in events)
    again = [key for key in ONCE if counts[key] > 1]
    if again:
        yield f"logged more than once: {', '.join(again)}"
    evaluations = Counter(
        (event.time_ms, str(event.value), str(event.metadata.get("epoch_num")))
        for event in of_key(events, "eval_accuracy")
    )
    doubled = sum(count > 1 for count in evaluations.values())
    if doubled:
        yield f"{doubled} eval_accuracy records are there more than once"


def _one_a_line(events: list[Event], target: float | None) -> Iterator[str]:
    counts = Counter(event.line for event in events)
    for line, count in counts.items():
        if count > 1:
            yield f"line {line} holds {count} records; the official checker reads only the last"


def _finite(events: list[Event], target: float | None) -> Iterator[str]:
    for event in events:
        if "not_finite" in event.metadata:
            yield f"{event.key} was {event.metadata['not_finite']} (line {event.line})"
        elif isinstance(event.value, float) and not math.isfinite(event.value):
            yield f"{event.key} is {event.value} (line {event.line}), which is not JSON"


def _last_passes(events: list[Event], target: float | None) -> Iterator[str]:
    statuses = [stop.metadata.get("status") for stop in of_key(events, "run_stop")]
    if "success" not in statuses:
        return
    evaluations = of_key(events, "eval_accuracy")
    values = [number(event.value) for event in evaluations]
    if not values:
        yield "status is success, but there is no evaluation"
    elif target is not None and not values[-1] >= target:
        yield f"status is success, but the last evaluation has {values[-1]:.4f} of {target:g}"
    elif target is not None and any(value >= target for value in values[:-1]):
        passed = next(
            event for event, value in zip(evaluations, values, strict=True) if value >= target
        )
        yield f"training went on after an evaluation reached {target:g} (line {passed.line})"
    elif math.isnan(values[-1]):
        yield f"status is success, but the last evaluation has {evaluations[-1].value!r}"
    elif any(value >= values[-1] for value in values[:-1]):
        yield "status is success, but an evaluation before the last was at least as good"


_GATES: tuple[Gate, ...] = (_status, _order, _once, _one_a_line, _finite, _last_passes)


def number(value: Any) -> float:
    """A logged value as a number; NaN if it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    return float(value)
