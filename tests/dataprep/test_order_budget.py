"""Static budgets: the exact maximum over an epoch, by counting every micro-batch."""

from dataclasses import replace

import numpy as np
import pytest

from dataprep.lengths import LengthHistogram, read_histogram
from dataprep.manifest import FileEntry, Manifest
from dataprep.order import Order, OrderConfig, build_order
from dataprep.order.budget import MaskRule, mask_rule, token_budget

CONFIGS = {
    "presorted": OrderConfig(),
    "presorted, keep": OrderConfig(remainder="keep"),
    "random": OrderConfig("random"),
    "random, keep": OrderConfig("random", remainder="keep"),
    "exchange": OrderConfig("exchange", deal="snake"),
    "packed": OrderConfig("packed", row_tokens=128),
}


def order_of(name: str, samples: int = 1003) -> Order:
    lengths = np.random.default_rng(1).integers(5, 129, samples)
    values, counts = np.unique(lengths, return_counts=True)
    histogram = LengthHistogram(dict(zip(values.tolist(), counts.tolist(), strict=True)))
    return build_order(CONFIGS[name], histogram, 4, 6, seed=7, epoch=0)


@pytest.mark.parametrize("accumulation", [1, 3])
@pytest.mark.parametrize("name", CONFIGS)
def test_the_budget_is_the_greatest_micro_batch(name: str, accumulation: int) -> None:
    order, rule = order_of(name), MaskRule(max_predictions=12)
    tokens, masked, longest = [], [], 0
    for step in range(order.steps):
        for lengths in order.lengths(step, np.arange(4)):
            for micro_batch in range(accumulation):
                own = lengths[order.micro_batch_of_column(accumulation) == micro_batch]
                own = own[own > 0]
                tokens.append(sum(own.tolist()))
                masked.append(sum(min(12, max(1, round(0.15 * n))) for n in own.tolist()))
                longest = max(longest, *own.tolist(), 0)
    budget = token_budget(order, accumulation, rule)
    assert budget.tokens == -(-max(tokens) // 16) * 16
    assert budget.masked_tokens == max(masked)
    assert budget.longest == longest
    assert budget.waste == pytest.approx(1 - np.mean(tokens) / budget.tokens)


def test_the_budget_is_that_of_the_busiest_slot_where_all_lengths_differ() -> None:
    histogram = LengthHistogram(dict.fromkeys(range(5, 509), 1))
    order = build_order(OrderConfig(), histogram, 8, 6, seed=7, epoch=0)
    sums = np.stack([order.lengths(step, np.arange(8)).sum(1) for step in range(order.steps)])
    assert sums[:, 0].max() + 16 < sums.max()
    assert token_budget(order).tokens == -(-sums.max() // 16) * 16


def test_a_multiple_of_sixteen_is_not_rounded() -> None:
    order = build_order(OrderConfig(), LengthHistogram({32: 64}), 2, 4, seed=7, epoch=0)
    budget = token_budget(order, 2)
    assert (budget.tokens, budget.waste) == (64, 0)


def test_some_steps_have_a_budget_of_their_own() -> None:
    order = order_of("random")
    whole = token_budget(order, 1)
    steps = [token_budget(order, 1, steps=np.array([step])) for step in range(order.steps)]
    assert max(budget.tokens for budget in steps) == whole.tokens
    assert max(budget.masked_tokens for budget in steps) == whole.masked_tokens


def test_masked_tokens_of_a_sample() -> None:
    lengths = np.array([0, 5, 10, 128, 512])
    assert MaskRule(76).bound(lengths).tolist() == [0, 1, 2, 19, 76]
    assert MaskRule(20).bound(lengths).tolist() == [0, 1, 2, 19, 20]
    assert MaskRule(76, None).bound(lengths).tolist() == [0, 2, 7, 76, 76]


def manifest(masked_tokens: int, builder: str = "fast") -> Manifest:
    entry = FileEntry("stripe-00000.h5", 1, "", {"samples": 10, "masked_tokens": masked_tokens})
    header = {"max_predictions": 20, "builder": builder}
    return Manifest("presort", 0, {}, {}, [entry], header, {100: 10})


def test_the_rule_of_a_folder() -> None:
    assert mask_rule(manifest(150)) == MaskRule(20, 0.15)
    assert mask_rule(manifest(151)) == MaskRule(20, None)  # more than 15 % are masked
    assert mask_rule(replace(manifest(150, "imported"))) == MaskRule(20, None)


@pytest.mark.parametrize(
    ("width", "batch", "most"), [(1024, 16, 0.04), (64, 48, 0.01), (1368, 12, 0.065)]
)
def test_the_waste_is_small_on_wikipedia_lengths(
    shared_data, width: int, batch: int, most: float
) -> None:
    histogram = read_histogram(shared_data / "lengths" / "wikipedia_512.tsv")
    budget = token_budget(build_order(OrderConfig(), histogram, width, batch, 5, 0))
    assert 0 < budget.waste <= most
    assert budget.longest == 512
