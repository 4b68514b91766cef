"""Moves samples between ranks, for the schemes in which a rank trains on what others have read.

The order says who reads and who trains on which sample, so every rank knows the size of all
messages beforehand; one all-to-all in each group of ranks moves a step's samples. A message is one
array of uint16: for its n samples, by ascending place, where segment 1 starts [n], the label [n],
the number of masked tokens [n], the tokens, the masked positions and the original ids there; zeros
fill it up to the size that its samples could have at most, which their lengths alone tell.

The groups of ranks have process groups of their own, so that no message meets the reduction of
gradients.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from dataprep.blocks import SampleBlock, UInt16Array, concatenate, offsets_of
from dataprep.lengths import Int64Array, LengthHistogram
from dataprep.order import Order
from train.distributed import World

_BYTES = 2  # of a number in a message


@dataclass(frozen=True)
class Parcel:
    """What one rank sends and gets in one step; lists are by rank of its group.

    Attributes:
        messages: to each rank, this one included.
        incoming: places of the samples that each rank sends, ascending.
        places: [slots, C] that this rank trains on, -1 for none.
    """

    messages: list[UInt16Array]
    incoming: list[Int64Array]
    places: Int64Array


class Exchange:
    """One rank's side of the exchange within its group of ranks. All ranks build it together.

    Args:
        members: the ranks of each group; every rank is in one.
        slots: the slots that each rank serves.
        histogram: the lengths of the sorted dataset.
        most_masked: the most masked tokens that a sample has.
        rank: this one.

    Attributes:
        slots: of all ranks of the group, rank by rank.
        own: which of these are this rank's, bool.
        bytes_sent: to other ranks so far.
    """

    def __init__(
        self,
        members: list[list[int]],
        slots: list[Int64Array],
        histogram: LengthHistogram,
        most_masked: int,
        rank: int,
    ) -> None:
        groups = [dist.new_group(ranks, backend="gloo") for ranks in members]
        number = next(i for i, ranks in enumerate(members) if rank in ranks)
        group = members[number]
        self._group = groups[number]
        self._me = group.index(rank)
        self.slots = np.concatenate([slots[member] for member in group])
        self._rank_of_slot = np.repeat(np.arange(len(group)), [len(slots[m]) for m in group])
        self.own = self._rank_of_slot == self._me
        self._histogram = histogram
        self._most_masked = most_masked
        self.bytes_sent = 0

    def pack(self, order: Order, step: int, block: SampleBlock) -> Parcel:
        """Pack up what this rank has read for a step; no communication, in any thread.

        Args:
            order: of the epoch.
            step: of the epoch.
            block: the samples of ``order.reads`` for this rank's slots, slot by slot.
        """
        reads = order.reads(step, self.slots)
        trains = order.places(step, self.slots)
        read, reader = self._by_place(reads)
        trained, trainer = self._by_place(trains)
        assert np.array_equal(read, trained), "a group trains on what it reads"
        ascending_rows = np.argsort(reads[self.own][reads[self.own] >= 0])
        receivers = trainer[reader == self._me]
        senders, arriving = reader[trainer == self._me], read[trainer == self._me]
        ranks = range(self._group.size())
        return Parcel(
            messages=[self._encoded(block.take(ascending_rows[receivers == q])) for q in ranks],
            incoming=[arriving[senders == p] for p in ranks],
            places=trains[self.own],
        )

    def start(self, parcel: Parcel) -> "Arrival":
        """Start to move a step's samples; every rank of the group calls it, step by step."""
        sizes = [_BYTES * len(message) for message in parcel.messages]
        self.bytes_sent += sum(sizes) - sizes[self._me]
        lengths = [self._histogram.length_at(places) for places in parcel.incoming]
        expected = [_BYTES * self._size(tokens) for tokens in lengths]
        received = torch.empty(sum(expected), dtype=torch.uint8)
        work = dist.all_to_all_single(
            received,
            torch.from_numpy(np.concatenate(parcel.messages).view(np.uint8)),
            expected,
            sizes,
            group=self._group,
            async_op=True,
        )
        return Arrival(work, list(torch.split(received, expected)), lengths, parcel)

    def _by_place(self, places: Int64Array) -> tuple[Int64Array, Int64Array]:
        """The places that are not -1, ascending, and the rank of the group of each."""
        ranks = np.broadcast_to(self._rank_of_slot[:, None], places.shape)[places >= 0]
        there = places[places >= 0]
        ascending = np.argsort(there)
        return there[ascending], ranks[ascending]

    def _size(self, lengths: Int64Array) -> int:
        """The numbers in a message of samples of these lengths."""
        return int((3 + lengths + 2 * np.minimum(lengths, self._most_masked)).sum())

    def _encoded(self, block: SampleBlock) -> UInt16Array:
        parts: list[NDArray[Any]] = [
            block.second_segment_start,
            block.next_sentence_label,
            block.masks,
            block.tokens,
            block.mlm_positions,
            block.mlm_ids,
        ]
        content = np.concatenate([part.astype(np.uint16) for part in parts])
        message = np.zeros(self._size(block.lengths), np.uint16)
        message[: len(content)] = content
        return message


class Arrival:
    """A step's samples on their way to this rank."""

    def __init__(
        self, work: Any, received: list[torch.Tensor], lengths: list[Int64Array], parcel: Parcel
    ) -> None:
        self._work = work
        self._received = received
        self._lengths = lengths
        self._parcel = parcel

    def block(self) -> SampleBlock:
        """Wait; the samples that this rank trains on, slot by slot."""
        self._work.wait()
        blocks = [
            _decoded(message.numpy().view(np.uint16), lengths)
            for message, lengths in zip(self._received, self._lengths, strict=True)
        ]
        came = np.concatenate(self._parcel.incoming)
        wanted = self._parcel.places[self._parcel.places >= 0]
        ascending = np.argsort(came)
        rows = ascending[np.searchsorted(came, wanted, sorter=ascending)]
        return concatenate(blocks).take(rows)


def _decoded(message: UInt16Array, lengths: Int64Array) -> SampleBlock:
    heads = message[: 3 * len(lengths)].astype(np.int64).reshape(3, -1)
    second, label, masks = heads[0], heads[1], heads[2]
    masked = int(masks.sum())
    ends = np.cumsum([3 * len(lengths), lengths.sum(), masked, masked]).tolist()
    tokens, positions, ids = (message[a:b] for a, b in pairwise(ends))
    return SampleBlock(
        tokens=tokens,
        token_offsets=offsets_of(lengths),
        second_segment_start=second.astype(np.uint16),
        next_sentence_label=label.astype(np.uint8),
        mlm_positions=positions,
        mlm_ids=ids,
        mlm_offsets=offsets_of(masks),
    )


def build_exchange(
    order: Order, width: int, world: World, histogram: LengthHistogram, most_masked: int
) -> Exchange | None:
    """What moves samples, or None where no rank trains on what another reads.

    All ranks call it together.

    Args:
        order: of any epoch: slots exchange with the same ones in all.
        width: W, the number of slots.
        world, histogram, most_masked: see ``Exchange``.
    """
    members = groups_of_ranks(order, width, world.size)
    if len(members) == world.size:
        return None
    slots = [np.arange(rank, width, world.size) for rank in range(world.size)]
    return Exchange(members, slots, histogram, most_masked, world.rank)


def groups_of_ranks(order: Order, width: int, ranks: int) -> list[list[int]]:
    """The ranks that exchange with one another, directly or through others; slot s is s mod R's."""
    groups: dict[int, set[int]] = {rank: {rank} for rank in range(ranks)}
    seen: set[int] = set()
    for slot in range(width):
        if slot in seen:
            continue
        others = order.group_of(slot)
        seen.update(others)
        merged = {rank for other in others for rank in groups[other % ranks]}
        groups.update(dict.fromkeys(merged, merged))
    return sorted({min(group): sorted(group) for group in groups.values()}.values())
