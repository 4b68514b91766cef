"""Many samples at once, as flat arrays: what moves between shards without a loop over samples."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataprep.lengths import Int64Array

UInt16Array = NDArray[np.uint16]
_PIECE_TOKENS = 1 << 19  # gathered at once: the index of a gather takes 16 bytes a token


@dataclass(frozen=True)
class SampleBlock:
    """n samples with T tokens and M masked positions in all; fields as in a shard.

    ``token_offsets`` and ``mlm_offsets`` [n+1] start at 0.
    """

    tokens: UInt16Array
    token_offsets: Int64Array
    second_segment_start: UInt16Array
    next_sentence_label: NDArray[np.uint8]
    mlm_positions: UInt16Array
    mlm_ids: UInt16Array
    mlm_offsets: Int64Array

    def __len__(self) -> int:
        return len(self.second_segment_start)

    @property
    def lengths(self) -> Int64Array:
        """The number of tokens of each sample, [n]."""
        return np.diff(self.token_offsets)

    @property
    def masks(self) -> Int64Array:
        """The number of masked positions of each sample, [n]."""
        return np.diff(self.mlm_offsets)

    def take(self, rows: Int64Array) -> "SampleBlock":
        """Copies of the samples of these rows, in this order."""
        lengths, masks = self.lengths[rows], self.masks[rows]
        tokens = ragged_range(self.token_offsets[rows], lengths)
        masked = ragged_range(self.mlm_offsets[rows], masks)
        return SampleBlock(
            tokens=self.tokens[tokens],
            token_offsets=offsets_of(lengths),
            second_segment_start=self.second_segment_start[rows],
            next_sentence_label=self.next_sentence_label[rows],
            mlm_positions=self.mlm_positions[masked],
            mlm_ids=self.mlm_ids[masked],
            mlm_offsets=offsets_of(masks),
        )

    def pieces(self, rows: Int64Array) -> "Iterator[SampleBlock]":
        """Like ``take``, in several blocks, so that little memory is needed besides."""
        ends = np.cumsum(self.lengths[rows] + self.masks[rows])
        total = int(ends[-1]) if len(ends) else 0
        limits = np.arange(_PIECE_TOKENS, total, _PIECE_TOKENS)
        for part in np.split(rows, np.searchsorted(ends, limits)):
            if len(part):
                yield self.take(part)


def offsets_of(sizes: Int64Array) -> Int64Array:
    """Where each of n things of these sizes starts and the last ends, [n+1]."""
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets


def concatenate(blocks: Sequence[SampleBlock]) -> SampleBlock:
    """All samples of at least one block, one block after the other."""

    def joined(name: str) -> NDArray[Any]:
        return np.concatenate([getattr(block, name) for block in blocks])

    return SampleBlock(
        tokens=joined("tokens"),
        token_offsets=offsets_of(joined("lengths")),
        second_segment_start=joined("second_segment_start"),
        next_sentence_label=joined("next_sentence_label"),
        mlm_positions=joined("mlm_positions"),
        mlm_ids=joined("mlm_ids"),
        mlm_offsets=offsets_of(joined("masks")),
    )


def ragged_range(starts: Int64Array, sizes: Int64Array) -> Int64Array:
    """The places start, start + 1, ... start + size - 1 of each pair, one after the other."""
    offsets = offsets_of(sizes)
    places: Int64Array = np.repeat(starts - offsets[:-1], sizes)
    places += np.arange(offsets[-1])
    return places
