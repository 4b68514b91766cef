"""TFRecord files of ``tf.train.Example``, read without TensorFlow.

A file is a sequence of (length u64, masked crc32c of the length u32, data, masked crc32c of the
data u32), little-endian. The data is a protobuf message: Example.features (1) holds Features, whose
map ``feature`` (1) has entries of key (1) and value (2), a Feature with a FloatList (2) or an
Int64List (3), each with its values in field 1.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from dataprep.imports.records import Record, Widths

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types
_FLOAT_LIST, _INT64_LIST = 2, 3
_LARGEST_RECORD = 1 << 26  # bytes; a larger length is a damaged one
Feature = NDArray[np.int64] | NDArray[np.float64]


def is_tfrecord(path: Path) -> bool:
    """Whether a file starts as a TFRecord file does."""
    with path.open("rb") as stream:
        head = stream.read(12)
    return len(head) == 12 and struct.unpack("<I", head[8:])[0] == _masked_crc32c(head[:8])


def tfrecord_widths(path: Path) -> Widths:
    """The sizes of the first record.

    Raises:
        ValueError: as `read_tfrecord`; no record at all.
    """
    for record in read_tfrecord(path):
        return Widths(len(record.input_ids), len(record.masked_lm_positions))
    raise ValueError(f"{path}: no record; leave the file out")


def read_tfrecord(path: Path) -> Iterator[Record]:
    """The records of a file.

    Raises:
        ValueError: cut off or damaged, no Example of BERT's features (the record is named).
    """
    with path.open("rb") as stream:
        number = 0
        while (data := _framed(stream, path, number)) is not None:
            try:
                yield _record(_features(data))
            except ValueError as error:
                raise ValueError(f"{path}: record {number}: {error}") from None
            number += 1


def _framed(stream: BinaryIO, path: Path, number: int) -> bytes | None:
    """The next record's data, or None at the end of the file."""
    head = stream.read(12)
    if not head:
        return None
    if len(head) == 12:
        (size,), checksum = struct.unpack("<Q", head[:8]), head[8:]
        if struct.unpack("<I", checksum)[0] != _masked_crc32c(head[:8]) or size > _LARGEST_RECORD:
            raise ValueError(
                f"{path}: record {number}: the checksum of its length is wrong: damaged, or no "
                "TFRecord file; copy it again"
            )
        data = stream.read(size + 4)
        if len(data) == size + 4:
            if struct.unpack("<I", data[size:])[0] != _masked_crc32c(data[:size]):
                raise ValueError(
                    f"{path}: record {number}: its checksum is wrong: damaged; copy it again"
                )
            return data[:size]
    raise ValueError(f"{path}: record {number}: the file ends within it; copy it again")


def _masked_crc32c(data: bytes) -> int:
    checksum: int = google_crc32c.value(data)
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _record(features: dict[str, Feature]) -> Record:
    unknown = features.keys() - set(Record._fields)
    missing = set(Record._fields) - features.keys()
    if unknown or missing:
        raise ValueError(
            f"features missing: {', '.join(sorted(missing)) or 'none'}, unknown: "
            f"{', '.join(sorted(unknown)) or 'none'}; give records of BERT's pre-training"
        )
    values = {}
    for name, value in features.items():
        kind = np.float64 if name == "masked_lm_weights" else np.int64
        if value.dtype != kind:
            raise ValueError(f"{name}: {value.dtype} values, not {kind.__name__}")
        values[name] = value
    return Record(**values)  # type: ignore[arg-type]  # checked just above


# --- protobuf -------------------------------------------------------------------------------------


def _features(data: bytes) -> dict[str, Feature]:
    """Name -> values of an Example."""
    features: dict[str, Feature] = {}
    for features_message in _submessages(data, 1):
        for entry in _submessages(features_message, 1):
            name = b"".join(_submessages(entry, 1)).decode("utf-8")
            if name in features:
                raise ValueError(f"feature '{name}' comes twice")
            features[name] = _values(b"".join(_submessages(entry, 2)), name)
    return features


def _values(feature: bytes, name: str) -> Feature:
    for field, wire, content in _fields(feature):
        if wire == _BYTES and field == _INT64_LIST:
            return _int64s(content)
        if wire == _BYTES and field == _FLOAT_LIST:
            return _floats(content)
    raise ValueError(f"feature '{name}' holds neither integers nor floats")


def _submessages(message: bytes, wanted: int) -> list[bytes]:
    return [
        content for field, wire, content in _fields(message) if field == wanted and wire == _BYTES
    ]


def _int64s(message: bytes) -> NDArray[np.int64]:
    """The values of an Int64List, packed or not."""
    parts = [content for field, _, content in _fields(message) if field == 1]
    return _varints(b"".join(parts))


def _floats(message: bytes) -> NDArray[np.float64]:
    parts = [content for field, _, content in _fields(message) if field == 1]
    return np.frombuffer(b"".join(parts), "<f4").astype(np.float64)


def _fields(message: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Number, wire type and content of each field; a varint's content is its own bytes."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        wire, start = key & 7, place
        if wire == _VARINT:
            _, place = _varint(message, place)
        elif wire == _BYTES:
            size, start = _varint(message, place)
            place = start + size
        elif wire in (_FIXED32, _FIXED64):
            place += 4 if wire == _FIXED32 else 8
        else:
            raise ValueError(f"no protobuf message: wire type {wire}")
        if place > len(message):
            raise ValueError("no protobuf message: a field runs over its end")
        yield key >> 3, wire, message[start:place]


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """The number at a place, and the place behind it."""
    value = 0
    for shift in range(0, 64, 7):
        if place >= len(message):
            break
        byte = message[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
    raise ValueError("no protobuf message: a number runs over its end")


def _varints(data: bytes) -> NDArray[np.int64]:
    """All the numbers of a sequence, each 7 bits a byte, lowest first."""
    if not data:
        return np.zeros(0, np.int64)
    values = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(values < 0x80)
    if len(ends) == 0 or ends[-1] != len(values) - 1:
        raise ValueError("no protobuf message: a number runs over its end")
    starts = np.concatenate(([0], ends[:-1] + 1))
    sizes = ends - starts + 1
    if sizes.max() > 10:
        raise ValueError("no protobuf message: a number of more than 64 bits")
    places = np.arange(len(values)) - np.repeat(starts, sizes)
    bits = (values & 0x7F).astype(np.uint64) << (7 * places).astype(np.uint64)
    return np.add.reduceat(bits, starts).view(np.int64)
