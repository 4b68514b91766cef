"""The project's own scheme: the sorted dataset dealt to the slots, and walked slice by slice.

Each epoch:

1. Remainder: D = N mod (W*B) places, drawn uniformly over the sorted order, sit out; the others
   are renumbered 0, 1, 2, ... With ``keep``, those D make one more, short step.
2. Cohorts: inside each run of equal length the samples change places by a seeded permutation.
3. Deal: slot s owns the places m*W + s, so row m of every slot is of one length, or of two
   neighbouring ones where a run ends.
4. Steps: the rows form B slices of equal size, short samples in the first, long ones in the last.
   A step takes one row from each slice, and each slice is walked in a permutation of its own, the
   same for all slots.
5. Accumulation: the slices are dealt to the A micro-batches to and fro, so that these are equal.

Memory: the D < W*B left-out places, and a key for each slice and each length.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from dataprep.lengths import Int64Array
from dataprep.order.permutation import UInt64Array, key_of, keys_of, permute
from dataprep.order.scheme import Order, divided, lengths_at


@dataclass(frozen=True)
class Presorted(Order):
    """The presorted order of samples of one epoch.

    Args:
        remainder: drop or keep the samples that do not fill a step.
    """

    remainder: Literal["drop", "keep"] = "drop"

    @property
    def steps(self) -> int:
        """The number of steps of the epoch."""
        return divided(self.histogram.samples, self.width * self.batch, self.remainder == "keep")

    @property
    def _whole_steps(self) -> int:
        return self.histogram.samples // (self.width * self.batch)

    @cached_property
    def left_out(self) -> Int64Array:
        """[D] the places of the sorted order that sit out this epoch, ascending."""
        if self.remainder == "keep":
            return np.zeros(0, np.int64)
        return np.sort(self._swap_within_runs(self._drawn))

    @cached_property
    def _drawn(self) -> Int64Array:
        """[D] the places without a whole step, before samples change places within their runs."""
        size = self.histogram.samples % (self.width * self.batch)
        generator = np.random.default_rng(key_of(self.seed, self.epoch, "remainder"))
        return np.sort(generator.choice(self.histogram.samples, size, replace=False, shuffle=False))

    def reads_of_steps(self, steps: Int64Array, slots: Int64Array) -> Int64Array:
        """The places of steps; column b comes from slice b, so that lengths ascend along a row."""
        return self._swap_within_runs(self._sorted_places(steps, slots))

    def lengths_of_steps(self, steps: Int64Array, slots: Int64Array) -> Int64Array:
        """The lengths of steps; swaps within runs do not change them."""
        return lengths_at(self.histogram, self._sorted_places(steps, slots))

    @property
    def busiest_slots(self) -> Int64Array:
        """The last slot: it has the longest sample of every row."""
        return np.array([self.width - 1])

    def _sorted_places(self, steps: Int64Array, slots: Int64Array) -> Int64Array:
        places = np.empty((len(steps), len(slots), self.batch), np.int64)
        short = steps >= self._whole_steps
        if not short.all():
            places[~short] = self._whole_step_places(steps[~short], slots)
        if short.any():
            places[short] = self._short_step[slots]
        return places

    def _whole_step_places(self, steps: Int64Array, slots: Int64Array) -> Int64Array:
        slices = np.arange(self.batch)
        values = np.broadcast_to(steps[:, None], (len(steps), self.batch))
        rows = slices * self._whole_steps + permute(values, self._whole_steps, self._slice_keys)
        dealt = rows[:, None, :] * self.width + slots[None, :, None]
        # undo the renumbering: each left-out place before it shifts a sample by one
        gaps = self._drawn - np.arange(len(self._drawn))
        return dealt + np.searchsorted(gaps, dealt, side="right")

    @cached_property
    def _short_step(self) -> Int64Array:
        """[W, B] what ``keep`` adds: the drawn places dealt like all others, over all columns."""
        places = np.full((self.width, self.batch), -1)
        rows, slots = np.divmod(np.arange(len(self._drawn)), self.width)
        places[slots, rows * self.batch // (int(rows[-1]) + 1)] = self._drawn
        return places

    @cached_property
    def _slice_keys(self) -> UInt64Array:
        return keys_of(self.seed, self.epoch, "slices", self.batch)

    @cached_property
    def _run_keys(self) -> UInt64Array:
        return keys_of(self.seed, self.epoch, "cohorts", len(self.histogram.lengths))

    def _swap_within_runs(self, places: Int64Array) -> Int64Array:
        runs = self.histogram.run_of(np.maximum(places, 0))
        starts = self.histogram.starts[runs]
        sizes = self.histogram.starts[runs + 1] - starts
        moved = starts + permute(np.maximum(places - starts, 0), sizes, self._run_keys[runs])
        return np.where(places < 0, -1, moved)
