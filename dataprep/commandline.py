"""What the project's command lines have in common: strict YAML, one-line errors, exit codes.

Built on jsonargparse: options, their help and types come from signatures, dataclasses and their
docstrings. What it leaves out is added here: an error names the file and line of the value and the
remedy, and a key given twice in a YAML file is refused.
"""

import difflib
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import ArgumentError, ArgumentParser, Namespace

from dataprep.errors import describe

EXIT_USER_ERROR = 2


def build_parser(program: str, description: str) -> ArgumentParser:
    """A parser that knows ``--config FILE`` and refuses abbreviated options."""
    parser = ArgumentParser(
        prog=program, description=description, exit_on_error=False, allow_abbrev=False
    )
    parser.add_argument("--config", action="config", help="a YAML file with any of these settings")
    return parser


def parse(parser: ArgumentParser, arguments: Sequence[str]) -> Namespace:
    """Parse and instantiate.

    Raises:
        ValueError: one line with the place of the wrong value (file and line, or option), the value
            and what is wanted instead.
    """
    places = _check_config_files(parser, arguments)
    try:
        settings: Namespace = parser.instantiate(parser.parse_args(list(arguments)))
        return settings
    except (ArgumentError, TypeError) as error:
        raise ValueError(_one_line(str(error), parser, places)) from error
    except ValueError as error:
        raise ValueError(f"{_place_of(str(error), places)}{error}") from error


def run_command(
    program: str,
    command: Callable[[], int],
    unreported: type[Exception] | tuple[type[Exception], ...] = (),
) -> int:
    """Call ``command`` and return its exit code; a user's error becomes one line and code 2.

    A ValueError or OSError is what the project raises for wrong input.

    Args:
        program: begins the line.
        command: gives the exit code.
        unreported: errors that are not reported but raised on.
    """
    try:
        code = command()
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # whoever read the output, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except (ValueError, OSError) as error:
        if isinstance(error, unreported):
            raise
        print(f"{program}: error: {describe(error)}", file=sys.stderr)
        return EXIT_USER_ERROR
    except KeyboardInterrupt:
        print(f"{program}: interrupted", file=sys.stderr)
        return 130


def _check_config_files(parser: ArgumentParser, arguments: Sequence[str]) -> dict[str, str]:
    """Check the structure of the configuration files; where each key was last given."""
    keys = set(parser.get_defaults(skip_validation=True).keys(branches=True)) - {"config"}
    places: dict[str, str] = {}
    for index, argument in enumerate(arguments):
        option, equals, value = argument.partition("=")
        if option == "--config":
            following = arguments[index + 1 : index + 2]
            path = Path(value if equals else (following[0] if following else ""))
            places |= _check_yaml(path, keys)
        elif option.startswith("--"):
            places[option.removeprefix("--")] = option
    return places


def _check_yaml(path: Path, keys: set[str]) -> dict[str, str]:
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except (FileNotFoundError, IsADirectoryError):
        raise ValueError(f"--config '{path}': no such file") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 at byte {error.start}") from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise ValueError(f"{path}:{line}: not YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: not YAML: {error}") from None
    if not isinstance(root, yaml.MappingNode):
        raise ValueError(f"{path}: no settings in it; lines of the form 'key: value' are wanted")
    places: dict[str, str] = {}
    _walk(root, "", keys, path, places)
    return places


def _walk(
    node: yaml.MappingNode, prefix: str, keys: set[str], path: Path, places: dict[str, str]
) -> None:
    for key_node, value_node in node.value:
        key = f"{prefix}{key_node.value}"
        place = f"{path}:{key_node.start_mark.line + 1}"
        if key in places:
            raise ValueError(f"{place}: key '{key}' is given twice; remove one")
        if key not in keys:
            raise ValueError(f"{place}: unknown key '{key}'; {_suggest(key, keys)}")
        places[key] = place
        below = {name for name in keys if name.startswith(f"{key}.")}
        if below and isinstance(value_node, yaml.MappingNode):
            _walk(value_node, f"{key}.", keys, path, places)
        elif below:
            names = sorted(name.removeprefix(f"{key}.") for name in below)
            raise ValueError(
                f"{place}: '{key}' is a group, not a single value; give {', '.join(names)} below it"
            )


def _place_of(text: str, places: dict[str, str]) -> str:
    """Where the first setting that an error's text names was given, to begin the line with."""
    for word in re.findall(r"[A-Za-z_][\w.]*", text):
        for key, place in places.items():
            if key == word or key.endswith(f".{word}"):
                return f"{place}: "
    return ""


def _suggest(key: str, keys: set[str]) -> str:
    parent, _, name = key.rpartition(".")
    siblings = [k.rpartition(".")[2] for k in keys if k.rpartition(".")[0] == parent]
    near = difflib.get_close_matches(name, siblings, 1)
    if near:
        return f"did you mean '{parent}.{near[0]}'?".replace("'.", "'")
    elsewhere = [k for k in keys if k.rpartition(".")[2] == name]
    if elsewhere:
        return f"did you mean '{elsewhere[0]}'?"
    return f"known here: {', '.join(sorted(siblings))}"


def _one_line(text: str, parser: ArgumentParser, places: dict[str, str]) -> str:
    text = re.sub(r"<class '([\w.]+)'>", r"\1", " ".join(text.split()))
    text = text.replace("typing.Literal", "one of ").replace("NoneType", "null")
    found = re.match(r'Parser key "([^"]+)": (.*)', text)
    if found:
        key, reason = found.groups()
        union = re.search(r"Subtypes: (\[.*?\]).*Given value: (.*)$", reason)
        if union:
            reason = f"Expected one of {union[1]}. Got value: {union[2]}"
        return f"{places.get(key, '--' + key)}: {key}: {reason}"
    unknown = re.match(r"unrecognized arguments: (.*)", text)
    if unknown:
        key = unknown[1].split()[0].split("=")[0].removeprefix("--")
        keys: set[Any] = set(parser.get_defaults(skip_validation=True).keys(branches=True))
        return f"unknown option '{unknown[1].split()[0]}'; {_suggest(key, keys)}"
    missing = re.match(r"the following arguments are required: (.*)", text)
    if missing:
        return f"missing: --{missing[1].replace(', ', ', --')}; give it there or in --config FILE"
    return text
