"""Several samples in one row of the model's length.

Rows are made of lengths, not of samples: best fit of the histogram, longest first, gives some
hundreds of patterns (as 300 + 140 + 72 tokens) with counts, in memory and time that depend on the
number of lengths alone. A row is then a number: its pattern says from which runs of equal length
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
    """Best fit of the lengths, longest first, with counts in place of single samples.

    A length goes into the fullest open row that still takes it (and holds fewer than
    ``row_samples``); where none does, it opens rows, as many of it in each as fit.
    """
    lengths, counts = histogram.lengths.tolist(), histogram.counts.tolist()
    # rows with room, by their free tokens: (runs of their samples, how many such rows)
    open_rows: list[list[tuple[tuple[int, ...], int]]] = [[] for _ in range(row_tokens + 1)]
    full: list[tuple[tuple[int, ...], int]] = []
    for run in reversed(range(len(lengths))):
        left = counts[run]
        while left:
            length = lengths[run]
            free = next((f for f in range(length, row_tokens + 1) if open_rows[f]), None)
            if free is None:
                together = min(row_samples, row_tokens // length, left)
                free, runs, rows = row_tokens, (run,) * together, left // together
                left -= rows * together
                free -= together * length
            else:
                before, available = open_rows[free].pop()
                rows = min(left, available)
                if available > rows:
                    open_rows[free].append((before, available - rows))
                runs, left, free = (*before, run), left - rows, free - length
            target = full if len(runs) == row_samples else open_rows[free]
            target.append((runs, rows))
    return _patterns([*full, *(kind for kinds in open_rows for kind in kinds)], row_samples)


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
