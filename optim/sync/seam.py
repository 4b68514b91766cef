"""GradSync: what a trainer and a way of reducing gradients know of each other."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, Self

from torch import Tensor, nn

from optim.communication import StepTimes


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
