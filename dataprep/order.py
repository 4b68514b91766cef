"""Which samples make up step t: why no rank waits for another, with no byte moved.

The dataset is sorted by length once, offline, and dealt into K stripes (``presort``): place i of
the sorted order is row i // K of stripe i mod K. A run has W slots (its width; W ranks of one slot
each, or fewer ranks of several) that take B samples each per step. Each epoch:

1. Remainder: N mod (W*B) places, drawn uniformly over the sorted order, sit out; the others are
   renumbered 0, 1, 2, ...
2. Cohorts: inside each run of equal length the samples change places by a seeded permutation, so
   that a sample meets other companions every epoch.
3. Deal: slot s owns the places m*W + s. Row m of every slot is thus of one length, or of two
   neighbouring ones where a run ends: the slots are equally busy whatever the lengths are.
4. Steps: the rows form B slices of equal size, short samples in the first, long ones in the last.
   A step takes one row from each slice, and each slice is walked in a permutation of its own, the
   same for all slots: steps are equal to one another, and each has the dataset's own length mix.
5. Accumulation: the slices are dealt to the A micro-batches to and fro, so that these are equal
   too.

Guaranteed: over all slots and steps of an epoch each sample appears at most once, and exactly
N - N mod (W*B) samples appear. The plan is a function of (seed, epoch, W, B) and of the lengths
alone: it needs no shard and no communication, takes constant memory, and any step of any epoch is
found at once. The number of ranks and A do not change the global batches.
"""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from dataprep.lengths import Int64Array, LengthHistogram

UInt64Array = NDArray[np.uint64]


@dataclass(frozen=True)
class OrderConfig:
    """Who trains on which sample.

    Args:
        scheme: how samples are dealt to the ranks
        remainder: drop: samples that do not fill a step sit out the epoch; keep: a short step more
    """

    scheme: Literal["presorted"] = "presorted"
    remainder: Literal["drop"] = "drop"


class Order(Protocol):
    """The order of samples of one epoch."""

    @property
    def steps(self) -> int:
        """Steps of the epoch."""

    @property
    def columns(self) -> int:
        """C, places for samples that a slot has in a step."""

    @property
    def left_out(self) -> Int64Array:
        """Places that sit out."""

    def reads(self, step: int, slots: Int64Array) -> Int64Array:
        """[slots, C] places that each slot reads, -1 for none."""

    def places(self, step: int, slots: Int64Array) -> Int64Array:
        """[slots, C] places that each slot trains on, -1 for none."""

    def group_of(self, slot: int) -> range:
        """The slots it exchanges with."""

    def micro_batch_of_column(self, accumulation: int) -> Int64Array:
        """[C]."""

    def lengths(self, step: int, slots: Int64Array) -> Int64Array:
        """[slots, C]."""


def build_order(
    config: OrderConfig, histogram: LengthHistogram, width: int, batch: int, seed: int, epoch: int
) -> Order:
    """The order of an epoch."""
    return Plan(histogram, width, batch, seed, epoch)


@dataclass(frozen=True)
class Plan:
    """The order of samples of one epoch.

    Args:
        histogram: the lengths of the sorted dataset of N samples.
        width: W, the number of slots.
        batch: B, samples per slot and step.
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
                f"the dataset holds {self.histogram.samples} samples, less than one step of "
                f"{self.width} x {self.batch} = {self.width * self.batch}; prepare more samples "
                "(dupe_factor) or lower the batch"
            )

    @property
    def steps(self) -> int:
        """The number of steps of the epoch."""
        return self.histogram.samples // (self.width * self.batch)

    @property
    def columns(self) -> int:
        """C = B."""
        return self.batch

    def reads(self, step: int, slots: Int64Array) -> Int64Array:
        """As ``places``."""
        return self.places(step, slots)

    def group_of(self, slot: int) -> range:
        """The slot alone."""
        return range(slot, slot + 1)

    def micro_batch_of_column(self, accumulation: int) -> Int64Array:
        """[B]."""
        return micro_batch_of_slice(self.batch, accumulation)

    @cached_property
    def left_out(self) -> Int64Array:
        """[D] the places of the sorted order that sit out this epoch, ascending."""
        size = self.histogram.samples % (self.width * self.batch)
        generator = np.random.default_rng(_key(self.seed, self.epoch, "remainder"))
        return np.sort(generator.choice(self.histogram.samples, size, replace=False, shuffle=False))

    def places(self, step: int, slots: Int64Array) -> Int64Array:
        """The samples of a step, as places of the sorted order: [slots, B].

        Column b comes from slice b, so that the lengths ascend along a row.
        """
        if not 0 <= step < self.steps:
            raise IndexError(f"step {step} of an epoch of {self.steps} steps")
        slices = np.arange(self.batch)
        keys = self._slice_keys
        rows = slices * self.steps + permute(np.full(self.batch, step), self.steps, keys)
        dealt = rows[None, :] * self.width + slots[:, None]
        # undo the renumbering: each left-out place before it shifts a sample by one
        gaps = self.left_out - np.arange(len(self.left_out))
        sorted_places = dealt + np.searchsorted(gaps, dealt, side="right")
        return self._swap_within_runs(sorted_places)

    @cached_property
    def _slice_keys(self) -> UInt64Array:
        return _keys(_key(self.seed, self.epoch, "slices"), self.batch)

    @cached_property
    def _run_keys(self) -> UInt64Array:
        return _keys(_key(self.seed, self.epoch, "cohorts"), len(self.histogram.lengths))

    def _swap_within_runs(self, places: Int64Array) -> Int64Array:
        runs = self.histogram.run_of(places)
        starts = self.histogram.starts[runs]
        sizes = self.histogram.starts[runs + 1] - starts
        return starts + permute(places - starts, sizes, self._run_keys[runs])

    def lengths(self, step: int, slots: Int64Array) -> Int64Array:
        """The sample lengths of a step in tokens, [slots, B]."""
        return self.histogram.length_at(self.places(step, slots))


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


def permute(values: Int64Array, sizes: Int64Array | int, keys: UInt64Array) -> Int64Array:
    """Where each value goes under its keyed permutation of range(size); constant memory.

    Swap-or-not shuffle (Hoang, Morris, Rogaway, CRYPTO 2012): in each round a value may change
    places with the partner that the round's key gives it, and a bit that both compute alike
    decides. Elements with the same size and key move under the same permutation.

    Args:
        values: in range(size), any shape.
        sizes: of the permuted range, broadcast to ``values``.
        keys: of the permutation, an array broadcast to ``values``.
    """
    current = values.astype(np.uint64)
    size = np.asarray(sizes).astype(np.uint64)
    for offset in _ROUND_OFFSETS:
        round_key = _mix(keys + offset)
        partner = (round_key % size + size - current) % size
        decision = _mix(np.maximum(current, partner) ^ round_key)
        current = np.where(decision & np.uint64(1), partner, current)
    return current.astype(np.int64)


_ROUNDS = 48
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_ROUND_OFFSETS = np.arange(1, _ROUNDS + 1, dtype=np.uint64) * _GOLDEN


def _mix(values: UInt64Array) -> UInt64Array:
    """The finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): 64 well mixed bits."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _keys(key: int, count: int) -> UInt64Array:
    return _mix(np.uint64(key) + np.arange(1, count + 1, dtype=np.uint64) * _GOLDEN)


def _key(seed: int, epoch: int, purpose: str) -> int:
    digest = hashlib.blake2b(f"{seed} {epoch} {purpose}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")
