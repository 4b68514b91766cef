"""Jobs in several processes of this machine."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from dataprep.engine.jobs import Job
from dataprep.engine.receipts import perform
from dataprep.manifest import FileEntry


def run_processes(
    folder: Path, jobs: Sequence[Job], workers: int
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
                job, process = running.pop(ready)
                yield job, _result(job, process, ready)
    finally:
        for _, process in running.values():
            process.terminate()
            process.join()


def _work(folder: Path, job: Job, sender: Connection) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    answer: list[FileEntry] | Exception
    try:
        answer = perform(folder, job)
    except (ValueError, OSError) as error:
        answer = error
    with suppress(BrokenPipeError):  # nobody is waiting any more
        sender.send(answer)


def _end_with_parent() -> None:
    """A parent that was killed cannot end its workers."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGKILL)


def _result(job: Job, process: BaseProcess, receiver: Connection) -> list[FileEntry]:
    answer = None
    with suppress(EOFError):  # the process ended without a word
        answer = receiver.recv()
    process.join()
    if isinstance(answer, Exception):
        raise answer
    if answer is None:
        code = process.exitcode or 0
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        raise ValueError(f"{job.name}: its worker was {how}; run again to continue from there")
    return list(answer)
