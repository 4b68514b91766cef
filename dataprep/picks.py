"""Which samples of a source are taken: all, one in every so many, or a random subset."""

import hashlib
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from dataprep.lengths import Int64Array

_CHUNK = 1 << 18  # places that are drawn at once; part of what decides the result
_MOST_RANDOM = 10**9 - 1  # of numpy's hypergeometric draw


@dataclass(frozen=True)
class Picks:
    """The places 0 <= place < total of a source that are taken.

    Args:
        total: samples of the source.
        wanted: how many to take, at most ``total``.
        random: seeded and uniform, without replacement; else place floor(i * total / wanted).
        seed: of the random choice.

    Raises:
        ValueError: more samples than a random choice can be made of.
    """

    total: int
    wanted: int
    random: bool
    seed: int

    def __post_init__(self) -> None:
        if self.random and self.total > _MOST_RANDOM:
            raise ValueError(
                f"pick random: {self.total} samples, at most {_MOST_RANDOM}; take pick stride"
            )

    def between(self, first: int, last: int) -> Int64Array:
        """Those that lie in first <= place < last, ascending."""
        if self.wanted == self.total:
            return np.arange(first, last)
        if not self.random:
            ranks = [-(-place * self.wanted // self.total) for place in (first, last)]
            return np.arange(*ranks) * self.total // self.wanted
        chunks = range(first // _CHUNK, -(-last // _CHUNK))
        places = np.concatenate([np.zeros(0, np.int64), *map(self._chunk, chunks)])
        return places[np.searchsorted(places, first) : np.searchsorted(places, last)]

    @cached_property
    def _chunk_counts(self) -> list[int]:
        """How many are drawn in each chunk: sequential hypergeometric draws."""
        draw = np.random.default_rng([self.seed, self.total, self.wanted])
        counts, wanted = [], self.wanted
        for start in range(0, self.total, _CHUNK):
            left, size = self.total - start, min(_CHUNK, self.total - start)
            counts.append(int(draw.hypergeometric(wanted, left - wanted, size)))
            wanted -= counts[-1]
        return counts

    def _chunk(self, chunk: int) -> Int64Array:
        return _draw(self.seed, self.total, chunk, self._chunk_counts[chunk])


@lru_cache(maxsize=2)
def _draw(seed: int, total: int, chunk: int, count: int) -> Int64Array:
    start = chunk * _CHUNK
    draw = np.random.default_rng([seed, total, chunk, count])
    size = min(_CHUNK, total - start)
    return start + np.sort(draw.choice(size, count, replace=False, shuffle=False))


def takes_duplicate(digest: str, duplicate: int, share: float, seed: int) -> bool:
    """Whether a document's samples of one duplicate are made when only a share is wanted.

    Each (document, duplicate) is taken with probability ``share``, whatever the others: the samples
    of those taken are a uniform part of all, and a larger share takes the same ones and more.

    Args:
        digest: the document's md5.
        duplicate: 0 <= duplicate < dupe_factor.
        share: 0 <= share <= 1.
        seed: of the choice.
    """
    text = f"{seed} {digest} {duplicate}".encode()
    number = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
    return number < share * 2**64
