"""The run as the MLPerf checkers read it: a state machine that writes ``:::MLLOG`` lines.

1. ``MLPerfLog.initialisation``: cache_clear, init_start, submission_*, hyperparameters, init_stop
2. ``MLPerfLog.run``: run_start, epoch_start, block_start
3. ``RunLog``, for each evaluation: eval_start, eval_accuracy, eval_stop, tracked_stats
4. at the end of ``run``, whatever ended it: block_stop, epoch_stop, train_samples, eval_samples,
   run_stop

The order and the keys satisfy the BERT rules of training 0.7.0 to 5.0.0; those of 1.1.0 to 2.1.0
also want ``weights_initialization`` events for the official checkpoint's weights. ``epoch_num`` is,
as for all of BERT, the number of samples trained so far.
"""

import math
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from train.hyperparameters import Hyperparameters
from train.metrics import EvaluationRecord, StepRecord
from train.mllog_writer import FileWriter, SilentWriter, Writer

Division = Literal["open", "closed"]
Status = Literal["onprem", "cloud", "preview", "research"]


@dataclass(frozen=True)
class MLPerfConfig:
    """What the log says of the submission.

    Args:
        division: open or closed; closed means LAMB and the official data, start and target
        organization: who submits
        platform: the machine, named as in the submission's systems folder
        status: how the machine can be had: onprem, cloud, preview or research
        weights_initialization: log an event for each weight, as rulesets 1.1.0 to 2.1.0 want
    """

    division: Division = "open"
    organization: str = "unspecified"
    platform: str = "unspecified"
    status: Status = "research"
    weights_initialization: bool = False

    def __post_init__(self) -> None:
        for name, choices in (("division", get_args(Division)), ("status", get_args(Status))):
            value = getattr(self, name)
            if value not in choices:
                raise ValueError(f"mlperf.{name} {value!r}; choose one of: {', '.join(choices)}")
        for name in ("organization", "platform"):
            value = getattr(self, name)
            if not value.strip() or not value.isprintable():
                raise ValueError(
                    f"mlperf.{name} {value!r} must be a name of printable characters, such as "
                    f"'unspecified'"
                )


class MLPerfLog:
    """The log of one run.

    The states and their checks are the same on all ranks, so that misuse fails on all of them;
    only the writing differs.

    Args:
        config: of the submission.
        path: of the new file, created when initialisation starts; None, for ranks other than 0,
            writes nothing.

    Raises:
        ValueError: the file exists (a second run would be mixed into the first one's log), or its
            folder does not.
    """

    def __init__(self, config: MLPerfConfig, path: Path | None) -> None:
        self._config = config
        self._writer: Writer = SilentWriter() if path is None else FileWriter(path)
        self._phase = "created"

    @contextmanager
    def initialisation(self, *, caches_cleared: bool = False) -> Iterator[None]:
        """From cache_clear to init_stop; ``hyperparameters`` must be called within.

        An exception inside ends the log: it then holds what was written so far, and neither
        init_stop nor run_start, so that no checker takes it for a run.

        Args:
            caches_cleared: whether the system's caches were cleared before the run, as official
                runs must.
        """
        self._advance("created", "initialising")
        try:
            self._writer.event("cache_clear", caches_cleared)
            self._writer.start("init_start")
            self._writer.event("submission_benchmark", "bert")
            self._writer.event("submission_org", self._config.organization)
            self._writer.event("submission_division", self._config.division)
            self._writer.event("submission_status", self._config.status)
            self._writer.event("submission_platform", self._config.platform)
            yield
            self._advance("described", "initialised")
            self._writer.end("init_stop")
        except BaseException:
            self._close()
            raise

    def hyperparameters(self, values: Hyperparameters, weights: Iterable[str] = ()) -> None:
        """Write them, once, within ``initialisation``.

        Args:
            values: of the run.
            weights: the TensorFlow names of all weights; logged where the configuration says so.
        """
        self._advance("initialising", "described")
        for name in weights if self._config.weights_initialization else ():
            self._writer.event("weights_initialization", None, tensor=name)
        for key, value in values.events():
            self._writer.event(key, value)

    @contextmanager
    def run(self) -> Iterator["RunLog"]:
        """From run_start to run_stop, once, after ``initialisation``.

        The status is ``success`` only if ``RunLog.stop`` was told so and nothing was raised after
        it; else it is ``aborted``, with the reason in the metadata. Any exception, also
        KeyboardInterrupt and SystemExit, is logged so and goes on its way.
        """
        self._advance("initialised", "running")
        run = RunLog(self._writer)
        try:
            run.start()
            yield run
        except BaseException as error:
            run.abort(type(error).__name__)
            raise
        finally:
            run.finish()
            self._close()

    def _advance(self, before: str, after: str) -> None:
        assert self._phase == before, f"MLPerf log is {self._phase}, which cannot become {after}"
        self._phase = after

    def _close(self) -> None:
        self._phase = "closed"
        self._writer.close()


class RunLog:
    """Listens to the trainer between run_start and run_stop; made by ``MLPerfLog.run``."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._open: list[str] = []
        self._train_samples = 0
        self._eval_samples = 0
        self._throughput = 0.0
        self._success = False
        self._reason = "target not reached"

    def start(self) -> None:
        """Write run_start and open epoch and block; called by ``MLPerfLog.run``."""
        self._writer.start("run_start")
        self._open.append("epoch")
        self._writer.start("epoch_start", epoch_num=0)
        self._open.append("block")
        # one epoch and one block: evaluations come by samples, not by passes over the data
        self._writer.start("block_start", first_epoch_num=0, epoch_count=1)
        self._mark()

    def step_done(self, record: StepRecord) -> None:
        """Remember the samples trained so far."""
        self._train_samples = int(record.samples)

    def evaluation_started(self, samples: int) -> None:
        """Write eval_start.

        Args:
            samples: trained so far.
        """
        assert self._open == ["epoch", "block"], "an evaluation starts in a run, outside another"
        self._train_samples = int(samples)
        seconds = time.perf_counter() - self._marked_at
        self._throughput = (self._train_samples - self._marked_samples) / max(seconds, 1e-9)
        self._open.append("eval")
        self._writer.start("eval_start", epoch_num=self._train_samples)

    def evaluation_done(self, record: EvaluationRecord) -> None:
        """Write eval_accuracy, eval_stop and the samples trained per second since the last one.

        An accuracy that is not finite is written as 0.0, with ``not_finite`` in its metadata: a
        bare NaN is no JSON, and the official checker breaks off at anything but a number. A zero
        never passes for success, and ``python -m results check`` rejects the mark.
        """
        assert self._open[-1:] == ["eval"], "an evaluation ends that never started"
        accuracy = float(record.mlm_accuracy)
        self._eval_samples = int(record.eval_samples)
        if math.isfinite(accuracy):
            self._writer.event("eval_accuracy", accuracy, epoch_num=self._train_samples)
        else:
            self._writer.event(
                "eval_accuracy", 0.0, epoch_num=self._train_samples, not_finite=str(accuracy)
            )
        self._close_innermost()
        self._writer.event(
            "tracked_stats", {"throughput": self._throughput}, epoch_num=self._train_samples
        )
        self._mark()

    def stop(self, *, success: bool) -> None:
        """Say how training ended; the lines follow when the run is left.

        Args:
            success: whether the last evaluation reached the target.
        """
        assert self._eval_samples > 0 or not success, "no evaluation can have reached the target"
        self._success = bool(success)

    def abort(self, reason: str) -> None:
        """Take back any success; called by ``MLPerfLog.run`` with an exception's name."""
        self._success = False
        self._reason = reason

    def finish(self) -> None:
        """Close what is open and write the counts and run_stop; called by ``MLPerfLog.run``."""
        while self._open:
            self._close_innermost()
        self._writer.event("train_samples", self._train_samples)
        self._writer.event("eval_samples", self._eval_samples)
        if self._success:
            self._writer.end("run_stop", status="success")
        else:
            self._writer.end("run_stop", status="aborted", reason=self._reason)

    def _close_innermost(self) -> None:
        name = self._open.pop()
        metadata = {"first_epoch_num": 0} if name == "block" else {"epoch_num": self._train_samples}
        self._writer.end(f"{name}_stop", **metadata)

    def _mark(self) -> None:
        """Throughput counts from here."""
        self._marked_at = time.perf_counter()
        self._marked_samples = self._train_samples
