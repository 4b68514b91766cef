"""Micro-batches of one static shape, known before the run."""

import itertools
from pathlib import Path

import pytest
import torch
from launch import records, run

from dataprep.order import OrderConfig
from dataprep.order.budget import mask_rule, token_budget
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


@pytest.mark.parametrize("limit", [1, 3, 5])
def test_with_keep_all_epochs_of_the_run_are_looked_at(prepared: Path, limit: int) -> None:
    dataset = Dataset(prepared / "train")
    batch = dataset.samples * 3 // 4  # of the two steps of an epoch the second is much shorter
    config = DataConfig("", "", batch=batch, order=OrderConfig("random", "keep"))
    batches = TrainingBatches(dataset, config, ALONE, 1)
    rule = mask_rule(dataset.manifest)
    epochs = range(limit + 1)
    wanted = [token_budget(batches.order(epoch), 1, rule).tokens for epoch in epochs]
    assert len(set(wanted)) > 1 or limit == 1
    assert batches.budget(limit * dataset.samples).tokens == max(wanted[:limit])
    assert batches.budget(limit * dataset.samples + 1).tokens == max(wanted)


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
