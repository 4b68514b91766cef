"""All samples in one order by length, dealt round-robin into K stripes.

The order is by (length, key); the key is a seeded pseudorandom number of the sample's place in the
source, so that samples of one length stand in random order. Place i of the sorted order is row
i // K of stripe i mod K, and needs no index file.

Memory is bounded, reads and writes are sequential: samples are set down in buckets, which are
consecutive in (length, key) and of which each fits in memory (pass 1); then each bucket is sorted
and dealt (pass 2). Neither buckets nor runs show in the result.
"""

import os
import resource
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dataprep.blocks import SampleBlock, concatenate
from dataprep.lengths import Int64Array
from dataprep.manifest import FileEntry
from dataprep.picks import Picks
from dataprep.shards import FIELDS, Shard, ShardHeader, ShardWriter
from dataprep.spill import Buckets, Spill, UInt64Array
from dataprep.storage import is_local

_MB = 1 << 20
_ROW_BYTES = 64  # of a sample besides its tokens and masks: keys, offsets and orders
_STRIPE_BYTES = 1 << 16  # of a stripe's file buffers
_LEAST_MB = 64
_SHARES = 4  # a bucket is at most a fourth of the memory: it is copied, and sorted in pieces
_MOST_SLICES = 1 << 20  # runs times buckets; each is a read, and 24 bytes of memory
_SPARE_DESCRIPTORS = 64


@dataclass(frozen=True)
class PresortConfig:
    """How the stripes are made.

    Args:
        stripes: K, the number of files the sorted order is dealt into; independent of the ranks
        samples: take only so many, evenly over the source; null takes all
        pick: which are taken: stride (record floor(i*N/samples), as MLPerf picks its evaluation
            set) or random (seeded, without replacement)
        memory_mb: the most memory for arrays, in MiB; the result does not depend on it
    """

    stripes: int = 8
    samples: int | None = None
    pick: Literal["stride", "random"] = "stride"
    memory_mb: int = 2048

    def __post_init__(self) -> None:
        if self.stripes < 1:
            raise ValueError(f"stripes {self.stripes} must be at least 1")
        if self.samples is not None and self.samples < 1:
            raise ValueError(f"samples {self.samples} must be at least 1, or null for all")
        if self.pick not in ("stride", "random"):
            raise ValueError(f"pick '{self.pick}'; choose stride or random")
        least = _LEAST_MB + self.stripes * _STRIPE_BYTES // _MB
        if self.memory_mb < least:
            raise ValueError(
                f"memory_mb {self.memory_mb} must be at least {least} for {self.stripes} stripes"
            )

    @property
    def bucket_bytes(self) -> int:
        """How large a run or a bucket may be, in bytes."""
        return (self.memory_mb * _MB - self.stripes * _STRIPE_BYTES) // _SHARES

    @property
    def settings(self) -> dict[str, Any]:
        """What decides the result, besides the seed."""
        return {"stripes": self.stripes, "samples": self.samples, "pick": self.pick}


def presort(
    sources: Sequence[Path], folder: Path, config: PresortConfig, seed: int
) -> list[FileEntry]:
    """Write ``stripe-00000.h5`` ... into ``folder`` from the shards ``sources``.

    Needs the size of the result again as free disk space while it runs.

    Raises:
        ValueError: shards of different kinds, fewer samples than wanted or than stripes, too many
            stripes for the process's limit of open files, too little memory for so much data.
    """
    header = common_header(sources)
    counts, sizes = _measure(sources, config, seed)
    if counts.sum() < config.stripes:
        raise ValueError(
            f"{folder}: {counts.sum()} samples do not fill {config.stripes} stripes; "
            "lower stripes or prepare more"
        )
    buckets = Buckets(sizes, config.bucket_bytes)
    _check_memory(config, int(sizes.sum()), buckets.count)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"stripe-{stripe:05d}.h5" for stripe in range(config.stripes)]
    with (
        open_files(config.stripes * len(FIELDS)),
        _all_or_none(paths),
        ExitStack() as stack,
        # closed, and its space free, before the stripes are put together
        Spill(folder if is_local(folder) else None, buckets.count) as spill,
    ):
        _distribute(sources, config, seed, buckets, spill)
        writers = [
            stack.enter_context(ShardWriter(path, replace(header, seed=seed))) for path in paths
        ]
        _deal(spill, buckets.count, writers)
    return [writer.entry for writer in writers]


@contextmanager
def _all_or_none(paths: Sequence[Path]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        for path in paths:
            path.unlink(missing_ok=True)
        raise


def keys_of(places: Int64Array, seed: int) -> UInt64Array:
    """A pseudorandom key for each place of the source, [n]: no two places have the same.

    The function is splitmix64 (Steele, Lea and Flood 2014), which is one to one.
    """
    start = np.random.SeedSequence(seed).generate_state(1, np.uint64)
    state = start + (places.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    keys: UInt64Array = state ^ (state >> np.uint64(31))
    return keys


def picked(
    sources: Sequence[Path], config: PresortConfig, seed: int
) -> Iterator[tuple[SampleBlock, Int64Array, Int64Array]]:
    """Goes through the shards in blocks; one shard is open at a time.

    Yields:
        a block; [n] the rows of it that are taken, ascending; [n] their places in the source.

    Raises:
        ValueError: fewer samples than wanted.
    """
    total = sum(len(Shard(path)) for path in sources)
    if config.samples is not None and config.samples > total:
        raise ValueError(f"{config.samples} samples wanted, the source holds {total}; lower it")
    wanted = total if config.samples is None else config.samples
    picks = Picks(total, wanted, config.pick == "random", seed)
    start = 0
    for path in sources:
        shard = Shard(path)
        longest = _ROW_BYTES + 2 * shard.header.max_seq_length + 4 * shard.header.max_predictions
        step = max(1, config.bucket_bytes // 8 // longest)
        for first in range(0, len(shard), step):
            last = min(first + step, len(shard))
            places = picks.between(start + first, start + last)
            if len(places):
                yield shard.block(first, last), places - (start + first), places
        start += len(shard)


def _measure(
    sources: Sequence[Path], config: PresortConfig, seed: int
) -> tuple[Int64Array, Int64Array]:
    """Samples, and their bytes, of each length, [L]; only offsets are read."""
    counts, sizes = np.zeros(1 << 16, np.int64), np.zeros(1 << 16, np.int64)
    for block, rows, _ in picked(sources, config, seed):
        lengths = block.lengths[rows]
        np.add.at(counts, lengths, 1)
        np.add.at(sizes, lengths, _bytes(lengths, block.masks[rows]))
    return counts, sizes


def _bytes(lengths: Int64Array, masks: Int64Array) -> Int64Array:
    return _ROW_BYTES + 2 * lengths + 4 * masks


def _distribute(
    sources: Sequence[Path], config: PresortConfig, seed: int, buckets: Buckets, spill: Spill
) -> None:
    blocks: list[SampleBlock] = []
    keys: list[UInt64Array] = []
    filled = 0

    def set_down() -> None:
        block, key = concatenate(blocks), np.concatenate(keys)
        blocks.clear()
        keys.clear()
        spill.append(block, key, buckets.of(block.lengths, key))

    for block, rows, places in picked(sources, config, seed):
        for piece in block.pieces(rows):
            blocks.append(piece)
            filled += int(_bytes(piece.lengths, piece.masks).sum())
        keys.append(keys_of(places, seed))
        if filled >= config.bucket_bytes:
            set_down()
            filled = 0
    if blocks:
        set_down()


def _deal(spill: Spill, buckets: int, writers: Sequence[ShardWriter]) -> None:
    place = 0
    for bucket in range(buckets):
        block, keys = spill.read(bucket)
        order = np.lexsort((keys, block.lengths))
        for stripe, writer in enumerate(writers):
            for piece in block.pieces(order[(stripe - place) % len(writers) :: len(writers)]):
                writer.write_block(piece)
        place += len(order)


def _check_memory(config: PresortConfig, size: int, buckets: int) -> None:
    runs = size // config.bucket_bytes + 1
    if runs * buckets > _MOST_SLICES:
        # at most two buckets for each run
        least = int(size / (_MOST_SLICES / 2) ** 0.5 * _SHARES + config.stripes * _STRIPE_BYTES)
        raise ValueError(
            f"memory_mb {config.memory_mb} is too little for {size / 1e9:.1f} GB of samples; "
            f"give at least {least // _MB + 1}"
        )


@contextmanager
def open_files(count: int) -> Iterator[None]:
    """Allow for so many more open files than usual, by the soft limit, while inside.

    Raises:
        ValueError: the hard limit is lower.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd")) + _SPARE_DESCRIPTORS
    needed = count + used
    if hard != resource.RLIM_INFINITY and needed > hard:
        stripes = (hard - used) // len(FIELDS)
        raise ValueError(
            f"{count // len(FIELDS)} stripes need {needed} open files, the limit is {hard} "
            f"(ulimit -Hn); raise it or take at most {stripes} stripes"
        )
    if soft != resource.RLIM_INFINITY and needed > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def common_header(sources: Sequence[Path]) -> ShardHeader:
    """The header that fits all shards, with the sources of all.

    Raises:
        ValueError: none, or two that were made otherwise; both are named.
    """
    if not sources:
        raise ValueError("presort needs a shard, none given; run stage 'samples' first")
    headers = [Shard(path).header for path in sources]
    texts: dict[str, str] = {}
    for path, header in zip(sources, headers, strict=True):
        if not headers[0].same_kind(header):
            raise ValueError(
                f"{path}: made with another vocabulary, length or builder than {sources[0]}; "
                "prepare both with the same settings"
            )
        texts |= header.sources
    return replace(headers[0], sources=texts)
