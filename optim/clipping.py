"""Bounds on the norm of the gradient: of the whole, or bucket by bucket before the all-reduce.

Bucket-wise clipping is the idea of Samsung's MLPerf submissions (training v1.1 and v2.0): with K
buckets and a bound C on the whole gradient, each rank scales each bucket g_b down to C / sqrt(K)
before that bucket's all-reduce starts. The mean over ranks of a bucket is then at most C / sqrt(K)
and the whole gradient at most C. No bucket's norm waits for another's, so the all-reduce keeps
overlapping the backward pass.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket

from optim.communication import Future, Hook

# parameters -> norm of their whole gradient before clipping
Clip = Callable[[Sequence[nn.Parameter]], Tensor]

_ROW = 4096
CLIP_MODES = ("global_after", "bucket_before", "rank_before", "none")


def build_clipping(mode: str, max_norm: float) -> Clip:
    """What the trainer does to the reduced gradient before the optimizer's step.

    ``global_after`` brings the norm of the whole gradient down to ``max_norm`` (Pascanu et al.
    2013, arXiv 1211.5063). The other modes only measure it: they clip before the reduction or not
    at all.

    Raises:
        ValueError: no such mode; the valid ones are listed.
    """
    if mode not in CLIP_MODES:
        raise ValueError(f"sync.clip '{mode}'; choose one of: {', '.join(CLIP_MODES)}")

    def clip(parameters: Sequence[nn.Parameter]) -> Tensor:
        gradients = [p.grad for p in parameters if p.grad is not None]
        norm = whole_norm(gradients)
        if mode == "global_after":
            torch._foreach_mul_(gradients, clip_factor(norm, max_norm).to(gradients[0].dtype))
        return norm

    return clip


def clip_factor(norm: Tensor, bound: float) -> Tensor:
    """What to multiply by so that the norm is at most ``bound``: min(1, bound / norm).

    Exactly 1 for an infinite bound. A norm that is not finite gives 1 too: the elements that made
    it so stay as they are, and no other becomes like them or 0.
    """
    return torch.where(torch.isfinite(norm), torch.clamp(bound / norm, max=1.0), 1.0)


def scale_to_norm(tensors: Iterable[Tensor], bound: float) -> Tensor:
    """Scale tensors in place so that the norm of all of them is at most ``bound``.

    Squares are summed in fp64: torch's fp32 norm of a large tensor is off by up to 2e-3 on a CPU.

    Returns:
        the factor, a scalar tensor.
    """
    tensors = list(tensors)
    factor = clip_factor(whole_norm(tensors), bound)
    torch._foreach_mul_(tensors, factor.to(tensors[0].dtype))
    return factor


def whole_norm(tensors: Sequence[Tensor]) -> Tensor:
    """The 2-norm of all tensors together, fp64.

    Rows of at most ``_ROW`` elements are summed in the tensors' own format, their norms in fp64.
    """
    rows = [
        torch.linalg.vector_norm(row, dim=-1)
        for tensor in tensors
        for row in _rows(tensor.flatten())
    ]
    total: Tensor = torch.linalg.vector_norm(torch.cat([row.flatten() for row in rows]).double())
    return total


def _rows(flat: Tensor) -> tuple[Tensor, ...]:
    whole = flat.numel() // _ROW * _ROW
    return flat[:whole].view(-1, _ROW), flat[whole:].view(1, -1)


class BucketClipping:
    """Clips each bucket on its rank before the hook that it wraps sends it.

    Args:
        max_norm: C, of the whole gradient.

    Attributes:
        buckets: K; 1 until ``settle`` is told the final number.
        scale: of the loss, 1 without loss scaling; the bound is scaled with it.
    """

    def __init__(self, max_norm: float) -> None:
        self._max_norm = max_norm
        self.buckets = 1
        self.scale = 1.0
        self._factors: list[Tensor] = []

    @property
    def bound(self) -> float:
        """C / sqrt(K), times the loss scale."""
        return self._max_norm / math.sqrt(self.buckets) * self.scale

    def clip(self, flat: Tensor) -> None:
        """Clip one bucket in place and remember whether it was."""
        self._factors.append(scale_to_norm([flat], self.bound))

    def wrap(self, hook: Hook) -> Hook:
        """The hook, on clipped buckets; the norm is taken before any cast of the wire."""

        def clipping(state: Any, bucket: GradBucket) -> Future:
            self.clip(bucket.buffer())
            return hook(state, bucket)

        return clipping

    def take_clipped_share(self) -> float:
        """The share of buckets that were scaled down since the last call, on this rank."""
        factors, self._factors = self._factors, []
        if not factors:
            return 0.0
        return float((torch.stack(factors) < 1.0).float().mean())


def first_not_finite(named_parameters: Iterable[tuple[str, nn.Parameter]]) -> str:
    """The name of the first parameter whose gradient is not finite; '' if there is none."""
    for name, parameter in named_parameters:
        if parameter.grad is not None and not torch.isfinite(parameter.grad).all():
            return name
    return ""
