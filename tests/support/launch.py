"""Start runs as their user would, in processes with a time limit."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "run_pretraining.py"


def command(config: Path, run_folder: Path, ranks: int, *options: str) -> list[str]:
    """The command line of a run of so many ranks."""
    start = [sys.executable]
    if ranks > 1:
        # a free port each time, so that tests can run side by side
        start += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    settings = ["--config", str(config), "--run_folder", str(run_folder)]
    return [*start, str(SCRIPT), *settings, *options]


def environment() -> dict[str, str]:
    """The test's own, one thread a rank."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def run(
    config: Path, run_folder: Path, *options: str, ranks: int = 1, timeout: float = 240
) -> subprocess.CompletedProcess[str]:
    """Run to the end; torchrun ends its ranks when it is itself ended."""
    process = subprocess.Popen(
        command(config, run_folder, ranks, *options),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        cwd=ROOT,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def records(run_folder: Path, kind: str) -> list[dict]:
    """The lines of one kind of the run's metrics."""
    lines = (run_folder / "metrics.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] == kind]


def log_events(run_folder: Path) -> list[tuple[str, object, dict]]:
    """Key, value and metadata of the run's MLPerf log."""
    lines = (run_folder / "result_0.txt").read_text().splitlines()
    parsed = [json.loads(line.removeprefix(":::MLLOG ")) for line in lines]
    return [(line["key"], line["value"], line["metadata"]) for line in parsed]
