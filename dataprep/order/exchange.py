"""Slots of a group pool what they have read, sort it by length and deal it out among them."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from dataprep.lengths import Int64Array
from dataprep.order.scheme import Order, lengths_at


@dataclass(frozen=True)
class Exchange(Order):
    """What another order reads, dealt anew within groups; memory: that of the other.

    Args:
        drawn: the order that says what slots read; of the same histogram, width and so on.
        group: g, the number of neighbouring slots of a group.
        deal: plain (each round of g samples from the first slot on) or snake (to and fro).

    Raises:
        ValueError: the group does not divide the width.
    """

    drawn: Order
    group: int
    deal: Literal["plain", "snake"] = "plain"

    def __post_init__(self) -> None:
        if self.width % self.group:
            choices = [g for g in range(1, self.width + 1) if self.width % g == 0]
            raise ValueError(
                f"data.order.group {self.group} must divide the {self.width} slots; "
                f"choose one of {choices}, or null for all"
            )
        super().__post_init__()

    @property
    def steps(self) -> int:
        """The number of steps of the epoch."""
        return self.drawn.steps

    @property
    def left_out(self) -> Int64Array:
        """The places that sit out this epoch, ascending."""
        return self.drawn.left_out

    def group_of(self, slot: int) -> range:
        """The slots of a slot's group."""
        first = slot - slot % self.group
        return range(first, first + self.group)

    def reads_of_steps(self, steps: Int64Array, slots: Int64Array) -> Int64Array:
        """What slots read before they exchange."""
        return self.drawn.reads_of_steps(steps, slots)

    def places_of_steps(self, steps: Int64Array, slots: Int64Array) -> Int64Array:
        """What slots have after the exchange; lengths ascend along a slot, -1 comes last."""
        groups, group_of_slot = np.unique(slots // self.group, return_inverse=True)
        members = groups[:, None] * self.group + np.arange(self.group)
        reads = self.reads_of_steps(steps, members.ravel())
        pooled = reads.reshape(len(steps), len(groups), self.group * self.batch)
        lengths = lengths_at(self.histogram, pooled)
        none_last = np.where(pooled < 0, np.iinfo(np.int64).max, lengths)
        ascending = np.argsort(none_last, axis=-1, kind="stable")
        sorted_places = np.take_along_axis(pooled, ascending, axis=-1)
        rounds = sorted_places.reshape(len(steps), len(groups), self.batch, self.group)
        if self.deal == "snake":
            rounds[:, :, 1::2] = rounds[:, :, 1::2, ::-1].copy()
        return rounds[:, group_of_slot, :, slots % self.group].transpose(1, 0, 2)
