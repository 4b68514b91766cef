"""What happens between a step's micro-batches and the gradient all ranks agree on.

``GradSync`` is the seam. Losses are sums until the counts of the whole step are known: masked
tokens and sequences are counted over all micro-batches and ranks, reduced once before the first
backward, and every loss is divided by that (``normalisation: global``). So the gradient is that of
the whole batch however it is cut, although ranks rarely hold equally many masked tokens. With
``rank`` each rank divides by its own counts and the ranks' gradients are averaged.
"""

from torch import nn

from optim.precision import Precision
from optim.sync.config import SyncConfig
from optim.sync.flat import FlatSync
from optim.sync.overlapped import DDPSync
from optim.sync.seam import GradSync, MicroBatch

__all__ = ["DDPSync", "FlatSync", "GradSync", "MicroBatch", "SyncConfig", "build_sync"]


def build_sync(config: SyncConfig, model: nn.Module, precision: Precision) -> GradSync:
    """The GradSync of a configuration.

    Raises:
        ValueError: no such one (the valid names are listed), or a wire that the ranks cannot carry.
    """
    builders = {"ddp": FlatSync if config.clip == "rank_before" else DDPSync}
    if config.name not in builders:
        raise ValueError(f"sync.name '{config.name}'; choose one of: {', '.join(builders)}")
    return builders[config.name](config, model, precision)
