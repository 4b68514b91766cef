"""Writers of ``:::MLLOG`` lines: into one new file, or nowhere."""

import logging
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from mlperf_logging import mllog


class Writer(Protocol):
    """Writes intervals and points in time."""

    def start(self, key: str, value: Any = None, **metadata: Any) -> None: ...

    def end(self, key: str, value: Any = None, **metadata: Any) -> None: ...

    def event(self, key: str, value: Any = None, **metadata: Any) -> None: ...

    def close(self) -> None: ...


class SilentWriter:
    """Of the ranks that do not log."""

    def start(self, key: str, value: Any = None, **metadata: Any) -> None:
        """Nothing."""

    end = event = start

    def close(self) -> None:
        """Nothing."""


class FileWriter:
    """Writes to a new file alone, through a logger that is registered nowhere.

    The logger that mllog makes for itself prints to standard output and is one for the whole
    process: a second run's file would be a second handler on it.
    """

    def __init__(self, path: Path) -> None:
        if path.exists():
            raise ValueError(f"{path} exists; name another file or delete it (a run never appends)")
        if not path.parent.is_dir():
            raise ValueError(f"folder {path.parent} of the MLPerf log does not exist; create it")
        self._handler = _NewFile(path, mode="x", encoding="utf-8", delay=True)
        logger = _OwnLogger("mlperf")
        logger.addHandler(self._handler)
        repository = Path(__file__).resolve().parents[1]
        self._mllog = mllog.mllog.MLLogger(
            logger,
            # the line that called the writer's method, not the method's own
            default_stack_offset=2,
            # taken for a regular expression
            root_dir=re.escape(str(repository)),
        )

    def start(self, key: str, value: Any = None, **metadata: Any) -> None:
        self._mllog.start(key, plain(value), plain(metadata))

    def end(self, key: str, value: Any = None, **metadata: Any) -> None:
        self._mllog.end(key, plain(value), plain(metadata))

    def event(self, key: str, value: Any = None, **metadata: Any) -> None:
        self._mllog.event(key, plain(value), plain(metadata))

    def close(self) -> None:
        self._handler.close()


class _OwnLogger(logging.Logger):
    def isEnabledFor(self, level: int) -> bool:  # noqa: N802
        """Always: ``logging.disable`` elsewhere must not empty the log."""
        return True


class _NewFile(logging.FileHandler):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Raise: a full disk must not cost lines in silence."""
        raise


def plain(value: Any) -> Any:
    """A value as JSON can hold it: numpy and torch scalars as numbers, NaN and infinity as null.

    mllog drops a line whose value it cannot encode, and writes NaN bare, which is no JSON.

    Raises:
        TypeError: nothing that belongs in a log.
    """
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise TypeError(f"{value!r} of type {type(value).__name__} has no place in an MLPerf log")
