"""Jobs on a Spark cluster: a third way to map the same functions."""

import atexit
import os
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import dataprep
from dataprep.engine.jobs import Job
from dataprep.engine.receipts import done, perform
from dataprep.errors import describe
from dataprep.manifest import FileEntry
from dataprep.progress import Meter

_MASTER = re.compile(r"local(\[(\*|\d+)(,\d+)?\])?$|spark://|yarn$|k8s://|mesos://")

_sessions: dict[str, Any] = {}


def run_spark(
    folder: Path, jobs: Sequence[Job], meter: Meter, master: str
) -> Iterator[tuple[Job, list[FileEntry]]]:
    """Every job is a task of its own. The meter learns of them when all have ended.

    Folders must be reachable from all workers under the same name: a shared file system, or a URL
    that fsspec knows. The package itself is sent along.

    Raises:
        ValueError: pyspark or Java is missing, a job failed (its message), or its worker was lost.
    """
    session = _session(master)
    from py4j.protocol import Py4JJavaError

    tasks = session.sparkContext.parallelize(list(jobs), len(jobs))
    try:
        answers = tasks.map(_Task(folder)).collect()
    except Py4JJavaError as error:
        lost = [job.name for job in jobs if done(folder, job) is None]
        raise ValueError(
            f"{', '.join(lost[:3])}{' and others' if len(lost) > 3 else ''}: not made, Spark lost "
            f"a worker ({_java_reason(error)}); run again to continue from there"
        ) from None
    for job, answer in zip(jobs, answers, strict=True):
        if isinstance(answer, str):
            raise ValueError(answer)
        yield job, answer


class _Task:
    """What a worker does with a job: the entries of its files, or the line of its error."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, job: Job) -> list[FileEntry] | str:
        try:
            return perform(self._folder, job)
        except (ValueError, OSError) as error:
            return describe(error)


def _session(master: str) -> Any:
    """The session of a master, with this package; kept for the stages that follow."""
    if master not in _sessions:
        while _sessions:  # a process has one at a time
            _sessions.popitem()[1].stop()
        session = _start(master)
        temporary = tempfile.TemporaryDirectory()  # workers may fetch from it at any time
        atexit.register(temporary.cleanup)
        atexit.register(session.stop)
        session.sparkContext.addPyFile(str(_packed(Path(temporary.name))))
        _sessions[master] = session
    return _sessions[master]


def _start(master: str) -> Any:
    try:
        from py4j.protocol import Py4JJavaError
        from pyspark.errors.exceptions.base import PySparkException
        from pyspark.sql import SparkSession
    except ImportError:
        raise ValueError(
            "engine spark: pyspark is missing; pip install 'bert-sprint[spark]' and Java 17"
        ) from None
    if not _MASTER.match(master):
        raise ValueError(
            f"engine master '{master}': give local[N], spark://HOST:PORT, yarn or k8s://URL"
        )
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        raise ValueError("engine spark: no java on the path; install Java 17 or set JAVA_HOME")
    builder = SparkSession.builder.master(master).appName("bert-sprint dataprep")
    # the workers' interpreter, unless the user names another that they have
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # a job that failed would fail again: its inputs are the same
        "spark.task.maxFailures": "1",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except (PySparkException, OSError) as error:
        reason = describe(error)
    except Py4JJavaError as error:
        reason = _java_reason(error)
    raise ValueError(
        f"engine spark with master '{master}': no session ({reason}); "
        "check the master's URL and that JAVA_HOME is a Java 17"
    )


def _java_reason(error: Any) -> str:
    """The first line of a Java exception, without its trace."""
    return str(error.java_exception).strip().splitlines()[0]


def _packed(folder: Path) -> Path:
    """This package as a zip file, to be sent to the workers."""
    root = Path(dataprep.__file__).parent
    target = folder / "dataprep.zip"
    with zipfile.ZipFile(target, "w") as archive:
        for path in sorted(root.rglob("*.py")):
            archive.write(path, path.relative_to(root.parent))
    return target
