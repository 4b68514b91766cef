"""What happens between a step's micro-batches and the gradient all ranks agree on.

``GradSync`` is the seam; DDP is the member here. Losses are sums until the counts of the whole step
are known: masked tokens and sequences are counted over all micro-batches and ranks, reduced once
before the first backward, and every loss is divided by that. So the gradient is that of the whole
batch however it is cut, although ranks rarely hold equally many masked tokens.
"""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


class MicroBatch(Protocol):
    """What a micro-batch has to say of itself."""

    @property
    def counts(self) -> Tensor:
        """What the losses are normalised by: float64 on the CPU, summed over micro-batches."""


class Stats(Protocol):
    """What a model returns for a micro-batch: sums."""

    def loss(self, counts: Tensor) -> Tensor:
        """This micro-batch's share of the step's loss."""

    def detach(self) -> Self:
        """The same numbers without their graph."""

    def __add__(self, other: Any, /) -> Self:
        """The sums of both."""


@dataclass(frozen=True)
class SyncConfig:
    """How gradients are computed, reduced and bounded.

    Args:
        name: ddp (torch's DistributedDataParallel)
        bucket_cap_mb: size of DDP's gradient buckets in MiB
        clip: global_after (norm of the reduced gradient) or none
        max_norm: the bound C on the norm of the whole gradient
    """

    name: Literal["ddp"] = "ddp"
    bucket_cap_mb: float = 25.0
    clip: Literal["global_after", "none"] = "global_after"
    max_norm: float = 1.0

    def __post_init__(self) -> None:
        if not self.bucket_cap_mb > 0:
            raise ValueError(f"sync.bucket_cap_mb {self.bucket_cap_mb} must be above 0")
        if not self.max_norm > 0:
            raise ValueError(
                f"sync.max_norm {self.max_norm} must be above 0; sync.clip none does not clip"
            )


class GradSync(Protocol):
    """The seam between a model and the ranks."""

    def parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """The named parameters that this rank updates."""

    def forward_backward(self, micro_batches: Sequence[MicroBatch]) -> Any:
        """Leave the gradient of the whole step in ``.grad``.

        Returns:
            this rank's statistics, summed over its micro-batches.
        """

    def after_step(self) -> None:
        """Called when the optimizer has stepped."""


class DDPSync:
    """All ranks hold all weights; gradients are reduced in buckets while backward still runs.

    Needs an initialised process group, also for a single rank.
    """

    def __init__(self, config: SyncConfig, model: nn.Module) -> None:
        self._model = model
        self._world_size = dist.get_world_size()
        self._ddp = DistributedDataParallel(
            model,
            bucket_cap_mb=config.bucket_cap_mb,
            gradient_as_bucket_view=True,
        )

    def parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """All of the model's."""
        return self._model.named_parameters()

    def forward_backward(self, micro_batches: Sequence[MicroBatch]) -> Any:
        """Gradients of the step's loss; reduced once, in the last micro-batch's backward pass."""
        counts = torch.stack([batch.counts for batch in micro_batches]).sum(0)
        dist.all_reduce(counts)
        last = len(micro_batches) - 1
        total: Any = None
        for index, batch in enumerate(micro_batches):
            with nullcontext() if index == last else self._ddp.no_sync():
                stats = self._ddp(batch)
                # DDP averages over ranks, the losses are to be summed
                (stats.loss(counts) * self._world_size).backward()
            total = stats.detach() if total is None else total + stats.detach()
        return total

    def after_step(self) -> None:
        """Nothing: all ranks have taken the same step."""

    def settle(self, batch: MicroBatch) -> None:
        """Run a synthetic batch until DDP's buckets are final; weights and random state stay.

        DDP orders its buckets anew after the first backward pass. Done here, before the clock,
        the order of reductions is the same from the first step on.
        """
        devices = {p.device for p in self._model.parameters() if p.device.type == "cuda"}
        with torch.random.fork_rng(devices=[device.index for device in devices]):
            for _ in range(2):
                self.forward_backward([batch])
        for parameter in self._model.parameters():
            if parameter.grad is not None:
                parameter.grad.zero_()


def build_sync(config: SyncConfig, model: nn.Module) -> DDPSync:
    """The GradSync of a configuration.

    Raises:
        ValueError: no such one; the valid names are listed.
    """
    builders = {"ddp": DDPSync}
    if config.name not in builders:
        raise ValueError(f"sync.name '{config.name}'; choose one of: {', '.join(builders)}")
    return builders[config.name](config, model)
