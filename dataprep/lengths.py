"""The histogram of sample lengths: all that a plan needs to know of a sorted dataset."""

import csv
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Int64Array = NDArray[np.int64]


class LengthHistogram:
    """How many samples have each length, and so the length at each place of the sorted order.

    Args:
        counts: sample length in tokens -> number of samples.

    Attributes:
        lengths: [U] the lengths that occur, ascending.
        starts: [U+1] place in the sorted order where each length's run starts; the last is N.
    """

    def __init__(self, counts: dict[int, int]) -> None:
        present = sorted(length for length, count in counts.items() if count)
        self.lengths: Int64Array = np.array(present, np.int64)
        sizes = np.array([counts[length] for length in present], np.int64)
        self.starts: Int64Array = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)

    @property
    def counts(self) -> Int64Array:
        """[U] how many samples have each of ``lengths``."""
        return np.diff(self.starts)

    @property
    def samples(self) -> int:
        """N, the number of samples."""
        return int(self.starts[-1])

    @property
    def tokens(self) -> int:
        """The number of tokens of all samples."""
        return int((self.lengths * self.counts).sum())

    @property
    def mean(self) -> float:
        """The mean sample length in tokens."""
        return self.tokens / max(self.samples, 1)

    @property
    def share_at_longest(self) -> float:
        """The share of samples that have the greatest length."""
        return int(self.counts[-1]) / self.samples if self.samples else 0.0

    def binned(self, bins: int) -> list[tuple[int, int, int]]:
        """First length, last length and number of samples of each of so many equal ranges.

        The greatest length stands alone at the end: samples cut to the limit are many.
        """
        longest = int(self.lengths[-1]) if len(self.lengths) else 0
        edges = sorted({longest * i // bins for i in range(bins)} | {max(longest - 1, 0), longest})
        ends = np.searchsorted(self.lengths, edges, side="right")
        counts = np.diff(self.starts[ends]).tolist()
        ranges = zip(edges[:-1], edges[1:], counts, strict=True)
        return [(first + 1, last, count) for first, last, count in ranges]

    def run_of(self, places: Int64Array) -> Int64Array:
        """For places of the sorted order, the index of the run of equal length they lie in."""
        return np.searchsorted(self.starts, places, side="right") - 1

    def length_at(self, places: Int64Array) -> Int64Array:
        """For places of the sorted order, the sample's length in tokens."""
        return self.lengths[self.run_of(places)]


def read_histogram(path: Path) -> LengthHistogram:
    """Read a histogram from a table of ``length<TAB>samples`` lines; other lines are headings.

    Raises:
        ValueError: no such file, no such line in it, or a length of 0.
    """
    counts: dict[int, int] = {}
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            for row in csv.reader(stream, delimiter="\t"):
                if len(row) >= 2 and row[0].strip().isdigit() and row[1].strip().isdigit():
                    counts[int(row[0])] = counts.get(int(row[0]), 0) + int(row[1])
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except (UnicodeDecodeError, csv.Error):
        raise ValueError(f"{path}: not a text; give lines of length<TAB>samples") from None
    if counts.get(0):
        raise ValueError(f"{path}: samples of 0 tokens; a length must be at least 1")
    if not counts:
        raise ValueError(f"{path}: no line of the form length<TAB>samples")
    return LengthHistogram(counts)
