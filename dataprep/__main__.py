"""The command line: ``python -m dataprep COMMAND --help``."""

import signal
import sys
from collections.abc import Callable
from types import FrameType

from dataprep.commandline import build_parser, parse, run_command
from dataprep.commands import looking, making

PROGRAM = "python -m dataprep"
# in the order of the work; those with a path take it without an option's name
COMMANDS: dict[str, tuple[Callable[..., None], bool]] = {
    "run": (making.run_all_command, False),
    "documents": (making.documents_command, False),
    "sentences": (making.sentences_command, False),
    "holdout": (making.holdout_command, False),
    "samples": (making.samples_command, False),
    "presort": (making.presort_command, False),
    "import": (making.import_command, False),
    "export": (making.export_command, False),
    "vocabulary": (making.vocabulary_command, False),
    "plan": (looking.plan_command, False),
    "inspect": (looking.inspect_command, True),
    "stats": (looking.stats_command, True),
    "digest": (looking.digest_command, True),
    "verify": (looking.verify_command, True),
    "report": (looking.report_command, True),
    "official": (looking.official_command, True),
}


def main(arguments: list[str]) -> int:
    """Run one command; returns the exit code."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_usage())
        return 0 if arguments else 2
    name, *options = arguments
    if name not in COMMANDS:
        raise ValueError(f"no command '{name}'; commands: {', '.join(COMMANDS)}")
    call, has_path = COMMANDS[name]
    parser = build_parser(f"{PROGRAM} {name}", _first_line(call))
    parser.add_function_arguments(call, as_positional=has_path)
    chosen = parse(parser, options).as_dict()
    chosen.pop("config", None)
    call(**chosen)
    return 0


def _usage() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {_first_line(call)}" for name, (call, _) in COMMANDS.items()]
    heading = f"usage: {PROGRAM} COMMAND [--config FILE] [options]; COMMAND --help lists them"
    return "\n".join([heading, "", *lines])


def _first_line(call: Callable[..., None]) -> str:
    return (call.__doc__ or "").splitlines()[0]


def _terminate(number: int, frame: FrameType | None) -> None:
    """Turn the signal into an exception, so that temporary files go."""
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _terminate)
    sys.exit(run_command(PROGRAM, lambda: main(sys.argv[1:])))
