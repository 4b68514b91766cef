"""From settings to an order."""

from dataprep.lengths import LengthHistogram
from dataprep.order.config import OrderConfig
from dataprep.order.drawn import Random, Strata
from dataprep.order.exchange import Exchange
from dataprep.order.packed import Packed
from dataprep.order.presorted import Presorted
from dataprep.order.scheme import Order


def build_order(  # noqa: PLR0913 - the identity of an order
    config: OrderConfig,
    histogram: LengthHistogram,
    width: int,
    batch: int,
    seed: int,
    epoch: int,
) -> Order:
    """The order of samples of one epoch.

    Args:
        config: the scheme and its settings.
        histogram: the lengths of the sorted dataset.
        width: W, the number of slots.
        batch: B, samples (``packed``: rows) per slot and step.
        seed: of the run; the same on all ranks.
        epoch: counted from 0.

    Raises:
        ValueError: the dataset holds less than one step, or does not suit the scheme.
    """
    if config.scheme == "presorted":
        return Presorted(histogram, width, batch, seed, epoch, config.remainder)
    if config.scheme == "packed":
        return Packed(
            histogram,
            width,
            batch,
            seed,
            epoch,
            config.row_tokens,
            config.row_samples,
            config.remainder,
        )
    drawn: Order
    if config.uses_strata:
        bins, counts = tuple(config.strata_bins), tuple(config.strata_counts)
        drawn = Strata(histogram, width, batch, seed, epoch, bins, counts)
    else:
        drawn = Random(histogram, width, batch, seed, epoch, config.remainder)
    if config.scheme != "exchange":
        return drawn
    group = config.group or width
    return Exchange(histogram, width, batch, seed, epoch, drawn, group, config.deal)
