"""Random numbers by key and counter, for many keys at once.

SplitMix64 (Steele, Lea and Flood 2014, "Fast Splittable Pseudorandom Number Generators"): value i
of a key is a function of the two alone. So documents and samples each have draws of their own, in
whatever order or batch they are made, without a generator object for each.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dataprep.blocks import ragged_range
from dataprep.lengths import Int64Array

UInt64Array = NDArray[np.uint64]
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_BITS = 64


def seed_key(seed: Sequence[int]) -> UInt64Array:
    """The key of a seed of several integers, as an array of one."""
    return np.random.SeedSequence(list(seed)).generate_state(1, np.uint64).astype(np.uint64)


def draw(keys: UInt64Array, counters: ArrayLike) -> UInt64Array:
    """64 random bits for each pair of key and counter; serves as a key in turn.

    Args:
        keys: of any shape, but an array, so that overflow wraps.
        counters: not negative; broadcast with the keys.
    """
    z = keys + (np.atleast_1d(counters).astype(np.uint64) + np.uint64(1)) * _GAMMA
    z ^= z >> np.uint64(30)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


def below(bits: UInt64Array, limits: ArrayLike) -> Int64Array:
    """Integers 0 <= i < limit from random bits; limits below 2**32, the bias is limit / 2**32."""
    scaled = (bits >> np.uint64(32)) * np.asarray(limits).astype(np.uint64)
    return (scaled >> np.uint64(32)).astype(np.int64)


def happens(bits: UInt64Array, probability: float) -> NDArray[np.bool_]:
    """True with this probability."""
    return (bits >> np.uint64(11)) * 2.0**-53 < probability


def heads(keys: UInt64Array, tosses: Int64Array) -> Int64Array:
    """How many of so many tosses of a fair coin are heads, for each key: binomial draws, [n]."""
    words = -(-tosses // _BITS)
    owners = np.repeat(np.arange(len(keys)), words)
    places = ragged_range(np.zeros(len(keys), np.int64), words)
    unused = _BITS - np.minimum(tosses[owners] - _BITS * places, _BITS)
    counts = np.bitwise_count(draw(keys[owners], places) >> unused.astype(np.uint64))
    return np.bincount(owners, counts, len(keys)).astype(np.int64)
