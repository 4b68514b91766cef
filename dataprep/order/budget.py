"""Static shapes: the most that any micro-batch of an epoch holds, known before the run.

An order needs the lengths alone, so the greatest number of tokens, of masked tokens and the longest
sample of a micro-batch follow from the manifest's histogram, without a shard.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from dataprep.lengths import Int64Array
from dataprep.manifest import Manifest
from dataprep.order.load import in_chunks
from dataprep.order.scheme import Order

_MULTIPLE = 16
_SPECIAL_TOKENS = 3


@dataclass(frozen=True)
class MaskRule:
    """How many tokens of a sample are masked at most, by its length.

    A sample of L tokens has at most min(max_predictions, max(1, round(probability * L)), L - 3)
    masked ones; with a probability of None, for samples of another origin, min(max_predictions,
    L - 3).
    """

    max_predictions: int = 76
    probability: float | None = 0.15

    def bound(self, lengths: Int64Array) -> Int64Array:
        """The most masked tokens for each length, same shape; 0 for a length of 0."""
        most = np.minimum(np.maximum(lengths - _SPECIAL_TOKENS, 0), self.max_predictions)
        if self.probability is not None:
            wanted = np.maximum(1, np.rint(lengths * self.probability)).astype(np.int64)
            most = np.minimum(most, wanted)
        return most


def mask_rule(manifest: Manifest, probability: float = 0.15) -> MaskRule:
    """The rule that a folder's samples keep.

    The probability is BERT's, unless the samples are imported or hold more masked tokens than it
    allows; then only ``max_predictions`` bounds them.
    """
    header = manifest.shard_header
    rule = MaskRule(int(header["max_predictions"]), probability)
    lengths = np.array(list(manifest.lengths), np.int64)
    counts = np.array(list(manifest.lengths.values()), np.int64)
    most = int((rule.bound(lengths) * counts).sum())
    if header["builder"] == "imported" or manifest.counts.get("masked_tokens", 0) > most:
        return MaskRule(rule.max_predictions, None)
    return rule


@dataclass(frozen=True)
class Budget:
    """What a micro-batch of static shape must hold.

    Attributes:
        tokens: the most tokens, rounded up to a multiple of 16.
        masked_tokens: the most masked tokens, by the rule's bound.
        longest: the longest sample in tokens.
        waste: the share of the budget's tokens that a mean micro-batch leaves empty.
    """

    tokens: int
    masked_tokens: int
    longest: int
    waste: float

    def union(self, other: "Budget") -> "Budget":
        """What holds the micro-batches of both; the waste is the mean."""
        tokens = max(self.tokens, other.tokens)
        used = [(1 - one.waste) * one.tokens for one in (self, other)]
        return Budget(
            tokens,
            max(self.masked_tokens, other.masked_tokens),
            max(self.longest, other.longest),
            1 - sum(used) / 2 / tokens,
        )

    def of_tokens(self, tokens: int) -> "Budget":
        """The same with more tokens."""
        return replace(self, tokens=tokens, waste=1 - (1 - self.waste) * self.tokens / tokens)


def token_budget(
    order: Order,
    accumulation: int = 1,
    rule: MaskRule | None = None,
    steps: Int64Array | None = None,
) -> Budget:
    """The exact maximum over all micro-batches of all slots and steps of the order's epoch.

    ``presorted`` needs the lengths of one slot; the other schemes those of every sample, some
    25 seconds for 16 million.

    Args:
        order: of one epoch.
        accumulation: A, micro-batches that a slot's samples are cut into.
        rule: of masking.
        steps: look at these alone; maximum and mean are then theirs.

    Raises:
        ValueError: A does not divide the batch.
    """
    rule = rule or MaskRule()
    members = order.micro_batch_of_column(accumulation) == np.arange(accumulation)[:, None]
    scanned = np.arange(order.steps) if steps is None else steps
    tokens = masked = longest = total = micro_batches = 0
    for lengths in _busiest(order, scanned):
        sums = lengths @ members.T
        tokens = max(tokens, int(sums.max()))
        masked = max(masked, int((rule.bound(lengths) @ members.T).max()))
        longest = max(longest, int(lengths.max()))
        total, micro_batches = total + int(sums.sum()), micro_batches + sums.size
    tokens += -tokens % _MULTIPLE
    if steps is None and len(order.busiest_slots) < order.width:
        left_out = int(order.histogram.length_at(order.left_out).sum())
        total = order.histogram.tokens - left_out
        micro_batches = order.steps * order.width * accumulation
    return Budget(tokens, masked, longest, 1 - total / micro_batches / tokens)


def _busiest(order: Order, steps: Int64Array) -> Iterator[Int64Array]:
    """The lengths of the busiest slots, and of all slots in the last step, which may be short."""
    last = steps == order.steps - 1
    yield from in_chunks(order, steps[~last], order.busiest_slots)
    yield from in_chunks(order, steps[last], np.arange(order.width))
