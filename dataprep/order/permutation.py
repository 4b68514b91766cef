"""Keyed permutations in constant memory, for any size."""

import hashlib

import numpy as np
from numpy.typing import NDArray

from dataprep.lengths import Int64Array

UInt64Array = NDArray[np.uint64]

_ROUNDS = 48
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_ROUND_OFFSETS = np.arange(1, _ROUNDS + 1, dtype=np.uint64) * _GOLDEN


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
    size = np.asarray(sizes).astype(np.uint64)
    current = values.astype(np.uint64)
    partner, decision, scratch = (np.empty_like(current) for _ in range(3))
    for offset in _ROUND_OFFSETS:
        round_key = _mix(keys + offset)
        np.subtract(round_key % size + size, current, out=partner)  # below 2 * size
        np.subtract(partner, size, out=scratch)  # wraps where partner is below size
        np.minimum(partner, scratch, out=partner)
        np.maximum(current, partner, out=decision)
        np.bitwise_xor(decision, round_key, out=decision)
        _mix_in_place(decision, scratch)
        np.bitwise_and(decision, np.uint64(1), out=decision)
        np.negative(decision, out=decision)  # all bits, or none
        np.bitwise_xor(current, partner, out=scratch)
        np.bitwise_and(scratch, decision, out=scratch)
        np.bitwise_xor(current, scratch, out=current)
    return current.astype(np.int64)


def key_of(seed: int, epoch: int, purpose: str) -> int:
    """The key of what an epoch draws for a purpose, 64 bits."""
    digest = hashlib.blake2b(f"{seed} {epoch} {purpose}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def keys_of(seed: int, epoch: int, purpose: str, count: int) -> UInt64Array:
    """So many independent keys, [count]."""
    first = np.uint64(key_of(seed, epoch, purpose))
    return _mix(first + np.arange(1, count + 1, dtype=np.uint64) * _GOLDEN)


def _mix(values: UInt64Array) -> UInt64Array:
    mixed = values.copy()
    _mix_in_place(mixed, np.empty_like(mixed))
    return mixed


def _mix_in_place(values: UInt64Array, scratch: UInt64Array) -> None:
    """The finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): 64 well mixed bits."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, None)):
        np.right_shift(values, np.uint64(shift), out=scratch)
        np.bitwise_xor(values, scratch, out=values)
        if factor is not None:
            np.multiply(values, np.uint64(factor), out=values)
