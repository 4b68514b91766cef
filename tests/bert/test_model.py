import numpy as np
import pytest
import torch
from torch import nn

from bert.batch import pack
from bert.model import BertForPreTraining

TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-5}


def by_length(samples):
    return sorted(samples, key=lambda sample: len(sample.tokens))


def masked_rows(packed, outputs):
    """transformers' MLM logits at our masked positions, in our order."""
    starts = packed.cu_seqlens[:-1]
    rows = torch.searchsorted(starts, packed.mlm_positions_M.int(), right=True) - 1
    return outputs.prediction_logits[rows, packed.mlm_positions_M - starts[rows]]


@pytest.mark.parametrize("attention", ["grouped", "padded"])
@pytest.mark.parametrize("gelu", ["erf", "tanh"])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_parity_with_transformers(model, samples, theirs, padded_inputs, gelu, attention, dtype):
    ours = model(dtype, gelu=gelu, attention=attention)
    other = theirs(ours)
    given = by_length(samples())
    packed = pack(given)

    outputs = other(**padded_inputs(given))
    outputs.loss.backward()
    mlm_logits_MV, nsp_logits_B2 = ours.logits(packed)
    stats = ours(packed)
    loss = stats.loss(packed.counts)
    loss.backward()

    close = {"rtol": 0, "atol": TOLERANCE[dtype]}
    torch.testing.assert_close(mlm_logits_MV, masked_rows(packed, outputs), **close)
    torch.testing.assert_close(nsp_logits_B2, outputs.seq_relationship_logits, **close)
    torch.testing.assert_close(loss, outputs.loss, **close)
    gradients = {name: parameter.grad for name, parameter in other.named_parameters()}
    for name, parameter in ours.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients.pop(name), msg=name, **close)
    assert not gradients


def test_parity_of_both_losses(model, samples, theirs, padded_inputs):
    ours = model()
    other = theirs(ours)
    given = by_length(samples())
    stats = ours(pack(given))
    inputs = padded_inputs(given)
    both = other(**inputs).loss.item()
    inputs["next_sentence_label"].fill_(-100)
    inputs["next_sentence_label"][0] = given[0].next_sentence_label
    one = ours(pack(given[:1]))
    mlm_and_first = other(**inputs).loss.item()
    assert stats.mlm_loss + one.nsp_loss == pytest.approx(mlm_and_first, rel=1e-12)
    assert stats.mlm_loss + stats.nsp_loss == pytest.approx(both, rel=1e-12)


def test_encoder_output_and_pooled_output(model, samples, theirs, padded_inputs):
    ours = model().eval()
    other = theirs(ours).eval()
    given = by_length(samples())
    packed = pack(given)
    inputs = padded_inputs(given)
    names = ("input_ids", "token_type_ids", "attention_mask")
    with torch.no_grad():
        outputs = other.bert(**{name: inputs[name] for name in names})
        hidden_TD = ours.encode(packed)
        pooled_BD = ours.pool(hidden_TD, packed)
    real = inputs["attention_mask"].bool()
    torch.testing.assert_close(hidden_TD, outputs.last_hidden_state[real], rtol=0, atol=1e-12)
    torch.testing.assert_close(pooled_BD, outputs.pooler_output, rtol=0, atol=1e-12)


def test_logits_are_those_of_the_whole_output(model, batch):
    """The last layer computes [CLS] and masked tokens only; the values are the same."""
    ours = model()
    packed = batch()
    hidden_TD = ours.encode(packed)
    embedding_VD = ours.bert.embeddings.word_embeddings.weight
    mlm_logits_MV, nsp_logits_B2 = ours.logits(packed)
    wanted_MV = ours.cls.predictions(hidden_TD[packed.mlm_positions_M], embedding_VD)
    wanted_B2 = ours.cls.seq_relationship(ours.pool(hidden_TD, packed))
    torch.testing.assert_close(mlm_logits_MV, wanted_MV, rtol=0, atol=1e-12)
    torch.testing.assert_close(nsp_logits_B2, wanted_B2, rtol=0, atol=1e-12)


def test_samples_do_not_see_one_another(model, samples):
    ours = model().eval()
    given = by_length(samples())
    changed = given[3]._replace(tokens=given[3].tokens % 50 + 1)
    before, after = pack(given), pack([*given[:3], changed, *given[4:]])
    with torch.no_grad():
        hidden_before, hidden_after = ours.encode(before), ours.encode(after)
    start, end = before.cu_seqlens[3:5].tolist()
    same = torch.ones(before.tokens, dtype=torch.bool)
    same[start:end] = False
    torch.testing.assert_close(hidden_after[same], hidden_before[same], rtol=0, atol=1e-12)
    assert (hidden_after[start:end] - hidden_before[start:end]).abs().max() > 1e-3


def test_a_sample_means_the_same_alone_and_in_company(model, samples):
    ours = model()
    given = samples()
    together = ours(pack(given)).to_vector()
    alone = sum(ours(pack([sample])).to_vector() for sample in given)
    torch.testing.assert_close(together, alone, rtol=1e-12, atol=0)


def test_dropout_in_training_only(model, batch):
    ours = model(hidden_dropout_prob=0.3, attention_probs_dropout_prob=0.3)
    packed = batch()
    with torch.no_grad():
        torch.manual_seed(0)
        first, second = ours.encode(packed), ours.encode(packed)
        assert not torch.equal(first, second)
        torch.manual_seed(0)
        assert torch.equal(first, ours.encode(packed))
        ours.eval()
        assert torch.equal(ours.encode(packed), ours.encode(packed))
        ours.load_state_dict(model().state_dict())
        assert torch.equal(ours.encode(packed), model().eval().encode(packed))


@pytest.mark.parametrize("place", ["hidden_dropout_prob", "attention_probs_dropout_prob"])
def test_each_dropout_acts_on_its_own(model, batch, place):
    packed = batch()
    plain, dropping = model(), model(**{place: 0.2})
    with torch.no_grad():
        assert not torch.equal(dropping.encode(packed), plain.encode(packed))


def test_dropout_keeps_the_expected_embedding(model, batch):
    """Mean of many draws = no dropout, which inverted scaling is for."""
    embeddings = model(hidden_dropout_prob=0.1).bert.embeddings
    packed = batch()
    torch.manual_seed(4)
    with torch.no_grad():
        draws = torch.stack([embeddings(packed) for _ in range(2000)])
        wanted = embeddings.eval()(packed)
    dropped = (draws == 0).double().mean().item()
    assert dropped == pytest.approx(0.1, abs=0.001)
    deviation = wanted.abs() * (0.1 / 0.9 / 2000) ** 0.5
    assert ((draws.mean(0) - wanted).abs() / deviation).max() < 6


def test_names_are_those_of_transformers(model, theirs):
    ours = model()
    other = theirs(ours)
    tied = {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"}
    assert list(ours.state_dict()) == [name for name in other.state_dict() if name not in tied]
    back = {name: value for name, value in other.state_dict().items() if name not in tied}
    assert ours.load_state_dict(back, strict=True) == ([], [])


def test_initial_weights(config):
    ours = BertForPreTraining(config(vocab_size=9000), torch.Generator().manual_seed(1))
    for module in ours.modules():
        if isinstance(module, nn.LayerNorm):
            assert (module.weight == 1).all() and (module.bias == 0).all()
        if isinstance(module, nn.Linear):
            assert (module.bias == 0).all()
        if isinstance(module, nn.Linear | nn.Embedding):
            assert module.weight.abs().max() <= 0.04
            assert module.weight.abs().max() > 0
    assert (ours.cls.predictions.bias == 0).all()
    words = ours.bert.embeddings.word_embeddings.weight.double()
    # A normal cut at two deviations keeps 0.8796 of its deviation.
    assert words.std().item() == pytest.approx(0.02 * 0.8796, rel=0.01)
    assert abs(words.mean().item()) < 5 * 0.02 / words.numel() ** 0.5


def test_the_generator_alone_decides_the_weights(config):
    torch.manual_seed(0)
    state = torch.get_rng_state()
    first = BertForPreTraining(config(), torch.Generator().manual_seed(9)).state_dict()
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(1)
    again = BertForPreTraining(config(), torch.Generator().manual_seed(9)).state_dict()
    other = BertForPreTraining(config(), torch.Generator().manual_seed(10)).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def test_too_long_a_sample_is_named(model, samples):
    ours = model()
    packed = pack([*samples(), *samples(lengths=[33])])
    for call in (ours, ours.logits, ours.encode):
        with pytest.raises(ValueError, match="33 tokens, max_position_embeddings is 32") as caught:
            call(packed)
        assert "\n" not in str(caught.value)


def test_the_longest_sample_fits(model, samples):
    assert np.isfinite(model()(pack(samples(lengths=[32]))).mlm_loss)
