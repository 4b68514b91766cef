"""BERT for pre-training (Devlin et al. 2019, arXiv 1810.04805) on packed micro-batches.

Arithmetic and parameter names are those of ``BertForPreTraining`` of transformers 5.24, so that
checkpoints can be exchanged; the decoder of the masked tokens is the word embedding itself and
stored once, without a name of its own.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bert.batch import Batch
from bert.config import BertConfig
from bert.encoder import Backbone, Dense, layer_norm, linear
from bert.loss import PretrainStats

__all__ = ["BertConfig", "BertForPreTraining"]

# Initial weights are cut off at this many standard deviations.
TRUNCATION = 2.0


class Transform(Dense):
    """The layer between the encoder and the decoder of masked tokens."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config.hidden_size, config.hidden_size, config.gelu)
        self.LayerNorm = layer_norm(config)

    def forward(self, hidden_MD: Tensor) -> Tensor:
        """LayerNorm(gelu(dense(hidden_MD)))."""
        transformed_MD: Tensor = self.LayerNorm(super().forward(hidden_MD))
        return transformed_MD


class Predictions(nn.Module):
    """Logits of masked tokens; its matrix is the word embedding."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.transform = Transform(config)
        self.bias = nn.Parameter(torch.empty(config.vocab_size))

    def forward(self, hidden_MD: Tensor, embedding_VD: Tensor) -> Tensor:
        """mlm_logits_MV."""
        return F.linear(self.transform(hidden_MD), embedding_VD, self.bias)


class Heads(nn.Module):
    """The two tasks of pre-training."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.predictions = Predictions(config)
        self.seq_relationship = linear(config.hidden_size, 2)


class BertForPreTraining(nn.Module):
    """BERT with the heads for masked tokens (MLM) and next sentence prediction (NSP).

    Built on the CPU in the default dtype; ``.to(device)`` and ``.double()`` as with any module.

    Args:
        config: shape and arithmetic.
        generator: CPU generator of the initial weights. Without one the global generator is used.
            With one, the global generator is left alone.
    """

    def __init__(self, config: BertConfig, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.config = config
        self.bert = Backbone(config)
        self.cls = Heads(config)
        self._initialise(generator)

    def forward(self, batch: Batch) -> PretrainStats:
        """Loss sums, right predictions and counts of a batch.

        In training, a batch with a ``dropout_seed`` sets torch's global generators to it first: its
        dropout is then the same whatever was drawn before, on whichever rank.

        Raises:
            ValueError: a sample is longer than ``max_position_embeddings``.
        """
        if self.training and batch.dropout_seed is not None:
            torch.manual_seed(batch.dropout_seed)
        mlm_logits_MV, nsp_logits_B2 = self.logits(batch)
        return PretrainStats.from_logits(
            mlm_logits_MV, batch.mlm_labels_M, nsp_logits_B2, batch.nsp_labels_B, batch.masked
        )

    def logits(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """(mlm_logits_MV, nsp_logits_B2) of a batch; in NSP 0 is next, 1 is random.

        Raises:
            ValueError: as ``forward``.
        """
        self._check_lengths(batch)
        first_B = batch.cu_seqlens[:-1].long()
        hidden = self.bert(batch, rows=torch.cat([first_B, batch.mlm_positions_M]))
        first_BD, masked_MD = hidden[: batch.samples], hidden[batch.samples :]
        embedding_VD = self.bert.embeddings.word_embeddings.weight
        mlm_logits_MV = self.cls.predictions(masked_MD, embedding_VD)
        nsp_logits_B2 = self.cls.seq_relationship(self.bert.pooler(first_BD))
        return mlm_logits_MV, nsp_logits_B2

    def encode(self, batch: Batch) -> Tensor:
        """hidden_TD: the encoder's output for every token, in the order of the batch.

        Raises:
            ValueError: as ``forward``.
        """
        self._check_lengths(batch)
        hidden_TD: Tensor = self.bert(batch)
        return hidden_TD

    def pool(self, hidden_TD: Tensor, batch: Batch) -> Tensor:
        """pooled_BD of what ``encode`` gave for the same batch."""
        pooled_BD: Tensor = self.bert.pooler(hidden_TD.index_select(0, batch.cu_seqlens[:-1]))
        return pooled_BD

    def _check_lengths(self, batch: Batch) -> None:
        longest, limit = max(batch.lengths, default=0), self.config.max_position_embeddings
        if longest > limit:
            raise ValueError(
                f"a sample has {longest} tokens, max_position_embeddings is {limit}; "
                "build shorter samples or raise the limit"
            )

    @torch.no_grad()
    def _initialise(self, generator: torch.Generator | None) -> None:
        """Truncated normal weights, as google-research/bert ``create_initializer``; biases 0."""
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                _truncated_normal_(module.weight, self.config.initializer_range, generator)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)
        nn.init.zeros_(self.cls.predictions.bias)


def _truncated_normal_(weight: Tensor, deviation: float, generator: torch.Generator | None) -> None:
    """Fill with a normal distribution of ``deviation`` that is cut off at twice that.

    By the inverse of the distribution function: ``nn.init.trunc_normal_`` redraws what falls
    outside, at ten times the cost, and draws differently from one release of PyTorch to another.
    """
    limit = math.erf(TRUNCATION / math.sqrt(2))
    weight.uniform_(-limit, limit, generator=generator).erfinv_().mul_(deviation * math.sqrt(2))
    weight.clamp_(-TRUNCATION * deviation, TRUNCATION * deviation)
