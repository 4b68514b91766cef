"""The rules that every sample of a shard must keep, checked on many samples at once."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataprep.blocks import SampleBlock
from dataprep.shards import Shard
from dataprep.tokenization import Vocabulary

_SHORTEST = 5  # [CLS] a [SEP] b [SEP]


class BlockCheck:
    """The rules that a block of samples must keep.

    Args:
        shard: it is from.
        vocabulary: of the shard.
        block: of its samples.
        first: the shard's row of the block's first sample.
    """

    def __init__(
        self, shard: Shard, vocabulary: Vocabulary, block: SampleBlock, first: int
    ) -> None:
        self._shard, self._block, self._first = shard, block, first
        self._cls, self._sep = vocabulary.id("[CLS]"), vocabulary.id("[SEP]")
        self._size = len(vocabulary)

    def run(self) -> None:
        """Check all rules; offsets first, which the others rely on.

        Raises:
            ValueError: the first sample that breaks one.
        """
        self._offsets()
        self._segments()
        self._masks()

    def _refuse(self, rows: NDArray[np.bool_], values: NDArray[Any], rule: str) -> None:
        """Raise for the first true row; rows and values [n]."""
        if rows.any():
            row = int(rows.argmax())
            raise ValueError(
                f"{self._shard.path} row {self._first + row}: {rule}, found {values[row]}; "
                "delete it and run its stage again"
            )

    def _refuse_each(
        self, bad: NDArray[np.bool_], values: NDArray[Any], owners: NDArray[np.int64], rule: str
    ) -> None:
        """Raise for the first true value of an array over tokens or masks, and its row."""
        if bad.any():
            place = int(bad.argmax())
            rows = np.arange(len(self._block)) == owners[place]
            self._refuse(rows, np.full(len(self._block), values[place]), rule)

    def _offsets(self) -> None:
        header, lengths, masks = self._shard.header, self._block.lengths, self._block.masks
        bad = (lengths < _SHORTEST) | (lengths > header.max_seq_length)
        self._refuse(bad, lengths, f"length must lie in {_SHORTEST} to {header.max_seq_length}")
        bad = (masks < 1) | (masks > header.max_predictions)
        self._refuse(bad, masks, f"masked positions must be 1 to {header.max_predictions}")

    def _segments(self) -> None:
        block, sep = self._block, self._sep
        starts, ends = block.token_offsets[:-1], block.token_offsets[1:]
        if len(block.tokens) and int(block.tokens.max()) >= self._size:
            owners = np.repeat(np.arange(len(block)), block.lengths)
            rule = f"token ids must be under {self._size}"
            self._refuse_each(block.tokens >= self._size, block.tokens, owners, rule)
        first, last = block.tokens[starts], block.tokens[ends - 1]
        self._refuse(first != self._cls, first, f"the first token must be [CLS], id {self._cls}")
        self._refuse(last != sep, last, f"the last token must be [SEP], id {sep}")
        second = block.second_segment_start.astype(np.int64)
        bad = (second < 3) | (second > block.lengths - 2)
        self._refuse(bad, second, "second_segment_start must leave a token to both segments")
        before = block.tokens[starts + second - 1]
        self._refuse(before != sep, before, f"second_segment_start must follow [SEP], id {sep}")
        labels = block.next_sentence_label
        self._refuse(labels > 1, labels, "next_sentence_label must be 0 or 1")

    def _masks(self) -> None:
        block = self._block
        owners = np.repeat(np.arange(len(block)), block.masks)
        positions = block.mlm_positions.astype(np.int64)
        lengths, second = block.lengths[owners], block.second_segment_start[owners]
        special = (positions == 0) | (positions == second - 1) | (positions >= lengths - 1)
        rule = "masked positions must lie on text, not on [CLS] or [SEP] or outside"
        self._refuse_each(special, positions, owners, rule)
        falls = np.zeros(len(positions), bool)
        falls[1:] = (np.diff(positions) <= 0) & (np.diff(owners) == 0)
        self._refuse_each(falls, positions, owners, "masked positions must ascend")
        rule = f"masked ids must be under {self._size}"
        self._refuse_each(block.mlm_ids >= self._size, block.mlm_ids, owners, rule)
