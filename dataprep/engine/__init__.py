"""Maps a stage over its jobs: in this process, in several, or on a Spark cluster."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from dataprep.engine.config import EngineConfig
from dataprep.engine.jobs import Engine, Job, stage_inputs
from dataprep.engine.processes import run_processes
from dataprep.engine.receipts import (
    done,
    perform,
    prepare,
    recorded_files,
    remove_if_empty,
    remove_left_over,
)
from dataprep.engine.spark import run_spark
from dataprep.manifest import MANIFEST_NAME, FileEntry, refuse_another_stage
from dataprep.progress import Meter, reporting
from dataprep.storage import only_user, remove_stale

SERIAL = EngineConfig("serial")
__all__ = ["SERIAL", "EngineConfig", "Job", "run_jobs", "stage_inputs"]


def run_jobs(folder: Path, jobs: Sequence[Job], config: EngineConfig) -> list[FileEntry]:
    """Run the jobs that are not done yet.

    Returns:
        the entries of all jobs' files, in the order of the jobs, whatever the engine.

    Raises:
        ValueError: a job failed (its message) or its process was killed (job and signal); the
            folder is another stage's.
    """
    stage = jobs[0].inputs.get("stage") if jobs else None
    if stage is not None:
        refuse_another_stage(folder, "samples" if stage == "import" else stage)
    earlier = recorded_files(folder)
    made = {job.name: done(folder, job) for job in jobs}
    todo = [job for job in jobs if made[job.name] is None]
    new_folders = [above for above in folder.parents if not above.exists()]
    if todo:
        prepare(folder)
        try:
            with only_user(folder):
                # the folder is unfinished until its manifest is written anew
                (folder / MANIFEST_NAME).unlink(missing_ok=True)
                remove_stale(folder)
                made |= _run(folder, todo, config)
        except BaseException:
            remove_if_empty(folder)
            with suppress(OSError):
                for above in new_folders:
                    above.rmdir()
            raise
    entries = [entry for job in jobs for entry in made[job.name] or []]
    remove_left_over(folder, jobs, earlier - {entry.file for entry in entries})
    return entries


def _run(folder: Path, jobs: Sequence[Job], config: EngineConfig) -> dict[str, list[FileEntry]]:
    made = {}
    with Meter(folder.name, len(jobs), sum(job.bytes for job in jobs)) as meter:
        for job, entries in build_engine(config, len(jobs))(folder, jobs, meter):
            made[job.name] = entries
            meter.job_done()
    return made


def build_engine(config: EngineConfig, jobs: int) -> Engine:
    """The engine of a configuration; a single job is run in this process, but for Spark.

    Raises:
        ValueError: no such engine; the valid names are listed.
    """
    engines: dict[str, Engine] = {
        "serial": run_serial,
        "processes": partial(run_processes, workers=config.workers),
        "spark": partial(run_spark, master=config.master),
    }
    if config.name not in engines:
        raise ValueError(f"engine '{config.name}'; choose one of: {', '.join(engines)}")
    alone = config.name == "processes" and (config.workers == 1 or jobs == 1)
    return engines["serial" if alone else config.name]


def run_serial(
    folder: Path, jobs: Sequence[Job], meter: Meter
) -> Iterator[tuple[Job, list[FileEntry]]]:
    """One after the other, in this process."""
    for job in jobs:
        with reporting(meter.advance):
            entries = perform(folder, job)
        yield job, entries
