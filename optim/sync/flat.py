"""Gradients reduced in one piece after backward."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from optim.clipping import scale_to_norm
from optim.communication import StepTimes, average
from optim.precision import Precision
from optim.sync.config import SyncConfig
from optim.sync.data_parallel import DataParallel
from optim.sync.seam import MicroBatch


class FlatSync(DataParallel):
    """Each rank clips its whole gradient, then one all-reduce follows that nothing overlaps."""

    def __init__(self, config: SyncConfig, model: nn.Module, precision: Precision) -> None:
        super().__init__(config, model, precision)
        self._clipped_share = 0.0
        for parameter in model.parameters():
            dist.broadcast(parameter.detach(), src=0)

    @property
    def buckets(self) -> int:
        """One."""
        return 1

    def forward_backward(self, micro_batches: Sequence[MicroBatch]) -> Any:
        """Accumulate all micro-batches, clip, reduce."""
        counts = self._counts(micro_batches)
        total: Any = None
        for batch in micro_batches:
            stats = self._backward(self._model, batch, counts)
            total = stats if total is None else total + stats
        gradients = self._gradients()
        factor = scale_to_norm(gradients, self._config.max_norm * self._precision.scale)
        self._clipped_share = float(factor < 1.0)
        self._timer.blocking(lambda: self._reduce(gradients))
        self._take_scale_out()
        return total

    def report(self) -> tuple[StepTimes, float]:
        """Times of the last step, and 1 if its gradient was clipped on this rank."""
        return self._timer.times(), self._clipped_share

    def settle(self, batch: MicroBatch) -> None:
        """Run a synthetic batch once, so that memory is allocated before the clock."""
        with torch.random.fork_rng(devices=self._devices()):
            self.forward_backward([batch])
            self._find_scale(batch)
        self._zero()

    def _reduce(self, gradients: list[Tensor]) -> None:
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        average(flat, self._config.wire)
        parts = torch.split(flat, [gradient.numel() for gradient in gradients])
        torch._foreach_copy_(
            gradients, [part.view_as(g) for part, g in zip(parts, gradients, strict=True)]
        )
