"""What the tests of the model share: small configurations, random samples, padded inputs."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import BertConfig as TheirConfig
from transformers import BertForPreTraining as TheirModel

from bert.batch import Sample, pack
from bert.model import BertConfig, BertForPreTraining

ROOT = Path(__file__).parents[2]
LENGTHS = (17, 5, 9, 9, 3, 17, 24)
SMALL = {
    "vocab_size": 120,
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": 32,
}


@pytest.fixture
def minilm():
    """Folder of the published MiniLM checkpoint."""
    folder = ROOT / "data" / "quickstart" / "minilm"
    if not (folder / "model.safetensors").is_file():
        pytest.skip(f"no checkpoint in {folder}; run_scripts/quickstart.sh puts it there")
    return folder


@pytest.fixture
def minilm_reference():
    """Recorded inputs and outputs of MiniLM."""
    file = ROOT.parent / "shared" / "data" / "checkpoints" / "minilm_l6" / "reference.npz"
    if not file.is_file():
        pytest.skip(f"no recorded outputs at {file}")
    with np.load(file) as arrays:
        return dict(arrays)


@pytest.fixture
def config():
    """Function of overrides -> a small BertConfig without dropout."""

    def make(**overrides):
        no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        return BertConfig(**{**SMALL, **no_dropout, **overrides})

    return make


@pytest.fixture
def model(config):
    """Function of overrides -> a small model in training mode, always of the same seed.

    Its weights are larger than BERT's initial ones, so that errors show.
    """

    def make(dtype=torch.float64, seed=7, **overrides):
        overrides = {"initializer_range": 0.2, **overrides}
        generator = torch.Generator().manual_seed(seed)
        made = BertForPreTraining(config(**overrides), generator)
        with torch.no_grad():
            for name, parameter in made.named_parameters():
                if name.endswith("bias") or "LayerNorm" in name:
                    parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
        return made.to(dtype)

    return make


@pytest.fixture
def samples():
    """Function of lengths -> random samples; token 0 is left out, transformers pads with it."""

    def make(lengths=LENGTHS, seed=3, masked_share=0.3):
        rng = np.random.default_rng(seed)
        made = []
        for length in lengths:
            masked = int(np.ceil(length * masked_share))
            made.append(
                Sample(
                    tokens=rng.integers(1, SMALL["vocab_size"], length).astype(np.uint16),
                    second_segment_start=int(rng.integers(1, length + 1)),
                    mlm_positions=rng.permutation(length)[:masked].astype(np.uint16),
                    mlm_labels=rng.integers(1, SMALL["vocab_size"], masked).astype(np.uint16),
                    next_sentence_label=int(rng.integers(2)),
                )
            )
        return made

    return make


@pytest.fixture
def batch(samples):
    """Function of lengths -> a packed batch of random samples."""

    def make(*args, **kwargs):
        return pack(samples(*args, **kwargs))

    return make


@pytest.fixture
def padded_inputs():
    """Function of samples -> what transformers' BertForPreTraining takes, in that order."""

    def make(given):
        shape = (len(given), max(len(sample.tokens) for sample in given))
        inputs = {
            "input_ids": torch.zeros(shape, dtype=torch.long),
            "token_type_ids": torch.zeros(shape, dtype=torch.long),
            "attention_mask": torch.zeros(shape, dtype=torch.long),
            "labels": torch.full(shape, -100),
            "next_sentence_label": torch.tensor([s.next_sentence_label for s in given]),
        }
        for row, sample in enumerate(given):
            length = len(sample.tokens)
            inputs["input_ids"][row, :length] = torch.tensor(sample.tokens.astype(np.int64))
            inputs["token_type_ids"][row, sample.second_segment_start : length] = 1
            inputs["attention_mask"][row, :length] = 1
            positions = torch.tensor(sample.mlm_positions.astype(np.int64))
            labels = torch.tensor(sample.mlm_labels.astype(np.int64))
            inputs["labels"][row, positions] = labels
        return inputs

    return make


@pytest.fixture
def theirs():
    """Function of our model -> transformers' model with the same weights."""

    def make(ours, attention="eager"):
        act = {"erf": "gelu", "tanh": "gelu_new"}[ours.config.gelu]
        names = (*SMALL, "hidden_dropout_prob", "attention_probs_dropout_prob", "layer_norm_eps")
        settings = {name: getattr(ours.config, name) for name in names}
        made = TheirModel(
            TheirConfig(**settings, hidden_act=act, attn_implementation=attention)
        ).to(next(ours.parameters()).dtype)
        absent, unknown = made.load_state_dict(ours.state_dict(), strict=False)
        assert unknown == []
        tied = {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"}
        assert set(absent) <= tied
        assert made.cls.predictions.decoder.weight is made.bert.embeddings.word_embeddings.weight
        assert made.cls.predictions.decoder.bias is made.cls.predictions.bias
        return made.train(ours.training)

    return make
