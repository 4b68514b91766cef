"""Static masks for a block of samples at once, as BERT's ``create_pretraining_data.py`` draws them.

Of a sample's tokens, special ones left out, a share is chosen: 80 % of these become [MASK], 10 %
stay as they are, 10 % become any token of the vocabulary.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dataprep.blocks import UInt16Array, offsets_of, ragged_range
from dataprep.draws import UInt64Array, below, draw
from dataprep.lengths import Int64Array

# a sort key has a sample, random bits and a place within the sample, of 16, 32 and 16 bits
_PLACE = np.uint64(0xFFFF)
_SHIFT = np.uint64(16)
MAX_BLOCK = 1 << 16


@dataclass(frozen=True)
class Masker:
    """The rule of masking.

    Args:
        probability: the share of a sample's tokens, special ones counted, that is chosen
        max_predictions: the most chosen tokens of a sample
        mask: the id of [MASK]
        vocabulary_size: random replacements are drawn below it
    """

    probability: float
    max_predictions: int
    mask: int
    vocabulary_size: int

    def choose(
        self, keys: UInt64Array, lengths: Int64Array, separators: Int64Array
    ) -> tuple[UInt16Array, Int64Array]:
        """Which tokens of each of n samples are masked.

        Args:
            keys: of each sample's draws, [n], n at most ``MAX_BLOCK``.
            lengths: of each sample in tokens, special ones included, [n].
            separators: where each sample's first [SEP] stands, [n].

        Returns:
            positions within the sample, ascending, of all samples one after the other [M], and how
            many each sample has [n].
        """
        maskable = lengths - 3
        wanted = np.maximum(1, np.rint(lengths * self.probability)).astype(np.int64)
        counts = np.minimum(np.minimum(wanted, self.max_predictions), maskable)
        samples = np.arange(len(keys), dtype=np.uint64) << np.uint64(48)
        places = ragged_range(np.zeros(len(keys), np.int64), maskable)
        # sorting shuffles the places within each sample
        shuffled = draw(np.repeat(keys, maskable), places) >> _SHIFT & ~_PLACE
        shuffled |= np.repeat(samples, maskable) | places.astype(np.uint64)
        shuffled.sort()
        chosen = shuffled[ragged_range(offsets_of(maskable)[:-1], counts)]
        chosen = np.sort(np.repeat(samples, counts) | (chosen & _PLACE))
        places = (chosen & _PLACE).astype(np.int64)
        positions = places + 1 + (places + 1 >= np.repeat(separators, counts))
        return positions.astype(np.uint16), counts

    def replacements(self, bits: UInt64Array, labels: UInt16Array) -> NDArray[np.uint16]:
        """What stands in the place of each chosen token, [M], by 64 random bits each."""
        fate = below(bits, 10)
        # the lower half of the bits is independent of the upper one
        random_ids = below(bits << np.uint64(32), self.vocabulary_size)
        return np.where(fate < 8, self.mask, np.where(fate < 9, labels, random_ids)).astype(
            np.uint16
        )
