"""Checks result files: the official compliance checker, then the gates it lacks."""

import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from results.gates import CLOSED_TARGET, failed_gates
from results.mllog import Event, of_key, read_events
from results.run_folder import read_facts

DEFAULT_RULESET = "5.0.0"
# between two messages of the checker
_RULE = re.compile(r"^-{10,}$", re.MULTILINE)
# how the lines of a message begin that say more than its first
_TELLING = ("failed test:", "^^")


@dataclass(frozen=True)
class Report:
    """What the checks say of one result file.

    Attributes:
        path: the file.
        problems: why it fails; empty for one that passes.
        notes: what the official checker remarks of one that it passes.
    """

    path: Path
    problems: list[str]
    notes: list[str]

    @property
    def passed(self) -> bool:
        """Whether the file is a valid result."""
        return not self.problems


def rulesets() -> list[str]:
    """The official training rulesets that accept BERT, oldest first."""
    folders = resources.files("mlperf_logging.compliance_checker").iterdir()
    versions = []
    for folder in folders:
        found = re.fullmatch(r"training_(\d+\.\d+\.\d+)", folder.name)
        rules = folder / "closed_common.yaml"
        # the rules name their benchmarks; rounds without BERT still have files of rules for it
        if found and rules.is_file() and "'bert'" in rules.read_text(encoding="utf-8"):
            versions.append(found[1])
    return sorted(versions, key=lambda version: [int(part) for part in version.split(".")])


def check_file(path: Path, ruleset: str = DEFAULT_RULESET) -> Report:
    """Check one result file.

    The target is 0.72 for the closed division, else what run.json beside the file says.

    Raises:
        ValueError: the file cannot be read, or there is no such ruleset.
    """
    if ruleset not in rulesets():
        raise ValueError(f"ruleset '{ruleset}'; choose one of: {', '.join(rulesets())}")
    if not path.is_file():
        raise ValueError(f"{path} is not a file; give the path of a result file")
    passed, messages = run_official_checker(path, ruleset)
    problems, notes = ([], messages) if passed else (messages, [])
    try:
        events = read_events(path)
    except ValueError as error:
        return Report(path, [*problems, str(error)], notes)
    return Report(path, problems + failed_gates(events, _target(path, events, ruleset)), notes)


def run_official_checker(path: Path, ruleset: str) -> tuple[bool, list[str]]:
    """Run ``mlperf_logging.compliance_checker`` for training in a process of its own.

    Its log goes to a temporary file, so that none is left in the working folder.

    Returns:
        Whether it passed the file, and its messages, one line each.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        command = [sys.executable, "-m", "mlperf_logging.compliance_checker"]
        options = ["--usage", "training", "--ruleset", ruleset, "--log_output", str(log)]
        done = subprocess.run(
            [*command, *options, str(path.resolve())], capture_output=True, text=True, check=False
        )
        text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    messages = _messages(text)
    if done.returncode and not messages:
        # it broke off, or said nothing: its last words
        last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        messages = [f"the official checker broke off: {last[0]}"]
    return done.returncode == 0, messages


def _messages(log: str) -> list[str]:
    """The warnings of the checker's log, each cut to what was wrong."""
    warnings = re.split(r"^(?:INFO|ERROR) - .*$", log, flags=re.MULTILINE)
    texts = [message for part in warnings for message in _RULE.split(part)]
    return [line for line in map(_condensed, texts) if line]


def _condensed(message: str) -> str:
    """What failed; not the record and the checker's state, which take pages."""
    lines = [line.removeprefix("WARNING -").strip() for line in message.strip().splitlines()]
    told = lines[:1] + [line for line in lines[1:] if line.startswith(_TELLING)]
    return " ".join(" ".join(told).split())


def _target(path: Path, events: list[Event], ruleset: str) -> float | None:
    divisions = [event.value for event in of_key(events, "submission_division")]
    if "closed" in divisions and ruleset != "0.7.0":
        return CLOSED_TARGET
    facts = path.parent / "run.json"
    return read_facts(facts).target_accuracy if facts.is_file() else None
