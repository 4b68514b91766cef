"""What a run reads and how it is cut."""

from dataclasses import dataclass, field
from typing import Literal

from dataprep.order import OrderConfig

LOADERS = ("native", "dali")


@dataclass(frozen=True)
class DataConfig:
    """What a run trains and evaluates on, and how it is cut.

    Args:
        train: folder of the training stripes
        evaluation: folder of the evaluation stripes
        batch: B, samples per slot and step
        width: W, the number of slots, a multiple of the ranks; null: as many as ranks
        accumulation: A, the micro-batches that a slot's samples are cut into; divides the batch
        evaluation_batch: samples per micro-batch of the evaluation
        order: which samples make up a step, and who trains on them
        token_budget: give every micro-batch the static shape of so many tokens, filled up; auto:
            the least that holds all of the run, known from the lengths; null: no filler
        prefetch: how many steps are assembled ahead
        loader: what assembles micro-batches: native, or dali (NVIDIA DALI, the same to the bit)
        preload: read all stripes into this rank's memory before the first step
        preload_limit_mb: the most that preload may take, in MiB for each rank
    """

    train: str
    evaluation: str
    batch: int = 4
    width: int | None = None
    accumulation: int = 1
    evaluation_batch: int = 16
    order: OrderConfig = field(default_factory=OrderConfig)
    token_budget: Literal["auto"] | int | None = None
    prefetch: int = 2
    loader: Literal["native", "dali"] = "native"
    preload: bool = False
    preload_limit_mb: int = 4096

    def __post_init__(self) -> None:
        for name in ("batch", "accumulation", "evaluation_batch", "prefetch", "preload_limit_mb"):
            if getattr(self, name) < 1:
                raise ValueError(f"data.{name} {getattr(self, name)} must be at least 1")
        if self.width is not None and self.width < 1:
            raise ValueError(f"data.width {self.width} must be at least 1, or null")
        if isinstance(self.token_budget, int) and self.token_budget < 1:
            raise ValueError(f"data.token_budget {self.token_budget} must be at least 1, or auto")
        if self.loader not in LOADERS:
            raise ValueError(f"data.loader '{self.loader}'; choose one of: {', '.join(LOADERS)}")

    def slots(self, ranks: int) -> int:
        """W for a number of ranks.

        Raises:
            ValueError: the ranks do not divide the width.
        """
        width = self.width or ranks
        if width % ranks:
            raise ValueError(
                f"data.width {width} is not a multiple of the {ranks} ranks; choose one that is, "
                "or start another number of ranks"
            )
        return width

    def global_batch(self, ranks: int) -> int:
        """W*B, samples per step."""
        return self.slots(ranks) * self.batch
