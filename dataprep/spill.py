"""Samples set down on disk in runs and read back by bucket: a sort of more than memory holds.

A run holds as many samples as memory allows, grouped by bucket; a bucket is read back as a slice
of every run. Everything lies in one temporary file without a name, so nothing is left behind, not
even by a process that was killed.
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import numpy as np
from numpy.typing import NDArray

from dataprep.blocks import SampleBlock, offsets_of
from dataprep.lengths import Int64Array

UInt64Array = NDArray[np.uint64]
_ROW = np.dtype(
    [("key", "<u8"), ("tokens", "<u4"), ("masks", "<u2"), ("second", "<u2"), ("label", "<u1")]
)
_KIND = np.dtype("<u2")
Bounds = tuple[Int64Array, Int64Array, Int64Array]  # [buckets+1] in rows, tokens, masks


@dataclass(frozen=True)
class _Run:
    """Where a run's four sections start in the file, and each bucket in a section."""

    starts: tuple[int, int, int, int]  # rows, tokens, positions, ids; in bytes
    bounds: Bounds


class Buckets:
    """Consecutive parts of the order by (length, key), none larger than a limit.

    Args:
        sizes: [L] bytes of all samples of each length.
        limit: bytes of a bucket; one of a part of a length holds as much on average.

    Attributes:
        count: the number of buckets.
    """

    def __init__(self, sizes: Int64Array, limit: int) -> None:
        self._first = np.zeros(len(sizes), np.int64)
        self._parts = np.ones(len(sizes), np.uint64)
        bucket, filled = 0, 0
        for length in np.flatnonzero(sizes).tolist():
            size = int(sizes[length])
            if filled and filled + size > limit:
                bucket, filled = bucket + 1, 0
            parts = -(-size // limit)
            self._first[length], self._parts[length] = bucket, parts
            bucket, filled = bucket + parts - 1, filled + size
        self.count = bucket + 1

    def of(self, lengths: Int64Array, keys: UInt64Array) -> Int64Array:
        """The bucket of each sample, [n]."""
        half = np.uint64(32)
        part = (keys >> half) * self._parts[lengths] >> half
        return self._first[lengths] + part.astype(np.int64)


class Spill:
    """Runs of samples in a temporary file of ``folder``.

    Args:
        folder: in whose file system the file lies; None for the system's temporary folder.
        buckets: how many; a sample's bucket is given when it is appended.
    """

    def __init__(self, folder: Path | None, buckets: int) -> None:
        self._folder = folder
        self._buckets = buckets
        self._runs: list[_Run] = []

    def __enter__(self) -> Self:
        self._file: IO[bytes] = tempfile.TemporaryFile(dir=self._folder)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def append(self, block: SampleBlock, keys: UInt64Array, buckets: Int64Array) -> None:
        """Set down a run of n samples with their keys and buckets, [n] each."""
        order = np.argsort(buckets, kind="stable")
        rows = np.empty(len(order), _ROW)
        rows["key"], rows["tokens"], rows["masks"] = keys, block.lengths, block.masks
        rows["second"], rows["label"] = block.second_segment_start, block.next_sentence_label
        rows = rows[order]
        row_bounds = offsets_of(np.bincount(buckets, minlength=self._buckets))
        token_bounds, mask_bounds = (
            offsets_of(rows[name].astype(np.int64))[row_bounds] for name in ("tokens", "masks")
        )
        first = self._file.tell()
        self._file.write(rows.tobytes())
        del rows
        tokens = self._file.tell()
        positions = tokens + len(block.tokens) * _KIND.itemsize
        ids = positions + len(block.mlm_ids) * _KIND.itemsize
        end = ids + len(block.mlm_ids) * _KIND.itemsize
        written = [tokens, positions, ids]
        for piece in block.pieces(order):
            for i, values in enumerate((piece.tokens, piece.mlm_positions, piece.mlm_ids)):
                self._file.seek(written[i])
                written[i] += self._file.write(np.ascontiguousarray(values, _KIND).tobytes())
        self._file.seek(end)
        bounds = (row_bounds, token_bounds, mask_bounds)
        self._runs.append(_Run((first, tokens, positions, ids), bounds))

    def read(self, bucket: int) -> tuple[SampleBlock, UInt64Array]:
        """All samples of a bucket, in the order they came in, and their keys."""
        rows = self._section(0, bucket, _ROW)
        return SampleBlock(
            tokens=self._section(1, bucket, _KIND),
            token_offsets=offsets_of(rows["tokens"].astype(np.int64)),
            second_segment_start=rows["second"],
            next_sentence_label=rows["label"],
            mlm_positions=self._section(2, bucket, _KIND),
            mlm_ids=self._section(3, bucket, _KIND),
            mlm_offsets=offsets_of(rows["masks"].astype(np.int64)),
        ), rows["key"]

    def _section(self, section: int, bucket: int, kind: np.dtype[Any]) -> NDArray[Any]:
        unit = min(section, 2)  # positions and ids are both counted in masks
        spans = [run.bounds[unit][bucket : bucket + 2].tolist() for run in self._runs]
        values = np.empty(sum(last - first for first, last in spans), kind)
        done = 0
        for run, (first, last) in zip(self._runs, spans, strict=True):
            if first == last:
                continue
            part = values[done : done + last - first]
            self._file.seek(run.starts[section] + first * kind.itemsize)
            count = self._file.readinto(part.view(np.uint8).data)  # type: ignore[attr-defined]
            assert count == part.nbytes
            done += last - first
        return values
