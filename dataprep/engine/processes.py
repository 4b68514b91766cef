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
from dataprep.progress import Meter, flush, reporting


def run_processes(
    folder: Path, jobs: Sequence[Job], meter: Meter, workers: int
) -> Iterator[tuple[Job, list[FileEntry]]]:
    """At most ``workers`` at once, in as many processes that take one job after another.

    Raises:
        ValueError: a job failed (its message) or its process was killed (job and signal).
    """
    context = multiprocessing.get_context("spawn")
    waiting = list(reversed(jobs))
    running: dict[Connection, tuple[Job, BaseProcess]] = {}
    processes: list[BaseProcess] = []

    def assign(connection: Connection, process: BaseProcess) -> None:
        job = waiting.pop()
        running[connection] = job, process
        with suppress(BrokenPipeError):  # it has ended: seen when its answer is missing
            connection.send(job)

    try:
        for _ in range(min(workers, len(jobs))):
            ours, theirs = context.Pipe()
            process: BaseProcess = context.Process(target=_work, args=(folder, theirs), daemon=True)
            process.start()
            processes.append(process)
            theirs.close()
            assign(ours, process)
        while running:
            for ready in wait(list(running)):
                assert isinstance(ready, Connection)
                answer = _receive(ready)
                if isinstance(answer, Counter):
                    meter.advance(answer)
                    continue
                job, process = running.pop(ready)
                yield job, _result(job, process, answer)
                if waiting:
                    assign(ready, process)
                else:
                    ready.close()  # which ends it
    except BaseException:
        for process in processes:
            process.terminate()
        raise
    finally:
        for process in processes:
            process.join()


def _work(folder: Path, connection: Connection) -> None:
    """One job after another, until there are no more or nobody is waiting for them."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError, BrokenPipeError, ConnectionResetError), reporting(connection.send):
        while True:
            job: Job = connection.recv()
            connection.send(_perform(folder, job))


def _perform(folder: Path, job: Job) -> list[FileEntry] | Exception:
    try:
        entries = perform(folder, job)
        flush()
        return entries
    except (BrokenPipeError, ConnectionResetError):
        raise
    except (ValueError, OSError) as error:
        return error


def _end_with_parent() -> None:
    """A parent that was killed cannot end its workers."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGKILL)


def _receive(connection: Connection) -> Any:
    """A worker's progress, entries or error; None if it ended without a word."""
    with suppress(EOFError, ConnectionResetError):
        return connection.recv()


def _result(job: Job, process: BaseProcess, answer: Any) -> list[FileEntry]:
    if isinstance(answer, Exception):
        raise answer
    if answer is None:
        process.join()
        code = process.exitcode or 0
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        raise ValueError(f"{job.name}: its worker was {how}; run again to continue from there")
    return list(answer)
