"""Thirty steps on a CPU, recorded: a refactoring does not change a bit of them."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from launch import records, run

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "loss_curve.json"


def kind_of_machine() -> dict[str, str]:
    """What the last bits of the losses depend on."""
    lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    facts = {name.strip(): value.strip() for name, _, value in (x.partition(":") for x in lines)}
    flags = hashlib.sha256(facts.get("flags", "").encode()).hexdigest()[:16]
    identity = ("vendor_id", "cpu family", "model", "model name", "stepping")
    return {
        "processor": " ".join(facts.get(name, "?") for name in identity),
        "flags": flags,
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
    }


def curve(settings: dict, folder: Path, name: str) -> list[float]:
    content = {
        **settings,
        "model": {**settings["model"], "hidden_dropout_prob": 0.1},
        "train": {**settings["train"], "max_samples": 240, "evaluation_interval": 240},
    }
    (folder / "run.yaml").write_text(yaml.safe_dump(content))
    run(folder / "run.yaml", folder / name)
    return [record["loss"] for record in records(folder / name, "step")]


def test_the_loss_curve_is_the_recorded_one(
    settings: dict, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    first, second = curve(settings, tmp_path, "first"), curve(settings, tmp_path, "second")
    assert len(first) == 30
    assert first == second
    if request.config.getoption("--record-golden"):
        GOLDEN.write_text(json.dumps({"machine": kind_of_machine(), "losses": first}, indent=1))
    recorded = json.loads(GOLDEN.read_text())
    if recorded["machine"] == kind_of_machine():
        assert first == recorded["losses"]
    else:
        np.testing.assert_allclose(first, recorded["losses"], rtol=1e-5)
