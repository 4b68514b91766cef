"""Tensors of TensorFlow checkpoints in the V2 format of ``tf.train.Saver``, without TensorFlow.

``PREFIX.index`` is a LevelDB table: a ``BundleHeaderProto`` under the empty key, and for each
tensor a ``BundleEntryProto`` under its name (tensorflow/core/protobuf/tensor_bundle.proto).
``PREFIX.data-0000I-of-0000N`` hold the raw little-endian values; they are mapped into memory, so
that only what is asked for is read.

No number of the index is trusted: each is compared with the size of the file it points into, or
with a limit below, before anything is made of it.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bert.leveldb_table import DamagedError, masked_crc32c, read_table, read_varint

INDEX_SUFFIX = ".index"

# Far above what a checkpoint of BERT needs (BERT-large with its optimizer: 17 KB, 1,197 names).
MAX_INDEX_BYTES = 1 << 24
MAX_TENSORS = 1 << 16
MAX_DIMENSIONS = 64  # numpy's own limit
MAX_ELEMENTS = 1 << 48
MAX_DATA_FILES = 99_999  # five digits of the file's name

# Number in types.proto -> numpy's name. Other tensors may be in a file but cannot be read.
DTYPES = {1: "<f4", 2: "<f8", 3: "<i4", 9: "<i8", 19: "<f2"}

Message = dict[int, list[int | bytes]]


@dataclass(frozen=True)
class Entry:
    """Where and what a tensor is.

    Attributes:
        dtype: number of the type in TensorFlow's types.proto.
        shape: sizes of its dimensions.
        shard: number of the data file.
        offset: first byte in that file.
        size: bytes.
        checksum: masked CRC-32C of these bytes.
    """

    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    checksum: int


class TensorBundle:
    """An open checkpoint.

    Args:
        path: the prefix that its files share, the ``.index`` file, or a folder with exactly one
            checkpoint.

    Attributes:
        index: the ``.index`` file.
        entries: name -> Entry, for every tensor, in the order of their names.

    Raises:
        ValueError: one line with the file and the remedy: not there, damaged, or a data file that
            is missing or shorter than the index says.
    """

    def __init__(self, path: str | Path) -> None:
        self.index = _find_index(Path(path))
        try:
            self.shards, self.entries = _parse_index(_read_index(self.index))
        except DamagedError as error:
            raise ValueError(f"{self.index}: {error}; fetch the checkpoint again") from error
        self._maps: dict[int, npt.NDArray[np.uint8]] = {}
        self._check_data_files()

    def data_file(self, shard: int) -> Path:
        """The data file of that number."""
        prefix = self.index.name.removesuffix(INDEX_SUFFIX)
        return self.index.with_name(f"{prefix}.data-{shard:05d}-of-{self.shards:05d}")

    def read(self, name: str) -> npt.NDArray[Any]:
        """A tensor whose checksum was right: a read-only view of the file, of no memory of its own.

        Raises:
            ValueError: one line with file, tensor and remedy: no such tensor, a type that cannot
                be read, a wrong checksum.
        """
        if name not in self.entries:
            raise ValueError(f"{self.index}: has no tensor {name}; give another checkpoint")
        entry = self.entries[name]
        file = self.data_file(entry.shard)
        if entry.dtype not in DTYPES:
            raise ValueError(
                f"{self.index}: {name} is of TensorFlow's type {entry.dtype}, which cannot be "
                "read; save it as float32"
            )
        raw = self._map(entry.shard)[entry.offset : entry.offset + entry.size]
        if masked_crc32c(raw) != entry.checksum:
            raise ValueError(f"{file}: {name} has a wrong checksum; fetch the checkpoint again")
        return raw.view(DTYPES[entry.dtype]).reshape(entry.shape)

    def _map(self, shard: int) -> npt.NDArray[np.uint8]:
        if shard not in self._maps:
            file = self.data_file(shard)
            try:
                # An empty file cannot be mapped; it holds tensors of size 0 only.
                empty = file.stat().st_size == 0
                self._maps[shard] = (
                    np.empty(0, np.uint8) if empty else np.memmap(file, np.uint8, mode="r")
                )
            except OSError as error:
                raise ValueError(f"{file}: {error.strerror}; make it readable") from error
        return self._maps[shard]

    def _check_data_files(self) -> None:
        """Every tensor must lie inside its file, those that nobody will ask for included."""
        sizes: dict[int, int] = {}
        for name, entry in self.entries.items():
            file = self.data_file(entry.shard)
            if entry.shard not in sizes:
                if not file.is_file():
                    raise ValueError(
                        f"{file}: no such file, {name} lies in it; put it beside the .index file"
                    )
                sizes[entry.shard] = file.stat().st_size
            if entry.offset + entry.size > sizes[entry.shard]:
                raise ValueError(
                    f"{file}: {name} ends at byte {entry.offset + entry.size}, the file has "
                    f"{sizes[entry.shard]}; fetch the checkpoint again"
                )


def _find_index(path: Path) -> Path:
    """The ``.index`` file of a prefix, of itself or of a folder."""
    named = path if path.suffix == INDEX_SUFFIX else Path(f"{path}{INDEX_SUFFIX}")
    if named.is_file():
        return named
    if not path.is_dir():
        raise ValueError(
            f"{named}: no such file; give the prefix that .index and .data files share, or a "
            "folder with one checkpoint"
        )
    found = sorted(path.glob(f"*{INDEX_SUFFIX}"))
    if len(found) != 1:
        raise ValueError(
            f"{path}: has {len(found)} TensorFlow checkpoints (*{INDEX_SUFFIX}), exactly 1 is "
            "needed; give the prefix of one"
        )
    return found[0]


def _read_index(file: Path) -> bytes:
    try:
        if file.stat().st_size > MAX_INDEX_BYTES:
            raise DamagedError(f"is no index of a checkpoint, it has over {MAX_INDEX_BYTES} bytes")
        return file.read_bytes()
    except OSError as error:
        raise DamagedError(f"cannot be read ({error.strerror})") from error


def _parse_index(data: bytes) -> tuple[int, dict[str, Entry]]:
    """The number of data files, and the entry of each tensor."""
    table = read_table(data)
    key, value = next(table, (None, b""))
    if key != b"":
        raise DamagedError("has no header under the empty key")
    shards = _shards(value)
    entries: dict[str, Entry] = {}
    for key, value in table:
        name = _name(key)
        entries[name] = _entry(name, value, shards)
        if len(entries) > MAX_TENSORS:
            raise DamagedError(f"has more than {MAX_TENSORS} tensors")
    return shards, entries


def _name(key: bytes) -> str:
    name = key.decode("utf-8", errors="replace")
    if not name.isprintable() or "\ufffd" in name:
        raise DamagedError(f"has the name {name!a}; partitioned variables cannot be read")
    return name


def _shards(header: bytes) -> int:
    message = _message(header)
    shards, big_endian = _integer(message, 1), _integer(message, 2)
    if not 1 <= shards <= MAX_DATA_FILES:
        raise DamagedError(f"speaks of {shards} data files, there can be 1 to {MAX_DATA_FILES}")
    if big_endian:
        raise DamagedError("speaks of big-endian data, which cannot be read")
    return shards


def _entry(name: str, value: bytes, shards: int) -> Entry:
    message = _message(value)
    dimensions = _message(_bytes(message, 2)).get(2, [])
    if len(dimensions) > MAX_DIMENSIONS:
        raise DamagedError(f"{name} has {len(dimensions)} dimensions, over {MAX_DIMENSIONS}")
    entry = Entry(
        dtype=_integer(message, 1),
        shape=tuple(_size(name, dimension) for dimension in dimensions),
        shard=_integer(message, 3),
        offset=_integer(message, 4),
        size=_integer(message, 5),
        checksum=_integer(message, 6),
    )
    if entry.shard >= shards:
        raise DamagedError(f"{name} lies in data file {entry.shard} of {shards}, counted from 0")
    # Without the dimensions of size 0: numpy multiplies the others too.
    if math.prod(max(size, 1) for size in entry.shape) > MAX_ELEMENTS:
        raise DamagedError(f"{name} has the shape {entry.shape}, which no memory can hold")
    if entry.dtype in DTYPES:
        bytes_needed = math.prod(entry.shape) * np.dtype(DTYPES[entry.dtype]).itemsize
        if bytes_needed != entry.size:
            raise DamagedError(f"{name} has {entry.size} bytes, its shape needs {bytes_needed}")
    return entry


def _size(name: str, dimension: int | bytes) -> int:
    if isinstance(dimension, int):
        raise DamagedError(f"{name} has a shape that is no message")
    return _integer(_message(dimension), 1)


def _message(data: bytes) -> Message:
    """The fields of a protocol buffer: number -> values; fixed32 and fixed64 as integers."""
    fields: Message = {}
    at = 0
    while at < len(data):
        tag, at = read_varint(data, at)
        kind = tag & 7
        value: int | bytes
        if kind == 0:
            value, at = read_varint(data, at)
        elif kind in (1, 2, 5):
            width, at = read_varint(data, at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
            value = data[at : at + width]
            at += width
            if at > len(data):
                raise DamagedError("has a message that is cut off")
            if kind != 2:
                value = int.from_bytes(value, "little")
        else:
            raise DamagedError(f"has a field of the unknown kind {kind} in a message")
        fields.setdefault(tag >> 3, []).append(value)
    return fields


def _integer(message: Message, field: int) -> int:
    value = message.get(field, [0])[-1]
    if isinstance(value, bytes):
        raise DamagedError(f"has bytes in field {field} of a message, a number is wanted")
    return value


def _bytes(message: Message, field: int) -> bytes:
    value = message.get(field, [b""])[-1]
    if isinstance(value, int):
        raise DamagedError(f"has a number in field {field} of a message, bytes are wanted")
    return value
