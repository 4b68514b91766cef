"""What one run came to, on one screen."""

from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap

from rich.console import Console
from rich.text import Text

from results.curve import Point, draw
from results.gates import number
from results.mllog import Event, of_key, read_events
from results.run_folder import Facts, Metrics, read_facts, read_metrics


@dataclass(frozen=True)
class Run:
    """The files of a run folder, read.

    Attributes:
        folder: of the run.
        facts, metrics: empty where their file is missing, which ``notes`` then says.
        curve: the evaluations in order.
        status: of run_stop; None without one.
        reason: why the run was aborted, where the log says so.
        seconds: from run_start to run_stop, or to the last record; None before run_start.
        evaluation_seconds: spent between eval_start and eval_stop.
        eval_samples: of the evaluation set; None without run_stop.
        notes: what is missing or odd.
    """

    folder: Path
    facts: Facts
    metrics: Metrics
    curve: list[Point]
    status: str | None
    reason: str | None
    seconds: float | None
    evaluation_seconds: float
    eval_samples: int | None
    notes: list[str]


def read_run(folder: Path) -> Run:
    """Read a run folder.

    Raises:
        ValueError: it is no folder, has no result file, or a file in it is malformed.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder; give the folder of a run")
    log = folder / "result_0.txt"
    if not log.is_file():
        raise ValueError(f"{folder} holds no result_0.txt; is it the folder of a run?")
    events = read_events(log)
    if not events:
        raise ValueError(f"{log} holds no MLPerf record; the run never started")
    notes: list[str] = []
    facts, metrics = Facts(), Metrics()
    if (folder / "run.json").is_file():
        facts = read_facts(folder / "run.json")
    else:
        notes.append("run.json is missing: target and baseline are unknown")
    if (folder / "metrics.jsonl").is_file():
        metrics = read_metrics(folder / "metrics.jsonl")
    else:
        notes.append("metrics.jsonl is missing: steps and speed are unknown")
    if metrics.cut:
        notes.append("metrics.jsonl ends in mid-line; that line is left out")
    return _run(folder, events, facts, metrics, notes)


def _run(
    folder: Path, events: list[Event], facts: Facts, metrics: Metrics, notes: list[str]
) -> Run:
    starts, stops = of_key(events, "run_start"), of_key(events, "run_stop")
    if len(starts) > 1 or len(stops) > 1:
        notes.append("the log holds more than one run; see `python -m results check`")
    start = starts[0].time_ms if starts else None
    end = (stops[-1] if stops else events[-1]).time_ms
    counted = [event.value for event in of_key(events, "eval_samples")]
    return Run(
        folder=folder,
        facts=facts,
        metrics=metrics,
        curve=_curve(events, start),
        status=str(stops[-1].metadata.get("status")) if stops else None,
        reason=stops[-1].metadata.get("reason") if stops else None,
        seconds=None if start is None else (end - start) / 1000,
        evaluation_seconds=_evaluation_seconds(events),
        eval_samples=counted[-1] if counted and isinstance(counted[-1], int) else None,
        notes=notes,
    )


def _curve(events: list[Event], start: float | None) -> list[Point]:
    return [
        Point(
            samples=int(samples)
            if (samples := number(event.metadata.get("epoch_num"))) >= 0
            else 0,
            seconds=(event.time_ms - (event.time_ms if start is None else start)) / 1000,
            accuracy=number(event.value),
        )
        for event in of_key(events, "eval_accuracy")
    ]


def _evaluation_seconds(events: list[Event]) -> float:
    total, started = 0.0, None
    for event in events:
        if event.key == "eval_start":
            started = event.time_ms
        elif event.key == "eval_stop" and started is not None:
            total += (event.time_ms - started) / 1000
            started = None
    return total


def print_summary(run: Run, console: Console) -> None:
    """Print verdict, figures, accuracy curve and files."""
    good, verdict = _verdict(run)
    console.print(Text(verdict, style="bold green" if good else "bold red"))
    console.print()
    for name, value in _figures(run):
        label = f"{name:<{_LABEL}}"
        lines = wrap(value, console.width - 1, initial_indent=label, subsequent_indent=" " * _LABEL)
        console.print(Text("\n".join(lines)), soft_wrap=True)
    console.print()
    for line in draw(run.curve, run.facts.target_accuracy, console.width, _can_draw(console)):
        console.print(Text(line), no_wrap=True, overflow="crop")
    console.print()
    for name, meaning in _FILES:
        if (run.folder / name).exists():
            console.print(Text(f"{meaning:<{_LABEL}}{run.folder / name}"), soft_wrap=True)
    for note in run.notes:
        console.print(Text(f"note: {note}", style="yellow"), soft_wrap=True)


_LABEL = 16
_FILES = (
    ("result_0.txt", "MLPerf log"),
    ("metrics.jsonl", "metrics"),
    ("config.yaml", "configuration"),
    ("run.json", "facts"),
    ("checkpoint", "checkpoint"),
)


def _verdict(run: Run) -> tuple[bool, str]:
    """Whether the target was reached, and the sentence that says so."""
    if run.seconds is None:
        return False, "never started: the log ends in initialisation"
    after = f"after {clock(run.seconds)}"
    target = run.facts.target_accuracy
    reached = f"MLM accuracy {run.curve[-1].accuracy:.4f}" if run.curve else "no evaluation"
    if target is not None:
        reached += f", target {target:.4f}"
    if run.status is None:
        return False, f"not finished {after}: still running, or killed ({reached})"
    if run.status != "success":
        if run.reason == "target not reached":
            return False, f"target not reached {after}: {reached}"
        return False, f"aborted {after} ({run.reason or 'no reason logged'}): {reached}"
    if target is not None and not (run.curve and run.curve[-1].accuracy >= target):
        return False, f"the log says success, but the target was not reached: {reached}"
    return True, f"target reached in {clock(run.seconds)}: {reached}"


def _figures(run: Run) -> list[tuple[str, str]]:
    facts, metrics = run.facts, run.metrics
    rows = []
    if metrics.steps:
        rows.append(("trained", _trained(metrics)))
    if run.seconds is not None:
        name = "time to target" if run.status == "success" else "time"
        rows.append((name, f"{run.seconds:.1f} s, run_start to run_stop"))
        rows.append(("evaluation", _evaluation(run)))
    if metrics.tokens and metrics.seconds > 0:
        speed = f"{metrics.tokens / metrics.seconds:,.0f} tokens/s"
        rows.append(("training speed", f"{speed}, evaluations not counted"))
    if metrics.sync and metrics.steps:
        rows.append(("gradients", _gradients(metrics)))
        rows.append(("communication", _communication(metrics)))
    if facts.baseline_accuracy is not None:
        label = f" (always '{facts.baseline_label}')" if facts.baseline_label else ""
        rows.append(("constant guess", f"accuracy {facts.baseline_accuracy:.4f}{label}"))
    if facts.parameters is not None:
        ranks = f", {_count(facts.ranks, 'rank')}" if facts.ranks is not None else ""
        rows.append(("model", f"{facts.parameters:,} parameters{ranks}"))
    if facts.hardware:
        rows.append(("machine", _listed(facts.hardware)))
    if facts.versions:
        rows.append(("versions", _listed(facts.versions)))
    return rows


def _trained(metrics: Metrics) -> str:
    loss = "" if metrics.loss is None else f", last loss {metrics.loss:.3f}"
    return f"{metrics.samples:,} samples in {_count(metrics.steps, 'step')}{loss}"


def _gradients(metrics: Metrics) -> str:
    sync = metrics.sync
    clip = f"clip {sync.get('clip')} at {sync.get('max_norm')}"
    if str(sync.get("clip")).endswith("_before"):
        clip += f" ({metrics.clipped_share / metrics.steps:.0%} of the buckets clipped)"
    buckets = f"{_count(int(sync.get('buckets', 0)), 'bucket')} of {sync.get('bucket_cap_mb')} MiB"
    skipped = f", {_count(metrics.skipped, 'step')} skipped" if metrics.skipped else ""
    return f"{clip}, {buckets}, wire {sync.get('wire')}{skipped}"


def _communication(metrics: Metrics) -> str:
    backward, reduce, exposed = (
        1000 * seconds / metrics.steps
        for seconds in (metrics.backward, metrics.all_reduce, metrics.exposed)
    )
    return (
        f"{reduce:.0f} ms of all-reduce a step, {exposed:.0f} ms of it exposed, "
        f"beside {backward:.0f} ms of backward (rank 0)"
    )


def _evaluation(run: Run) -> str:
    size = f" of {run.eval_samples:,} samples" if run.eval_samples else ""
    evaluations = _count(len(run.curve), "evaluation") + size
    if not run.seconds or not run.evaluation_seconds:
        # some published logs hold no eval_start
        return evaluations
    share = run.evaluation_seconds / run.seconds
    return f"{run.evaluation_seconds:.1f} s = {share:.1%} of the time, {evaluations}"


def _listed(content: dict[str, object]) -> str:
    return ", ".join(
        f"{name} {value}" for name, value in content.items() if value not in ([], None)
    )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _can_draw(console: Console) -> bool:
    try:
        "█▏│".encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def clock(seconds: float) -> str:
    """Seconds as M:SS, or H:MM:SS."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
