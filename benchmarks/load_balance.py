"""How equally busy ranks are under each scheme of ordering samples, for any number of ranks.

    python -m benchmarks.load_balance --ranks 1024 --batch 16 --lengths lengths.tsv [--json]
    python -m benchmarks.load_balance --ranks 2 --batch 16 --data data/quickstart/train

One process plays all ranks. Tokens and squared lengths (as attention costs) are those of the
slowest rank over the mean of all ranks, the mean over steps; spread is the standard deviation over
the mean of a step's tokens. ``presorted``'s budget is that of the whole epoch, the others' that of
the steps looked at. With --data the lengths are read from the stripes, place by place, and compared
with the histogram.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from dataprep.commandline import run_command
from dataprep.lengths import Int64Array, LengthHistogram, read_histogram
from dataprep.manifest import read_manifest
from dataprep.order import OrderConfig, build_order
from dataprep.order.budget import MaskRule, mask_rule, token_budget
from dataprep.order.load import imbalance, loads_of
from dataprep.plan_report import SCHEMES, exchanged_bytes, seen_steps
from dataprep.shards import Shard
from dataprep.storage import replacing

SEED = 12345
FIGURE_STEPS = 50
# tokens of the slowest rank over the mean, simulated from the same lengths for publication
PUBLISHED: dict[tuple[int, int], dict[str, float]] = {
    (1024, 16): {
        "random": 1.596,
        "strata": 1.098,
        "exchange": 1.059,
        "strata, exchange of 8 snake": 1.041,
        "exchange snake": 1.004,
    },
    (1368, 12): {
        "random": 1.693,
        "strata": 1.108,
        "exchange": 1.080,
        "strata, exchange of 8 snake": 1.056,
        "exchange snake": 1.011,
    },
    (8, 56): {"random": 1.126, "exchange": 1.015, "exchange snake": 1.001},
}


@dataclass(frozen=True)
class Lengths:
    """What is balanced.

    Attributes:
        histogram: the lengths of the sorted order.
        by_place: [N] as found in stripes; None without any.
        rule: how many tokens of a sample are masked.
    """

    histogram: LengthHistogram
    by_place: Int64Array | None
    rule: MaskRule


@dataclass(frozen=True)
class Balance:
    """One scheme.

    Attributes:
        tokens, squared: the slowest rank over the mean, the mean over steps.
        spread: standard deviation over mean of a step's tokens.
        bytes_per_step: between all ranks, each moved sample sent once.
        budget_waste: the share of a micro-batch's token budget that a mean one leaves empty.
        gathered_bytes_per_step: where each slot is sent all that its group has read.
        worst: the slowest rank over the mean in the worst step.
        steps: of an epoch.
        seen: steps that were looked at.
    """

    tokens: float
    squared: float
    spread: float
    bytes_per_step: float
    budget_waste: float
    gathered_bytes_per_step: float
    worst: float
    steps: int
    seen: int


def read_stripes(folder: Path) -> Lengths:
    """The lengths of a folder of stripes, from the stripes themselves.

    Raises:
        ValueError: no folder of stripes, or one whose samples are not sorted as its manifest says.
    """
    manifest = read_manifest(folder, ("presort",))
    histogram = LengthHistogram(manifest.lengths)
    by_place = np.zeros(histogram.samples, np.int64)
    for stripe, entry in enumerate(manifest.files):
        shard = Shard(folder / entry.file)
        expected = histogram.length_at(np.arange(stripe, histogram.samples, len(manifest.files)))
        found = shard.lengths()
        if not np.array_equal(found, expected):
            raise ValueError(
                f"{shard.path}: lengths differ from those of the manifest; prepare the data again"
            )
        by_place[stripe :: len(manifest.files)] = found
    return Lengths(histogram, by_place, mask_rule(manifest))


def measure(config: OrderConfig, lengths: Lengths, ranks: int, batch: int, steps: int) -> Balance:
    """Play one scheme on so many steps, evenly over the first epoch.

    Raises:
        ValueError: the data does not suit the scheme.
    """
    order = build_order(config, lengths.histogram, ranks, batch, SEED, 0)
    seen = seen_steps(order, steps)
    loads = loads_of(order, seen, lengths_by_place=lengths.by_place)
    cheap = len(order.busiest_slots) == 1
    budget = token_budget(order, 1, lengths.rule, None if cheap else seen)
    moved, gathered = exchanged_bytes(order, seen, ranks, lengths.rule)
    slowest = imbalance(loads.tokens)
    return Balance(
        tokens=float(slowest.mean()),
        squared=float(imbalance(loads.squared).mean()),
        spread=loads.spread,
        bytes_per_step=moved,
        budget_waste=budget.waste,
        gathered_bytes_per_step=gathered,
        worst=float(slowest.max()),
        steps=order.steps,
        seen=len(seen),
    )


def draw_loads(lengths: Lengths, ranks: int, batch: int, path: Path) -> None:
    """Draw the tokens of all ranks for 50 steps, random beside presorted, into a PNG file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for axis, scheme in zip(axes, ("random", "presorted"), strict=True):
        order = build_order(SCHEMES[scheme], lengths.histogram, ranks, batch, SEED, 0)
        steps = np.arange(min(FIGURE_STEPS, order.steps))
        tokens = loads_of(order, steps, lengths_by_place=lengths.by_place).tokens
        axis.plot(np.repeat(steps, ranks), tokens.ravel(), ".", color="0.75", ms=1, label="a rank")
        axis.plot(steps, tokens.max(axis=1), color="tab:red", label="the slowest rank")
        axis.plot(steps, tokens.mean(axis=1), color="tab:blue", ls="--", label="mean of all ranks")
        axis.set_title(f"{scheme}: slowest / mean {imbalance(tokens).mean():.4f}")
        axis.set_xlabel("step")
    axes[0].set_ylabel(f"tokens of a rank ({ranks:,} ranks, {batch} samples each)")
    axes[0].set_ylim(bottom=0)
    axes[0].legend(loc="lower left", markerscale=6)
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120)


def _table(rows: dict[str, Balance], published: dict[str, float]) -> Table:
    table = Table("scheme", "tokens", "published", "squared", "worst", "spread", "MB moved",
                  "MB gathered", "budget waste", "steps seen")  # fmt: skip
    for column in table.columns[1:]:
        column.justify = "right"
    for scheme, row in rows.items():
        table.add_row(
            scheme,
            f"{row.tokens:.4f}",
            f"{published[scheme]:.3f}" if scheme in published else "",
            f"{row.squared:.4f}",
            f"{row.worst:.4f}",
            f"{row.spread:.2%}",
            f"{row.bytes_per_step / 1e6:,.1f}",
            f"{row.gathered_bytes_per_step / 1e6:,.0f}",
            f"{row.budget_waste:.2%}",
            f"{row.seen} of {row.steps:,}",
        )
    return table


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m benchmarks.load_balance", description=__doc__)
    parser.add_argument("--ranks", type=int, default=1024, help="one slot each")
    parser.add_argument("--batch", type=int, default=16, help="samples (packed: rows) per rank")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--lengths", type=Path, help="a table of length<TAB>samples lines")
    source.add_argument("--data", type=Path, help="a folder of stripes")
    parser.add_argument("--steps", type=int, default=200, help="looked at, evenly over the epoch")
    parser.add_argument("--figure", type=Path, help="a PNG of random beside presorted")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


def _run(options: argparse.Namespace) -> int:
    if options.data is not None:
        lengths = read_stripes(options.data)
    else:
        lengths = Lengths(read_histogram(options.lengths), None, MaskRule())
    rows: dict[str, Balance] = {}
    for scheme, config in SCHEMES.items():
        print(f"{scheme} ...", file=sys.stderr)
        try:
            rows[scheme] = measure(config, lengths, options.ranks, options.batch, options.steps)
        except ValueError as error:
            if not rows:
                raise
            print(f"{scheme}: left out: {error}", file=sys.stderr)
    if options.figure is not None:
        draw_loads(lengths, options.ranks, options.batch, options.figure)
    if options.json:
        print(json.dumps({scheme: asdict(row) for scheme, row in rows.items()}, indent=1))
    else:
        published = PUBLISHED.get((options.ranks, options.batch), {})
        Console(width=140).print(_table(rows, published if options.lengths else {}))
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; returns the exit code."""
    options = _parser().parse_args(arguments)
    return run_command("benchmarks.load_balance", lambda: _run(options))


if __name__ == "__main__":
    sys.exit(main())
