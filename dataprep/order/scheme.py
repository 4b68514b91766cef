"""What every scheme of ordering samples has in common."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dataprep.lengths import Int64Array, LengthHistogram

_BLOCK_PLACES = 1 << 13
_BLOCK_STEPS = 256


@dataclass(frozen=True)
class Order(ABC):
    """Which samples each slot reads and trains on in each step of one epoch.

    Shape letters: S steps, W slots in all, B samples per slot and step, C columns of a slot's
    samples (C = B, but for ``packed``). A place is that of the sorted order; -1 stands for none.

    A call for one step finds a block of neighbouring steps at once and keeps the last block of each
    kind, at most some 8,192 places or one step, so that going step by step is fast.

    Args:
        histogram: the lengths of the sorted dataset of N samples.
        width: W, the number of slots.
        batch: B, samples (``packed``: rows) per slot and step.
        seed: of the run; the same on all ranks.
        epoch: counted from 0.

    Raises:
        ValueError: the dataset holds less than one step.
    """

    histogram: LengthHistogram
    width: int
    batch: int
    seed: int
    epoch: int

    def __post_init__(self) -> None:
        for name in ("width", "batch"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} {getattr(self, name)} must be at least 1")
        if self.steps == 0:
            raise ValueError(
                f"the dataset holds {self._supply}, less than one step of "
                f"{self.width} x {self.batch} = {self.width * self.batch}; prepare more samples "
                "(dupe_factor) or lower the batch"
            )

    @property
    def _supply(self) -> str:
        return f"{self.histogram.samples} samples"

    @property
    @abstractmethod
    def steps(self) -> int:
        """The number of steps of the epoch, equal for all slots."""

    @property
    @abstractmethod
    def left_out(self) -> Int64Array:
        """The places that sit out this epoch, ascending; found when first asked for."""

    @abstractmethod
    def reads_of_steps(self, steps: Int64Array, slots: Int64Array) -> Int64Array:
        """The places that slots read in steps, [steps, slots, C]; steps are not checked."""

    def places_of_steps(self, steps: Int64Array, slots: Int64Array) -> Int64Array:
        """The places that slots train on in steps, [steps, slots, C]; steps are not checked."""
        return self.reads_of_steps(steps, slots)

    def lengths_of_steps(self, steps: Int64Array, slots: Int64Array) -> Int64Array:
        """The lengths in tokens of what slots train on, [steps, slots, C], 0 for none."""
        return lengths_at(self.histogram, self.places_of_steps(steps, slots))

    @property
    def columns(self) -> int:
        """C, how many samples a slot takes per step at most."""
        return self.batch

    def reads(self, step: int, slots: Int64Array) -> Int64Array:
        """The places that each slot reads in a step, [slots, C].

        Raises:
            IndexError: the epoch has no such step.
        """
        return self._step_of_block("reads", step, slots)

    def places(self, step: int, slots: Int64Array) -> Int64Array:
        """The places that each slot trains on in a step, [slots, C].

        Equal to ``reads`` unless slots exchange samples.

        Raises:
            IndexError: the epoch has no such step.
        """
        return self._step_of_block("places", step, slots)

    def lengths(self, step: int, slots: Int64Array) -> Int64Array:
        """The lengths in tokens of what each slot trains on in a step, [slots, C], 0 for none."""
        return lengths_at(self.histogram, self.places(step, slots))

    def group_of(self, slot: int) -> range:
        """The slots with which a slot exchanges samples, itself included."""
        return range(slot, slot + 1)

    def micro_batch_of_column(self, accumulation: int) -> Int64Array:
        """Which of the A micro-batches each column belongs to, [C].

        Raises:
            ValueError: A does not divide B.
        """
        slices = micro_batch_of_slice(self.batch, accumulation)
        return np.repeat(slices, self.columns // self.batch)

    @property
    def busiest_slots(self) -> Int64Array:
        """Slots of which one, in every whole step, has the most of all that grows with length."""
        return np.arange(self.width)

    @cached_property
    def _blocks(self) -> dict[str, tuple[int, bytes, Int64Array]]:
        return {}

    def _step_of_block(self, kind: str, step: int, slots: Int64Array) -> Int64Array:
        if not 0 <= step < self.steps:
            raise IndexError(f"step {step} of an epoch of {self.steps} steps")
        touched = min(self.width, len(slots) * len(self.group_of(0)))
        size = max(1, min(_BLOCK_STEPS, _BLOCK_PLACES // (self.columns * max(touched, 1))))
        first, slots_key = step - step % size, slots.tobytes()
        known = self._blocks.get(kind)
        if known is None or known[:2] != (first, slots_key):
            find = self.reads_of_steps if kind == "reads" else self.places_of_steps
            steps = np.arange(first, min(first + size, self.steps))
            known = self._blocks[kind] = (first, slots_key, find(steps, slots))
        found: Int64Array = known[2][step - first].copy()
        return found


def lengths_at(histogram: LengthHistogram, places: Int64Array) -> Int64Array:
    """The lengths at places, any shape; 0 where there is none."""
    return np.where(places < 0, 0, histogram.length_at(np.maximum(places, 0)))


def divided(samples: int, step: int, keep: bool) -> int:
    """How many steps samples make: whole ones, and with ``keep`` a short one for the rest."""
    return -(-samples // step) if keep else samples // step


def micro_batch_of_slice(batch: int, accumulation: int) -> Int64Array:
    """Which of the A micro-batches each of the B slices belongs to, [B], dealt to and fro.

    Raises:
        ValueError: A does not divide B.
    """
    if accumulation < 1 or batch % accumulation:
        raise ValueError(
            f"accumulation {accumulation} must divide the {batch} samples a slot takes per step; "
            f"choose one of {[a for a in range(1, batch + 1) if batch % a == 0]}"
        )
    turns, column = np.divmod(np.arange(batch), accumulation)
    return np.where(turns % 2 == 0, column, accumulation - 1 - column)
