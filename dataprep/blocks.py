"""A sample, and many at once as flat arrays: what moves between shards without a loop."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dataprep.lengths import Int64Array

UInt16Array = NDArray[np.uint16]
_PIECE_TOKENS = 1 << 19  # gathered at once: the index of a gather takes 16 bytes a token


class Sample(NamedTuple):
    """One training sample of S tokens, P of them masked.

    ``tokens`` [S] and ``mlm_positions``, ``mlm_labels`` [P] are uint16; ``second_segment_start`` is
    where segment 1 starts; ``next_sentence_label`` is 1 if the second segment is random.
    """

    tokens: UInt16Array
    second_segment_start: int
    mlm_positions: UInt16Array
    mlm_labels: UInt16Array
    next_sentence_label: int


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

    @staticmethod
    def empty() -> "SampleBlock":
        """No sample."""
        none, offsets = np.zeros(0, np.uint16), np.zeros(1, np.int64)
        labels = np.zeros(0, np.uint8)
        return SampleBlock(none, offsets, none, labels, none, none, offsets)

    @staticmethod
    def of(samples: "Sequence[Sample]") -> "SampleBlock":
        """At least one sample as a block."""
        sizes = [len(sample.tokens) for sample in samples]
        masks = [len(sample.mlm_positions) for sample in samples]
        return SampleBlock(
            tokens=np.concatenate([sample.tokens for sample in samples]),
            token_offsets=offsets_of(np.array(sizes)),
            second_segment_start=np.array([s.second_segment_start for s in samples], np.uint16),
            next_sentence_label=np.array([s.next_sentence_label for s in samples], np.uint8),
            mlm_positions=np.concatenate([sample.mlm_positions for sample in samples]),
            mlm_ids=np.concatenate([sample.mlm_labels for sample in samples]),
            mlm_offsets=offsets_of(np.array(masks)),
        )

    def samples(self) -> Iterator[Sample]:
        """One by one, as views."""
        tokens, masked = self.token_offsets.tolist(), self.mlm_offsets.tolist()
        for i in range(len(self)):
            chosen = slice(masked[i], masked[i + 1])
            yield Sample(
                tokens=self.tokens[tokens[i] : tokens[i + 1]],
                second_segment_start=int(self.second_segment_start[i]),
                mlm_positions=self.mlm_positions[chosen],
                mlm_labels=self.mlm_ids[chosen],
                next_sentence_label=int(self.next_sentence_label[i]),
            )

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
