"""Slots draw for themselves: ``random``, and ``strata`` with fixed counts of ranges of lengths.

Nothing is kept but a key for each range: any step is found at once, in constant memory.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from dataprep.lengths import Int64Array
from dataprep.order.permutation import UInt64Array, keys_of, permute
from dataprep.order.scheme import Order, divided


@dataclass(frozen=True)
class Random(Order):
    """A permutation of all samples, cut into steps.

    Args:
        remainder: drop or keep the samples that do not fill a step.
    """

    remainder: Literal["drop", "keep"] = "drop"

    @property
    def steps(self) -> int:
        """The number of steps of the epoch."""
        return divided(self.histogram.samples, self.width * self.batch, self.remainder == "keep")

    @cached_property
    def left_out(self) -> Int64Array:
        """The places that sit out this epoch, ascending."""
        return np.sort(self._place_of(np.arange(self._used, self.histogram.samples)))

    @property
    def _used(self) -> int:
        return self.steps * self.width * self.batch

    def reads_of_steps(self, steps: Int64Array, slots: Int64Array) -> Int64Array:
        """The places of steps, in no order; a short step deals its samples round by round."""
        columns = steps[:, None, None] * self.batch + np.arange(self.batch)
        positions = columns * self.width + slots[None, :, None]
        samples = self.histogram.samples
        return np.where(positions < samples, self._place_of(np.minimum(positions, samples - 1)), -1)

    def _place_of(self, positions: Int64Array) -> Int64Array:
        key = keys_of(self.seed, self.epoch, "random", 1)
        return permute(positions, self.histogram.samples, key)


@dataclass(frozen=True)
class Strata(Order):
    """Every slot draws fixed counts from ranges of lengths.

    The length mix is that of the counts, not of the dataset: the epoch ends when one range is used
    up, and what is left of the others sits out. Lengths ascend range by range along a slot.

    Args:
        bins: the longest sample of each range, ascending.
        counts: samples of each range, in any scale.

    Raises:
        ValueError: a range holds no sample, samples are longer than the last range, or the batch is
            smaller than the number of ranges.
    """

    bins: tuple[int, ...] = (128, 256, 384, 512)
    counts: tuple[int, ...] = (6, 3, 2, 5)

    def __post_init__(self) -> None:
        longest = int(self.histogram.lengths[-1]) if self.histogram.samples else 0
        if longest > self.bins[-1]:
            raise ValueError(
                f"data.order.strata_bins {list(self.bins)}: the dataset has samples of {longest} "
                f"tokens; raise the last bin to {longest}"
            )
        if self.batch < len(self.bins):
            raise ValueError(
                f"data.order.strata_bins {list(self.bins)}: a batch of {self.batch} is too small "
                f"for a sample of each; raise the batch to {len(self.bins)} or give fewer bins"
            )
        sizes = np.diff(self._bounds).tolist()
        if self.histogram.samples and min(sizes) == 0:
            raise ValueError(
                f"data.order.strata_bins {list(self.bins)}: the dataset has {sizes} samples of "
                "them; choose bins that hold some"
            )
        super().__post_init__()

    @property
    def _supply(self) -> str:
        sizes, counts = np.diff(self._bounds).tolist(), self.scaled_counts.tolist()
        return f"{sizes} samples of its ranges of lengths, of which a slot takes {counts}"

    @property
    def steps(self) -> int:
        """The number of steps until the first range is used up."""
        return int((np.diff(self._bounds) // (self.width * self.scaled_counts)).min())

    @cached_property
    def scaled_counts(self) -> Int64Array:
        """[ranges] the counts of a batch, by the largest remainder and at least 1 each."""
        shares = np.array(self.counts) * self.batch / sum(self.counts)
        counts = np.maximum(np.floor(shares), 1).astype(np.int64)
        while counts.sum() != self.batch:
            missing = shares - counts
            if counts.sum() < self.batch:
                counts[missing.argmax()] += 1
            else:
                counts[np.where(counts > 1, missing, np.inf).argmin()] -= 1
        return counts

    @cached_property
    def left_out(self) -> Int64Array:
        """The places that sit out this epoch, ascending."""
        used = self.steps * self.width * self.scaled_counts
        rest = [
            self._place_of(np.arange(first, size), np.full(size - first, k))
            for k, (first, size) in enumerate(
                zip(used.tolist(), np.diff(self._bounds).tolist(), strict=True)
            )
        ]
        return np.sort(np.concatenate(rest))

    def reads_of_steps(self, steps: Int64Array, slots: Int64Array) -> Int64Array:
        """The places of steps, range by range."""
        counts = self.scaled_counts
        ranges = np.repeat(np.arange(len(counts)), counts)
        turn = np.arange(self.batch) - np.repeat(np.cumsum(counts) - counts, counts)
        rounds = steps[:, None, None] * counts[ranges] + turn
        return self._place_of(rounds * self.width + slots[None, :, None], ranges)

    def _place_of(self, positions: Int64Array, ranges: Int64Array) -> Int64Array:
        sizes = np.diff(self._bounds)[ranges]
        return self._bounds[ranges] + permute(positions, sizes, self._keys[ranges])

    @cached_property
    def _keys(self) -> UInt64Array:
        return keys_of(self.seed, self.epoch, "strata", len(self.bins))

    @cached_property
    def _bounds(self) -> Int64Array:
        """[ranges + 1] the place where each range starts."""
        ends = np.searchsorted(self.histogram.lengths, self.bins, side="right")
        return np.concatenate([[0], self.histogram.starts[ends]])
