"""Gradients reduced in buckets while backward still runs."""

from collections.abc import Sequence
from typing import Any

import torch

# DDP imports this late, and its default arguments then hold on to the process group for good
import torch.distributed.nn.functional
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel

from optim.clipping import BucketClipping
from optim.communication import Future, Hook, StepTimes, wire_hook
from optim.precision import Precision
from optim.sync.config import SyncConfig
from optim.sync.data_parallel import DataParallel
from optim.sync.seam import MicroBatch


class Buckets:
    """The buckets that DDP sends, as its hook sees them.

    Holds no reference to DDP: DDP holds its hook in C++, where a cycle is never collected. The
    process group would live on, and a thread of gloo's that still drops its last bucket while the
    interpreter ends aborts the process.

    Attributes:
        parameters: of each bucket in the order sent, of the last backward pass.
    """

    def __init__(self) -> None:
        self.parameters: list[list[Tensor]] = []
        # flat gradients of earlier micro-batches that were clipped on their own, by bucket
        self._kept: list[Tensor] = []

    def layout(self) -> list[list[int]]:
        """The identities of ``parameters``, to compare."""
        return [[id(parameter) for parameter in bucket] for bucket in self.parameters]

    def noting_layout(self, hook: Hook) -> Hook:
        """The same hook, with each bucket's parameters noted."""

        def noting(state: Any, bucket: GradBucket) -> Future:
            if bucket.index() == 0:
                self.parameters = []
            self.parameters.append(bucket.parameters())
            return hook(state, bucket)

        return noting

    def keep(self, flat: list[Tensor]) -> None:
        """Add a micro-batch's clipped gradients, by bucket, to those put aside."""
        if self._kept:
            torch._foreach_add_(self._kept, flat)
        else:
            self._kept = flat

    def drop_kept(self) -> None:
        """What was put aside has been sent."""
        self._kept = []

    def adding_kept(self, hook: Hook) -> Hook:
        """The hook, on a bucket that is clipped already plus what was put aside for it."""

        def adding(state: Any, bucket: GradBucket) -> Future:
            if self._kept:
                bucket.buffer().add_(self._kept[bucket.index()])
            return hook(state, bucket)

        return adding


class DDPSync(DataParallel):
    """Gradients are reduced bucket by bucket while backward still runs."""

    def __init__(self, config: SyncConfig, model: nn.Module, precision: Precision) -> None:
        super().__init__(config, model, precision)
        self._clipping = BucketClipping(config.max_norm)
        self._buckets = Buckets()
        self._ddp = DistributedDataParallel(
            model, bucket_cap_mb=config.bucket_cap_mb, gradient_as_bucket_view=True
        )
        hook = wire_hook(config.wire, self._device)
        if config.clip == "bucket_before":
            hook = self._clipping.wrap(self._buckets.adding_kept(hook))
        self._ddp.register_comm_hook(None, self._buckets.noting_layout(self._timer.wrap(hook)))

    @property
    def buckets(self) -> int:
        """K, final after ``settle``."""
        return len(self._buckets.parameters)

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
        stats = self._backward(self._ddp, micro_batches[-1], counts)
        self._buckets.drop_kept()
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
        layout = None
        with torch.random.fork_rng(devices=self._devices()):
            while layout is None or layout != self._buckets.layout():
                layout = self._buckets.layout()
                self.forward_backward([batch])
                self._zero()
            self._find_scale(batch)
        self._clipping.buckets = self.buckets
        self._clipping.take_clipped_share()

    def _keep_clipped(self) -> None:
        """Clip a micro-batch's gradient bucket by bucket, put it aside and start the next at 0."""
        flat = [
            torch.cat([p.grad.flatten() for p in parameters if p.grad is not None])
            for parameters in self._buckets.parameters
        ]
        for bucket in flat:
            self._clipping.clip(bucket)
        self._buckets.keep(flat)
        self._zero()
