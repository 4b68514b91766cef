"""Bounds on the norm of the gradient."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

# parameters -> norm of their whole gradient before clipping
Clip = Callable[[Sequence[nn.Parameter]], Tensor]


def build_clipping(mode: str, max_norm: float) -> Clip:
    """What bounds the reduced gradient between backward and the optimizer's step.

    Args:
        mode: ``global_after``: the norm of the whole gradient after the all-reduce is brought down
            to ``max_norm`` (Pascanu et al. 2013, arXiv 1211.5063); ``none``: only measured.
        max_norm: C, above 0.

    Raises:
        ValueError: no such mode (the valid ones are listed) or C not above 0.
    """
    modes: dict[str, float] = {"global_after": max_norm, "none": float("inf")}
    if mode not in modes:
        raise ValueError(f"sync.clip '{mode}'; choose one of: {', '.join(modes)}")
    if not max_norm > 0:
        raise ValueError(
            f"sync.max_norm {max_norm} must be above 0; sync.clip none leaves gradients as they are"
        )
    bound = modes[mode]

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
