"""What happens between a step's micro-batches and the gradient all ranks agree on.

``GradSync`` is the seam. Losses are sums until the counts of the whole step are known: masked
tokens and sequences are counted over all micro-batches and ranks, reduced once before the first
backward, and every loss is divided by that (``normalisation: global``). So the gradient is that of
the whole batch however it is cut, although ranks rarely hold equally many masked tokens. With
``rank`` each rank divides by its own counts and the ranks' gradients are averaged.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel

from optim.clipping import CLIP_MODES, BucketClipping, scale_to_norm
from optim.communication import (
    CommunicationTimer,
    Future,
    Hook,
    StepTimes,
    average,
    check_wire,
    wire_hook,
)
from optim.precision import Precision


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
        name: ddp (all ranks hold all weights)
        bucket_cap_mb: size of DDP's gradient buckets in MiB; with bucket_before the result depends
            on it
        clip: bucket_before (each bucket on its rank to C/sqrt(K) before its all-reduce),
            rank_before (each rank's whole gradient to C before one all-reduce that nothing
            overlaps), global_after (the reduced gradient to C) or none
        max_norm: the bound C on the norm of the whole gradient
        clip_accumulated: with bucket_before and several micro-batches, clip the accumulated bucket
            (true) or each micro-batch's (false)
        wire: number format of gradients on their way: fp32, fp16 or bf16 (NCCL only)
        normalisation: what losses are divided by: global (masked tokens of the step over all ranks)
            or rank (each rank's own)
    """

    name: Literal["ddp"] = "ddp"
    bucket_cap_mb: float = 25.0
    clip: Literal["bucket_before", "rank_before", "global_after", "none"] = "global_after"
    max_norm: float = 1.0
    clip_accumulated: bool = True
    wire: Literal["fp32", "fp16", "bf16"] = "fp32"
    normalisation: Literal["global", "rank"] = "global"

    def __post_init__(self) -> None:
        if not self.bucket_cap_mb > 0:
            raise ValueError(f"sync.bucket_cap_mb {self.bucket_cap_mb} must be above 0")
        if not self.max_norm > 0:
            raise ValueError(
                f"sync.max_norm {self.max_norm} must be above 0; sync.clip none does not clip"
            )
        if self.clip not in CLIP_MODES:
            raise ValueError(f"sync.clip '{self.clip}'; choose one of: {', '.join(CLIP_MODES)}")
        if self.normalisation not in ("global", "rank"):
            raise ValueError(
                f"sync.normalisation '{self.normalisation}'; choose one of: global, rank"
            )
        if not self.clip_accumulated and self.clip != "bucket_before":
            raise ValueError(
                f"sync.clip_accumulated false goes with sync.clip bucket_before, not {self.clip}"
            )


class GradSync(Protocol):
    """The seam between a model and the ranks."""

    @property
    def buckets(self) -> int:
        """K, the number of pieces in which a step's gradient is reduced."""

    def parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """The named parameters that this rank updates."""

    def forward_backward(self, micro_batches: Sequence[MicroBatch]) -> Any:
        """Leave the gradient of the whole step in ``.grad``, loss scale taken out.

        Returns:
            this rank's statistics, summed over its micro-batches.
        """

    def report(self) -> tuple[StepTimes, float]:
        """Of the last step on this rank: its times, and the share of buckets that were clipped."""

    def timeline(self) -> dict[str, Any]:
        """Of the last step on this rank, see ``CommunicationTimer.timeline``."""

    def after_step(self) -> None:
        """Called when the optimizer has stepped."""

    def settle(self, batch: MicroBatch) -> None:
        """Run a synthetic batch until nothing changes any more; weights and random state stay."""


class DataParallel(ABC):
    """What the two members below share: all ranks hold all weights.

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


class DDPSync(DataParallel):
    """Gradients are reduced bucket by bucket while backward still runs."""

    def __init__(self, config: SyncConfig, model: nn.Module, precision: Precision) -> None:
        super().__init__(config, model, precision)
        self._clipping = BucketClipping(config.max_norm)
        # flat gradients of earlier micro-batches that were clipped on their own, by bucket
        self._kept: list[Tensor] = []
        self._bucket_parameters: list[list[Tensor]] = []
        self._ddp = DistributedDataParallel(
            model, bucket_cap_mb=config.bucket_cap_mb, gradient_as_bucket_view=True
        )
        hook = wire_hook(config.wire, self._device)
        if config.clip == "bucket_before":
            hook = self._clipping.wrap(self._with_kept(hook))
        self._ddp.register_comm_hook(None, self._noting_layout(self._timer.wrap(hook)))

    @property
    def buckets(self) -> int:
        """K, final after ``settle``."""
        return len(self._bucket_parameters)

    def forward_backward(self, micro_batches: Sequence[MicroBatch]) -> Any:
        """Gradients of the step's loss; reduced once, in the last micro-batch's backward pass."""
        counts = self._counts(micro_batches)
        self._clipping.scale = self._precision.scale
        total: Any = None
        for batch in micro_batches[:-1]:
            with self._ddp.no_sync():
                stats = self._backward(self._ddp, batch, counts)
            if not self._config.clip_accumulated:
                self._keep_clipped()
            total = stats if total is None else total + stats
        self._timer.begin()
        stats = self._backward(self._ddp, micro_batches[-1], counts)
        self._kept = []
        self._take_scale_out()
        return stats if total is None else total + stats

    def report(self) -> tuple[StepTimes, float]:
        """Times of the last step and the share of its buckets that were clipped."""
        return self._timer.times(), self._clipping.take_clipped_share()

    def settle(self, batch: MicroBatch) -> None:
        """Run a synthetic batch until DDP's buckets are final; weights and random state stay.

        DDP orders its buckets anew after the first backward pass. Done here, before the clock, K
        and the order of reductions are the same from the first step on.
        """
        layout: list[list[Tensor]] | None = None
        with torch.random.fork_rng(devices=self._devices()):
            while layout is None or [list(map(id, b)) for b in layout] != [
                list(map(id, b)) for b in self._bucket_parameters
            ]:
                layout = self._bucket_parameters
                self.forward_backward([batch])
                self._zero()
            self._find_scale(batch)
        self._clipping.buckets = self.buckets
        self._clipping.take_clipped_share()

    def _noting_layout(self, hook: Hook) -> Hook:
        def noting(state: Any, bucket: GradBucket) -> Future:
            if bucket.index() == 0:
                self._bucket_parameters = []
            self._bucket_parameters.append(bucket.parameters())
            return hook(state, bucket)

        return noting

    def _with_kept(self, hook: Hook) -> Hook:
        """Adds what earlier micro-batches kept to a bucket that is clipped already."""

        def adding(state: Any, bucket: GradBucket) -> Future:
            if self._kept:
                bucket.buffer().add_(self._kept[bucket.index()])
            return hook(state, bucket)

        return adding

    def _keep_clipped(self) -> None:
        """Clip a micro-batch's gradient bucket by bucket, put it aside and start the next at 0."""
        flat = [
            torch.cat([p.grad.flatten() for p in parameters if p.grad is not None])
            for parameters in self._bucket_parameters
        ]
        for bucket in flat:
            self._clipping.clip(bucket)
        if self._kept:
            torch._foreach_add_(self._kept, flat)
        else:
            self._kept = flat
        self._zero()


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
            self._timer.begin()
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


def build_sync(config: SyncConfig, model: nn.Module, precision: Precision) -> GradSync:
    """The GradSync of a configuration.

    Raises:
        ValueError: no such one (the valid names are listed), or a wire that the ranks cannot carry.
    """
    builders = {"ddp": FlatSync if config.clip == "rank_before" else DDPSync}
    if config.name not in builders:
        raise ValueError(f"sync.name '{config.name}'; choose one of: {', '.join(builders)}")
    return builders[config.name](config, model, precision)
