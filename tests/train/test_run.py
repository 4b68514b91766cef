"""Whole runs, started as their user starts them."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
import yaml
from launch import ROOT, command, environment, log_events, records, run
from safetensors.torch import load_file

import run_pretraining
from dataprep.commandline import run_command

COMPLIANCE = ["-m", "mlperf_logging.compliance_checker", "--usage", "training"]


def status(run_folder: Path) -> str:
    events = [metadata for key, _, metadata in log_events(run_folder) if key == "run_stop"]
    assert len(events) == 1
    return str(events[0]["status"])


def assert_compliant(run_folder: Path, tmp_path: Path) -> None:
    options = ["--ruleset", "5.0.0", "--log_output", str(tmp_path / "checker.log")]
    done = subprocess.run(
        [sys.executable, *COMPLIANCE, *options, str(run_folder / "result_0.txt")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def reached(settings: dict, tmp_path_factory) -> Path:
    """The folder of a one-rank run that reached a low target."""
    folder = tmp_path_factory.mktemp("reached")
    content = {**settings, "train": {**settings["train"], "target_accuracy": 0.001, "save": True}}
    (folder / "run.yaml").write_text(yaml.safe_dump(content))
    done = run(folder / "run.yaml", folder / "run")
    assert done.returncode == 0, done.stderr
    return folder / "run"


def test_a_run_that_reaches_its_target(reached: Path, tmp_path: Path) -> None:
    assert status(reached) == "success"
    assert_compliant(reached, tmp_path)
    accuracies = [
        (value, m["epoch_num"]) for k, value, m in log_events(reached) if k == "eval_accuracy"
    ]
    assert accuracies == [
        (record["mlm_accuracy"], record["samples"]) for record in records(reached, "evaluation")
    ]
    values = {key: value for key, value, _ in log_events(reached)}
    assert values["train_samples"] == accuracies[-1][1] == 80
    assert (values["eval_samples"], values["global_batch_size"], values["seed"]) == (10, 8, 7)
    assert values["gradient_accumulation_steps"] == 2  # two slots on one rank


def test_the_run_folder_is_complete_and_its_checkpoint_loads(reached: Path, settings: dict) -> None:
    names = {path.name for path in reached.iterdir()}
    assert names == {"config.yaml", "run.json", "result_0.txt", "metrics.jsonl", "checkpoint"}
    from transformers import BertForPreTraining

    weights = load_file(reached / "checkpoint" / "model.safetensors")
    theirs = BertForPreTraining.from_pretrained(reached / "checkpoint", local_files_only=True)
    assert theirs.config.num_hidden_layers == settings["model"]["num_hidden_layers"]
    for name, tensor in theirs.state_dict().items():
        if "decoder" not in name:
            torch.testing.assert_close(tensor, weights[name])
    state = torch.load(reached / "checkpoint" / "training_state.pt", weights_only=True)
    assert (state["samples"], state["steps"]) == (80, 10)


def test_a_run_can_be_replayed_from_its_folder_to_the_bit(reached: Path, tmp_path: Path) -> None:
    done = run(reached / "config.yaml", tmp_path / "again")
    assert done.returncode == 0, done.stderr
    for kind, names in (
        ("step", ("loss", "grad_norm")),
        ("evaluation", ("mlm_accuracy", "mlm_loss")),
    ):
        first, second = records(reached, kind), records(tmp_path / "again", kind)
        assert [[r[n] for n in names] for r in first] == [[r[n] for n in names] for r in second]


def test_the_sample_limit_is_no_success(write_config, tmp_path: Path) -> None:
    done = run(write_config(train__max_samples=50), tmp_path / "run")
    assert done.returncode == 1
    assert status(tmp_path / "run") == "aborted"
    values = {key: value for key, value, _ in log_events(tmp_path / "run")}
    assert values["train_samples"] == 48  # six steps of eight fit
    assert values["eval_samples"] == 10


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-9), ("float32", 1e-4)])
def test_two_ranks_train_as_one_rank_with_the_same_batch(
    write_config, tmp_path: Path, dtype: str, tolerance: float
) -> None:
    config = write_config(train__dtype=dtype)
    for ranks in (1, 2):
        done = run(config, tmp_path / str(ranks), ranks=ranks)
        assert status(tmp_path / str(ranks)) == "aborted", done.stderr
    for kind, names in (
        ("step", ("loss", "mlm_loss", "nsp_loss", "grad_norm")),
        ("evaluation", ("mlm_accuracy", "mlm_loss")),
    ):
        one, two = (records(tmp_path / str(ranks), kind) for ranks in (1, 2))
        assert len(one) == len(two) == (20 if kind == "step" else 2)
        for name in names:
            np.testing.assert_allclose(
                [r[name] for r in one], [r[name] for r in two], rtol=tolerance, err_msg=name
            )
        assert [r["samples"] for r in one] == [r["samples"] for r in two]
    assert sum(r["tokens"] for r in records(tmp_path / "1", "step")) == sum(
        r["tokens"] for r in records(tmp_path / "2", "step")
    )


def test_accumulation_does_not_change_the_gradient(write_config, tmp_path: Path) -> None:
    for accumulation in (1, 4):
        config = write_config(train__dtype="float64", data__accumulation=accumulation)
        run(config, tmp_path / str(accumulation))
    one, four = (records(tmp_path / str(a), "step") for a in (1, 4))
    assert len(one) == 20
    for name in ("loss", "grad_norm"):
        np.testing.assert_allclose([r[name] for r in one], [r[name] for r in four], rtol=1e-9)


def test_terminated_by_a_signal_the_log_says_aborted(write_config, tmp_path: Path) -> None:
    config = write_config(train__max_samples=10_000_000, train__evaluation_interval=10_000_000)
    process = subprocess.Popen(
        command(config, tmp_path / "run", 1),
        env=environment(),
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        metrics, limit = tmp_path / "run" / "metrics.jsonl", time.monotonic() + 60
        while not (metrics.exists() and metrics.read_text().count("\n") > 5):
            assert time.monotonic() < limit and process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 128 + signal.SIGTERM
    assert status(tmp_path / "run") == "aborted"
    values = {key: value for key, value, _ in log_events(tmp_path / "run")}
    steps = records(tmp_path / "run", "step")
    assert values["train_samples"] == steps[-1]["samples"] >= 32


def test_a_gradient_that_is_not_finite_stops_the_run(write_config, tmp_path: Path) -> None:
    done = run(write_config(optimizer__learning_rate=1e30), tmp_path / "run")
    assert done.returncode == 2
    assert "error: step 2: the gradient of bert.embeddings" in done.stderr
    assert status(tmp_path / "run") == "aborted"


# --- wrong input: one line, exit code 2, nothing left ---------------------------------------------


def refused(done: subprocess.CompletedProcess[str], run_folder: Path) -> str:
    """The one line of a run that was refused before its clock started."""
    assert done.returncode == 2, done.stderr
    lines = [line for line in done.stderr.splitlines() if not line.startswith("weights: ")]
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("run_pretraining.py: error: ")
    assert not run_folder.exists()
    return lines[0]


def run_here(config: Path, run_folder: Path, monkeypatch, capsys) -> subprocess.CompletedProcess:
    """As ``run``, in this process: most of a refused run's time is the start of Python."""
    arguments = ["run_pretraining.py", "--config", str(config), "--run_folder", str(run_folder)]
    monkeypatch.setattr(sys, "argv", arguments)
    code = run_command(run_pretraining.PROGRAM, run_pretraining.main)
    captured = capsys.readouterr()
    return subprocess.CompletedProcess(arguments, code, captured.out, captured.err)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"optimizer__lerning_rate": 1}, "did you mean 'optimizer.learning_rate'?"),
        ({"optimizer__learning_rate": "fast"}, "Expected a float. Got value: fast"),
        ({"optimizer__name": "sgd"}, "Expected a one of ['adamw', 'lamb']. Got value: sgd"),
        ({"optimizer__learning_rate": -1.0}, "optimizer.learning_rate -1.0 must be above 0"),
        ({"optimizer__beta_2": 1.0}, "optimizer.beta_2 1.0 must lie in [0, 1)"),
        ({"data__accumulation": 3}, "accumulation 3 must divide the 4 samples"),
        ({"data__width": 0}, "data.width 0 must be at least 1"),
        ({"data__loader": "torch"}, "data.loader"),
        ({"data__preload": True, "data__preload_limit_mb": 0}, "preload_limit_mb 0 must be"),
        ({"data__order__scheme": "sorted"}, "data.order.scheme"),
        ({"data__order": {"scheme": "exchange", "group": 3}}, "group 3 must divide the 2 slots"),
        ({"data__batch": 4000}, "less than one step of 2 x 4000 = 8000"),
        ({"train__target_accuracy": 72}, "must lie between 0 and 1; did you mean 0.72?"),
        ({"train__evaluation_interval": 0}, "train.evaluation_interval 0 must be at least 1"),
        ({"train__max_samples": 7}, "train.max_samples 7 is less than one step of 8 samples"),
        ({"schedule__warmup_steps": 100}, "training_steps 100 must lie beyond step 100"),
        ({"sync__max_norm": 0.0}, "sync.max_norm 0.0 must be above 0"),
        ({"model__vocab_size": 20}, "model.vocab_size is 20; prepare the data"),
        ({"model__max_position_embeddings": 32}, "model.max_position_embeddings is 32"),
        ({"model__num_attention_heads": 3}, "num_attention_heads 3"),
        ({"mlperf__division": "Open"}, "mlperf.division"),
        ({"data__train": "nowhere"}, "nowhere/manifest.json: no such file"),
        ({"init__checkpoint": "nowhere"}, "nowhere"),
        ({"seed": -1}, "seed -1 must lie between 0 and"),
    ],
)  # fmt: skip
def test_wrong_settings_are_one_line(
    write_config, tmp_path: Path, changes: dict, message: str, monkeypatch, capsys
) -> None:
    done = run_here(write_config(**changes), tmp_path / "run", monkeypatch, capsys)
    line = refused(done, tmp_path / "run")
    assert message in line


def test_a_width_that_the_ranks_do_not_divide(write_config, tmp_path: Path) -> None:
    done = run(write_config(data__width=3), tmp_path / "run", ranks=2)
    ours = [line for line in done.stderr.splitlines() if line.startswith("run_pretraining.py")]
    assert [line for line in ours if "error" in line] == [
        "run_pretraining.py: error: data.width 3 is not a multiple of the 2 ranks; choose one that "
        "is, or start another number of ranks"
    ]
    assert not (tmp_path / "run").exists()


def test_on_two_ranks_a_wrong_setting_is_one_line(write_config, tmp_path: Path) -> None:
    done = run(write_config(optimizer__lerning_rate=1), tmp_path / "run", ranks=2)
    errors = [line for line in done.stderr.splitlines() if "unknown key" in line]
    assert len(errors) == 1, done.stderr


def test_a_run_folder_is_never_used_twice(write_config, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    done = run(write_config(), tmp_path / "run")
    assert done.returncode == 2
    assert f"run_folder '{tmp_path / 'run'}' exists; name another one" in done.stderr
    assert list((tmp_path / "run").iterdir()) == []


@pytest.fixture
def damaged(prepared: Path, tmp_path: Path) -> Path:
    """A copy of the training stripes to damage."""
    return shutil.copytree(prepared / "train", tmp_path / "train")


def test_a_cut_off_stripe_is_named_before_the_clock(write_config, damaged, tmp_path) -> None:
    stripe = damaged / "stripe-00001.h5"
    stripe.write_bytes(stripe.read_bytes()[:-1000])
    done = run(write_config(data__train=str(damaged)), tmp_path / "run")
    assert "stripe-00001.h5" in refused(done, tmp_path / "run")


@pytest.mark.parametrize(
    ("attribute", "value", "message"),
    [
        ("format_version", 9, "shard format 9, this release reads 2"),
        ("header", "vocabulary", "made with another vocabulary or other lengths"),
        ("sha256", "00" * 32, "not the stripe that the manifest names"),
    ],
)
def test_a_stripe_of_another_kind_is_named(
    write_config, damaged: Path, tmp_path: Path, attribute: str, value: object, message: str
) -> None:
    stripe = damaged / "stripe-00001.h5"
    with h5py.File(stripe, "a") as file:
        if attribute == "header":
            value = file.attrs["header"].replace(
                '"vocabulary_sha256": "', '"vocabulary_sha256": "0'
            )
        file.attrs[attribute] = value
    manifest = json.loads((damaged / "manifest.json").read_text())
    manifest["files"][1]["bytes"] = stripe.stat().st_size
    (damaged / "manifest.json").write_text(json.dumps(manifest))
    done = run(write_config(data__train=str(damaged)), tmp_path / "run")
    line = refused(done, tmp_path / "run")
    assert "stripe-00001.h5" in line and message in line


def test_an_evaluation_set_of_other_documents_is_refused(
    write_config, prepared: Path, damaged: Path, tmp_path: Path
) -> None:
    done = run(write_config(data__evaluation=str(prepared / "train")), tmp_path / "run")
    assert "not the evaluation set that was held out of" in refused(done, tmp_path / "run")
    manifest = json.loads((damaged / "manifest.json").read_text())
    manifest["shard_header"]["held_out_sha256"] = "00" * 32
    (damaged / "manifest.json").write_text(json.dumps(manifest))
    done = run(write_config(data__train=str(damaged)), tmp_path / "run")
    assert "not the evaluation set that was held out of" in refused(done, tmp_path / "run")


def test_a_missing_stripe_on_two_ranks_is_one_line(write_config, damaged, tmp_path) -> None:
    (damaged / "stripe-00002.h5").unlink()
    done = run(write_config(data__train=str(damaged)), tmp_path / "run", ranks=2)
    errors = [line for line in done.stderr.splitlines() if "error: " in line and "stripe" in line]
    assert len(errors) == 1 and "stripe-00002.h5: missing" in errors[0]
    assert not (tmp_path / "run").exists()


def test_weights_of_another_shape(write_config, reached: Path, tmp_path: Path) -> None:
    config = write_config(init__checkpoint=str(reached / "checkpoint"), model__hidden_size=32)
    line = refused(run(config, tmp_path / "run"), tmp_path / "run")
    assert "config.json" in line and "hidden_size is 32 here and 16 there" in line
    (reached / "checkpoint" / "config.json").rename(tmp_path / "config.json")
    try:
        line = refused(run(config, tmp_path / "run"), tmp_path / "run")
    finally:
        (tmp_path / "config.json").rename(reached / "checkpoint" / "config.json")
    assert "model.safetensors: " in line and "(16,), the model wants (32,)" in line


def test_weights_of_more_layers(
    write_config, reached: Path, settings: dict, tmp_path: Path
) -> None:
    layers = settings["model"]["num_hidden_layers"]
    config = write_config(
        init__checkpoint=str(reached / "checkpoint"), model__num_hidden_layers=layers - 1
    )
    (reached / "checkpoint" / "config.json").rename(tmp_path / "config.json")
    try:
        line = refused(run(config, tmp_path / "run"), tmp_path / "run")
    finally:
        (tmp_path / "config.json").rename(reached / "checkpoint" / "config.json")
    assert f"has {layers} layers, model.num_hidden_layers is {layers - 1}" in line


def test_training_goes_on_from_a_checkpoints_weights(
    write_config, reached: Path, tmp_path: Path
) -> None:
    config = write_config(init__checkpoint=str(reached / "checkpoint"), train__max_samples=8)
    done = run(config, tmp_path / "run")
    assert "fresh: none" in done.stderr
    continued = records(tmp_path / "run", "step")[0]["loss"]
    assert continued < records(reached, "step")[0]["loss"]


# --- the command line -----------------------------------------------------------------------------


def test_help_and_print_config() -> None:
    def ask(*options: str) -> str:
        done = subprocess.run(
            [sys.executable, "run_pretraining.py", *options],
            capture_output=True,
            text=True,
            cwd=ROOT,
            timeout=120,
            env=environment(),
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    text = " ".join(ask("--help").split())
    for words in ("--optimizer.learning_rate", "the peak rate; the schedule multiplies it"):
        assert words in text
    printed = ask(
        "--config", "configs/tiny_cpu.yaml", "--optimizer.learning_rate", "1e-3", "--print_config"
    )
    resolved = yaml.safe_load(printed)
    assert resolved["optimizer"]["learning_rate"] == 1e-3
    assert resolved["model"]["hidden_size"] == 384
    assert resolved["sync"]["bucket_cap_mb"] == 25.0
