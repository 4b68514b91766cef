"""How far a stage is: documents, samples, MB/s and the time left.

Stages call ``advance`` as they go, in whatever process they run. It costs next to nothing and does
nothing unless somebody listens: the engine passes on what its workers report.
"""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.status import Status

_SECONDS_BETWEEN_REPORTS = 0.5
_SECONDS_BETWEEN_LINES = 10.0

Report = Callable[[Counter[str]], None]

_report: Report | None = None
_pending: Counter[str] = Counter()
_reported = 0.0


def advance(**counts: int) -> None:
    """Say that so many ``bytes`` of the sources, ``documents`` or ``samples`` are done."""
    global _reported
    if _report is None:
        return
    _pending.update(counts)
    now = time.monotonic()
    if now - _reported >= _SECONDS_BETWEEN_REPORTS:
        _reported = now
        flush()


def flush() -> None:
    """Report what has been held back."""
    if _report is not None and _pending:
        _report(Counter(_pending))
        _pending.clear()


@contextmanager
def reporting(report: Report) -> Iterator[None]:
    """Have what this process advances reported, at most twice a second."""
    global _report
    before, _report = _report, report
    try:
        yield
    finally:
        flush()
        _report = before


class Meter:
    """Shows the progress of a stage on standard error.

    On a terminal it is one line that changes; in a file a line every ten seconds.

    Args:
        stage: its name.
        jobs, total_bytes: of the sources of all jobs that are to be done.
    """

    def __init__(self, stage: str, jobs: int, total_bytes: int) -> None:
        self._stage = stage
        self._jobs = jobs
        self._total_bytes = total_bytes
        self._done = Counter[str]()
        self._finished = 0
        self._start = self._shown = time.monotonic()
        self._status: Status | None = None

    def __enter__(self) -> "Meter":
        console = Console(stderr=True)
        if console.is_terminal:
            self._status = console.status(f"{self._stage} ...")
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def advance(self, counts: Counter[str]) -> None:
        """Add what a worker reported."""
        self._done.update(counts)
        self._show()

    def job_done(self) -> None:
        """A job is finished."""
        self._finished += 1
        self._show()

    def _show(self) -> None:
        now = time.monotonic()
        if self._status is not None:
            self._status.update(self.line(now - self._start))
        elif now - self._shown >= _SECONDS_BETWEEN_LINES:
            self._shown = now
            print(self.line(now - self._start), file=sys.stderr, flush=True)

    def line(self, seconds: float) -> str:
        """The progress after so many seconds, in words."""
        megabytes, total = self._done["bytes"] / 1e6, self._total_bytes / 1e6
        parts = [f"{self._stage}: {self._finished} of {self._jobs} jobs"]
        parts += [
            f"{self._done[name]:,} {name}" for name in ("documents", "samples") if self._done[name]
        ]
        if megabytes and seconds:
            parts.append(f"{megabytes:,.0f} of {total:,.0f} MB")
            parts.append(f"{megabytes / seconds:.2f} MB/s")
            left = max(0.0, total / megabytes - 1) * seconds
            parts.append(f"{_duration(left)} left")
        return ", ".join(parts)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
