"""All samples in one order by length, dealt round-robin into K stripes.

Shuffled (seeded) first and then sorted stably, so that samples of one length stand in random order:
place i of the sorted order is row i // K of stripe i mod K, and needs no index file.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dataprep.lengths import Int64Array
from dataprep.manifest import FileEntry
from dataprep.shards import Sample, Shard, ShardHeader, ShardWriter


@dataclass(frozen=True)
class PresortConfig:
    """How the stripes are made.

    Args:
        stripes: K, the number of files the sorted order is dealt into; independent of the ranks
        samples: take only so many, evenly over the source (record floor(i*N/samples), as MLPerf
            picks its evaluation set); null takes all
    """

    stripes: int = 8
    samples: int | None = None

    def __post_init__(self) -> None:
        if self.stripes < 1:
            raise ValueError(f"stripes {self.stripes} must be at least 1")
        if self.samples is not None and self.samples < 1:
            raise ValueError(f"samples {self.samples} must be at least 1, or null for all")


def presort(
    sources: Sequence[Path], folder: Path, config: PresortConfig, seed: int
) -> list[FileEntry]:
    """Write ``stripe-00000.h5`` ... into ``folder`` from the shards ``sources``.

    Raises:
        ValueError: shards of different kinds, no sample, or fewer samples than wanted.
    """
    shards = [Shard(path) for path in sources]
    header = _common_header(shards)
    order = sorted_order([shard.lengths().astype(np.int64) for shard in shards], config, seed)
    if len(order) < config.stripes:
        raise ValueError(
            f"{folder}: {len(order)} samples do not fill {config.stripes} stripes; "
            "lower stripes or prepare more"
        )
    first_rows = np.cumsum([0] + [len(shard) for shard in shards])
    entries = []
    for stripe in range(config.stripes):
        path = folder / f"stripe-{stripe:05d}.h5"
        with ShardWriter(path, replace(header, seed=seed)) as writer:
            for sample in _gather(shards, first_rows, order[stripe :: config.stripes]):
                writer.write(sample)
        entries.append(writer.entry)
    return entries


def sorted_order(lengths: Sequence[Int64Array], config: PresortConfig, seed: int) -> Int64Array:
    """Which source sample stands at each place of the sorted order, [N].

    Args:
        lengths: of the samples of each source, in tokens.
        config: says how many samples to take.
        seed: of the shuffle.
    """
    all_lengths = np.concatenate(lengths) if lengths else np.zeros(0, np.int64)
    total = len(all_lengths)
    if config.samples is not None and config.samples > total:
        raise ValueError(f"{config.samples} samples wanted, the source holds {total}; lower it")
    wanted = total if config.samples is None else config.samples
    picked = np.arange(wanted) * total // max(wanted, 1)
    shuffled = np.random.default_rng([seed, total]).permutation(picked)
    return shuffled[np.argsort(all_lengths[shuffled], kind="stable")]


def _gather(shards: list[Shard], first_rows: Int64Array, order: Int64Array) -> Iterator[Sample]:
    owners = np.searchsorted(first_rows, order, side="right") - 1
    for owner, row in zip(owners.tolist(), (order - first_rows[owners]).tolist(), strict=True):
        yield shards[owner].sample(row)


def _common_header(shards: list[Shard]) -> ShardHeader:
    first = shards[0]
    for other in shards[1:]:
        if not first.header.same_kind(other.header):
            raise ValueError(
                f"{other.path}: made with another vocabulary, length or builder than {first.path}; "
                "prepare both with the same settings"
            )
    sources: dict[str, str] = {}
    for shard in shards:
        sources |= shard.header.sources
    return replace(first.header, sources=sources)
