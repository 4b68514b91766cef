"""``python -m results check``."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from results.compliance import check_file, rulesets, run_official_checker
from results.gates import failed_gates
from results.mllog import read_events

Command = Callable[..., subprocess.CompletedProcess[str]]


@dataclass(frozen=True)
class Written:
    """Makes result files of hand-written records."""

    folder: Path
    records: Callable[..., list[Any]]
    text: Callable[[list[Any]], str]

    def file(self, text: str) -> Path:
        path = self.folder / "result_0.txt"
        path.write_text(text, encoding="utf-8")
        return path

    def run(self, *arguments: Any, **options: Any) -> Path:
        return self.file(self.text(self.records(*arguments, **options)))


@pytest.fixture
def written(tmp_path: Path, hand_written: tuple[Any, Any]) -> Written:
    return Written(tmp_path, *hand_written)


def test_a_good_result_passes(written: Written, results_command: Command) -> None:
    path = written.run([0.05, 0.1, 0.16])
    done = results_command("check", path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"PASSED {path} (ruleset 5.0.0)\n"


@pytest.mark.parametrize("ruleset", ["1.0.0", "4.1.0", "5.0.0"])
def test_the_ruleset_is_passed_on(written: Written, ruleset: str) -> None:
    report = check_file(written.run([0.05, 0.16]), ruleset)
    assert report.passed, report.problems


def test_an_aborted_run_fails(written: Written, results_command: Command) -> None:
    path = written.run([0.05, 0.1], "aborted")
    assert run_official_checker(path, "5.0.0") == (True, [])
    done = results_command("check", path)
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        f"FAILED {path} (ruleset 5.0.0)",
        "  the run was aborted",
    ]


def test_doubled_lines_fail(written: Written, results_command: Command) -> None:
    lines = written.text(written.records([0.05, 0.16])).splitlines(keepends=True)
    path = written.file("".join(line * 2 for line in lines))
    assert run_official_checker(path, "5.0.0")[0]
    done = results_command("check", path)
    assert done.returncode == 1
    assert "logged more than once: submission_benchmark" in done.stdout
    assert "2 eval_accuracy records are there more than once" in done.stdout
    # the official checker's own words
    assert "note: Required EXACTLY_ONE occurrence of 'run_start' but found 2" in done.stdout


def test_a_truncated_file_fails(written: Written, results_command: Command) -> None:
    text = written.text(written.records([0.05, 0.16]))
    path = written.file(text[:-30])
    done = results_command("check", path)
    assert done.returncode == 1
    assert f"{path}, line {text.count(chr(10))}: malformed :::MLLOG record" in done.stdout
    assert "Required EXACTLY_ONE occurrence of 'run_stop' but found 0" in done.stdout


def test_an_empty_file_fails(written: Written, results_command: Command) -> None:
    done = results_command("check", written.file(""))
    assert done.returncode == 1
    assert "No log lines detected" in done.stdout


def test_one_bad_file_of_two_fails(
    written: Written, results_command: Command, tmp_path: Path
) -> None:
    good = written.run([0.16]).rename(tmp_path / "good.txt")
    done = results_command("check", good, written.run([0.16], "aborted"))
    assert done.returncode == 1
    assert [line.split()[0] for line in done.stdout.splitlines()[:2]] == ["PASSED", "FAILED"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["check", "missing.txt"], "not a file: missing.txt"),
        (["check", "/"], "not a file: /"),
        (["check", "FILE", "--ruleset", "9.0.0"], "ruleset '9.0.0'; choose one of: "),
        (["check", "FILE", "--rule", "5.0.0"], "unrecognized arguments"),
        (["check"], "required: FILE"),
        ([], "required: COMMAND"),
        (["chekc"], "chekc"),
    ],
)
def test_a_wrong_call_is_one_line(
    written: Written, results_command: Command, arguments: list[str], words: str
) -> None:
    path = written.run([0.16])
    done = results_command(*(str(path) if word == "FILE" else word for word in arguments))
    assert done.returncode == 2
    assert done.stdout == ""
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_rulesets_are_those_with_bert() -> None:
    assert rulesets()[0] == "0.7.0"
    assert rulesets()[-1] == "5.0.0"


def test_a_failed_test_of_the_official_checker_is_told(written: Written) -> None:
    records = written.records([0.5, 0.73], division="closed")
    records = [
        (*record[:2], 0, record[3]) if record[1] == "gradient_accumulation_steps" else record
        for record in records
    ]
    report = check_file(written.file(written.text(records)))
    assert len(report.problems) == 1
    assert "CHECK for 'gradient_accumulation_steps' failed" in report.problems[0]
    assert "failed test: v['value'] > 0" in report.problems[0]


def test_a_checker_that_breaks_off_is_a_failure(written: Written) -> None:
    report = check_file(written.run([0.5, "no number"]))
    assert "the official checker broke off: TypeError" in report.problems[0]


@pytest.mark.parametrize(
    ("accuracies", "target", "words"),
    [
        ([0.5, 0.73], 0.72, None),
        ([0.5, 0.73], None, None),
        ([0.73], None, None),
        ([0.340857], 0.72, "the last evaluation has 0.3409 of 0.72"),
        ([0.721, 0.73], 0.72, "training went on after an evaluation reached 0.72"),
        ([0.73, 0.71], 0.72, "the last evaluation has 0.7100"),
        ([0.73, 0.73], None, "an evaluation before the last was at least as good"),
        ([], None, "there is no evaluation"),
        ([float("nan")], 0.72, "the last evaluation has nan"),
        ([0.1, float("nan")], None, "the last evaluation has nan"),
    ],
)
def test_success_needs_a_last_evaluation_that_passes(
    written: Written, accuracies: list[float], target: float | None, words: str | None
) -> None:
    problems = failed_gates(read_events(written.run(accuracies)), target)
    if words is None:
        assert problems == []
    else:
        assert any(words in problem for problem in problems)


def test_the_target_of_an_open_run_is_read_beside_it(written: Written, tmp_path: Path) -> None:
    path = written.run([0.05, 0.16])
    facts = tmp_path / "run.json"
    facts.write_text('{"target_accuracy": 0.15}')
    assert check_file(path).passed
    facts.write_text('{"target_accuracy": 0.17}')
    assert check_file(path).problems == [
        "status is success, but the last evaluation has 0.1600 of 0.17"
    ]


def test_the_target_of_a_closed_run_is_known(written: Written) -> None:
    report = check_file(written.run([0.721, 0.73], division="closed"))
    assert len(report.problems) == 1
    assert report.problems[0].startswith("training went on after an evaluation reached 0.72")


def test_run_stop_before_run_start_fails(written: Written) -> None:
    records = written.records([0.16])
    early = [records[-1], *records[:-1]]
    problems = failed_gates(read_events(written.file(written.text(early))), None)
    assert problems == ["run_stop (line 1) stands before run_start (line 22)"]
    backwards = [*records[:-1], (-5.0, *records[-1][1:])]
    problems = failed_gates(read_events(written.file(written.text(backwards))), None)
    assert problems == ["run_stop is 5000 ms earlier than run_start"]


def test_other_gates(written: Written) -> None:
    records = written.records([0.16], "stopped")
    lines = written.text(records).splitlines()
    path = written.file(lines[0] + "\n".join(lines[1:]))
    problems = failed_gates(read_events(path), None)
    assert "run_stop has status 'stopped', neither success nor aborted" in problems
    assert "line 1 holds 2 records; the official checker reads only the last" in problems
    path = written.run([float("nan"), 0.2])
    assert failed_gates(read_events(path), 0.15) == [
        "eval_accuracy is nan (line 25), which is not JSON"
    ]


# a handful: two of each kind of round, one of them the only aborted run
PUBLISHED = [
    ("v1.0/NVIDIA", "dgxa100_ngc21.05_pytorch", 0),
    ("v1.1/NVIDIA", "dgxa100_ngc21.09_pytorch", 9),
    ("v2.0/Samsung", "samsung_supercomputer21_dgxa100_n128_pytorch", 3),
    ("v2.1/NVIDIA", "dgxh100_preview", 0),
    ("v3.1/NVIDIA", "eos_ngc23.04_pytorch", 5),
    ("v4.1/NVIDIA", "h200_ngc23.09_pytorch", 1),
    ("v5.0/NVIDIA", "nyx_n1_ngc25.04_pytorch", 0),
    ("v5.0/krai", "7920T_2xA5000_ssd", 2),
    ("v5.0/tinycorp", "tinybox_green", 4),
]


@pytest.mark.parametrize(("entry", "system", "number"), PUBLISHED)
def test_published_logs_fare_as_with_the_official_checker(
    published_logs: Path, tmp_path: Path, entry: str, system: str, number: int
) -> None:
    path = published_logs / entry / "results" / system / "bert" / f"result_{number}.txt"
    ruleset = entry.partition("/")[0].removeprefix("v") + ".0"
    options = ["--usage", "training", "--ruleset", ruleset, "--log_output", str(tmp_path / "log")]
    command = [sys.executable, "-m", "mlperf_logging.compliance_checker", *options, str(path)]
    official = subprocess.run(command, capture_output=True, check=False)
    report = check_file(path, ruleset)
    assert report.passed == (official.returncode == 0), report.problems


def test_the_published_run_that_was_aborted_fails(published_logs: Path) -> None:
    path = published_logs / "v2.1/NVIDIA/results/dgxh100_preview/bert/result_3.txt"
    assert "the run was aborted" in check_file(path, "2.1.0").problems
