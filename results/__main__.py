"""``python -m results``: check and summarise results.

Exit code 0: fine; 1: a check failed; 2: what was asked for makes no sense or cannot be read.
"""

import argparse
import io
import sys
from pathlib import Path
from typing import NoReturn

from rich.console import Console

from results.compliance import DEFAULT_RULESET, Report, check_file, rulesets
from results.summary import print_summary, read_run


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line, where argparse would print the usage as well."""
        self.exit(2, f"{self.prog}: {message} (--help lists what there is)\n")


def main(arguments: list[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # a machine's name that the terminal cannot show is no reason to fail
            stream.reconfigure(errors="replace")
    options = _parser().parse_args(arguments)
    try:
        if options.command == "check":
            return _check(options.files, options.ruleset)
        print_summary(read_run(options.run_dir), Console(highlight=False))
        return 0
    except ValueError as error:
        print(f"python -m results: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m results", description=__doc__, allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    check = commands.add_parser(
        "check",
        help="check MLPerf result files",
        description="Run the official compliance checker and further checks on result files.",
        allow_abbrev=False,
    )
    check.add_argument("files", nargs="+", type=Path, metavar="FILE", help="such as result_0.txt")
    check.add_argument(
        "--ruleset",
        default=DEFAULT_RULESET,
        help=f"of MLPerf training: {', '.join(rulesets())} (default: %(default)s)",
    )
    summary = commands.add_parser(
        "summary",
        help="show how a run went",
        description="Show verdict, figures and accuracy curve of one run.",
        allow_abbrev=False,
    )
    summary.add_argument("run_dir", type=Path, metavar="RUN_DIR", help="the folder of the run")
    return parser


def _check(files: list[Path], ruleset: str) -> int:
    missing = [str(path) for path in files if not path.is_file()]
    if missing:
        raise ValueError(f"not a file: {', '.join(missing)}; give the paths of result files")
    passed = True
    for path in files:
        report = check_file(path, ruleset)
        _print_report(report, ruleset)
        passed = passed and report.passed
    return 0 if passed else 1


def _print_report(report: Report, ruleset: str) -> None:
    verdict = "PASSED" if report.passed else "FAILED"
    print(f"{verdict} {report.path} (ruleset {ruleset})")
    for problem in report.problems:
        print(f"  {problem}")
    for note in report.notes:
        print(f"  note: {note}")


if __name__ == "__main__":
    sys.exit(main())
