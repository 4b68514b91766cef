"""The engines: the same bytes from all, and what becomes of a job that fails or is killed."""

import errno
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from launch import ROOT

from dataprep.engine import SERIAL, EngineConfig, Job, run_jobs
from dataprep.manifest import FileEntry, Manifest, read_manifest
from dataprep.storage import only_user

TWO = EngineConfig("processes", workers=2)
SPARK = EngineConfig("spark", master="local[2]")
spark_is_loud = pytest.mark.filterwarnings(
    *(f"ignore::{kind}Warning" for kind in ("Future", "Deprecation", "Resource", "User"))
)


def write_number(folder: Path, number: int) -> list[FileEntry]:
    path = folder / f"{number}.txt"
    path.write_text(str(number))
    return [FileEntry(path.name, path.stat().st_size, "", {})]


def kill_itself(first: Path | None = None) -> list[FileEntry]:
    while first is not None and not first.exists():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)
    return []


def refuse() -> list[FileEntry]:
    raise ValueError("part 2 is bad; mend it")


def test_a_killed_worker_names_job_and_signal_and_the_rest_is_kept(tmp_path: Path) -> None:
    good = [Job(f"{i}", partial(write_number, tmp_path, i), {"i": i}) for i in range(4)]
    bad = Job("part-00007.h5", partial(kill_itself, tmp_path / ".receipts" / "0.json"), {})
    with pytest.raises(ValueError, match=r"part-00007\.h5: its worker was killed by SIGKILL"):
        run_jobs(tmp_path, [*good[:3], bad, good[3]], TWO)
    made = (tmp_path / "0.txt").stat().st_mtime_ns
    entries = run_jobs(tmp_path, good, TWO)
    assert [entry.file for entry in entries] == [f"{i}.txt" for i in range(4)]
    assert (tmp_path / "0.txt").stat().st_mtime_ns == made


@pytest.mark.parametrize("engine", [SERIAL, TWO], ids=["serial", "processes"])
def test_a_workers_error_is_the_callers_error(tmp_path: Path, engine: EngineConfig) -> None:
    jobs = [Job("a", refuse, {}), Job("b", refuse, {})]
    with pytest.raises(ValueError, match="part 2 is bad; mend it"):
        run_jobs(tmp_path / "out", jobs, engine)
    assert not (tmp_path / "out").exists()
    with pytest.raises(ValueError, match="part 2 is bad; mend it"):
        run_jobs(tmp_path / "a" / "b" / "c", jobs, engine)
    assert not (tmp_path / "a").exists()


def fill_the_disk(error: Exception) -> list[FileEntry]:
    raise error


@pytest.mark.parametrize("engine", [SERIAL, TWO], ids=["serial", "processes"])
@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
        RuntimeError("flush failed, errno = 28, error message = 'No space left on device'"),
    ],
)
def test_a_full_disk_names_the_folder(
    tmp_path: Path, engine: EngineConfig, error: Exception
) -> None:
    jobs = [Job(name, partial(fill_the_disk, error), {}) for name in "ab"]
    with pytest.raises(ValueError, match="out: no space left on its disk; free some"):
        run_jobs(tmp_path / "out", jobs, engine)
    assert not (tmp_path / "out").exists()


def test_workers_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "import os, time\n"
        "from functools import partial\n"
        "from pathlib import Path\n"
        "from dataprep.engine import EngineConfig, Job, run_jobs\n"
        "def wait(path):\n"
        "    path.write_text(str(os.getpid()))\n"
        "    time.sleep(300)\n"
        "if __name__ == '__main__':\n"
        f"    root = Path({str(tmp_path)!r})\n"
        "    jobs = [Job(str(i), partial(wait, root / f'{i}.pid'), {}) for i in range(2)]\n"
        "    run_jobs(root / 'out', jobs, EngineConfig('processes', workers=2))\n"
    )
    parent = subprocess.Popen([sys.executable, str(script)], env={**os.environ, "PYTHONPATH": ROOT})
    try:
        wait_for(lambda: all(pid_of(tmp_path / f"{i}.pid") for i in range(2)))
    finally:
        parent.kill()
        parent.wait()
    workers = [pid_of(tmp_path / f"{i}.pid") for i in range(2)]
    wait_for(lambda: not any(Path(f"/proc/{pid}/cmdline").exists() for pid in workers))


def pid_of(path: Path) -> int:
    return int(path.read_text() or 0) if path.exists() else 0


def wait_for(condition, seconds: float = 60) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, "not in time"
        time.sleep(0.05)


def test_two_processes_in_one_folder_are_refused(tmp_path: Path) -> None:
    with (
        only_user(tmp_path),
        pytest.raises(ValueError, match="another process prepares it; wait for it, or choose"),
    ):
        run_jobs(tmp_path, [Job("a", partial(write_number, tmp_path, 1), {})], SERIAL)


def test_an_unknown_engine_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="engine 'dask'; choose one of: serial, processes, spark"):
        run_jobs(tmp_path, [Job("a", refuse, {})], EngineConfig("dask"))  # type: ignore[arg-type]


def test_a_stage_never_takes_the_place_of_another(tmp_path: Path) -> None:
    inputs = {"stage": "documents"}
    entries = run_jobs(tmp_path, [Job("1", partial(write_number, tmp_path, 1), inputs)], SERIAL)
    Manifest("documents", 0, {}, {}, entries).write(tmp_path)
    other = Job("2", partial(write_number, tmp_path, 2), {"stage": "sentences"})
    with pytest.raises(ValueError, match="holds what stage 'documents' made.*another output"):
        run_jobs(tmp_path, [other], SERIAL)
    assert read_manifest(tmp_path, ("documents",)).files == entries


def test_a_master_that_is_none_and_a_missing_java_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspark", reason="needs the extra spark")
    jobs = [Job("a", refuse, {})]
    with pytest.raises(ValueError, match=r"engine master 'foo://1': give local\[N\], spark://"):
        run_jobs(tmp_path / "out", jobs, EngineConfig("spark", master="foo://1"))
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ValueError, match="no java on the path; install Java 17"):
        run_jobs(tmp_path / "out", jobs, SPARK)


# --- Spark ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def java() -> None:
    pytest.importorskip("pyspark", reason="needs the extra spark")
    if subprocess.run(["java", "-version"], capture_output=True, check=False).returncode:
        pytest.skip("needs Java")


@pytest.mark.slow
@pytest.mark.timeout(900)
@spark_is_loud
def test_on_spark_errors_are_the_callers_and_a_lost_worker_is_named(java, tmp_path: Path) -> None:
    # functions of this module are not known to the workers: sent by value
    def write(number: int) -> list[FileEntry]:
        path = tmp_path / "out" / f"{number}.txt"
        path.write_text(str(number))
        return [FileEntry(path.name, path.stat().st_size, "", {})]

    def fail() -> list[FileEntry]:
        raise ValueError("part 2 is bad; mend it")

    def die() -> list[FileEntry]:
        os.kill(os.getpid(), signal.SIGKILL)
        return []

    good = [Job(f"{i}", partial(write, i), {"i": i}) for i in range(3)]
    with pytest.raises(ValueError, match="part 2 is bad; mend it"):
        run_jobs(tmp_path / "out", [*good, Job("2", fail, {})], SPARK)
    with pytest.raises(ValueError, match=r"part-00007\.h5.*: not made, Spark lost a worker"):
        run_jobs(tmp_path / "out", [*good, Job("part-00007.h5", die, {})], SPARK)
    assert [entry.file for entry in run_jobs(tmp_path / "out", good, SPARK)] == [
        f"{i}.txt" for i in range(3)
    ]


@pytest.mark.slow
@pytest.mark.timeout(900)
@spark_is_loud
def test_a_spark_master_that_does_not_answer_is_one_line(java, tmp_path: Path) -> None:
    nobody = EngineConfig("spark", master="spark://127.0.0.1:1")
    with pytest.raises(ValueError, match=r"^engine spark with master 'spark://127[^\n]*URL[^\n]*$"):
        run_jobs(tmp_path / "out", [Job("a", refuse, {})], nobody)
    assert not (tmp_path / "out").exists()


@pytest.fixture
def ftp_server(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A remote file system: its URL, and the folder it serves."""
    pytest.importorskip("upath", reason="needs the extra spark")
    folder = tmp_path / "server"
    folder.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["-W", "ignore", "-m", "pyftpdlib", "-i", "127.0.0.1", "-p", str(port), "-w"]
    server = subprocess.Popen(
        [sys.executable, *command, "-d", str(folder)], stderr=subprocess.DEVNULL
    )
    try:
        wait_for(lambda: answers(port))
        yield f"ftp://127.0.0.1:{port}", folder
    finally:
        server.kill()
        server.wait()


def answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_all_engines_give_the_same_bytes_also_in_a_remote_folder(
    java, ftp_server, corpus_file: Path, vocabulary_file: Path, tmp_path: Path
) -> None:
    url, served = ftp_server
    (served / "corpus.txt").write_bytes(corpus_file.read_bytes())
    (served / "vocab.txt").write_bytes(vocabulary_file.read_bytes())
    local = [str(corpus_file), str(vocabulary_file)]
    contents = []
    for engine, (corpus, vocabulary), output, where in (
        ("serial", local, tmp_path / "serial", tmp_path / "serial"),
        ("processes", local, tmp_path / "processes", tmp_path / "processes"),
        ("spark", [f"{url}/corpus.txt", f"{url}/vocab.txt"], f"{url}/spark", served / "spark"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "dataprep", "run", "--sources", f'["{corpus}"]',
             "--vocab", vocabulary, "--output", str(output), "--parts", "3",
             "--evaluation_documents", "6", "--evaluation_samples", "10",
             "--sentences.splitter", "lines", "--samples.max_seq_length", "64",
             "--samples.max_predictions", "10", "--samples.dupe_factor", "2", "--stripes", "3",
             "--engine.name", engine, "--engine.workers", "2", "--engine.master", "local[2]"],
            capture_output=True, text=True, cwd=ROOT, timeout=280, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        contents.append(
            {
                str(path.relative_to(where)): path.read_bytes()
                for path in sorted(where.rglob("*"))
                if path.is_file() and path.suffix in (".h5", ".txt", ".md5", ".jsonl")
            }
        )
    assert len(contents[0]) > 15
    for content in contents[1:]:
        assert content.keys() == contents[0].keys()
        assert [name for name in content if content[name] != contents[0][name]] == []
