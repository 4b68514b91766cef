"""What a run reports of itself: records of steps and evaluations, and JSON Lines of them."""

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True)
class StepRecord:
    """One training step, over all ranks.

    Attributes:
        step: counted from 1.
        epoch: counted from 0.
        samples: trained so far, this step included.
        tokens: of this step.
        loss, mlm_loss, nsp_loss: in nats; means over the step's masked tokens and sequences.
        learning_rate: used in this step; 0 for one that was skipped.
        grad_norm: of the reduced gradient, before a clip that follows the reduction.
        skipped_steps: so far, for a gradient that was not finite.
        loss_scale: 1 but for fp16.
        clipped_share: of the buckets that a rank clipped before the reduction, mean over ranks.
        seconds: since training began.
        data_seconds: waited for the batch, on rank 0 as the next three.
        backward_seconds: from the start of the last micro-batch's backward pass to its last
            gradient.
        all_reduce_seconds: during which an all-reduce of gradients was under way.
        exposed_seconds: of all-reduce after the last gradient, hidden by nothing.
        step_seconds: the whole step, waiting included.
        samples_per_second, tokens_per_second: of this step.
    """

    step: int
    epoch: int
    samples: int
    tokens: int
    loss: float
    mlm_loss: float
    nsp_loss: float
    learning_rate: float
    grad_norm: float
    skipped_steps: int
    loss_scale: float
    clipped_share: float
    seconds: float
    data_seconds: float
    backward_seconds: float
    all_reduce_seconds: float
    exposed_seconds: float
    step_seconds: float
    samples_per_second: float
    tokens_per_second: float


@dataclass(frozen=True)
class EvaluationRecord:
    """One evaluation of the whole set.

    Attributes:
        step, samples: trained so far.
        mlm_accuracy, nsp_accuracy: shares in [0, 1].
        mlm_loss: in nats, mean over the masked tokens.
        eval_samples: samples evaluated, counted over all ranks.
        seconds: since training began.
        evaluation_seconds: what the evaluation took.
    """

    step: int
    samples: int
    mlm_accuracy: float
    mlm_loss: float
    nsp_accuracy: float
    eval_samples: int
    seconds: float
    evaluation_seconds: float


class Listener(Protocol):
    """Told of what happens in a run."""

    def step_done(self, record: StepRecord) -> None:
        """A step has been taken."""

    def evaluation_started(self, samples: int) -> None:
        """An evaluation starts after so many trained samples."""

    def evaluation_done(self, record: EvaluationRecord) -> None:
        """An evaluation has ended."""


class MetricsFile:
    """Appends records to a JSON Lines file, each line written whole."""

    def __init__(self, path: Path) -> None:
        # line buffering: a reader of a running job sees whole lines
        self._stream = path.open("x", encoding="utf-8", buffering=1)

    def step_done(self, record: StepRecord) -> None:
        """Write a line of kind ``step``."""
        self._write("step", record)

    def evaluation_started(self, samples: int) -> None:
        """Nothing."""

    def evaluation_done(self, record: EvaluationRecord) -> None:
        """Write a line of kind ``evaluation``."""
        self._write("evaluation", record)

    def describe(self, kind: str, content: dict[str, Any]) -> None:
        """Write a line of another kind, such as how gradients are reduced."""
        self._stream.write(json.dumps({"kind": kind, **content}) + "\n")

    def close(self) -> None:
        """Close the file."""
        self._stream.close()

    def _write(self, kind: str, record: StepRecord | EvaluationRecord) -> None:
        # JSON knows no NaN: the norm of a gradient that is not finite is null
        values = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in asdict(record).items()
        }
        self.describe(kind, values)


class EpochLog:
    """Writes a line of kind ``epoch`` when the first step of an epoch is done.

    Args:
        metrics: where to.
        describe: what there is to say of an epoch.
    """

    def __init__(self, metrics: MetricsFile, describe: Callable[[int], dict[str, Any]]) -> None:
        self._metrics = metrics
        self._describe = describe
        self._epoch = -1

    def step_done(self, record: StepRecord) -> None:
        """Write the line where the step is of another epoch than the one before."""
        if record.epoch != self._epoch:
            self._epoch = record.epoch
            self._metrics.describe("epoch", {"epoch": record.epoch, **self._describe(record.epoch)})

    def evaluation_started(self, samples: int) -> None:
        """Nothing."""

    def evaluation_done(self, record: EvaluationRecord) -> None:
        """Nothing."""
