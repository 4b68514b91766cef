"""Micro-batches of one static shape, known before the run."""

import itertools
from pathlib import Path

import pytest
import torch
from launch import records, run

from train.data import DataConfig, Dataset, TrainingBatches
from train.distributed import World

ALONE = World(0, 1, torch.device("cpu"))


@pytest.mark.parametrize("accumulation", [1, 2])
def test_every_micro_batch_has_the_least_shape_that_holds_all(
    prepared: Path, accumulation: int
) -> None:
    config = DataConfig(
        str(prepared / "train"), "", batch=4, accumulation=accumulation, token_budget="auto"
    )
    dataset = Dataset(prepared / "train")
    dataset.open()
    bare = TrainingBatches(dataset, config, ALONE, 1)
    epochs = 3
    steps = epochs * bare.order(0).steps
    budget = bare.budget(steps * 4)
    batches = TrainingBatches(dataset, config, ALONE, 1, static=budget)
    most, shapes = 0, set()
    for step in itertools.islice(batches, steps):
        for batch in step.micro_batches:
            shapes.add((len(batch.tokens_T), len(batch.mlm_labels_M)))
            most = max(most, batch.tokens)
    batches.close()
    assert shapes == {(budget.tokens, budget.masked_tokens)}
    assert budget.tokens - 16 < most <= budget.tokens and budget.tokens % 16 == 0


def test_losses_do_not_depend_on_filler(write_config, tmp_path: Path) -> None:
    losses = []
    for name, value in (("bare", None), ("filled", "auto")):
        config = write_config(data__token_budget=value, train__max_samples=48)
        done = run(config, tmp_path / name)
        assert done.returncode in (0, 1), done.stderr
        steps = records(tmp_path / name, "step")
        losses.append([step["loss"] for step in steps])
        assert all(step["tokens"] > 0 for step in steps)
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


def test_too_small_a_budget_is_one_line(write_config, tmp_path: Path) -> None:
    done = run(write_config(data__token_budget=16), tmp_path / "run")
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if "error: " in line]
    assert "data.token_budget 16 is less than the" in line and "or set it to auto" in line
    assert not (tmp_path / "run").exists()
