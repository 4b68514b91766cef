"""Stripes of made-up tokens with given lengths, for benchmarks of what reads them."""

from pathlib import Path

import numpy as np

from dataprep.blocks import SampleBlock, offsets_of
from dataprep.lengths import Int64Array, LengthHistogram
from dataprep.manifest import Manifest
from dataprep.shards import ShardHeader, ShardWriter

_ROWS = 4096  # made at a time
_MASKED = 0.15
_VOCABULARY = 30_522


def make_stripes(
    folder: Path,
    histogram: LengthHistogram,
    samples: int,
    stripes: int,
    only_held_out: bool = False,
) -> LengthHistogram:
    """Write ``samples`` samples, their lengths as a histogram's, sorted and dealt into stripes.

    Args:
        folder: gets the stripes and their manifest, as of the presort stage.
        histogram: of any number of samples; the shares of its lengths are kept.
        samples: N.
        stripes: K.
        only_held_out: whether they pass for the evaluation set of such stripes.

    Returns:
        The histogram of the N samples.
    """
    header = ShardHeader("0" * 64, _VOCABULARY, 512, 76, "fast", 0, "0" * 64, only_held_out)
    # N evenly spaced places of the sorted order
    places = np.arange(samples) * histogram.samples // samples
    lengths = histogram.length_at(places)
    entries = []
    for stripe in range(stripes):
        with ShardWriter(folder / f"made-{stripe:05d}.h5", header) as writer:
            own = lengths[stripe::stripes]
            for first in range(0, len(own), _ROWS):
                writer.write_block(_made_block(own[first : first + _ROWS], seed=stripe))
        entries.append(writer.entry)
    found = dict(zip(*(x.tolist() for x in np.unique(lengths, return_counts=True)), strict=True))
    Manifest(
        stage="presort",
        seed=0,
        settings={},
        sources={},
        files=entries,
        shard_header={**vars(header)},
        lengths=found,
        most_frequent_label={"token": "made", "share": 1.0},
    ).write(folder)
    return LengthHistogram(found)


def _made_block(lengths: Int64Array, seed: int) -> SampleBlock:
    draw = np.random.default_rng(seed)
    masks = np.minimum(76, np.maximum(1, (lengths * _MASKED).astype(np.int64)))
    tokens = draw.integers(0, _VOCABULARY, lengths.sum(), np.uint16)
    ids = draw.integers(0, _VOCABULARY, masks.sum(), np.uint16)
    offsets = offsets_of(masks)
    # every sixth position from the first on
    positions = 6 * (np.arange(offsets[-1]) - np.repeat(offsets[:-1], masks))
    return SampleBlock(
        tokens=tokens,
        token_offsets=offsets_of(lengths),
        second_segment_start=(lengths // 2).astype(np.uint16),
        next_sentence_label=draw.integers(0, 2, len(lengths), np.uint8),
        mlm_positions=positions.astype(np.uint16),
        mlm_ids=ids,
        mlm_offsets=offsets,
    )
