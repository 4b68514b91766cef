"""What is already done: a receipt for each job, written as soon as its files are whole.

A job whose receipt fits its inputs is not run again, so an interrupted stage continues where it
stopped, whatever engine ran it.
"""

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dataprep.engine.jobs import Job
from dataprep.manifest import FileEntry
from dataprep.storage import is_local, naming_full_disk, replacing

_RECEIPTS = ".receipts"


def perform(folder: Path, job: Job) -> list[FileEntry]:
    """Run a job and write its receipt, in whatever process this is."""
    started, cpu = time.perf_counter(), time.process_time()
    with naming_full_disk(folder):
        entries = job.run()
    content = {
        "fingerprint": job.fingerprint,
        "files": [asdict(entry) for entry in entries],
        "seconds": time.perf_counter() - started,
        "cpu_seconds": time.process_time() - cpu,
    }
    with replacing(_receipt(folder, job)) as temporary:
        temporary.write_text(json.dumps(content), encoding="utf-8")
    return entries


def prepare(folder: Path) -> None:
    """Make the folder before several workers want to at once."""
    (folder / _RECEIPTS).mkdir(parents=True, exist_ok=True)


def remove_if_empty(folder: Path) -> bool:
    """Remove a folder in which no job has succeeded; whether it is gone."""
    if is_local(folder):
        with suppress(OSError):
            (folder / _RECEIPTS).rmdir()
        with suppress(OSError):
            folder.rmdir()
    return not folder.exists()


def done(folder: Path, job: Job) -> list[FileEntry] | None:
    """What the job made, if its receipt fits and its files are there in their sizes."""
    try:
        receipt = json.loads(_receipt(folder, job).read_text(encoding="utf-8"))
        entries = [FileEntry(**entry) for entry in receipt["files"]]
        sizes = [(folder / entry.file).stat().st_size for entry in entries]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    same = sizes == [entry.bytes for entry in entries]
    return entries if same and receipt["fingerprint"] == job.fingerprint else None


def recorded_files(folder: Path) -> set[str]:
    """The files that earlier runs of the stage made, by their receipts."""
    names: set[str] = set()
    for receipt in _receipts(folder):
        with suppress(KeyError, TypeError):
            names |= {Path(entry["file"]).name for entry in receipt["files"]}
    return names


def stage_seconds(folder: Path) -> tuple[float, float]:
    """The seconds and the CPU-seconds that a stage's jobs took together, by their receipts."""
    receipts = list(_receipts(folder))
    return tuple(  # type: ignore[return-value]
        sum(float(receipt.get(name, 0)) for receipt in receipts)
        for name in ("seconds", "cpu_seconds")
    )


def remove_left_over(folder: Path, jobs: Sequence[Job], files: set[str]) -> None:
    """Delete files and receipts that are no longer part of the stage, such as of more parts."""
    for name in files:
        (folder / name).unlink(missing_ok=True)
    names = {job.name for job in jobs}
    for path in (folder / _RECEIPTS).glob("*.json"):
        if path.stem not in names:
            path.unlink()


def _receipt(folder: Path, job: Job) -> Path:
    return folder / _RECEIPTS / f"{job.name}.json"


def _receipts(folder: Path) -> list[dict[str, Any]]:
    found = []
    for path in (folder / _RECEIPTS).glob("*.json"):
        with suppress(OSError, ValueError):
            found.append(json.loads(path.read_text(encoding="utf-8")))
    return [receipt for receipt in found if isinstance(receipt, dict)]
