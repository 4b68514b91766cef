"""The MLPerf log: order, endings, values, and what the official checker says of it."""

import json
import logging
import math
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bert.config import BertConfig
from bert.tf1_checkpoint import tf1_names
from train.hyperparameters import Hyperparameters
from train.metrics import EvaluationRecord, Listener, StepRecord
from train.mllog_writer import plain
from train.mlperf_log import MLPerfConfig, MLPerfLog, RunLog

ROOT = Path(__file__).resolve().parents[2]
SAMPLES_A_STEP = 448
BERT_LARGE = BertConfig(
    hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096
)
# the reference convergence point of batch size 448
LAMB = Hyperparameters(
    seed=12345,
    global_batch_size=SAMPLES_A_STEP,
    gradient_accumulation_steps=2,
    max_predictions_per_seq=76,
    training_steps=6700,
    warmup_steps=0,
    start_warmup_step=0,
    opt_name="lamb",
    base_learning_rate=4.25e-4,
    epsilon=1e-6,
    beta_1=0.9,
    beta_2=0.999,
    weight_decay=0.01,
    poly_power=1.0,
)
INITIALISATION = [
    "cache_clear",
    "init_start",
    "submission_benchmark",
    "submission_org",
    "submission_division",
    "submission_status",
    "submission_platform",
    "seed",
    "global_batch_size",
    "gradient_accumulation_steps",
    "max_predictions_per_seq",
    "opt_learning_rate_training_steps",
    "num_warmup_steps",
    "opt_name",
    "opt_base_learning_rate",
    "opt_epsilon",
    "opt_lamb_epsilon",
    "opt_lamb_beta_1",
    "opt_lamb_beta_2",
    "opt_lamb_weight_decay_rate",
    "opt_learning_rate_warmup_steps",
    "opt_lamb_learning_rate_decay_poly_power",
    "start_warmup_step",
    "init_stop",
]
START = ["run_start", "epoch_start", "block_start"]
EVALUATION = ["eval_start", "eval_accuracy", "eval_stop", "tracked_stats"]
END = ["block_stop", "epoch_stop", "train_samples", "eval_samples", "run_stop"]


def step(number: int, samples: Any = None) -> StepRecord:
    return StepRecord(
        step=number,
        epoch=0,
        samples=number * SAMPLES_A_STEP if samples is None else samples,
        tokens=1000,
        loss=7.0,
        mlm_loss=6.3,
        nsp_loss=0.7,
        learning_rate=1e-3,
        grad_norm=1.0,
        skipped_steps=0,
        loss_scale=1.0,
        clipped_share=0.0,
        seconds=float(number),
        data_seconds=0.0,
        backward_seconds=0.5,
        all_reduce_seconds=0.2,
        exposed_seconds=0.1,
        step_seconds=1.0,
        samples_per_second=float(SAMPLES_A_STEP),
        tokens_per_second=1000.0,
    )


def evaluation(number: int, accuracy: Any, eval_samples: Any = 10_000) -> EvaluationRecord:
    return EvaluationRecord(
        step=number,
        samples=number * SAMPLES_A_STEP,
        mlm_accuracy=accuracy,
        mlm_loss=1.5,
        nsp_accuracy=0.9,
        eval_samples=eval_samples,
        seconds=float(number),
        evaluation_seconds=0.5,
    )


def initialised(path: Path | None, config: MLPerfConfig | None = None) -> MLPerfLog:
    log = MLPerfLog(config or MLPerfConfig(), path)
    with log.initialisation():
        log.hyperparameters(LAMB, tf1_names(BERT_LARGE).values())
    return log


def train(run: RunLog, accuracies: list[float]) -> None:
    """Two steps before each evaluation."""
    for index, accuracy in enumerate(accuracies, 1):
        for number in (2 * index - 1, 2 * index):
            run.step_done(step(number))
        run.evaluation_started(2 * index * SAMPLES_A_STEP)
        run.evaluation_done(evaluation(2 * index, accuracy))


def write_run(path: Path | None, accuracies: list[float], **config: Any) -> None:
    """A successful run."""
    with initialised(path, MLPerfConfig(**config)).run() as run:
        train(run, accuracies)
        run.stop(success=True)


def read(path: Path) -> list[dict[str, Any]]:
    """The records, every line of which must be strict JSON after the token."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    lines = path.read_text(encoding="utf-8").splitlines()
    assert all(line.startswith(":::MLLOG ") for line in lines)
    return [json.loads(line[9:], parse_constant=refuse) for line in lines]


def keys(path: Path) -> list[str]:
    return [record["key"] for record in read(path)]


def official(path: Path, ruleset: str) -> subprocess.CompletedProcess[str]:
    """Run the checker with warnings as errors."""
    command = [sys.executable, "-m", "mlperf_logging.compliance_checker", "--usage", "training"]
    options = ["--werror", "--ruleset", ruleset, "--log_output", str(path.with_suffix(".log"))]
    return subprocess.run(
        [*command, *options, str(path)], capture_output=True, text=True, check=False
    )


def test_the_keys_come_in_the_documented_order(tmp_path: Path) -> None:
    path = tmp_path / "result_0.txt"
    write_run(path, [0.35, 0.5, 0.73])
    assert keys(path) == INITIALISATION + START + EVALUATION * 3 + END


def test_values_and_metadata(tmp_path: Path) -> None:
    path = tmp_path / "result_0.txt"
    write_run(path, [0.35, 0.73], organization="Someone", platform="box", status="onprem")
    records = {record["key"]: record for record in read(path)}
    values = {key: record["value"] for key, record in records.items()}
    assert values["cache_clear"] is False
    assert values["submission_benchmark"] == "bert"
    assert values["submission_org"] == "Someone"
    assert values["submission_division"] == "open"
    assert values["submission_status"] == "onprem"
    assert values["submission_platform"] == "box"
    assert values["gradient_accumulation_steps"] == 2
    assert values["opt_epsilon"] == values["opt_lamb_epsilon"] == 1e-6
    assert values["opt_base_learning_rate"] == 4.25e-4
    assert values["train_samples"] == 4 * SAMPLES_A_STEP
    assert values["eval_samples"] == 10_000
    assert values["tracked_stats"]["throughput"] > 0
    assert records["run_stop"]["metadata"]["status"] == "success"
    assert "reason" not in records["run_stop"]["metadata"]
    assert records["run_stop"]["event_type"] == "INTERVAL_END"
    # the source of a record, without the machine's folders
    assert records["run_stop"]["metadata"]["file"] == "train/mlperf_log.py"


def test_epoch_num_is_the_number_of_samples_trained(tmp_path: Path) -> None:
    path = tmp_path / "result_0.txt"
    write_run(path, [0.35, 0.5, 0.73])
    for key in EVALUATION:
        numbers = [r["metadata"]["epoch_num"] for r in read(path) if r["key"] == key]
        assert numbers == [2 * SAMPLES_A_STEP, 4 * SAMPLES_A_STEP, 6 * SAMPLES_A_STEP]
        assert all(type(number) is int for number in numbers)


def test_the_caches_are_said_to_be_cleared_when_they_were(tmp_path: Path) -> None:
    path = tmp_path / "result_0.txt"
    log = MLPerfLog(MLPerfConfig(), path)
    with log.initialisation(caches_cleared=True):
        log.hyperparameters(LAMB)
    with log.run():
        pass
    assert read(path)[0]["value"] is True


OPEN_RULESETS = ["1.0.0", "1.1.0", "2.0.0", "2.1.0", "3.0.0", "3.1.0", "4.0.0", "4.1.0", "5.0.0"]
CLOSED_RULESETS = ["0.7.0", "1.0.0", "3.0.0", "3.1.0", "4.0.0", "4.1.0", "5.0.0"]


@pytest.mark.parametrize("ruleset", OPEN_RULESETS)
def test_an_open_run_passes_the_official_checker(tmp_path: Path, ruleset: str) -> None:
    path = tmp_path / "result_0.txt"
    write_run(path, [0.01, 0.12, 0.151])
    checked = official(path, ruleset)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("ruleset", CLOSED_RULESETS)
def test_a_closed_run_passes_the_official_checker(tmp_path: Path, ruleset: str) -> None:
    path = tmp_path / "result_0.txt"
    write_run(path, [0.35, 0.62, 0.7201], division="closed", status="onprem")
    checked = official(path, ruleset)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("ruleset", ["1.1.0", "2.0.0", "2.1.0"])
def test_older_rules_want_an_event_for_each_weight(tmp_path: Path, ruleset: str) -> None:
    with_events, without = tmp_path / "result_0.txt", tmp_path / "result_1.txt"
    for path in (with_events, without):
        events = path == with_events
        settings = {"division": "closed", "weights_initialization": events}
        write_run(path, [0.35, 0.62, 0.7201], **settings)
    tensors = [r["metadata"]["tensor"] for r in read(with_events)
               if r["key"] == "weights_initialization"]  # fmt: skip
    assert len(set(tensors)) == len(tensors) == 398
    assert official(with_events, ruleset).returncode == 0
    assert official(without, ruleset).returncode == 1


def test_a_closed_run_below_the_target_does_not_pass(tmp_path: Path) -> None:
    path = tmp_path / "result_0.txt"
    write_run(path, [0.35, 0.7199], division="closed")
    assert official(path, "5.0.0").returncode == 1


def test_a_run_that_is_not_told_of_success_is_aborted(tmp_path: Path) -> None:
    path = tmp_path / "result_0.txt"
    with initialised(path).run() as run:
        train(run, [0.340857])
    assert keys(path) == INITIALISATION + START + EVALUATION + END
    metadata = read(path)[-1]["metadata"]
    assert (metadata["status"], metadata["reason"]) == ("aborted", "target not reached")


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_whatever_ends_a_run_writes_run_stop_once(
    tmp_path: Path, error: type[BaseException]
) -> None:
    path = tmp_path / "result_0.txt"
    with pytest.raises(error), initialised(path).run() as run:
        train(run, [0.35])
        run.step_done(step(3))
        raise error
    assert keys(path) == INITIALISATION + START + EVALUATION + END
    records = {record["key"]: record for record in read(path)}
    assert records["run_stop"]["metadata"]["status"] == "aborted"
    assert records["run_stop"]["metadata"]["reason"] == error.__name__
    assert records["train_samples"]["value"] == 3 * SAMPLES_A_STEP
    assert records["eval_samples"]["value"] == 10_000


def test_an_interrupted_evaluation_is_closed_without_an_accuracy(tmp_path: Path) -> None:
    path = tmp_path / "result_0.txt"
    with pytest.raises(KeyboardInterrupt), initialised(path).run() as run:
        run.step_done(step(1))
        run.evaluation_started(SAMPLES_A_STEP)
        raise KeyboardInterrupt
    assert keys(path) == INITIALISATION + START + ["eval_start", "eval_stop"] + END
    values = {record["key"]: record["value"] for record in read(path)}
    assert (values["train_samples"], values["eval_samples"]) == (SAMPLES_A_STEP, 0)


def test_an_error_after_success_aborts(tmp_path: Path) -> None:
    path = tmp_path / "result_0.txt"
    with pytest.raises(OSError), initialised(path).run() as run:
        train(run, [0.73])
        run.stop(success=True)
        raise OSError("disk full")
    assert read(path)[-1]["metadata"]["status"] == "aborted"


def test_a_failed_initialisation_leaves_no_run(tmp_path: Path) -> None:
    path = tmp_path / "result_0.txt"
    log = MLPerfLog(MLPerfConfig(), path)
    with pytest.raises(ValueError, match="no such checkpoint"), log.initialisation():
        raise ValueError("no such checkpoint")
    assert keys(path) == INITIALISATION[:7]
    with pytest.raises(AssertionError), log.run():
        pass
    assert "run_start" not in keys(path)


def test_the_file_is_readable_while_the_run_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "result_0.txt"
    with initialised(path).run() as run:
        assert keys(path)[-1] == "block_start"
        train(run, [0.2])
        assert keys(path)[-1] == "tracked_stats"


def test_an_existing_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "result_0.txt"
    write_run(path, [0.73])
    before = path.read_bytes()
    with pytest.raises(ValueError, match="result_0.txt exists") as error:
        MLPerfLog(MLPerfConfig(), path)
    assert "\n" not in str(error.value)
    assert path.read_bytes() == before


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nowhere"):
        MLPerfLog(MLPerfConfig(), tmp_path / "nowhere" / "result_0.txt")


def test_two_logs_of_one_process_do_not_mix(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    handlers = list(logging.getLogger().handlers)
    paths = [tmp_path / "a.txt", tmp_path / "b.txt"]
    first, second = (MLPerfLog(MLPerfConfig(platform=path.stem), path) for path in paths)
    for log in (first, second):
        with log.initialisation():
            log.hyperparameters(LAMB)
    with first.run() as one, second.run() as two:
        train(one, [0.1, 0.2])
        train(two, [0.3])
    assert keys(paths[0]) == INITIALISATION + START + EVALUATION * 2 + END
    assert keys(paths[1]) == INITIALISATION + START + EVALUATION + END
    platforms = [r["value"] for p in paths for r in read(p) if r["key"] == "submission_platform"]
    assert platforms == ["a", "b"]
    assert capfd.readouterr() == ("", "")
    assert logging.getLogger().handlers == handlers


def test_switching_off_logging_elsewhere_does_not_empty_the_log(tmp_path: Path) -> None:
    path = tmp_path / "result_0.txt"
    logging.disable(logging.CRITICAL)
    try:
        write_run(path, [0.73])
    finally:
        logging.disable(logging.NOTSET)
    assert len(keys(path)) == len(INITIALISATION + START + EVALUATION + END)


def test_a_failed_write_is_an_error() -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("needs /dev/full")
    log = MLPerfLog(MLPerfConfig(), Path("/dev") / "mlperf-never-created")
    handler = log._writer._handler  # type: ignore[attr-defined]
    handler.baseFilename, handler.mode = str(full), "w"
    with pytest.raises(OSError, match="No space"), log.initialisation():
        pass


def test_the_silent_log_writes_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(None, [0.35, 0.73])
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


def test_a_run_log_listens_to_the_trainer() -> None:
    with initialised(None).run() as run:
        listener: Listener = run
        listener.step_done(step(1))


@pytest.mark.parametrize("path", [None, "result_0.txt"])
def test_misuse_fails_alike_on_all_ranks(tmp_path: Path, path: str | None) -> None:
    def new() -> MLPerfLog:
        for file in tmp_path.glob("result_0.txt"):
            file.unlink()
        return MLPerfLog(MLPerfConfig(), path and tmp_path / path)

    with pytest.raises(AssertionError), new().run():
        pass
    with pytest.raises(AssertionError):
        new().hyperparameters(LAMB)
    with pytest.raises(AssertionError), new().initialisation():
        pass  # without hyperparameters
    log = new()
    with pytest.raises(AssertionError), log.initialisation():
        log.hyperparameters(LAMB)
        log.hyperparameters(LAMB)
    log = new()
    with log.initialisation():
        log.hyperparameters(LAMB)
    with log.run() as run, pytest.raises(AssertionError):
        run.evaluation_done(evaluation(1, 0.5))
    with pytest.raises(AssertionError), log.run():
        pass  # a second run
    log = new()
    with log.initialisation():
        log.hyperparameters(LAMB)
    with log.run() as run:
        with pytest.raises(AssertionError):
            run.stop(success=True)
        run.evaluation_started(0)
        with pytest.raises(AssertionError):
            run.evaluation_started(0)


@pytest.mark.parametrize(
    ("accuracy", "samples", "counted"),
    [
        (np.float32(0.25), np.int64(448), np.int32(64)),
        (np.float64(0.25), np.uint16(448), np.array(64)),
        (torch.tensor(0.25), torch.tensor(448), torch.tensor(64)),
        (torch.tensor([0.25], dtype=torch.float64)[0], torch.tensor([448])[0], 64),
    ],
)
def test_scalars_of_numpy_and_torch_are_kept(
    tmp_path: Path, accuracy: Any, samples: Any, counted: Any
) -> None:
    path = tmp_path / "result_0.txt"
    log = MLPerfLog(MLPerfConfig(), path)
    with log.initialisation(caches_cleared=np.bool_(True)):  # type: ignore[arg-type]
        log.hyperparameters(replace(LAMB, seed=np.int64(7), beta_1=torch.tensor(0.5)))
    with log.run() as run:
        run.step_done(step(1, samples))
        run.evaluation_started(samples)
        run.evaluation_done(evaluation(1, accuracy, counted))
        run.stop(success=np.bool_(True))  # type: ignore[arg-type]
    values = {record["key"]: record["value"] for record in read(path)}
    assert keys(path) == INITIALISATION + START + EVALUATION + END
    assert (values["cache_clear"], values["seed"], values["opt_lamb_beta_1"]) == (True, 7, 0.5)
    assert (values["eval_accuracy"], values["train_samples"]) == (0.25, 448)
    assert values["eval_samples"] == 64
    assert read(path)[-1]["metadata"]["status"] == "success"


@pytest.mark.parametrize("accuracy", [math.nan, math.inf, torch.tensor(math.nan)])
def test_an_accuracy_that_is_no_number_is_zero_and_marked(tmp_path: Path, accuracy: Any) -> None:
    path = tmp_path / "result_0.txt"
    with initialised(path).run() as run:
        train(run, [accuracy, 0.2])
        run.stop(success=True)
    first = next(record for record in read(path) if record["key"] == "eval_accuracy")
    assert first["value"] == 0.0
    assert first["metadata"]["not_finite"] in ("nan", "inf")
    assert official(path, "5.0.0").returncode == 0


def test_plain_values() -> None:
    assert plain({"a": (np.float32(0.5), math.nan), 1: None}) == {"a": [0.5, None], "1": None}
    assert type(plain(np.float64(0.5))) is float
    assert type(plain(np.bool_(True))) is bool
    with pytest.raises(TypeError, match="Path"):
        plain(Path("x"))


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"division": "Closed"}, ["Closed", "open, closed"]),
        ({"status": "on-prem"}, ["on-prem", "onprem, cloud, preview, research"]),
        ({"organization": " "}, ["organization", "printable"]),
        ({"platform": "a\nb"}, ["platform", "printable"]),
    ],
)
def test_a_wrong_setting_is_named(setting: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ValueError) as error:
        MLPerfConfig(**setting)
    message = str(error.value)
    assert all(word in message for word in words)
    assert "\n" not in message


@pytest.mark.parametrize(
    "change",
    [
        {"base_learning_rate": math.nan},
        {"epsilon": math.inf},
        {"global_batch_size": 0},
        {"gradient_accumulation_steps": 0},
    ],
)
def test_hyperparameters_are_finite_and_positive(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        replace(LAMB, **change)


def test_keys_that_belong_in_a_log_once_are_there_once(tmp_path: Path) -> None:
    path = tmp_path / "result_0.txt"
    write_run(path, [0.35, 0.73])
    counts = Counter(keys(path))
    assert {key for key, count in counts.items() if count > 1} == set(EVALUATION)


def test_the_log_needs_no_torch() -> None:
    code = "import sys, train.mlperf_log; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=ROOT, check=True)
