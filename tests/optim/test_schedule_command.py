"""The command that shows a schedule."""

import runpy
import sys
from pathlib import Path

import pytest
from launch import ROOT

PRESET = str(ROOT / "configs" / "samsung_v2.0_1024x16.yaml")


def ask(monkeypatch, capsys, *options: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["optim.schedule", *options])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("optim.schedule", run_name="__main__")
    captured = capsys.readouterr()
    return int(str(ended.value.code)), captured.out, captured.err


def test_the_table_has_the_corners_and_every_nth_step(monkeypatch, capsys, tmp_path: Path) -> None:
    picture = tmp_path / "rate.png"
    code, out, _ = ask(
        monkeypatch, capsys, "--config", PRESET, "--every", "100", "--plot", str(picture)
    )
    assert code == 0
    rows = {int(step): float(rate) for step, rate in map(str.split, out.splitlines()[1:-1])}
    assert list(rows) == [1, 65, 66, 100, 178, 179, 200, 299]
    assert rows[65] == pytest.approx(3.88e-4, abs=5e-7)
    assert rows[66] == pytest.approx(4.50e-4, abs=5e-7)
    assert rows[179] == rows[200] == pytest.approx(4.945491e-5, abs=1e-11)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_options_win_over_the_file(monkeypatch, capsys) -> None:
    code, out, _ = ask(monkeypatch, capsys, "--config", PRESET, "--schedule.warmup_steps", "20")
    assert code == 0 and "\n       3  3.73" in out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--every", "0"], "--every 0 must be at least 1"),
        (["--schedule.warmup_steps", "300"], "must lie beyond step 284, where the warm-up ends"),
        (["--schedule.warmup", "3"], "--schedule.warmup"),
        (["--schedule.warmup_steps", "few"], "few"),
        (["--plot", "rate.xyz"], "not supported"),
        (["--config", "nowhere.yaml"], "nowhere.yaml"),
    ],
)
def test_mistakes_are_one_line(monkeypatch, capsys, options: list[str], message: str) -> None:
    code, _, err = ask(monkeypatch, capsys, "--config", PRESET, *options)
    assert (code, err.count("\n")) == (2, 1)
    assert message in err
