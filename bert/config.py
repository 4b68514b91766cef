"""BertConfig: the shape and the arithmetic of the model."""

from dataclasses import dataclass, fields
from typing import Literal

from bert.attention import build_attention

# our name -> the name of torch.nn.functional.gelu
GELU = {"erf": "none", "tanh": "tanh"}


@dataclass(frozen=True)
class BertConfig:
    """The shape and the arithmetic of the model. Defaults are BERT-base.

    Attributes:
        vocab_size: WordPieces in the vocabulary (V).
        hidden_size: width of the residual stream (D).
        num_hidden_layers: encoder layers (L).
        num_attention_heads: attention heads (N); must divide hidden_size.
        intermediate_size: width of the feed-forward layer.
        max_position_embeddings: longest sample, in tokens.
        type_vocab_size: segment types.
        hidden_dropout_prob: dropout on embeddings and layer outputs, in [0, 1).
        attention_probs_dropout_prob: dropout on attention probabilities, in [0, 1).
        layer_norm_eps: what LayerNorm adds to the variance.
        initializer_range: standard deviation of the initial weights, truncated at twice that.
        gelu: erf (exact) or tanh (approximation); a checkpoint does not record which it needs.
        attention: attention kernel, grouped or padded.
    """

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    layer_norm_eps: float = 1e-12
    initializer_range: float = 0.02
    gelu: Literal["erf", "tanh"] = "erf"
    attention: str = "grouped"

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type is int and value < 1:
                raise ValueError(f"{field.name} is {value}, must be at least 1; give a larger one")
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ValueError(
                    f"{name} is {getattr(self, name)}, must be in [0, 1); 0 turns dropout off"
                )
        for name in ("layer_norm_eps", "initializer_range"):
            if not 0.0 < getattr(self, name) < float("inf"):
                raise ValueError(
                    f"{name} is {getattr(self, name)}, must be positive and finite; "
                    f"BERT uses {getattr(BertConfig, name)}"
                )
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size {self.hidden_size} is not a multiple of num_attention_heads "
                f"{self.num_attention_heads}; change one so that the heads divide it"
            )
        if self.gelu not in GELU:
            raise ValueError(f"gelu is {self.gelu!r}; choose one of: {', '.join(GELU)}")
        build_attention(self.attention)
