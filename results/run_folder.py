"""Reads what a run leaves beside its MLPerf log: ``run.json`` and ``metrics.jsonl``."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Facts:
    """What ``run.json`` says; None or empty where it says nothing.

    Attributes:
        target_accuracy: the share that ends the run.
        baseline_label, baseline_accuracy: what a constant guess is, and how often it is right.
        parameters: of the model.
        ranks: processes that trained.
        versions, hardware: of the software and of the machine.
    """

    target_accuracy: float | None = None
    baseline_label: str = ""
    baseline_accuracy: float | None = None
    parameters: int | None = None
    ranks: int | None = None
    versions: dict[str, Any] = field(default_factory=dict)
    hardware: dict[str, Any] = field(default_factory=dict)


@dataclass
class Metrics:
    """Sums over ``metrics.jsonl``.

    Attributes:
        steps: taken.
        samples: trained.
        tokens, seconds: of all steps, evaluations not counted.
        loss: of the last step, in nats; None before the first.
        skipped: steps whose gradient was not finite.
        sync: how gradients were reduced, as the line of kind ``sync`` says; empty without one.
        clipped_share: summed over steps, of the buckets that were clipped before the reduction.
        backward, all_reduce, exposed: seconds of all steps on rank 0; exposed is what of the
            all-reduce came after the last gradient.
        cut: whether the last line is incomplete and was left out.
    """

    steps: int = 0
    samples: int = 0
    tokens: int = 0
    seconds: float = 0.0
    loss: float | None = None
    skipped: int = 0
    sync: dict[str, Any] = field(default_factory=dict)
    clipped_share: float = 0.0
    backward: float = 0.0
    all_reduce: float = 0.0
    exposed: float = 0.0
    cut: bool = False


def read_facts(path: Path) -> Facts:
    """Read ``run.json``.

    Raises:
        ValueError: it cannot be read, is no JSON object, or a field has the wrong type.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    facts = _Fields(content, str(path))
    baseline = _Fields(facts.of("baseline", dict) or {}, f"{path}, baseline")
    return Facts(
        target_accuracy=facts.of("target_accuracy", int, float),
        baseline_label=baseline.of("label", str) or "",
        baseline_accuracy=baseline.of("accuracy", int, float),
        parameters=facts.of("parameters", int),
        ranks=facts.of("ranks", int),
        versions=facts.of("versions", dict) or {},
        hardware=facts.of("hardware", dict) or {},
    )


def read_metrics(path: Path) -> Metrics:
    """Sum up ``metrics.jsonl``; a last line that was cut while it was written is left out.

    Raises:
        ValueError: the file cannot be read, or a line before its last is malformed; names the line.
    """
    metrics = Metrics()
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            if number == len(lines):
                metrics.cut = True
                break
            raise ValueError(f"{path}, line {number} is not JSON: {error}") from None
        _add(metrics, _Fields(record, f"{path}, line {number}"))
    return metrics


def _add(metrics: Metrics, record: "_Fields") -> None:
    kind = record.of("kind", str)
    if kind == "sync":
        metrics.sync = record.all()
    if kind != "step":
        return
    metrics.steps = record.of("step", int) or metrics.steps
    metrics.samples = record.of("samples", int) or metrics.samples
    metrics.tokens += record.of("tokens", int) or 0
    metrics.seconds += record.of("step_seconds", int, float) or 0.0
    metrics.loss = record.of("loss", int, float)
    metrics.skipped = record.of("skipped_steps", int) or 0
    metrics.clipped_share += record.of("clipped_share", int, float) or 0.0
    metrics.backward += record.of("backward_seconds", int, float) or 0.0
    metrics.all_reduce += record.of("all_reduce_seconds", int, float) or 0.0
    metrics.exposed += record.of("exposed_seconds", int, float) or 0.0


class _Fields:
    """A JSON object whose fields are looked up with their types."""

    def __init__(self, content: Any, where: str) -> None:
        if not isinstance(content, dict):
            raise ValueError(f"{where} is not a JSON object")
        self._content = content
        self._where = where

    def all(self) -> dict[str, Any]:
        """All fields."""
        return dict(self._content)

    def of(self, name: str, *types: type) -> Any:
        """The field, or None where it is missing or null."""
        value = self._content.get(name)
        wrong = not isinstance(value, types) or (isinstance(value, bool) and bool not in types)
        if value is not None and wrong:
            names = " or ".join(kind.__name__ for kind in types)
            raise ValueError(f"{self._where}: {name} {value!r} is not of type {names}")
        return value
