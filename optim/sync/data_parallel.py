"""What the members for data parallelism share: all ranks hold all weights."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from optim.communication import CommunicationTimer, check_wire
from optim.precision import Precision
from optim.sync.config import SyncConfig
from optim.sync.seam import MicroBatch


class DataParallel(ABC):
    """A model of which each rank holds all weights, its counts and its loss scale.

    Needs an initialised process group, also for a single rank.
    """

    def __init__(self, config: SyncConfig, model: nn.Module, precision: Precision) -> None:
        self._device = next(model.parameters()).device.type
        check_wire(config.wire, self._device)
        self._config = config
        self._model = model
        self._precision = precision
        self._world_size = dist.get_world_size()
        self._timer = CommunicationTimer()

    def parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """All of the model's."""
        return self._model.named_parameters()

    def timeline(self) -> dict[str, Any]:
        """See ``CommunicationTimer.timeline``."""
        return self._timer.timeline()

    def after_step(self) -> None:  # noqa: B027 - a default, nothing to do
        """Nothing: all ranks have taken the same step."""

    def _backward(self, forward: nn.Module, batch: MicroBatch, counts: Tensor) -> Any:
        """Add a micro-batch's gradient, times the loss scale; returns its statistics."""
        with self._precision.autocast():
            stats = forward(batch)
        loss = stats.loss(counts)
        if self._config.normalisation == "global":
            loss = loss * self._world_size  # the ranks' gradients are averaged, losses summed
        self._timer.begin()  # the last micro-batch's pass is the one that is timed
        (loss * self._precision.scale).backward()
        return stats.detach()

    def _counts(self, micro_batches: Sequence[MicroBatch]) -> Tensor:
        counts = torch.stack([batch.counts for batch in micro_batches]).sum(0)
        if self._config.normalisation == "global":
            dist.all_reduce(counts)
        return counts

    def _gradients(self) -> list[Tensor]:
        return [p.grad for p in self._model.parameters() if p.grad is not None]

    def _take_scale_out(self) -> None:
        if self._precision.scale != 1.0:
            torch._foreach_mul_(self._gradients(), 1.0 / self._precision.scale)

    def _zero(self) -> None:
        torch._foreach_zero_(self._gradients())

    def _find_scale(self, batch: MicroBatch) -> None:
        """Lower the loss scale until a synthetic batch's gradient is finite; the same on all ranks.

        The reduced gradient is looked at, and ranks settle on the same batch.
        """
        while self._precision.scales and not self._precision.exhausted:
            self.forward_backward([batch])
            finite = bool(torch.isfinite(nn.utils.get_total_norm(self._gradients(), foreach=True)))
            self._zero()
            if finite:
                return
            self._precision.update(finite=False)

    @abstractmethod
    def forward_backward(self, micro_batches: Sequence[MicroBatch]) -> Any:
        """See ``GradSync``."""

    def _devices(self) -> list[int | None]:
        devices = {p.device for p in self._model.parameters() if p.device.type == "cuda"}
        return [device.index for device in devices]
