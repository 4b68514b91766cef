"""Writes the formats that other programs keep BERT's records in, and digests samples."""

import hashlib
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import google_crc32c
import h5py
import numpy as np

from dataprep.blocks import Sample

Row = dict[str, list[Any]]
NAMES = (
    "input_ids",
    "input_mask",
    "segment_ids",
    "masked_lm_positions",
    "masked_lm_ids",
    "masked_lm_weights",
    "next_sentence_labels",
)


def padded(sample: Sample, max_seq_length: int, max_predictions: int) -> Row:
    """The fields of a record of fixed length."""
    size, masked = len(sample.tokens), len(sample.mlm_labels)
    tail, mask_tail = [0] * (max_seq_length - size), [0] * (max_predictions - masked)
    start = sample.second_segment_start
    return {
        "input_ids": [*sample.tokens.tolist(), *tail],
        "input_mask": [1] * size + tail,
        "segment_ids": [0] * start + [1] * (size - start) + tail,
        "masked_lm_positions": [*sample.mlm_positions.tolist(), *mask_tail],
        "masked_lm_ids": [*sample.mlm_labels.tolist(), *mask_tail],
        "masked_lm_weights": [1.0] * masked + [0.0] * len(mask_tail),
        "next_sentence_labels": [sample.next_sentence_label],
    }


def canonical_digest(samples: Iterable[Sample], max_seq_length: int, max_predictions: int) -> str:
    """sha256 over the padded fields of all samples: int32, weights float32, little-endian."""
    digest = hashlib.sha256()
    for sample in samples:
        row = padded(sample, max_seq_length, max_predictions)
        for name in NAMES:
            kind = "<f4" if name == "masked_lm_weights" else "<i4"
            digest.update(np.array(row[name], kind).tobytes())
    return digest.hexdigest()


# --- HDF5 -----------------------------------------------------------------------------------------


def write_fixed(path: Path, rows: Sequence[Row], compression: str | None = None) -> Path:
    """HDF5 of fixed length, with the fields that the rows have."""
    with h5py.File(path, "w") as file:
        for name in rows[0]:
            values = np.array([row[name] for row in rows])
            if name == "next_sentence_labels":
                values = values[:, 0]
            kind = {"masked_lm_weights": "f4", "input_ids": "i4"}.get(name, "i4" if "lm" in name
                                                                      else "i1")  # fmt: skip
            file.create_dataset(name, data=values.astype(kind), compression=compression)
    return path


def write_variable(path: Path, rows: Sequence[Row], compression: str | None = None) -> Path:
    """HDF5 of variable length, of rows without padding."""
    with h5py.File(path, "w") as file:
        for name in ("input_ids", "segment_ids", "masked_lm_positions", "masked_lm_ids"):
            kind = h5py.vlen_dtype(np.dtype("i1" if name == "segment_ids" else "i2"))
            dataset = file.create_dataset(name, (len(rows),), kind, compression=compression)
            for number, row in enumerate(rows):
                dataset[number] = row[name]
        labels = [row["next_sentence_labels"][0] for row in rows]
        file.create_dataset("next_sentence_labels", data=np.array(labels, "i1"))
    return path


# --- TFRecord -------------------------------------------------------------------------------------


def write_tfrecord(path: Path, rows: Sequence[Row], packed: bool = True) -> Path:
    """TFRecord of ``tf.train.Example``; numbers packed into one field or in one each."""
    path.write_bytes(b"".join(frame(example(row, packed)) for row in rows))
    return path


def frame(data: bytes) -> bytes:
    """A TFRecord of some data."""
    size = struct.pack("<Q", len(data))
    return size + _masked_crc32c(size) + data + _masked_crc32c(data)


def _masked_crc32c(data: bytes) -> bytes:
    checksum = google_crc32c.value(data)
    return struct.pack("<I", ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def example(row: Row, packed: bool) -> bytes:
    """A serialised Example."""
    entries = []
    for name, values in row.items():
        if name == "masked_lm_weights":
            parts = [struct.pack("<f", value) for value in values]
            content = _message(2, _numbers(parts, 5, packed))
        else:
            parts = [_varint(value) for value in values]
            content = _message(3, _numbers(parts, 0, packed))
        entries.append(_message(1, _message(1, name.encode()) + _message(2, content)))
    return _message(1, b"".join(entries))


def _numbers(parts: list[bytes], wire: int, packed: bool) -> bytes:
    if packed:
        return _message(1, b"".join(parts))
    return b"".join(_varint(1 << 3 | wire) + part for part in parts)


def _message(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    groups = [value >> shift & 0x7F for shift in range(0, max(value.bit_length(), 1), 7)]
    return bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]])
