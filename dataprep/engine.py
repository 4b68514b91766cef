"""Maps a stage over its jobs, in this process or in several, and keeps what is already done.

A job makes one or more files of a stage's folder. Its receipt records what they were made from; a
job whose receipt still fits is not run again, so an interrupted stage continues where it stopped.
"""

import hashlib
import json
import multiprocessing
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from dataprep.manifest import MANIFEST_NAME, FileEntry, remove_stale, replacing

_RECEIPTS = ".receipts"
_STAGE_VERSION = 1  # raised when a stage makes something else of the same inputs


@dataclass(frozen=True)
class Job:
    """One call of a stage's function.

    Args:
        name: of the job within the stage; names its receipt and, in errors, the job.
        run: makes the files in the folder and describes them; picklable.
        inputs: all that decides the result (settings, seed, digests of sources); JSON types.
    """

    name: str
    run: Callable[[], list[FileEntry]]
    inputs: Mapping[str, Any]

    @property
    def fingerprint(self) -> str:
        """The digest of the inputs."""
        return hashlib.sha256(json.dumps(self.inputs, sort_keys=True).encode()).hexdigest()


def stage_inputs(stage: str, settings: Any, seed: int, sources: Sequence[Any]) -> dict[str, Any]:
    """What decides the result of a job: the stage, its settings, the digests of its sources."""
    return {
        "stage": stage,
        "version": _STAGE_VERSION,
        "settings": settings,
        "seed": seed,
        "sources": list(sources),
    }


def run_jobs(folder: Path, jobs: Sequence[Job], workers: int) -> list[FileEntry]:
    """Run the jobs that are not done yet, at most ``workers`` at once.

    Returns:
        the entries of all jobs' files, in the order of the jobs, whatever the workers.

    Raises:
        ValueError: a job failed (its message) or its process was killed (job and signal).
    """
    if workers < 1:
        raise ValueError(f"workers {workers} must be at least 1")
    earlier = _recorded_files(folder)
    done = {job.name: _done(folder, job) for job in jobs}
    todo = [job for job in jobs if done[job.name] is None]
    parent_is_new = not folder.parent.exists()
    if todo:  # the folder is unfinished until its manifest is written anew
        (folder / MANIFEST_NAME).unlink(missing_ok=True)
        remove_stale(folder)
    results = _serial(todo) if workers == 1 or len(todo) < 2 else _processes(todo, workers)
    try:
        for job, entries in results:
            _write_receipt(folder, job, entries)
            done[job.name] = entries
    except BaseException:
        with suppress(OSError):  # leave no empty folder behind
            folder.rmdir()
            if parent_is_new:
                folder.parent.rmdir()
        raise
    made = [entry for job in jobs for entry in done[job.name] or []]
    _remove_left_over(folder, jobs, earlier - {entry.file for entry in made})
    return made


def _serial(jobs: Sequence[Job]) -> Iterator[tuple[Job, list[FileEntry]]]:
    for job in jobs:
        yield job, job.run()


def _processes(jobs: Sequence[Job], workers: int) -> Iterator[tuple[Job, list[FileEntry]]]:
    context = multiprocessing.get_context("spawn")
    waiting = list(reversed(jobs))
    running: dict[Connection, tuple[Job, BaseProcess]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                job = waiting.pop()
                receiver, sender = context.Pipe(duplex=False)
                process: BaseProcess = context.Process(
                    target=_work, args=(job, sender), daemon=True
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


def _work(job: Job, sender: Connection) -> None:
    answer: list[FileEntry] | Exception
    try:
        answer = job.run()
    except (ValueError, OSError) as error:
        answer = error
    with suppress(BrokenPipeError):  # nobody is waiting any more
        sender.send(answer)


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


def _receipt(folder: Path, job: Job) -> Path:
    return folder / _RECEIPTS / f"{job.name}.json"


def _write_receipt(folder: Path, job: Job, entries: list[FileEntry]) -> None:
    content = {"fingerprint": job.fingerprint, "files": [asdict(entry) for entry in entries]}
    with replacing(_receipt(folder, job)) as temporary:
        temporary.write_text(json.dumps(content), encoding="utf-8")


def _done(folder: Path, job: Job) -> list[FileEntry] | None:
    """What the job made, if its receipt fits and its files are there in their sizes."""
    try:
        receipt = json.loads(_receipt(folder, job).read_text(encoding="utf-8"))
        entries = [FileEntry(**entry) for entry in receipt["files"]]
        sizes = [(folder / entry.file).stat().st_size for entry in entries]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    same = sizes == [entry.bytes for entry in entries]
    return entries if same and receipt["fingerprint"] == job.fingerprint else None


def _recorded_files(folder: Path) -> set[str]:
    """The files that earlier runs of the stage made, by their receipts."""
    names: set[str] = set()
    for path in (folder / _RECEIPTS).glob("*.json"):
        with suppress(OSError, ValueError, KeyError, TypeError):
            receipt = json.loads(path.read_text(encoding="utf-8"))
            names |= {Path(entry["file"]).name for entry in receipt["files"]}
    return names


def _remove_left_over(folder: Path, jobs: Sequence[Job], files: set[str]) -> None:
    """Delete files and receipts that are no longer part of the stage, such as of more parts."""
    for name in files:
        (folder / name).unlink(missing_ok=True)
    names = {job.name for job in jobs}
    for path in (folder / _RECEIPTS).glob("*.json"):
        if path.stem not in names:
            path.unlink()
