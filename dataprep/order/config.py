"""The settings of ``data.order``."""

from dataclasses import dataclass
from typing import Literal, get_args

Scheme = Literal["presorted", "random", "strata", "exchange", "packed"]
Remainder = Literal["drop", "keep"]
Deal = Literal["plain", "snake"]


@dataclass(frozen=True)
class OrderConfig:
    """Which samples make up a step.

    Args:
        scheme: presorted (each slot takes neighbours in length; nothing moves), random, strata
            (fixed counts of each range of lengths), exchange (slots draw, then sort by length and
            deal among one another) or packed (several samples in a row of the model's length)
        remainder: drop the samples that do not fill a step, others each epoch, or keep them in a
            short step
        strata_bins: the longest sample of each range of lengths, ascending; the last holds all
        strata_counts: how many samples of each range, scaled to the batch
        group: exchange among so many neighbouring slots, a divisor of the width; null: among all
        deal: of the sorted samples to the slots of a group, plain (each round from the first slot)
            or snake (to and fro)
        with_strata: draw by strata before the exchange; in groups of 8 with snake it is the scheme
            of Samsung's record
        row_tokens: the length of a packed row in tokens
        row_samples: the most samples of a packed row
    """

    scheme: Scheme = "presorted"
    remainder: Remainder = "drop"
    strata_bins: tuple[int, ...] = (128, 256, 384, 512)
    strata_counts: tuple[int, ...] = (6, 3, 2, 5)
    group: int | None = None
    deal: Deal = "plain"
    with_strata: bool = False
    row_tokens: int = 512
    row_samples: int = 3

    def __post_init__(self) -> None:
        for name, kind in (("scheme", Scheme), ("remainder", Remainder), ("deal", Deal)):
            if getattr(self, name) not in get_args(kind):
                choices = ", ".join(get_args(kind))
                raise ValueError(
                    f"data.order.{name} '{getattr(self, name)}' is unknown; choose one of {choices}"
                )
        for name in ("row_tokens", "row_samples"):
            _check_positive(name, getattr(self, name))
        if self.group is not None:
            _check_positive("group", self.group, ", or null for all slots")
        self._check_strata()

    @property
    def uses_strata(self) -> bool:
        """Whether samples are drawn by strata."""
        return self.scheme == "strata" or (self.scheme == "exchange" and self.with_strata)

    def _check_strata(self) -> None:
        bins, counts = self.strata_bins, self.strata_counts
        if not bins or list(bins) != sorted(set(bins)) or bins[0] < 1:
            raise ValueError(
                f"data.order.strata_bins {list(bins)} must ascend from at least 1; "
                "give the longest sample of each range, as 128, 256, 384, 512"
            )
        if len(counts) != len(bins) or min(counts) < 1:
            raise ValueError(
                f"data.order.strata_counts {list(counts)} must be {len(bins)} numbers of at least "
                "1, one for each of strata_bins; give as many"
            )
        if self.uses_strata and self.remainder == "keep":
            raise ValueError(
                "data.order.remainder 'keep' with strata: fixed counts leave out what does not fit "
                "them; choose drop, or scheme presorted or random"
            )


def _check_positive(name: str, value: int, otherwise: str = "") -> None:
    if value < 1:
        raise ValueError(f"data.order.{name} {value} must be at least 1{otherwise}; raise it")
