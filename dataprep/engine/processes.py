"""Jobs in several processes of this machine."""

import multiprocessing
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from dataprep.engine.jobs import Job
from dataprep.engine.receipts import perform
from dataprep.manifest import FileEntry
from dataprep.progress import Meter, reporting


def run_processes(
    folder: Path, jobs: Sequence[Job], meter: Meter, workers: int
) -> Iterator[tuple[Job, list[FileEntry]]]:
    """At most ``workers`` at once, a fresh process for each job.

    Raises:
        ValueError: a job failed (its message) or its process was killed (job and signal).
    """
    context = multiprocessing.get_context("spawn")
    waiting = list(reversed(jobs))
    running: dict[Connection, tuple[Job, BaseProcess]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                job = waiting.pop()
                receiver, sender = context.Pipe(duplex=False)
                process: BaseProcess = context.Process(
                    target=_work, args=(folder, job, sender), daemon=True
                )
                process.start()
                sender.close()
                running[receiver] = (job, process)
            for ready in wait(list(running)):
                assert isinstance(ready, Connection)
                answer = _receive(ready)
                if isinstance(answer, Counter):
                    meter.advance(answer)
                    continue
                job, process = running.pop(ready)
                yield job, _result(job, process, answer)
    finally:
        for _, process in running.values():
            process.terminate()
            process.join()


def _work(folder: Path, job: Job, sender: Connection) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    answer: list[FileEntry] | Exception
    with suppress(BrokenPipeError):  # nobody is waiting any more
        try:
            with reporting(sender.send):
                answer = perform(folder, job)
        except (ValueError, OSError) as error:
            if isinstance(error, BrokenPipeError):
                raise
            answer = error
        sender.send(answer)


def _end_with_parent() -> None:
    """A parent that was killed cannot end its workers."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGKILL)


def _receive(receiver: Connection) -> Any:
    """A worker's progress, entries or error; None if it ended without a word."""
    with suppress(EOFError):
        return receiver.recv()


def _result(job: Job, process: BaseProcess, answer: Any) -> list[FileEntry]:
    process.join()
    if isinstance(answer, Exception):
        raise answer
    if answer is None:
        code = process.exitcode or 0
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        raise ValueError(f"{job.name}: its worker was {how}; run again to continue from there")
    return list(answer)
