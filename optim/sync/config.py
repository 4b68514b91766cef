"""The settings of a GradSync."""

from dataclasses import dataclass
from typing import Literal

from optim.clipping import CLIP_MODES

_MAX_BUCKET_MB = 1 << 20  # a TiB; DDP keeps the size in bytes as a 64-bit number


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
            (true) or each micro-batch's (false: the norm of their sum is then bounded by C times
            the number of micro-batches)
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
        if not 0 < self.bucket_cap_mb <= _MAX_BUCKET_MB:
            raise ValueError(
                f"sync.bucket_cap_mb {self.bucket_cap_mb} must be above 0 and at most "
                f"{_MAX_BUCKET_MB}"
            )
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
