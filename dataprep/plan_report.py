"""What a run would look like under each scheme of ordering samples, before any run.

Everything follows from the histogram of lengths: no shard is read, no rank is started, and the
world may be larger than any at hand.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.table import Table

from dataprep.lengths import Int64Array, LengthHistogram, read_histogram
from dataprep.manifest import read_manifest
from dataprep.order import Order, OrderConfig, build_order
from dataprep.order.budget import Budget, MaskRule, mask_rule, token_budget
from dataprep.order.load import imbalance, loads_of, samples_gathered, samples_moved

SCHEMES: dict[str, OrderConfig] = {
    "presorted": OrderConfig(),
    "random": OrderConfig("random"),
    "strata": OrderConfig("strata"),
    "exchange": OrderConfig("exchange"),
    "exchange snake": OrderConfig("exchange", deal="snake"),
    "strata, exchange of 8 snake": OrderConfig("exchange", group=8, deal="snake", with_strata=True),
    "packed": OrderConfig("packed"),
}
_LARGE_WASTE = 0.05
_STEPS_OF_BYTES = 4
_MOST_SEEN = 1 << 20  # samples of a scheme, so that it takes seconds


@dataclass(frozen=True)
class PlanSettings:
    """A run that may never be started.

    Args:
        ranks: R
        batch: B, samples per slot and step
        accumulation: A, micro-batches that a slot's samples are cut into
        width: W, the number of slots; null: as many as ranks
        evaluation_interval: evaluate each time so many more samples have been trained on
        train_samples: how many samples the run trains on; null for one epoch
        steps: look at so many steps at most, evenly over the epoch, fewer in large worlds
        seed: of the order
    """

    ranks: int
    batch: int
    accumulation: int = 1
    width: int | None = None
    evaluation_interval: int = 150_000
    train_samples: int | None = None
    steps: int = 200
    seed: int = 12345

    def __post_init__(self) -> None:
        for name in ("ranks", "batch", "accumulation", "width", "evaluation_interval", "steps"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} {value} must be at least 1")
        if self.train_samples is not None and self.train_samples < 1:
            raise ValueError(f"train_samples {self.train_samples} must be at least 1, or null")
        if self.slots % self.ranks:
            raise ValueError(
                f"width {self.slots} is not a multiple of the {self.ranks} ranks; "
                "choose one that is, or another number of ranks"
            )

    @property
    def slots(self) -> int:
        """W."""
        return self.ranks if self.width is None else self.width


@dataclass(frozen=True)
class PlanRow:
    """One scheme.

    Attributes:
        scheme: its name.
        steps: of an epoch.
        seen: how many of them were looked at.
        samples: trained on per step, the mean.
        tokens_mean, tokens_max, tokens_spread: tokens per step over all ranks; the spread is
            standard deviation over mean.
        imbalance, imbalance_squared: slowest over mean of the ranks' tokens and of their squared
            lengths, the mean over steps.
        budget: of a micro-batch.
        exact_budget: whether it is that of all steps of the epoch, not of those looked at.
        bytes_moved: between ranks per step, each moved sample sent once.
        bytes_gathered: between ranks per step, all of a group's samples sent to each of its slots.
        evaluations: of the run.
    """

    scheme: str
    steps: int
    seen: int
    samples: float
    tokens_mean: float
    tokens_max: int
    tokens_spread: float
    imbalance: float
    imbalance_squared: float
    budget: Budget
    exact_budget: bool
    bytes_moved: float
    bytes_gathered: float
    evaluations: int


def plan_row(
    name: str,
    config: OrderConfig,
    histogram: LengthHistogram,
    settings: PlanSettings,
    rule: MaskRule | None = None,
) -> PlanRow:
    """What one scheme would do.

    Raises:
        ValueError: the dataset does not suit the scheme.
    """
    rule = rule or MaskRule()
    order = build_order(config, histogram, settings.slots, settings.batch, settings.seed, 0)
    most = max(2, min(settings.steps, _MOST_SEEN // (order.width * order.columns)))
    steps = seen_steps(order, most)
    loads = loads_of(order, steps, settings.ranks)
    exact = _is_quickly_scanned(order)
    budget = token_budget(order, settings.accumulation, rule, None if exact else steps)
    tokens, samples = loads.tokens.sum(axis=1), float(loads.samples.sum(axis=1).mean())
    moved, gathered = exchanged_bytes(order, steps, settings.ranks, rule)
    return PlanRow(
        scheme=name,
        steps=order.steps,
        seen=len(steps),
        samples=samples,
        tokens_mean=float(tokens.mean()),
        tokens_max=int(tokens.max()),
        tokens_spread=loads.spread,
        imbalance=float(imbalance(loads.tokens).mean()),
        imbalance_squared=float(imbalance(loads.squared).mean()),
        budget=budget,
        exact_budget=exact,
        bytes_moved=moved,
        bytes_gathered=gathered,
        evaluations=int(settings.train_samples or samples * order.steps)
        // settings.evaluation_interval,
    )


def seen_steps(order: Order, most: int) -> Int64Array:
    """Steps that stand for an epoch: all, or some evenly over it, first and last among them."""
    return np.unique(np.linspace(0, order.steps - 1, min(order.steps, most)).astype(np.int64))


def exchanged_bytes(
    order: Order, steps: Int64Array, ranks: int, rule: MaskRule
) -> tuple[float, float]:
    """Bytes between all ranks per step, the mean of a few steps.

    A sample is sent as 16-bit numbers: its tokens, its masked positions and the ids there, and
    three more.

    Returns:
        when each sample that trains elsewhere is sent once, and when each slot is sent all that
        its group has read, as published exchanges do.
    """
    some = steps[:: -(-len(steps) // _STEPS_OF_BYTES)].tolist()
    moved = [_bytes_of(samples_moved(order, step, ranks), rule) for step in some]
    gathered = [_bytes_of(samples_gathered(order, step), rule) for step in some]
    return float(np.mean(moved)), float(np.mean(gathered))


def _bytes_of(lengths: Int64Array, rule: MaskRule) -> int:
    return int(2 * (lengths + 2 * rule.bound(lengths) + 3).sum())


def _is_quickly_scanned(order: Order) -> bool:
    """Whether a budget over all steps takes seconds."""
    return order.steps * len(order.busiest_slots) * order.columns <= _MOST_SEEN


@dataclass(frozen=True)
class PlanReport:
    """The plans of several schemes.

    Attributes:
        rows: of those that the data suits.
        refused: the others, with the reason.
    """

    rows: list[PlanRow]
    refused: dict[str, str]

    @property
    def table(self) -> Table:
        """The rows, ready to be printed."""
        names = ("steps", "samples", "tokens", "max", "spread", "slowest/mean", "squared")
        budget = ("budget", "masked", "longest", "waste", "MB moved", "evaluations")
        table = Table("scheme", *names, *budget)
        for column in table.columns[1:]:
            column.justify = "right"
        for row in self.rows:
            table.add_row(*_cells(row))
        return table

    def lines(self) -> Iterator[str]:
        """What the table does not say: how much was looked at, what was refused, warnings."""
        yield (
            "samples, tokens, max and spread: per step, over all ranks; slowest/mean: the slowest "
            "rank's tokens over the mean of all; budget, masked, longest: of a micro-batch"
        )
        for row in self.rows:
            if row.seen < row.steps:
                of_budget = "" if row.exact_budget else ", budget included (~)"
                yield f"{row.scheme}: by {row.seen} of {row.steps:,} steps{of_budget}"
            if row.bytes_gathered:
                yield (
                    f"{row.scheme}: {row.bytes_gathered / 1e6:,.1f} MB a step where each slot is "
                    "sent all that its group has read"
                )
        yield from (f"{scheme}: does not suit: {why}" for scheme, why in self.refused.items())
        for row in self.rows[:1]:
            if row.budget.waste > _LARGE_WASTE:
                yield (
                    f"warning: {row.scheme}: a token budget of {row.budget.tokens} a micro-batch "
                    f"wastes {row.budget.waste:.1%}, more than {_LARGE_WASTE:.0%}; "
                    "make micro-batches larger (less accumulation or a larger batch)"
                )


def plan(
    data: Path, settings: PlanSettings, schemes: dict[str, OrderConfig] | None = None
) -> PlanReport:
    """What a run on this data would look like under each scheme; the first one must suit.

    Args:
        data: a folder of stripes, or a table of lengths (``length<TAB>samples`` lines).
        settings: of the run.
        schemes: by name; by default the project's own, then the published ones.

    Raises:
        ValueError: no such data, or the first scheme does not suit it.
    """
    if data.is_dir():
        manifest = read_manifest(data, ("presort",))
        histogram, rule = LengthHistogram(manifest.lengths), mask_rule(manifest)
    else:
        histogram, rule = read_histogram(data), MaskRule()
    rows: list[PlanRow] = []
    refused: dict[str, str] = {}
    for name, config in (schemes or SCHEMES).items():
        try:
            rows.append(plan_row(name, config, histogram, settings, rule))
        except ValueError as error:
            if not rows:
                raise
            refused[name] = str(error)
    return PlanReport(rows, refused)


def _cells(row: PlanRow) -> Iterator[str]:
    about = "" if row.exact_budget else "~"
    yield row.scheme
    yield f"{row.steps:,}"
    yield f"{row.samples:,.0f}"
    yield f"{row.tokens_mean:,.0f}"
    yield f"{row.tokens_max:,}"
    yield f"{row.tokens_spread:.2%}"
    yield f"{row.imbalance:.4f}"
    yield f"{row.imbalance_squared:.4f}"
    yield f"{about}{row.budget.tokens:,}"
    yield f"{about}{row.budget.masked_tokens:,}"
    yield f"{about}{row.budget.longest:,}"
    yield f"{about}{row.budget.waste:.1%}"
    yield f"{row.bytes_moved / 1e6:,.1f}"
    yield f"{row.evaluations:,}"
