"""Results written by hand, as the readers must take them."""

import json
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUN_START_MS = 1_750_000_030_000

Record = tuple[float, str, Any, dict[str, Any]]


def header(division: str) -> list[Record]:
    """Everything up to init_stop, with times in seconds after run_start."""
    values: dict[str, Any] = {
        "cache_clear": True,
        "init_start": None,
        "submission_benchmark": "bert",
        "submission_org": "Someone",
        "submission_division": division,
        "submission_status": "research",
        "submission_platform": "box",
        "seed": 1,
        "global_batch_size": 8,
        "gradient_accumulation_steps": 1,
        "opt_learning_rate_training_steps": 500,
        "num_warmup_steps": 30,
        "opt_base_learning_rate": 7e-4,
        "opt_lamb_epsilon": 1e-6,
        "opt_lamb_beta_1": 0.9,
        "opt_lamb_beta_2": 0.98,
        "opt_lamb_weight_decay_rate": 0.01,
        "opt_learning_rate_warmup_steps": 30,
        "start_warmup_step": 0,
        "init_stop": None,
    }
    return [(-20.0, key, value, {}) for key, value in values.items()]


def run_records(
    accuracies: list[float], status: str = "success", division: str = "open"
) -> list[Record]:
    """A run that evaluates each 100 s, each time for 10 s, every 800 samples."""
    records = header(division)
    records += [
        (0, "run_start", None, {}),
        (0, "epoch_start", None, {"epoch_num": 0}),
        (0, "block_start", None, {"first_epoch_num": 0, "epoch_count": 1}),
    ]
    for number, accuracy in enumerate(accuracies, 1):
        samples = {"epoch_num": 800 * number}
        records += [
            (100 * number - 10, "eval_start", None, samples),
            (100 * number, "eval_accuracy", accuracy, samples),
            (100 * number, "eval_stop", None, samples),
        ]
    end, samples = 100 * len(accuracies), 800 * len(accuracies)
    return records + [
        (end, "block_stop", None, {"first_epoch_num": 0}),
        (end, "epoch_stop", None, {"epoch_num": samples}),
        (end, "train_samples", samples, {}),
        (end, "eval_samples", 64, {}),
        (end + 0.5, "run_stop", None, {"status": status}),
    ]


def log_text(records: list[Record]) -> str:
    """The lines of a result file."""

    def event_type(key: str) -> str:
        kinds = {"_start": "INTERVAL_START", "_stop": "INTERVAL_END"}
        return next((kind for end, kind in kinds.items() if key.endswith(end)), "POINT_IN_TIME")

    return "".join(
        ":::MLLOG "
        + json.dumps(
            {
                "namespace": "",
                "time_ms": RUN_START_MS + round(1000 * seconds),
                "event_type": event_type(key),
                "key": key,
                "value": value,
                "metadata": {"file": "x.py", "lineno": 1, **metadata},
            }
        )
        + "\n"
        for seconds, key, value, metadata in records
    )


def step_line(number: int) -> str:
    """A line of metrics.jsonl: a step of 8 samples and 1,000 tokens that takes 0.9 s."""
    record = {
        "kind": "step",
        "step": number,
        "samples": 8 * number,
        "tokens": 1000,
        "loss": 8.0 - number / 100,
        "step_seconds": 0.9,
        "tokens_per_second": 1111.1,
        "skipped_steps": number // 100,
        "clipped_share": 0.5,
        "backward_seconds": 0.6,
        "all_reduce_seconds": 0.3,
        "exposed_seconds": 0.02,
    }
    return json.dumps(record) + "\n"


SYNC_LINE = json.dumps(
    {
        "kind": "sync",
        "clip": "bucket_before",
        "max_norm": 1.0,
        "wire": "fp16",
        "buckets": 7,
        "bucket_cap_mb": 25.0,
    }
)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """The folder of a successful run of 300.5 s."""
    folder = tmp_path / "run"
    (folder / "checkpoint").mkdir(parents=True)
    (folder / "result_0.txt").write_text(log_text(run_records([0.05, 0.1, 0.16])))
    (folder / "metrics.jsonl").write_text(
        f"{SYNC_LINE}\n"
        + "".join(map(step_line, range(1, 301)))
        + json.dumps({"kind": "evaluation"})
        + "\n"
    )
    (folder / "config.yaml").write_text("seed: 1\n")
    facts = {
        "target_accuracy": 0.15,
        "baseline": {"label": "the", "accuracy": 0.061},
        "parameters": 22_713_216,
        "ranks": 2,
        "versions": {"torch": "2.13.0+cpu"},
        "hardware": {"processor": "Some CPU", "cores": 2, "gpus": []},
    }
    (folder / "run.json").write_text(json.dumps(facts))
    return folder


Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def results_command(tmp_path: Path) -> Command:
    """Runs ``python -m results`` in an empty folder, which must stay so."""
    folder = tmp_path / "working_folder"
    folder.mkdir()

    def run(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-m", "results", *map(str, arguments)],
            capture_output=True,
            encoding=environment.get("PYTHONIOENCODING", "utf-8"),
            cwd=folder,
            env={"PATH": "", "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1", **environment},
            check=False,
        )
        assert list(folder.iterdir()) == []
        assert "Traceback" not in done.stderr
        return done

    return run


@pytest.fixture(scope="session")
def published_logs(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The published BERT results, unpacked."""
    folder = tmp_path_factory.mktemp("published")
    with tarfile.open(shared_data / "published_logs.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture
def hand_written() -> tuple[Callable[..., list[Record]], Callable[[list[Record]], str]]:
    """``run_records`` and ``log_text``."""
    return run_records, log_text
