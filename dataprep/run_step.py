"""Which samples a run trained on in a step: from its run folder and the order's own rules."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from dataprep.inspection import StepSample, samples_of_step
from dataprep.lengths import LengthHistogram
from dataprep.manifest import read_manifest
from dataprep.order import OrderConfig, build_order


def samples_of_run(run: Path, folder: Path, step: int, rank: int) -> list[StepSample]:
    """The samples of a step of a run on one rank, slot by slot.

    Args:
        run: its folder, with config.yaml, run.json and metrics.jsonl.
        folder: the stripes that it trained on.
        step: counted from 1, as in the run's metrics.
        rank: counted from 0.

    Raises:
        ValueError: no run folder, no step or rank that the run had, or other stripes than its own.
    """
    try:
        config: dict[str, Any] = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
        ranks = int(json.loads((run / "run.json").read_text(encoding="utf-8"))["ranks"])
        data, seed = config["data"], int(config["seed"])
        batch, width = int(data["batch"]), int(data["width"] or ranks)
        given = data.get("order") or {}
        tokens = _tokens_of_steps(run / "metrics.jsonl")
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError) as error:
        raise ValueError(f"{run}: not a run folder ({error}); give one of runs/") from None
    if step not in tokens:
        raise ValueError(
            f"{run}: no step {step}; it has trained {len(tokens)} steps, counted from 1"
        )
    known = {field.name for field in fields(OrderConfig)}
    order = OrderConfig(**{name: _frozen(value) for name, value in given.items() if name in known})
    histogram = LengthHistogram(read_manifest(folder, ("presort",)).lengths)
    epoch, place = 0, step - 1
    while place >= (found := build_order(order, histogram, width, batch, seed, epoch)).steps:
        epoch, place = epoch + 1, place - found.steps
    there = int(found.lengths(place, np.arange(width)).sum())
    if there != tokens[step]:
        raise ValueError(
            f"{folder}: step {step} would have {there} tokens, the run trained on {tokens[step]}; "
            f"give the stripes that it trained on, {data['train']}"
        )
    return samples_of_step(folder, order, width, batch, seed, epoch, place, rank, ranks)


def _tokens_of_steps(metrics: Path) -> dict[int, int]:
    """The tokens of each step that a run has trained, over all ranks."""
    lines = map(json.loads, metrics.read_text(encoding="utf-8").splitlines())
    return {int(one["step"]): int(one["tokens"]) for one in lines if one["kind"] == "step"}


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
