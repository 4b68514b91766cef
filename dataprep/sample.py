"""A training sample, and many of them as flat arrays."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

UInt16Array = NDArray[np.uint16]


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


class SampleBlock(NamedTuple):
    """n samples as flat arrays: T tokens, M masked positions in all; the fields are a `Sample`'s.

    ``tokens`` [T], ``mlm_positions`` and ``mlm_labels`` [M] are uint16. Sample i's tokens are
    tokens[token_offsets[i]:token_offsets[i+1]]; ``mlm_offsets`` [n+1] is alike. Offsets start at 0.
    """

    tokens: UInt16Array
    token_offsets: NDArray[np.int64]
    second_segment_starts: NDArray[np.int64]
    mlm_positions: UInt16Array
    mlm_labels: UInt16Array
    mlm_offsets: NDArray[np.int64]
    next_sentence_labels: NDArray[np.uint8]

    def samples(self) -> Iterator[Sample]:
        """One by one; their arrays are views."""
        tokens, masked = self.token_offsets.tolist(), self.mlm_offsets.tolist()
        starts, labels = self.second_segment_starts.tolist(), self.next_sentence_labels.tolist()
        for i, (start, label) in enumerate(zip(starts, labels, strict=True)):
            chosen = slice(masked[i], masked[i + 1])
            yield Sample(
                self.tokens[tokens[i] : tokens[i + 1]],
                start,
                self.mlm_positions[chosen],
                self.mlm_labels[chosen],
                label,
            )
