"""The folder of one run: settings and facts first, then log, metrics and checkpoint."""

import json
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from train.run_config import RunConfig

_ROOT = Path(__file__).resolve().parents[1]
_PACKAGES = ("bert-sprint", "torch", "numpy", "h5py", "mlperf-logging")


class RunFolder:
    """A new folder that one rank writes in; on the others all methods do nothing.

    Args:
        path: must not exist yet.
        writes: whether this rank makes the folder and writes.

    Raises:
        ValueError: the folder exists: a second run would be mixed into the first one's files.
    """

    def __init__(self, path: Path, writes: bool) -> None:
        self.path = path
        self.writes = writes
        if writes:
            self._create()

    def _create(self) -> None:
        path = self.path
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            raise ValueError(
                f"run_folder '{path}' exists; name another one or delete it (a run never adds to "
                "another's files)"
            ) from None

    @property
    def log(self) -> Path | None:
        """The MLPerf log; None where this rank does not write."""
        return self.path / "result_0.txt" if self.writes else None

    @property
    def metrics(self) -> Path:
        """Steps and evaluations as JSON Lines."""
        return self.path / "metrics.jsonl"

    def describe(self, config: RunConfig, facts: dict[str, Any]) -> None:
        """Write ``config.yaml`` (resolved) and ``run.json`` (facts, versions, hardware)."""
        if not self.writes:
            return
        (self.path / "config.yaml").write_text(config.to_yaml(), encoding="utf-8")
        content = {**facts, "versions": _versions(), "hardware": _hardware()}
        text = json.dumps(content, indent=1) + "\n"
        (self.path / "run.json").write_text(text, encoding="utf-8")

    def save(self, write: Callable[[Path], object]) -> None:
        """Let ``write`` add to the folder."""
        if self.writes:
            write(self.path)

    @contextmanager
    def discarded_on_error(self) -> Iterator[None]:
        """Delete the folder if the block fails: a run that never began leaves nothing."""
        try:
            yield
        except BaseException:
            if self.writes:
                shutil.rmtree(self.path, ignore_errors=True)
            raise


def default_path() -> Path:
    """``runs/`` and the time."""
    return Path("runs") / datetime.now().strftime("%Y%m%d-%H%M%S-%f")


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    versions["torch"] = torch.__version__
    with suppress(OSError, subprocess.CalledProcessError):  # no git, or no checkout
        command = ["git", "-C", str(_ROOT), "describe", "--always", "--dirty", "--abbrev=40"]
        asked = subprocess.run(command, capture_output=True, text=True, check=True)
        versions["revision"] = asked.stdout.strip()
    return versions


def _hardware() -> dict[str, Any]:
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30, 1),
        "threads_per_rank": torch.get_num_threads(),
        "gpus": gpus,
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()
