import dataclasses

import pytest

from bert.model import BertConfig


def test_defaults_are_bert_base():
    config = BertConfig()
    assert (config.hidden_size, config.num_hidden_layers, config.vocab_size) == (768, 12, 30522)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.hidden_size = 1


SIZES = [field.name for field in dataclasses.fields(BertConfig) if field.type is int]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((size, bad) for size in SIZES for bad in (0, -3)),
        *(
            (name, bad)
            for name in ("hidden_dropout_prob", "attention_probs_dropout_prob")
            for bad in (-0.1, 1.0, 1.5, float("nan"))
        ),
        *(
            (name, bad)
            for name in ("layer_norm_eps", "initializer_range")
            for bad in (0.0, -1e-3, float("inf"), float("nan"))
        ),
        ("hidden_size", 770),
        ("num_attention_heads", 7),
        ("gelu", "gelu_new"),
        ("attention", "flash3"),
    ],
)
def test_a_bad_value_is_named_in_one_line(name, value):
    with pytest.raises(ValueError, match=name) as caught:
        BertConfig(**{name: value})
    assert str(value) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_field_is_documented():
    for field in dataclasses.fields(BertConfig):
        assert f"        {field.name}: " in BertConfig.__doc__, field.name
