"""Draws by key and counter: SplitMix64 as published, and what is derived from its bits."""

import numpy as np
import pytest

from dataprep.blocks import offsets_of, ragged_range
from dataprep.draws import below, draw, happens, heads, seed_key


def test_the_published_sequence() -> None:
    # of the authors' C code at seed 1234567
    key = np.array([1234567], np.uint64)
    assert [int(draw(key, i)[0]) for i in range(3)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


def test_keys_and_counters_are_broadcast() -> None:
    keys = seed_key((1, 2))
    assert draw(keys, np.arange(4)).tolist() == [int(draw(keys, i)[0]) for i in range(4)]
    assert seed_key((1, 2)) != seed_key((2, 1))


@pytest.fixture(scope="module")
def bits() -> np.ndarray:
    return draw(draw(seed_key((7,)), np.arange(100))[:, None], np.arange(1000)).ravel()


@pytest.mark.parametrize("limit", [1, 2, 10, 30_522])
def test_integers_are_even_below_their_limit(bits: np.ndarray, limit: int) -> None:
    values = below(bits, limit)
    assert values.min() >= 0 and values.max() < limit
    counts = np.bincount(values * 10 // limit if limit > 10 else values)
    expected = len(bits) / len(counts)
    # chi-square with at most 9 degrees of freedom: 45 is beyond one in a million
    assert ((counts - expected) ** 2 / expected).sum() < 45


def test_probabilities_are_kept(bits: np.ndarray) -> None:
    for probability in (0.0, 0.1, 0.5, 1.0):
        error = np.sqrt(probability * (1 - probability) / len(bits))
        assert abs(happens(bits, probability).mean() - probability) <= 5 * error


@pytest.mark.parametrize("tosses", [0, 1, 63, 64, 65, 1000])
def test_heads_are_binomial(bits: np.ndarray, tosses: int) -> None:
    count = 20_000
    found = heads(bits[:count], np.full(count, tosses))
    assert found.min() >= 0 and found.max() <= tosses
    assert abs(found.mean() - tosses / 2) <= 5 * np.sqrt(tosses / 4 / count)
    assert found.var() == pytest.approx(tosses / 4, rel=0.06)


def test_heads_of_each_key_are_its_own(bits: np.ndarray) -> None:
    tosses = np.array([3, 0, 200, 64])
    together = heads(bits[:4], tosses).tolist()
    assert together == [int(heads(bits[i : i + 1], tosses[i : i + 1])[0]) for i in range(4)]


def test_ragged_ranges() -> None:
    lengths = np.array([2, 0, 3])
    assert offsets_of(lengths).tolist() == [0, 2, 2, 5]
    assert ragged_range(np.array([5, 9, -1]), lengths).tolist() == [5, 6, -1, 0, 1]
