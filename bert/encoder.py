"""The encoder of BERT (Devlin et al. 2019, arXiv 1810.04805) on packed micro-batches.

Embeddings, linear layers, LayerNorm and GELU run on the T real tokens; only attention knows where
samples end. Arithmetic and parameter names are those of transformers 5.24 (``BertModel``).
"""

import functools

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bert.attention import build_attention
from bert.batch import Batch
from bert.config import GELU, BertConfig


def linear(inputs: int, outputs: int) -> nn.Linear:
    """A linear layer whose parameters are not initialised yet, so that this is done once."""
    return nn.Linear(inputs, outputs, device="meta").to_empty(device="cpu")


def embedding(rows: int, width: int) -> nn.Embedding:
    """An embedding that is not initialised yet."""
    return nn.Embedding(rows, width, device="meta").to_empty(device="cpu")


def layer_norm(config: BertConfig) -> nn.LayerNorm:
    """LayerNorm over the hidden size, initialised to ones and zeros."""
    return nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)


class Embeddings(nn.Module):
    """Word, segment and position embeddings, summed and normalised."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.word_embeddings = embedding(config.vocab_size, width)
        self.position_embeddings = embedding(config.max_position_embeddings, width)
        self.token_type_embeddings = embedding(config.type_vocab_size, width)
        self.LayerNorm = layer_norm(config)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, batch: Batch) -> Tensor:
        """hidden_TD of a batch."""
        hidden_TD = self.word_embeddings(batch.tokens_T)
        hidden_TD = hidden_TD + self.token_type_embeddings(batch.segments_T)
        hidden_TD = hidden_TD + self.position_embeddings(batch.positions_T)
        embedded_TD: Tensor = self.dropout(self.LayerNorm(hidden_TD))
        return embedded_TD


class SelfAttention(nn.Module):
    """Multi-head attention within each sample, before its output projection."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.heads = config.num_attention_heads
        self.dropout_p = config.attention_probs_dropout_prob
        self.kernel = build_attention(config.attention)
        # Three tensors, not one: LAMB takes a trust ratio for each.
        self.query = linear(width, width)
        self.key = linear(width, width)
        self.value = linear(width, width)

    def forward(self, hidden_TD: Tensor, batch: Batch) -> Tensor:
        """context_TD of hidden_TD."""
        query_TNH, key_TNH, value_TNH = (
            projection(hidden_TD).unflatten(-1, (self.heads, -1))[: batch.tokens]
            for projection in (self.query, self.key, self.value)
        )
        dropout_p = self.dropout_p if self.training else 0.0
        context_TNH = self.kernel(
            query_TNH, key_TNH, value_TNH, batch.cu_seqlens, batch.lengths, dropout_p
        )
        context_TD = context_TNH.flatten(-2)
        if batch.filler_tokens:  # attends to nothing
            context_TD = F.pad(context_TD, (0, 0, 0, batch.filler_tokens))
        return context_TD


class AddAndNorm(nn.Module):
    """Projection and dropout of a sublayer's result, added to its input and normalised."""

    def __init__(self, inputs: int, config: BertConfig) -> None:
        super().__init__()
        self.dense = linear(inputs, config.hidden_size)
        self.LayerNorm = layer_norm(config)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, result: Tensor, residual: Tensor) -> Tensor:
        """LayerNorm(residual + dropout(dense(result))), row by row."""
        output: Tensor = self.LayerNorm(self.dropout(self.dense(result)) + residual)
        return output


class Attention(nn.Module):
    """The attention sublayer."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.self = SelfAttention(config)
        self.output = AddAndNorm(config.hidden_size, config)

    def forward(self, hidden_TD: Tensor, batch: Batch, rows: Tensor | None) -> Tensor:
        """The sublayer's output for all T tokens, or for those that ``rows`` indexes."""
        context_TD = self.self(hidden_TD, batch)
        if rows is not None:
            context_TD, hidden_TD = (x.index_select(0, rows) for x in (context_TD, hidden_TD))
        output: Tensor = self.output(context_TD, hidden_TD)
        return output


class Dense(nn.Module):
    """A linear layer and an activation function, under the name ``dense``."""

    def __init__(self, inputs: int, outputs: int, gelu: str) -> None:
        super().__init__()
        self.dense = linear(inputs, outputs)
        self.activation = functools.partial(F.gelu, approximate=GELU[gelu])

    def forward(self, inputs: Tensor) -> Tensor:
        """gelu(dense(inputs)), row by row."""
        return self.activation(self.dense(inputs))


class Layer(nn.Module):
    """One encoder layer: attention, then feed-forward, each with a residual (post-LayerNorm)."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.attention = Attention(config)
        self.intermediate = Dense(config.hidden_size, config.intermediate_size, config.gelu)
        self.output = AddAndNorm(config.intermediate_size, config)

    def forward(self, hidden_TD: Tensor, batch: Batch, rows: Tensor | None = None) -> Tensor:
        """The layer's output for all T tokens, or for those that ``rows`` indexes."""
        attended = self.attention(hidden_TD, batch, rows)
        output: Tensor = self.output(self.intermediate(attended), attended)
        return output


class Encoder(nn.Module):
    """The stack of layers."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.layer = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))

    def forward(self, hidden_TD: Tensor, batch: Batch, rows: Tensor | None = None) -> Tensor:
        """The last layer's output, for all T tokens or for those that ``rows`` indexes."""
        for layer in self.layer[:-1]:
            hidden_TD = layer(hidden_TD, batch)
        output: Tensor = self.layer[-1](hidden_TD, batch, rows)
        return output


class Pooler(nn.Module):
    """tanh(dense([CLS])), what next sentence prediction reads."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = linear(config.hidden_size, config.hidden_size)

    def forward(self, first_BD: Tensor) -> Tensor:
        """pooled_BD of the first tokens' hidden states."""
        return torch.tanh(self.dense(first_BD))


class Backbone(nn.Module):
    """Embeddings, encoder and pooler: the part that checkpoints of any BERT have."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.embeddings = Embeddings(config)
        self.encoder = Encoder(config)
        self.pooler = Pooler(config)

    def forward(self, batch: Batch, rows: Tensor | None = None) -> Tensor:
        """hidden states of all T tokens, or of those that ``rows`` (int64 indices) names.

        No token attends to the last layer's output, so with ``rows`` that layer's projection and
        feed-forward network run on these tokens only. The values are the same.
        """
        hidden: Tensor = self.encoder(self.embeddings(batch), batch, rows)
        return hidden
