"""Losses and accuracies of pre-training as sums and counts; divided once, after all reductions.

The loss is that of Devlin et al. 2019 (arXiv 1810.04805): the mean cross entropy of the masked
tokens plus the mean cross entropy of next sentence prediction.
"""

from dataclasses import dataclass, fields

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True, eq=False)
class PretrainStats:
    """Sums over the masked tokens (mlm) and over the samples (nsp) of one or more batches.

    All are tensors of no dimension on the device of the model: the loss sums in the dtype of the
    loss and attached to the graph, the others float64 and detached.

    Attributes:
        mlm_loss_sum: cross entropy in nats, summed over masked tokens.
        mlm_correct: masked tokens whose most probable id is the original one.
        mlm_count: masked tokens.
        nsp_loss_sum: cross entropy in nats, summed over samples.
        nsp_correct: samples whose label was predicted.
        nsp_count: samples.
    """

    mlm_loss_sum: Tensor
    mlm_correct: Tensor
    mlm_count: Tensor
    nsp_loss_sum: Tensor
    nsp_correct: Tensor
    nsp_count: Tensor

    @classmethod
    def from_logits(
        cls,
        mlm_logits_MV: Tensor,
        mlm_labels_M: Tensor,
        nsp_logits_B2: Tensor,
        nsp_labels_B: Tensor,
        masked: int | None = None,
    ) -> "PretrainStats":
        """Score logits; M may be 0, which gives a loss sum of 0 with gradients of 0.

        Args:
            mlm_logits_MV, mlm_labels_M, nsp_logits_B2, nsp_labels_B: predictions and truth.
            masked: how many of the M are counted; the others, labelled -100, are filler.
        """
        mlm = _score(mlm_logits_MV, mlm_labels_M, masked)
        nsp = _score(nsp_logits_B2, nsp_labels_B, None)
        return cls(*mlm, *nsp)

    @classmethod
    def zeros(cls, device: torch.device | str = "cpu") -> "PretrainStats":
        """Nothing counted yet, in float64."""
        return cls.from_vector(torch.zeros(len(fields(cls)), dtype=torch.float64, device=device))

    @classmethod
    def from_vector(cls, vector: Tensor) -> "PretrainStats":
        """The inverse of ``to_vector``: a float64 vector [6] in the order of the attributes."""
        return cls(*vector.unbind())

    def to_vector(self) -> Tensor:
        """A detached float64 vector [6] in the order of the attributes, for one all-reduce."""
        return torch.stack([value.detach().double() for value in self._values()])

    def detach(self) -> "PretrainStats":
        """The same numbers without their graph."""
        return PretrainStats(*(value.detach() for value in self._values()))

    def __add__(self, other: "PretrainStats") -> "PretrainStats":
        pairs = zip(self._values(), other._values(), strict=True)
        return PretrainStats(*(mine + theirs for mine, theirs in pairs))

    def loss(self, counts: Tensor) -> Tensor:
        """The loss to call ``backward`` on, as this batch's share of a whole step's loss.

        Args:
            counts: float64 [2], masked tokens and samples that the step's loss is a mean over, of
                all its micro-batches and ranks (or of whatever the normalisation asks for). May
                stay on the CPU. A count of 0 divides by 1.

        Returns:
            A scalar in the dtype of the loss sums. The shares of all batches add up to the loss
            of the step.
        """
        masked, samples = counts.clamp(min=1).to(self.mlm_loss_sum.dtype).unbind()
        return self.mlm_loss_sum / masked + self.nsp_loss_sum / samples

    @property
    def mlm_loss(self) -> float:
        """Mean cross entropy of the masked tokens in nats; 0 without masked tokens."""
        return _ratio(self.mlm_loss_sum, self.mlm_count)

    @property
    def mlm_accuracy(self) -> float:
        """Share of masked tokens predicted right, in [0, 1]; 0 without masked tokens."""
        return _ratio(self.mlm_correct, self.mlm_count)

    @property
    def nsp_loss(self) -> float:
        """Mean cross entropy of next sentence prediction in nats; 0 without samples."""
        return _ratio(self.nsp_loss_sum, self.nsp_count)

    @property
    def nsp_accuracy(self) -> float:
        """Share of samples whose next sentence label was predicted, in [0, 1]; 0 without any."""
        return _ratio(self.nsp_correct, self.nsp_count)

    def _values(self) -> list[Tensor]:
        return [getattr(self, field.name) for field in fields(self)]


def _score(logits: Tensor, labels: Tensor, rows: int | None) -> tuple[Tensor, Tensor, Tensor]:
    """Summed cross entropy, right predictions and number of rows of ``logits`` that count."""
    loss_sum = F.cross_entropy(logits, labels, reduction="sum")
    correct = (logits.detach().argmax(dim=-1) == labels).sum(dtype=torch.float64)
    # A fill runs on the device; copying the number there would make the host wait.
    rows = labels.shape[0] if rows is None else rows
    count = torch.full((), rows, dtype=torch.float64, device=logits.device)
    return loss_sum, correct, count


def _ratio(total: Tensor, count: Tensor) -> float:
    return float(total.detach()) / float(count) if count else 0.0
