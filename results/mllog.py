"""Reads MLPerf result files."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TOKEN = ":::MLLOG"
_decoder = json.JSONDecoder()


@dataclass(frozen=True)
class Event:
    """One ``:::MLLOG`` record.

    Attributes:
        time_ms: milliseconds since 1970.
        event_type: INTERVAL_START, INTERVAL_END or POINT_IN_TIME.
        key: such as ``run_start``.
        value: any JSON value.
        metadata: such as file, lineno, epoch_num, status.
        line: of the file, counted from 1.
    """

    time_ms: float
    event_type: str
    key: str
    value: Any
    metadata: dict[str, Any]
    line: int


def read_events(path: Path) -> list[Event]:
    """The records of a result file in their order; whatever else it holds is skipped.

    A record may follow other text on its line, or another record.

    Raises:
        ValueError: the file cannot be read, or a record is malformed; names file and line.
    """
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    return [event for number, line in enumerate(lines, 1) for event in _parse(path, number, line)]


def of_key(events: list[Event], key: str) -> list[Event]:
    """The events of one key."""
    return [event for event in events if event.key == key]


def _parse(path: Path, number: int, line: str) -> Iterator[Event]:
    for text in line.split(TOKEN)[1:]:
        try:
            record, end = _decoder.raw_decode(text.strip())
            if text.strip()[end:]:
                raise ValueError("text follows the record")
            yield _event(record, number)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: malformed {TOKEN} record: {error}") from None


def _event(record: Any, line: int) -> Event:
    if not isinstance(record, dict):
        raise ValueError("not an object")
    missing = [
        key for key in ("time_ms", "event_type", "key", "value", "metadata") if key not in record
    ]
    if missing:
        raise ValueError(f"without {', '.join(missing)}")
    time_ms, metadata = record["time_ms"], record["metadata"]
    if isinstance(time_ms, bool) or not isinstance(time_ms, int | float):
        raise ValueError(f"time_ms {time_ms!r} is not a number")
    if not isinstance(metadata, dict | None):
        raise ValueError("metadata is not an object")
    return Event(
        time_ms=time_ms,
        event_type=str(record["event_type"]),
        key=str(record["key"]),
        value=record["value"],
        metadata=metadata or {},
        line=line,
    )
