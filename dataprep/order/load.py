"""How busy each rank is in a step, and what an exchange moves, from an order alone."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dataprep.lengths import Int64Array
from dataprep.order.scheme import Order, lengths_at

_CHUNK_PLACES = 1 << 14  # few enough for a processor's cache


@dataclass(frozen=True)
class Loads:
    """What each of R ranks has to do in each of S steps; rank r serves the slots r, r + R, ...

    Attributes:
        tokens: the tokens of its samples, [S, R].
        squared: the sum of their squared lengths, as attention costs, [S, R].
        samples: how many they are, [S, R].
    """

    tokens: Int64Array
    squared: Int64Array
    samples: Int64Array

    @property
    def spread(self) -> float:
        """Standard deviation over mean of the tokens of a step."""
        steps = self.tokens.sum(axis=1)
        return float(steps.std() / steps.mean())


def imbalance(loads: Int64Array) -> NDArray[np.float64]:
    """Of loads [S, R], the slowest rank over the mean of all, [S]."""
    slowest: NDArray[np.float64] = loads.max(axis=1) / loads.mean(axis=1)
    return slowest


def loads_of(
    order: Order,
    steps: Int64Array,
    ranks: int | None = None,
    lengths_by_place: Int64Array | None = None,
) -> Loads:
    """The loads of so many ranks (by default one a slot) in steps.

    Args:
        order: of one epoch.
        steps: to look at, [S].
        ranks: R.
        lengths_by_place: [N] as found in the stripes; by default the histogram's.

    Raises:
        ValueError: the ranks do not divide the width.
    """
    ranks = ranks or order.width
    if order.width % ranks:
        raise ValueError(
            f"width {order.width} is not a multiple of the {ranks} ranks; choose one that is"
        )
    tokens, squared, samples = [], [], []
    for lengths in in_chunks(order, steps, np.arange(order.width), lengths_by_place):
        by_rank = lengths.reshape(len(lengths), order.width // ranks, ranks, -1)
        tokens.append(by_rank.sum(axis=(1, 3)))
        squared.append((by_rank * by_rank).sum(axis=(1, 3)))
        samples.append(np.count_nonzero(by_rank, axis=(1, 3)))
    return Loads(np.concatenate(tokens), np.concatenate(squared), np.concatenate(samples))


def in_chunks(
    order: Order, steps: Int64Array, slots: Int64Array, lengths_by_place: Int64Array | None = None
) -> Iterator[Int64Array]:
    """The lengths of steps, [some steps, slots, C] at a time, in bounded memory."""
    size = max(1, _CHUNK_PLACES // (len(slots) * order.columns))
    for first in range(0, len(steps), size):
        some = steps[first : first + size]
        if lengths_by_place is None:
            yield order.lengths_of_steps(some, slots)
        else:
            places = order.places_of_steps(some, slots)
            yield np.where(places < 0, 0, lengths_by_place[places])


def samples_moved(order: Order, step: int, ranks: int) -> Int64Array:
    """The lengths of the samples that train on another rank than they are read by, [n]."""
    slots = np.arange(order.width)
    if len(order.group_of(0)) == 1:
        return np.zeros(0, np.int64)
    reader = np.broadcast_to((slots % ranks)[:, None], (order.width, order.columns)).ravel()
    read, trained = order.reads(step, slots).ravel(), order.places(step, slots).ravel()
    by_read, by_trained = np.argsort(read), np.argsort(trained)
    moved = (reader[by_read] != reader[by_trained]) & (read[by_read] >= 0)
    return lengths_at(order.histogram, read[by_read][moved])


def samples_gathered(order: Order, step: int) -> Int64Array:
    """The lengths of what all slots get when each is sent all that its group has read, [n]."""
    others = len(order.group_of(0)) - 1
    if others == 0:
        return np.zeros(0, np.int64)
    lengths = lengths_at(order.histogram, order.reads(step, np.arange(order.width)))
    return np.tile(lengths[lengths > 0], others)
