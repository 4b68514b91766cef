"""The live view of a run: a progress bar in a terminal, plain lines in a file."""

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from train.metrics import EvaluationRecord, StepRecord

_LINE_SECONDS = 10.0  # between two plain lines


class LiveView:
    """A Listener that shows progress on standard error.

    Args:
        max_samples: the run's limit, the end of the bar.
        target: the accuracy aimed for.
        console: where to; a terminal gets the bar, anything else a line every ten seconds.
    """

    def __init__(self, max_samples: int, target: float, console: Console) -> None:
        self._console = console
        self._target = target
        self._max_samples = max_samples
        self._last_line = 0.0
        self._accuracy = "no evaluation yet"
        self._steps = 0
        self._backward = self._all_reduce = self._exposed = 0.0
        self._bar = Progress(
            TextColumn("samples {task.completed:.0f} of at most {task.total:.0f}"),
            BarColumn(),
            TextColumn("{task.fields[speed]}  {task.fields[accuracy]}"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=max_samples, speed="", accuracy=self._accuracy)

    def __enter__(self) -> "LiveView":
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()
        if self._steps:
            self._print(self._communication())

    def step_done(self, record: StepRecord) -> None:
        """Move the bar, or print a line if the last one is old enough."""
        self._steps += 1
        self._backward += record.backward_seconds
        self._all_reduce += record.all_reduce_seconds
        self._exposed += record.exposed_seconds
        speed = f"loss {record.loss:.3f}  {record.tokens_per_second:,.0f} tokens/s"
        self._bar.update(self._task, completed=record.samples, speed=speed)
        if not self._console.is_terminal and record.seconds - self._last_line >= _LINE_SECONDS:
            self._last_line = record.seconds
            self._print(
                f"{record.seconds:6.0f} s  step {record.step}  samples {record.samples} "
                f"of at most {self._max_samples}  {speed}"
            )

    def evaluation_started(self, samples: int) -> None:
        """Nothing: the bar stays."""

    def evaluation_done(self, record: EvaluationRecord) -> None:
        """Print the evaluation."""
        self._bar.update(
            self._task, accuracy=f"accuracy {record.mlm_accuracy:.4f} (target {self._target:g})"
        )
        self._print(
            f"{record.seconds:6.0f} s  step {record.step}  samples {record.samples}  "
            f"MLM accuracy {record.mlm_accuracy:.4f} (target {self._target:g})  "
            f"evaluated {record.eval_samples} samples in {record.evaluation_seconds:.1f} s"
        )

    def _communication(self) -> str:
        """Where the time of gradients went, over the whole run."""
        backward, all_reduce, exposed = (
            1000 * seconds / self._steps
            for seconds in (self._backward, self._all_reduce, self._exposed)
        )
        return (
            f"communication: a step's backward {backward:.0f} ms, all-reduce {all_reduce:.0f} ms, "
            f"exposed {exposed:.0f} ms"
        )

    def _print(self, line: str) -> None:
        self._console.print(line, highlight=False, soft_wrap=True, markup=False)
