"""What a run writes and shows of its steps."""

import io
import json
import math
from dataclasses import fields
from pathlib import Path

from rich.console import Console

from train.metrics import MetricsFile, StepRecord
from train.progress import LiveView


def record(**values: float) -> StepRecord:
    return StepRecord(**{**{field.name: 1 for field in fields(StepRecord)}, **values})


def test_what_is_no_number_is_null(tmp_path: Path) -> None:
    metrics = MetricsFile(tmp_path / "metrics.jsonl")
    metrics.step_done(record(grad_norm=math.nan, loss=math.inf, mlm_loss=2.5))
    metrics.close()

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    (line,) = (tmp_path / "metrics.jsonl").read_text().splitlines()
    content = json.loads(line, parse_constant=refuse)
    assert (content["grad_norm"], content["loss"], content["mlm_loss"]) == (None, None, 2.5)


def test_the_run_ends_with_the_time_of_its_communication() -> None:
    stream = io.StringIO()
    with LiveView(100, 0.5, Console(file=stream)) as view:
        view.step_done(record(backward_seconds=0.3, all_reduce_seconds=0.2, exposed_seconds=0.1))
        view.step_done(record(backward_seconds=0.5, all_reduce_seconds=0.2, exposed_seconds=0.0))
    assert stream.getvalue().splitlines()[-1] == (
        "communication: a step's backward 400 ms, all-reduce 200 ms, exposed 50 ms"
    )
