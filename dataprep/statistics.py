"""What a set of samples looks like: totals, shares, and the histogram of lengths in two forms."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.table import Table

from dataprep.lengths import LengthHistogram
from dataprep.manifest import Manifest, read_manifest
from dataprep.shards import Shard
from dataprep.storage import replacing
from dataprep.tokenization import VOCABULARY_NAME, load_vocabulary

_ROWS = 1 << 14  # read at once
_SPECIAL_TOKENS = 3  # of a sample: [CLS] and two [SEP]


@dataclass(frozen=True)
class Statistics:
    """Totals of a folder of shards.

    Attributes:
        histogram: of the lengths in tokens.
        masked_tokens: masked positions of all samples.
        random_next: samples whose second segment is random.
        unknown_tokens: tokens that are [UNK], of ``text_tokens`` in all; both of the original
            text, so that masks hide none and special tokens count as neither.
    """

    histogram: LengthHistogram
    masked_tokens: int
    random_next: int
    unknown_tokens: int
    text_tokens: int

    @property
    def random_share(self) -> float:
        """The share of samples whose second segment is random."""
        return self.random_next / max(self.histogram.samples, 1)

    @property
    def masked_share(self) -> float:
        """The share of all tokens that is masked."""
        return self.masked_tokens / max(self.histogram.tokens, 1)

    @property
    def unknown_share(self) -> float:
        """The share of [UNK] in the text."""
        return self.unknown_tokens / max(self.text_tokens, 1)


def statistics_of(folder: Path) -> Statistics:
    """Totals of a folder of samples or stripes.

    What the manifest counted is taken from there (``random_next``; ``unknown_tokens`` with
    ``text_tokens``, of the text the samples are made of); what it did not is read from the shards.

    Raises:
        ValueError: no folder of shards, or one that is not whole.
    """
    manifest = read_manifest(folder, ("samples", "presort"))
    counts = manifest.counts
    if not {"random_next", "unknown_tokens", "text_tokens"} <= counts.keys():
        counts = _counted(folder, manifest) | counts_of_samples(counts)
    return Statistics(
        histogram=LengthHistogram(manifest.lengths),
        masked_tokens=counts["masked_tokens"],
        random_next=counts["random_next"],
        unknown_tokens=counts["unknown_tokens"],
        text_tokens=counts["text_tokens"],
    )


def counts_of_samples(counts: dict[str, int]) -> dict[str, int]:
    """Those counts of a manifest that are of its samples, not of the text they are made of."""
    return {name: counts[name] for name in ("masked_tokens", "random_next") if name in counts}


def _counted(folder: Path, manifest: Manifest) -> dict[str, int]:
    unknown = load_vocabulary(folder / VOCABULARY_NAME).id("[UNK]")
    found = random = text = 0
    for entry in manifest.files:
        shard = Shard(folder / entry.file)
        for first in range(0, len(shard), _ROWS):
            block = shard.block(first, min(first + _ROWS, len(shard)))
            starts = np.repeat(block.token_offsets[:-1], block.masks)
            shown = block.tokens[starts + block.mlm_positions]
            # what a mask hides is counted by its label
            found += int(np.count_nonzero(block.tokens == unknown))
            found += int(np.count_nonzero(block.mlm_ids == unknown))
            found -= int(np.count_nonzero(shown == unknown))
            random += int(block.next_sentence_label.sum())
            text += len(block.tokens) - _SPECIAL_TOKENS * len(block)
    return {"unknown_tokens": found, "random_next": random, "text_tokens": text}


def statistics_lines(statistics: Statistics) -> Iterator[str]:
    """The totals, a line each."""
    histogram = statistics.histogram
    longest = int(histogram.lengths[-1]) if len(histogram.lengths) else 0
    yield f"{histogram.samples:,} samples, {histogram.tokens:,} tokens"
    yield (
        f"lengths: mean {histogram.mean:.1f}, longest {longest} "
        f"({histogram.share_at_longest:.2%} of samples)"
    )
    yield f"second segments: {statistics.random_share:.2%} random"
    yield f"masked: {statistics.masked_share:.2%} of tokens ({statistics.masked_tokens:,})"
    yield f"[UNK]: {statistics.unknown_share:.4%} of the text ({statistics.unknown_tokens:,})"


def length_table(histogram: LengthHistogram, bins: int = 16) -> Table:
    """The histogram in at most ``bins`` + 1 rows, ready to be printed."""
    table = Table("tokens", "samples", "share", "up to here", title="sample lengths")
    for column in table.columns:
        column.justify = "right"
    below = 0
    for first, last, count in histogram.binned(bins):
        below += count
        share, cumulative = (part / max(histogram.samples, 1) for part in (count, below))
        name = str(last) if first == last else f"{first} to {last}"
        table.add_row(name, f"{count:,}", f"{share:.2%}", f"{cumulative:.2%}")
    return table


def draw_histogram(histogram: LengthHistogram, path: Path) -> None:
    """Draw the share of samples of each length into a PNG file."""
    from matplotlib.figure import Figure  # takes long to import, and only pictures need it

    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    shares = histogram.counts / max(histogram.samples, 1)
    axes.vlines(histogram.lengths, 0, shares, linewidth=1.5)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("sample length in tokens")
    axes.set_ylabel("share of samples")
    axes.set_title(
        f"{histogram.samples:,} samples, mean {histogram.mean:.1f} tokens, "
        f"{histogram.share_at_longest:.1%} at the longest"
    )
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120)
