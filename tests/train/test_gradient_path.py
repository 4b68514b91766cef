"""Runs through each way that gradients can take, and what the metrics say of it."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import yaml
from launch import log_events, records, run

pytestmark = pytest.mark.slow


def loss_and_norm(folder: Path) -> list[list[float]]:
    return [[record["loss"], record["grad_norm"]] for record in records(folder, "step")]


@pytest.mark.parametrize("clip", ["bucket_before", "rank_before", "global_after", "none"])
def test_every_mode_trains_on_two_ranks_and_says_what_it_did(
    write_config, tmp_path: Path, clip: str
) -> None:
    config = write_config(
        sync__clip=clip, sync__max_norm=0.5, sync__bucket_cap_mb=0.005, sync__wire="fp16"
    )
    run(config, tmp_path / "run", ranks=2)
    (described,) = records(tmp_path / "run", "sync")
    assert (described["clip"], described["wire"]) == (clip, "fp16")
    assert described["bucket_cap_mb"] == 0.005
    assert described["buckets"] == 1 if clip == "rank_before" else described["buckets"] > 2
    steps = records(tmp_path / "run", "step")
    assert len(steps) == 20
    assert steps[-1]["loss"] < steps[0]["loss"]
    clipped = np.mean([step["clipped_share"] for step in steps])
    assert clipped > 0.1 if clip.endswith("before") else clipped == 0.0
    if clip.endswith("before"):
        assert max(step["grad_norm"] for step in steps) <= 0.5 * 1.01
    for step in steps:
        assert 0 <= step["exposed_seconds"] <= step["all_reduce_seconds"] + 1e-6
        assert 0 < step["backward_seconds"] < step["step_seconds"]


def test_clipping_beyond_reach_is_no_clipping_to_the_bit(write_config, tmp_path: Path) -> None:
    curves = {}
    for clip in ("bucket_before", "none"):
        run(write_config(sync__clip=clip, sync__max_norm=1e9), tmp_path / clip)
        curves[clip] = loss_and_norm(tmp_path / clip)
    assert len(curves["none"]) == 20
    assert curves["bucket_before"] == curves["none"]


def test_lamb_trains_on_two_ranks_as_on_one(write_config, tmp_path: Path) -> None:
    config = write_config(
        optimizer__name="lamb", optimizer__learning_rate=0.02, train__dtype="float64"
    )
    for ranks in (1, 2):
        run(config, tmp_path / str(ranks), ranks=ranks)
    one, two = (loss_and_norm(tmp_path / str(ranks)) for ranks in (1, 2))
    assert len(one) == 20 and one[-1][0] < one[0][0]
    np.testing.assert_allclose(one, two, rtol=1e-9)
    assert ("opt_name", "lamb") in [(key, value) for key, value, _ in log_events(tmp_path / "1")]


def test_fp16_trains_close_to_fp32_and_loses_no_step_to_its_scale(
    write_config, tmp_path: Path
) -> None:
    for precision in ("fp32", "fp16"):
        run(write_config(train__precision=precision), tmp_path / precision)
    full, half = (records(tmp_path / name, "step") for name in ("fp32", "fp16"))
    assert len(half) == 20
    assert half[-1]["skipped_steps"] == 0 and half[0]["loss_scale"] > 1
    np.testing.assert_allclose(
        [step["loss"] for step in half], [step["loss"] for step in full], rtol=0.02
    )


def test_a_gradient_that_is_not_finite_is_skipped_if_told_so(write_config, tmp_path: Path) -> None:
    config = write_config(
        optimizer__learning_rate=1e30, train__not_finite="skip", train__max_skipped_steps=3
    )
    done = run(config, tmp_path / "run")
    assert done.returncode == 2
    assert "error: step 4: the gradient of" in done.stderr
    assert "3 times in a row" in done.stderr
    steps = records(tmp_path / "run", "step")
    assert [step["skipped_steps"] for step in steps] == [0, 1, 2]
    (stop,) = [metadata for key, _, metadata in log_events(tmp_path / "run") if key == "run_stop"]
    assert stop["status"] == "aborted"


def test_weights_of_a_tensorflow_checkpoint(
    settings: dict, shared_data: Path, tmp_path: Path
) -> None:
    folder = shared_data / "checkpoints" / "tf1_tiny_lamb"
    theirs = json.loads((folder / "bert_config.json").read_text())
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    content = {
        **settings,
        "model": {
            "vocab_size": theirs["vocab_size"],
            "gelu": "tanh",
            **{name: theirs[name] for name in names},
        },
        "init": {"tf1_checkpoint": str(folder / "model.ckpt-2")},
        "train": {**settings["train"], "max_samples": 16},
    }
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(content))
    done = run(tmp_path / "run.yaml", tmp_path / "run")
    assert "weights: 46 tensors from" in done.stderr and "fresh: none" in done.stderr
    content["model"]["num_hidden_layers"] = 1
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(content))
    done = run(tmp_path / "run.yaml", tmp_path / "other")
    assert done.returncode == 2 and "num_hidden_layers" in done.stderr
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sync__wire": "bf16"}, "sync.wire bf16 needs NCCL, and this run's ranks talk"),
        ({"sync__max_norm": -1.0}, "sync.max_norm -1.0 must be above 0"),
        ({"sync__bucket_cap_mb": math.inf}, "sync.bucket_cap_mb inf must be above 0 and at most"),
        ({"sync__clip_accumulated": False}, "sync.clip_accumulated false goes with sync.clip"),
        ({"train__precision": "fp8"}, "train.precision 'fp8'; choose one of: fp32, bf16, fp16"),
        ({"train__precision": "fp16", "train__dtype": "float64"}, "with train.dtype float64"),
        ({"train__max_skipped_steps": 0}, "train.max_skipped_steps 0 must be at least 1"),
        ({"init__checkpoint": "a", "init__tf1_checkpoint": "b"}, "weights come from one of them"),
        ({"init__tf1_checkpoint": "nowhere/model.ckpt"}, "nowhere"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_in_one_line(
    write_config, tmp_path: Path, changes: dict, message: str
) -> None:
    done = run(write_config(**changes), tmp_path / "run")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert message in done.stderr
    assert not (tmp_path / "run").exists()
