"""``python -m results summary``."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from results.curve import MOST_ROWS, Point, draw
from results.run_folder import read_facts, read_metrics
from results.summary import clock

Command = Callable[..., subprocess.CompletedProcess[str]]


def rewrite(run_dir: Path, hand_written: tuple[Any, Any], *arguments: Any) -> None:
    """Put another log into the folder."""
    records, text = hand_written
    (run_dir / "result_0.txt").write_text(text(records(*arguments)))


def test_a_successful_run(run_dir: Path, results_command: Command) -> None:
    done = results_command("summary", run_dir)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "target reached in 5:00: MLM accuracy 0.1600, target 0.1500"
    assert lines[2:13] == [
        "trained         2,400 samples in 300 steps, last loss 5.000",
        "time to target  300.5 s, run_start to run_stop",
        "evaluation      30.0 s = 10.0% of the time, 3 evaluations of 64 samples",
        "training speed  1,111 tokens/s, evaluations not counted",
        "gradients       clip bucket_before at 1.0 (50% of the buckets clipped), 7",
        "                buckets of 25.0 MiB, wire fp16, 3 steps skipped",
        "communication   300 ms of all-reduce a step, 20 ms of it exposed, beside 600 ms",
        "                of backward (rank 0)",
        "constant guess  accuracy 0.0610 (always 'the')",
        "model           22,713,216 parameters, 2 ranks",
        "machine         processor Some CPU, cores 2",
    ]
    assert "versions        torch 2.13.0+cpu" in lines
    rows = [line for line in lines if "│" in line]
    assert rows[0].endswith("│ = target 0.15")
    assert [row.split()[:3] for row in rows[1:]] == [
        ["800", "100.0", "0.0500"],
        ["1,600", "200.0", "0.1000"],
        ["2,400", "300.0", "0.1600"],
    ]
    assert len({row.index("│") for row in rows[1:]}) == 1
    for name in ("result_0.txt", "metrics.jsonl", "config.yaml", "run.json", "checkpoint"):
        assert any(line.endswith(str(run_dir / name)) for line in lines)
    assert "\x1b" not in done.stdout
    assert "note:" not in done.stdout
    assert all(len(line) <= 80 for line in lines if str(run_dir) not in line)


def test_an_encoding_without_blocks(run_dir: Path, results_command: Command) -> None:
    facts = json.loads((run_dir / "run.json").read_text())
    facts["hardware"]["processor"] = "Früher™ [bold]"
    (run_dir / "run.json").write_text(json.dumps(facts))
    done = results_command("summary", run_dir, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.returncode == 0
    assert done.stdout.isascii()
    assert "###" in done.stdout
    assert "| = target 0.15" in done.stdout
    assert "Fr?her? [bold]" in done.stdout


def test_a_narrow_terminal(run_dir: Path, results_command: Command) -> None:
    done = results_command("summary", run_dir, COLUMNS="50")
    assert done.returncode == 0
    rows = [line for line in done.stdout.splitlines() if "│" in line]
    assert len(rows) == 4
    assert all(len(row) <= 50 for row in rows)


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        ("aborted", "aborted after 3:20 (no reason logged): MLM accuracy 0.1000, target 0.1500"),
        (
            "success",
            "the log says success, but the target was not reached: MLM accuracy 0.1000, "
            "target 0.1500",
        ),
    ],
)
def test_a_run_without_success(
    run_dir: Path,
    results_command: Command,
    hand_written: tuple[Any, Any],
    status: str,
    verdict: str,
) -> None:
    rewrite(run_dir, hand_written, [0.05, 0.1], status)
    done = results_command("summary", run_dir)
    assert done.returncode == 0
    assert " ".join(done.stdout.split("\n\n")[0].split()) == verdict


@pytest.mark.parametrize(
    ("reason", "verdict"),
    [
        ("target not reached", "target not reached after 1:40: MLM accuracy 0.0500"),
        ("KeyboardInterrupt", "aborted after 1:40 (KeyboardInterrupt): MLM accuracy 0.0500"),
    ],
)
def test_the_reason_of_an_abort(
    run_dir: Path,
    results_command: Command,
    hand_written: tuple[Any, Any],
    reason: str,
    verdict: str,
) -> None:
    records, text = hand_written
    lines = records([0.05], "aborted")
    lines[-1][3]["reason"] = reason
    (run_dir / "result_0.txt").write_text(text(lines))
    assert results_command("summary", run_dir).stdout.startswith(verdict)


def test_a_run_that_goes_on(
    run_dir: Path, results_command: Command, hand_written: tuple[Any, Any]
) -> None:
    records, text = hand_written
    lines = records([0.05, 0.1])
    for count, verdict in (
        (-5, "not finished after 3:20: still running, or killed (MLM accuracy 0.1000"),
        (23, "not finished after 0:00: still running, or killed (no evaluation"),
        (19, "never started: the log ends in initialisation"),
    ):
        (run_dir / "result_0.txt").write_text(text(lines[:count]))
        done = results_command("summary", run_dir)
        assert done.returncode == 0
        assert done.stdout.startswith(verdict)


def test_metrics_cut_in_mid_line(run_dir: Path, results_command: Command) -> None:
    path = run_dir / "metrics.jsonl"
    text = "".join(path.read_text().splitlines(keepends=True)[:-1])
    path.write_text(text[:-9])
    done = results_command("summary", run_dir)
    assert done.returncode == 0
    assert "trained         2,392 samples in 299 steps" in done.stdout
    assert "note: metrics.jsonl ends in mid-line; that line is left out" in done.stdout


def test_missing_side_files_are_noted(run_dir: Path, results_command: Command) -> None:
    for name in ("metrics.jsonl", "run.json", "config.yaml"):
        (run_dir / name).unlink()
    done = results_command("summary", run_dir)
    assert done.returncode == 0
    assert done.stdout.startswith("target reached in 5:00: MLM accuracy 0.1600\n")
    assert "note: run.json is missing" in done.stdout
    assert "note: metrics.jsonl is missing" in done.stdout
    assert "configuration" not in done.stdout


def damage(run_dir: Path, name: str, text: str | None) -> None:
    if text is None:
        (run_dir / name).unlink()
    else:
        (run_dir / name).write_text(text)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("result_0.txt", None, "holds no result_0.txt"),
        ("result_0.txt", "", "holds no MLPerf record"),
        ("result_0.txt", ':::MLLOG {"key": 1', "line 1: malformed"),
        ("run.json", "{", "run.json is not JSON"),
        ("run.json", "[]", "run.json is not a JSON object"),
        ("run.json", '{"target_accuracy": "0.15"}', "target_accuracy '0.15' is not of type"),
        ("run.json", '{"baseline": {"accuracy": true}}', "baseline: accuracy True is not"),
        ("metrics.jsonl", "{\n{}\n", "metrics.jsonl, line 1 is not JSON"),
        ("metrics.jsonl", "{}\n[]\n", "metrics.jsonl, line 2 is not a JSON object"),
        ("metrics.jsonl", '{"kind": "step", "tokens": "x"}\n', "line 1: tokens 'x'"),
    ],
)
def test_a_damaged_folder_is_one_line(
    run_dir: Path, results_command: Command, name: str, text: str | None, words: str
) -> None:
    damage(run_dir, name, text)
    done = results_command("summary", run_dir)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_folder_that_is_none(results_command: Command, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for folder, words in (("nowhere", "is not a folder"), ("empty", "holds no result_0.txt")):
        done = results_command("summary", tmp_path / folder)
        assert (done.returncode, done.stdout) == (2, "")
        assert words in done.stderr
        assert done.stderr.count("\n") == 1


def test_a_published_run(published_logs: Path, results_command: Command) -> None:
    folder = published_logs / "v5.0/NVIDIA/results/nyx_n1_ngc25.04_pytorch/bert"
    done = results_command("summary", folder)
    assert done.returncode == 0
    # its run_start is at 1745139526340 ms, its run_stop at 1745139746574 ms
    assert done.stdout.startswith("target reached in 3:40: MLM accuracy 0.7203\n")
    assert "2,550,982" in done.stdout


def test_the_clock() -> None:
    assert [clock(seconds) for seconds in (0, 59.6, 312, 3_600, 36_061)] == [
        "0:00",
        "1:00",
        "5:12",
        "1:00:00",
        "10:01:01",
    ]


def test_a_long_curve_is_thinned_and_keeps_its_end() -> None:
    points = [Point(i, float(i), i / 1000) for i in range(1, 102)]
    lines = draw(points, None, 80, blocks=True)
    assert len(lines) <= MOST_ROWS + 2
    assert lines[-2].split()[0] == "101"
    assert lines[-1] == f"({len(lines) - 2} of 101 evaluations shown)"


def test_a_curve_without_height() -> None:
    assert draw([], 0.5, 80, blocks=True) == ["no evaluation yet"]
    flat = draw([Point(0, 0.0, 0.0), Point(8, 1.0, float("nan"))], None, 80, blocks=True)
    assert [line.split()[2] for line in flat[1:]] == ["0.0000", "nan"]
    assert "█" not in "".join(flat)


def test_bars_are_in_proportion() -> None:
    rows = draw([Point(1, 1.0, 0.25), Point(2, 2.0, 0.5)], None, 80, blocks=False)[1:]
    short, long = (row.count("#") for row in rows)
    assert long == 2 * short


def test_readers_of_empty_files(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("")
    assert read_metrics(path).steps == 0
    path.write_text('{"kind": "step", "step": 1, "samples": 8, "loss": NaN}\n')
    assert read_metrics(path).steps == 1
    path.write_text("{}")
    assert read_facts(path).target_accuracy is None
