"""The reader of result files."""

import json
from pathlib import Path

import pytest

from results.mllog import of_key, read_events

RECORD = {
    "namespace": "",
    "time_ms": 1000,
    "event_type": "POINT_IN_TIME",
    "key": "seed",
    "value": 7,
    "metadata": {"lineno": 3},
}
LINE = ":::MLLOG " + json.dumps(RECORD)


def write(folder: Path, text: str) -> Path:
    path = folder / "result_0.txt"
    path.write_bytes(text.encode("utf-8", errors="surrogateescape"))
    return path


def test_records_among_other_lines(tmp_path: Path) -> None:
    text = f"hello\n\n{LINE}\r\n0: prefix {LINE}\n\udcff\udcfe {{\n{LINE}"
    events = read_events(write(tmp_path, text))
    assert [event.line for event in events] == [3, 4, 6]
    event = events[0]
    assert (event.time_ms, event.event_type, event.key) == (1000, "POINT_IN_TIME", "seed")
    assert (event.value, event.metadata) == (7, {"lineno": 3})
    assert of_key(events, "seed") == events
    assert of_key(events, "run_start") == []


def test_two_records_on_a_line_are_both_read(tmp_path: Path) -> None:
    events = read_events(write(tmp_path, f"{LINE}{LINE}\n"))
    assert [event.line for event in events] == [1, 1]


def test_an_empty_file_has_no_events(tmp_path: Path) -> None:
    assert read_events(write(tmp_path, "")) == []


@pytest.mark.parametrize(
    "bad",
    [
        LINE[:-5],
        LINE + " trailing",
        ":::MLLOG",
        ":::MLLOG [1]",
        ":::MLLOG " + json.dumps({**RECORD, "time_ms": "1.2.3"}),
        ":::MLLOG " + json.dumps({**RECORD, "time_ms": True}),
        ":::MLLOG " + json.dumps({**RECORD, "metadata": [1]}),
        ":::MLLOG " + json.dumps({k: v for k, v in RECORD.items() if k != "value"}),
    ],
)
def test_a_malformed_record_is_named_in_one_line(tmp_path: Path, bad: str) -> None:
    path = write(tmp_path, f"{LINE}\n{bad}\n{LINE}\n")
    with pytest.raises(ValueError, match="line 2: malformed") as error:
        read_events(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing.txt"):
        read_events(tmp_path / "nothing.txt")
    with pytest.raises(ValueError, match="directory"):
        read_events(tmp_path)


def test_published_logs_are_read(published_logs: Path) -> None:
    paths = sorted(published_logs.glob("*/*/results/*/bert/result_*.txt"))
    assert len(paths) == 100
    for path in paths:
        events = read_events(path)
        assert len(of_key(events, "run_start")) == len(of_key(events, "run_stop")) == 1
        assert of_key(events, "eval_accuracy")
