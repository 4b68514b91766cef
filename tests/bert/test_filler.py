"""A batch filled up to a static shape gives what the bare one gives."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from bert.batch import Batch, FlatSamples, Sample, pack, pack_flat
from bert.config import BertConfig
from bert.model import BertForPreTraining

CONFIG = BertConfig(
    vocab_size=50,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=32,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)


def batch() -> Batch:
    draw = np.random.default_rng(3)
    samples = []
    for length in (5, 9, 9, 20):
        tokens = draw.integers(5, 50, length)
        masked = np.array([1, 3])
        samples.append(Sample(tokens, length // 2, masked, tokens[masked], int(draw.integers(2))))
    return pack(samples)


@pytest.mark.parametrize("attention", ["grouped", "padded"])
@pytest.mark.parametrize(("tokens", "masked"), [(64, 16), (43, 8), (48, 8)])
def test_losses_counts_and_gradients_are_the_same(attention: str, tokens: int, masked: int) -> None:
    config = replace(CONFIG, attention=attention)
    model = BertForPreTraining(config, torch.Generator().manual_seed(0)).double()
    bare, filled = batch(), batch().filled(tokens, masked)
    assert (len(filled.tokens_T), len(filled.mlm_labels_M)) == (tokens, masked)
    assert (filled.tokens, filled.masked, filled.samples) == (bare.tokens, bare.masked, 4)
    assert torch.equal(filled.counts, bare.counts)
    gradients = []
    vectors = []
    for one in (bare, filled):
        model.zero_grad()
        stats = model(one)
        stats.loss(one.counts).backward()
        vectors.append(stats.to_vector())
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    torch.testing.assert_close(vectors[1], vectors[0], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-10, atol=1e-12)


def test_a_batch_of_nothing_but_filler_has_no_loss() -> None:
    none = np.zeros(0, np.int64)
    empty = pack_flat(FlatSamples(none, none, none, none, none, none, none)).filled(16, 4)
    model = BertForPreTraining(CONFIG, torch.Generator().manual_seed(0))
    stats = model(empty)
    stats.loss(torch.tensor([1.0, 1.0])).backward()
    assert not stats.to_vector().any()
    assert all(torch.isfinite(p.grad).all() and not p.grad.any() for p in model.parameters())


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"43 tokens, 8 of them masked, does not fit a budget of"):
        batch().filled(42, 8)
    with pytest.raises(ValueError, match=r"raise data\.token_budget"):
        batch().filled(64, 7)
