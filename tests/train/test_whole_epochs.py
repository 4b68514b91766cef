"""Runs of two ranks over whole epochs of unequal parts, started as their user starts them."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from launch import log_events, records, run

from benchmarks.made_stripes import make_stripes
from dataprep.lengths import LengthHistogram
from dataprep.order import OrderConfig, build_order
from train.data import Dataset

SHORT = LengthHistogram({6: 5, 7: 3, 9: 4, 12: 2, 16: 6})


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    """4,001 training samples in 8 stripes, and 10 of the evaluation."""
    folder = tmp_path_factory.mktemp("made")
    make_stripes(folder / "train", SHORT, 4001, 8)
    make_stripes(folder / "evaluation", SHORT, 10, 2, only_held_out=True)
    return folder


def config(base: Path, target: Path, **data: object) -> Path:
    content = {
        "seed": 5,
        "model": {
            "hidden_size": 8,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": 16,
            "max_position_embeddings": 16,
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
        },
        "data": {
            "train": str(base / "train"),
            "evaluation": str(base / "evaluation"),
            "batch": 250,
            "accumulation": 10,
            **data,
        },
        "train": {
            "max_samples": 8501,
            "evaluation_interval": 8500,
            "device": "cpu",
            "save": False,
        },
    }
    target.write_text(yaml.safe_dump(content))
    return target


@pytest.mark.parametrize(
    ("order", "steps", "samples"),
    [
        # 8 steps of 500 an epoch, 1 sample left out
        ({"scheme": "presorted"}, [8, 8, 1], 8500),
        # and a ninth step of one sample, in which rank 1 has none
        ({"scheme": "presorted", "remainder": "keep"}, [9, 9], 8002),
        ({"scheme": "exchange", "remainder": "keep"}, [9, 9], 8002),
    ],
)
def test_two_epochs_on_two_ranks_of_4001_samples(
    base: Path, tmp_path: Path, order: dict, steps: list[int], samples: int
) -> None:
    done = run(config(base, tmp_path / "run.yaml", order=order), tmp_path / "run", ranks=2)
    assert done.returncode == 1, done.stderr  # the target is not reached
    taken = records(tmp_path / "run", "step")
    assert [sum(r["epoch"] == e for r in taken) for e in range(len(steps))] == steps
    assert taken[-1]["samples"] == samples
    values = {key: value for key, value, _ in log_events(tmp_path / "run")}
    assert (values["train_samples"], values["eval_samples"]) == (samples, 10)

    (said,) = records(tmp_path / "run", "order")
    assert said["scheme"] == order["scheme"] and (said["width"], said["batch"]) == (2, 250)
    epochs = records(tmp_path / "run", "epoch")
    histogram = Dataset(base / "train").histogram
    for epoch, line in enumerate(epochs):
        plan = build_order(OrderConfig(**order), histogram, 2, 250, 5, epoch)
        digest = hashlib.sha256(plan.left_out.astype("<i8").tobytes()).hexdigest()
        assert line == {
            "kind": "epoch",
            "epoch": epoch,
            "steps": plan.steps,
            "left_out": len(plan.left_out),
            "left_out_sha256": digest,
        }
    assert len(epochs) == len(steps)
    left_out = {line["left_out"] for line in epochs}
    assert left_out == ({0} if order.get("remainder") == "keep" else {1})
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    assert facts["budget"]["longest"] == 16
    # a whole epoch with keep trains on every token
    if order.get("remainder") == "keep":
        for epoch in range(2):
            tokens = sum(r["tokens"] for r in taken if r["epoch"] == epoch)
            assert tokens == histogram.tokens


def test_stripes_of_exactly_equal_size(tmp_path: Path) -> None:
    make_stripes(tmp_path / "train", SHORT, 8 * 400, 8)
    make_stripes(tmp_path / "evaluation", SHORT, 2, 2, only_held_out=True)
    written = config(tmp_path, tmp_path / "run.yaml", batch=400, accumulation=4)
    done = run(written, tmp_path / "run", ranks=2)
    assert done.returncode == 1, done.stderr
    taken = records(tmp_path / "run", "step")
    assert [sum(r["epoch"] == e for r in taken) for e in range(3)] == [4, 4, 2]
    values = {key: value for key, value, _ in log_events(tmp_path / "run")}
    assert values["eval_samples"] == 2


def test_lengths_are_read_from_the_manifest_not_from_the_stripes(base: Path, monkeypatch) -> None:
    monkeypatch.setattr("train.data.dataset.Shard", None)  # nothing can be opened
    dataset = Dataset(base / "train")
    assert dataset.histogram.samples == 4001
    order = build_order(OrderConfig(), dataset.histogram, 2, 250, 5, 0)
    assert order.lengths(7, np.arange(2)).shape == (2, 250)
