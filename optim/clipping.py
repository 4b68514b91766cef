"""Bounds on the norm of the gradient."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from optim.sync import SyncConfig

# parameters -> norm of their whole gradient before clipping
Clip = Callable[[Sequence[nn.Parameter]], Tensor]


def build_clipping(config: SyncConfig) -> Clip:
    """What bounds the reduced gradient between backward and the optimizer's step.

    ``global_after``: the norm of the whole gradient after the all-reduce is brought down to
    ``max_norm`` (Pascanu et al. 2013, arXiv 1211.5063); ``none``: it is only measured.

    Raises:
        ValueError: no such mode; the valid ones are listed.
    """
    bounds = {"global_after": config.max_norm, "none": float("inf")}
    if config.clip not in bounds:
        raise ValueError(f"sync.clip '{config.clip}'; choose one of: {', '.join(bounds)}")
    bound = bounds[config.clip]

    def clip(parameters: Sequence[nn.Parameter]) -> Tensor:
        return nn.utils.clip_grad_norm_(parameters, bound, foreach=True)

    return clip


def check_finite(norm: Tensor, step: int) -> float:
    """The norm as a number.

    Raises:
        ValueError: the gradient is not finite, so the step must not be taken.
    """
    value = float(norm)
    if not torch.isfinite(norm):
        raise ValueError(
            f"step {step}: the gradient's norm is {value}; lower optimizer.learning_rate or "
            "sync.max_norm"
        )
    return value
