"""Several samples in one row of the model's length.

Rows are made of lengths, not of samples: best fit of the histogram gives some hundreds of patterns
(as 300 + 72 + 140 tokens) with counts, in memory and time that depend on the number of lengths
alone. A row is then a number: its pattern says from which runs of equal length
its samples come, and which of a run is a seeded permutation's, another each epoch. Which rows
share a step is a permutation too. Any step is found at once.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from dataprep.lengths import Int64Array, LengthHistogram
from dataprep.order.permutation import UInt64Array, keys_of, permute
from dataprep.order.scheme import Order, divided


class Patterns(NamedTuple):
    """P kinds of rows of at most Q samples.

    Attributes:
        runs: the runs of equal length that a row's samples are from, -1 for none, [P, Q].
        firsts: the first sample of each run that this kind uses, [P, Q].
        starts: the first row of each kind; the last is the number of rows, [P+1].
    """

    runs: Int64Array
    firsts: Int64Array
    starts: Int64Array


@dataclass(frozen=True)
class Packed(Order):
    """Rows of packed samples, permuted and cut into steps.

    Columns ``row_samples * r`` and so on belong to row r of a slot; a row that holds fewer samples
    has -1 in the others.

    Args:
        row_tokens: the length of a row in tokens.
        row_samples: the most samples of a row.
        remainder: drop or keep the rows that do not fill a step.

    Raises:
        ValueError: a sample is longer than a row, or the rows do not fill a step.
    """

    row_tokens: int = 512
    row_samples: int = 3
    remainder: Literal["drop", "keep"] = "drop"

    def __post_init__(self) -> None:
        longest = int(self.histogram.lengths[-1]) if self.histogram.samples else 0
        if longest > self.row_tokens:
            raise ValueError(
                f"data.order.row_tokens {self.row_tokens}: the dataset has samples of {longest} "
                f"tokens; raise it to {longest}"
            )
        super().__post_init__()

    @property
    def _supply(self) -> str:
        return f"{self.rows} packed rows of {self.histogram.samples} samples"

    @property
    def rows(self) -> int:
        """The number of rows that all samples make."""
        return int(self.patterns.starts[-1])

    @property
    def steps(self) -> int:
        """The number of steps of the epoch."""
        return divided(self.rows, self.width * self.batch, self.remainder == "keep")

    @property
    def columns(self) -> int:
        """C, the most samples of a slot's rows."""
        return self.batch * self.row_samples

    @cached_property
    def left_out(self) -> Int64Array:
        """The places that sit out this epoch, ascending."""
        places = self._places_of(np.arange(self.steps * self.width * self.batch, self.rows))
        return np.sort(places[places >= 0])

    @cached_property
    def patterns(self) -> Patterns:
        """The kinds of rows."""
        return pack_lengths(self.histogram, self.row_tokens, self.row_samples)

    def reads_of_steps(self, steps: Int64Array, slots: Int64Array) -> Int64Array:
        """The places of steps, row by row."""
        turns = steps[:, None, None] * self.batch + np.arange(self.batch)
        positions = turns * self.width + slots[None, :, None]
        places = self._places_of(np.minimum(positions, self.rows - 1))
        places[positions >= self.rows] = -1
        return places.reshape(len(steps), len(slots), self.columns)

    def _places_of(self, positions: Int64Array) -> Int64Array:
        """The samples of the rows at positions of the permuted rows, [..., row_samples]."""
        rows = permute(positions, self.rows, keys_of(self.seed, self.epoch, "rows", 1))
        runs_PQ, firsts_PQ, starts = self.patterns
        kinds = np.searchsorted(starts, rows, side="right") - 1
        runs = runs_PQ[kinds]
        within = firsts_PQ[kinds] + (rows - starts[kinds])[..., None]
        within = np.where(runs < 0, 0, within)
        sizes, keys = self.histogram.counts[runs], self._run_keys[runs]
        places = self.histogram.starts[runs] + permute(within, sizes, keys)
        return np.where(runs < 0, -1, places)

    @cached_property
    def _run_keys(self) -> UInt64Array:
        return keys_of(self.seed, self.epoch, "cohorts", len(self.histogram.lengths))


def pack_lengths(histogram: LengthHistogram, row_tokens: int, row_samples: int) -> Patterns:
    """Rows of the longest sample that is left, the shortest, and the best fit for the rest.

    Best fit alone, longest first, leaves the short samples for the end, where a row's number of
    samples, not its tokens, is the limit (89 % of the tokens filled on the Wikipedia lengths with
    at most 3 a row, 99 % here). All equal rows are made at once: each kind uses up a length.
    """
    lengths, left = histogram.lengths, histogram.counts.copy()
    kinds: list[tuple[tuple[int, ...], int]] = []
    while left.any():
        runs = _fill(lengths, left, row_tokens, row_samples)
        used, times = np.unique(runs, return_counts=True)
        rows = int((left[used] // times).min())
        left[used] -= rows * times
        kinds.append((tuple(runs), rows))
    return _patterns(kinds, row_samples)


def _fill(lengths: Int64Array, left: Int64Array, row_tokens: int, row_samples: int) -> list[int]:
    """The runs of a row's samples."""
    left, free, runs = left.copy(), row_tokens, list[int]()
    while len(runs) < row_samples:
        fitting = np.flatnonzero((left > 0) & (lengths <= free))
        if len(fitting) == 0:
            break
        shortest = len(runs) == 1 and row_samples > 2
        run = int(fitting[0 if shortest else -1])
        runs.append(run)
        left[run] -= 1
        free -= int(lengths[run])
    return runs


def _patterns(kinds: list[tuple[tuple[int, ...], int]], row_samples: int) -> Patterns:
    runs = np.full((len(kinds), row_samples), -1)
    firsts = np.zeros((len(kinds), row_samples), np.int64)
    used: dict[int, int] = {}
    for kind, (members, rows) in enumerate(kinds):
        for column, run in enumerate(members):
            runs[kind, column] = run
            firsts[kind, column] = used.get(run, 0)
            used[run] = used.get(run, 0) + rows
    starts = np.concatenate([[0], np.cumsum([rows for _, rows in kinds], dtype=np.int64)])
    return Patterns(runs, firsts, starts.astype(np.int64))
