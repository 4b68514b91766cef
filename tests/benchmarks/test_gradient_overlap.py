"""The benchmark of clipping and overlap: its figures, and a short run over a real shaped link."""

import json
import subprocess
import sys

import pytest
from launch import ROOT

from benchmarks.gradient_overlap.figures import (
    hidden_interval,
    median_timeline,
    ratio_interval,
    rows_of,
)
from benchmarks.gradient_overlap.rank import MODES, WIRES
from benchmarks.shaped_link import unavailable


def test_times_are_medians() -> None:
    seconds = {"compute": [1.0, 2.0, 9.0]}
    seconds |= {f"communication {wire}": [0.5, 0.5, 3.0] for wire in WIRES}
    seconds |= {f"{mode} {wire}": [2.5, 2.6, 2.7] for mode in MODES for wire in WIRES}
    exposed = {f"{mode} {wire}": [0.1, 0.6, 0.7] for mode in MODES for wire in WIRES}
    rows = rows_of("100mbit", seconds, exposed)
    assert len(rows) == len(MODES) * len(WIRES)
    for row in rows:
        assert (row["step_s"], row["compute_s"], row["communication_s"]) == (2.6, 2.0, 0.5)
        assert (row["exposed_s"], row["limit_s"]) == (0.6, 2.0)
        assert row["hidden"] == [0, 0, 0]


def test_the_interval_is_students_on_logarithms() -> None:
    low, mean, high = ratio_interval([2.0, 2.2, 1.8, 2.0], [1.0, 1.0, 1.0, 1.0])
    assert mean == pytest.approx((2.0 * 2.2 * 1.8 * 2.0) ** 0.25)
    # logs .693 .788 .588 .693: deviation .0820, quantile 3.182, half width .1304
    assert (low / mean, high / mean) == pytest.approx((0.8777, 1.1393), abs=2e-3)
    assert ratio_interval([1.0, 2.0], [1.0, 2.0]) == [1.0, 1.0, 1.0]


def test_hidden_is_of_medians_and_its_interval_spans_the_rounds() -> None:
    low, share, high = hidden_interval([1.0, 2.0, 3.0, 2.0], [10.0, 10.0, 10.0, 10.0])
    assert share == pytest.approx(0.8)
    assert 0.7 <= low < share < high <= 0.9
    assert hidden_interval([1.0, 2.0], [4.0, 8.0]) == [0.75, 0.75, 0.75]


def test_the_timeline_drawn_is_of_the_median_step() -> None:
    steps = [{"step": number} for number in range(4)]
    assert median_timeline([4.0, 1.0, 3.0, 2.0], steps) == {"step": 3}


def ask(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.gradient_overlap", *options]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=200)


@pytest.mark.slow
def test_a_short_run_over_a_shaped_link(tmp_path) -> None:
    reason = unavailable()
    if reason:
        pytest.skip(reason)
    figure = tmp_path / "timeline.png"
    done = ask("--rate", "400mbit", "--repeats", "2", "--tokens", "128", "--json",
               "--figure", str(figure))  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert {(row["mode"], row["wire"]) for row in rows} == {(m, w) for m in MODES for w in WIRES}
    for row in rows:
        assert row["exposed_s"] >= 0 and row["hidden"][1] <= 1
        # 4 bytes of each of 1.4 million parameters over 50 MB/s; twice as fast in fp16
        least = 0.11 if row["wire"] == "fp32" else 0.055
        assert row["communication_s"] > least and row["step_s"] > least
    assert figure.read_bytes().startswith(b"\x89PNG")
    left = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    assert "sprint" not in left


def test_a_rate_that_is_none_is_one_line() -> None:
    if unavailable():
        pytest.skip(unavailable())
    done = ask("--rate", "fast")
    assert (done.returncode, done.stderr.strip().count("\n")) == (2, 1), done.stderr
    assert "--rate fast" in done.stderr
