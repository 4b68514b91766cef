import json

import pytest
import torch
from safetensors.torch import save_file

from bert.pretrained import check_config, load_huggingface, read_huggingface_config

EMBEDDING = "bert.embeddings.word_embeddings.weight"
DECODER = "cls.predictions.decoder.weight"


def without_prefix(state):
    return {name.removeprefix("bert."): value for name, value in state.items()}


def state_of(model):
    return {name: value.clone().contiguous() for name, value in model.state_dict().items()}


@pytest.fixture
def source(model):
    return model(torch.float32, seed=1)


@pytest.fixture
def target(model):
    return model(torch.float32, seed=2)


@pytest.fixture
def saved(tmp_path):
    """Function of a state -> the folder it was saved in."""

    def save(state):
        save_file(state, tmp_path / "model.safetensors")
        return tmp_path

    return save


def assert_refused(target, path, *named):
    before = state_of(target)
    with pytest.raises(ValueError) as caught:
        load_huggingface(target, path)
    message = str(caught.value)
    assert "\n" not in message
    for part in named:
        assert part in message, message
    assert all(torch.equal(before[name], value) for name, value in target.state_dict().items())


@pytest.mark.parametrize("rename", [dict, without_prefix])
@pytest.mark.parametrize("as_file", [False, True])
def test_all_weights(source, target, saved, rename, as_file):
    path = saved(rename(state_of(source)))
    report = load_huggingface(target, path / "model.safetensors" if as_file else path)
    assert report.loaded == tuple(source.state_dict())
    assert report.fresh == report.ignored == ()
    for name, value in target.state_dict().items():
        assert torch.equal(value, source.state_dict()[name]), name


def test_heads_may_be_missing(source, target, saved):
    state = {
        name: value
        for name, value in without_prefix(state_of(source)).items()
        if not name.startswith(("cls.", "pooler."))
    }
    before = state_of(target)
    report = load_huggingface(target, saved(state))
    heads = tuple(name for name in before if name.startswith(("cls.", "bert.pooler.")))
    assert report.fresh == heads
    for name, value in target.state_dict().items():
        wanted = before[name] if name in heads else source.state_dict()[name]
        assert torch.equal(value, wanted), name


def test_what_transformers_saves_is_read(source, target, theirs, tmp_path):
    theirs(source).save_pretrained(tmp_path)
    report = load_huggingface(target, tmp_path)
    assert report.fresh == ()
    assert all(torch.equal(target.state_dict()[n], v) for n, v in source.state_dict().items())


def test_harmless_and_unknown_tensors_are_ignored(source, target, saved):
    state = without_prefix(state_of(source))
    state["embeddings.position_ids"] = torch.arange(32)[None]
    state[DECODER] = state["embeddings.word_embeddings.weight"].clone()
    state["cls.predictions.decoder.bias"] = state["cls.predictions.bias"].clone()
    state["qa_outputs.weight"] = torch.ones(2, 2)
    report = load_huggingface(target, saved(state))
    assert report.ignored == (
        "cls.predictions.decoder.bias",
        DECODER,
        "embeddings.position_ids",
        "qa_outputs.weight",
    )
    assert report.fresh == ()


def test_names_of_older_files(source, target, saved):
    state = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): value
        for name, value in state_of(source).items()
    }
    state["cls.predictions.decoder.bias"] = state.pop("cls.predictions.bias")
    report = load_huggingface(target, saved(state))
    assert report.fresh == report.ignored == ()
    assert all(torch.equal(target.state_dict()[n], v) for n, v in source.state_dict().items())


def test_half_precision_is_widened(source, target, saved):
    load_huggingface(target, saved({n: v.half() for n, v in state_of(source).items()}))
    assert {value.dtype for value in target.state_dict().values()} == {torch.float32}
    assert torch.equal(
        target.state_dict()[EMBEDDING], source.state_dict()[EMBEDDING].half().float()
    )


def test_a_shape_mismatch_is_named(source, target, saved):
    state = state_of(source)
    state[EMBEDDING] = torch.zeros(100, 24)
    path = saved(state)
    assert_refused(target, path, str(path), EMBEDDING, "(100, 24)", "(120, 24)", "config.json")


def test_a_missing_encoder_weight_is_named(source, target, saved):
    state = state_of(source)
    name = "bert.encoder.layer.1.output.dense.bias"
    del state[name]
    assert_refused(target, saved(state), "model.safetensors", name)


def test_a_decoder_of_its_own_is_refused(source, target, saved):
    state = state_of(source)
    state[DECODER] = state[EMBEDDING] + 1
    assert_refused(target, saved(state), DECODER, EMBEDDING)


def test_a_quantised_weight_is_refused(source, target, saved):
    state = state_of(source)
    state[EMBEDDING] = state[EMBEDDING].to(torch.int8)
    assert_refused(target, saved(state), EMBEDDING, "int8")


def test_a_weight_given_twice_is_refused(source, target, saved):
    state = state_of(source)
    state[EMBEDDING.removeprefix("bert.")] = state[EMBEDDING].clone()
    assert_refused(target, saved(state), EMBEDDING, "twice")


@pytest.mark.parametrize("keep", [0, 5, 200, -100])
def test_a_truncated_file_is_named(source, target, saved, keep):
    file = saved(state_of(source)) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    assert_refused(target, file, str(file), "safetensors")


def test_a_file_of_another_format_is_named(target, tmp_path):
    file = tmp_path / "pytorch_model.bin"
    torch.save({}, file)
    assert_refused(target, file, str(file))


def test_nothing_there(target, tmp_path):
    assert_refused(target, tmp_path / "absent", "absent")
    assert_refused(target, tmp_path, str(tmp_path), "model.safetensors")


def write_config(folder, model, **changes):
    config = {name: getattr(model.config, name) for name in ("vocab_size", "hidden_size")}
    config |= {"num_hidden_layers": 3, "num_attention_heads": 4, "hidden_act": "gelu"}
    config |= {"hidden_dropout_prob": 0.5, "model_type": "bert", "use_cache": True}
    (folder / "config.json").write_text(json.dumps(config | changes))


@pytest.mark.parametrize(
    ("hidden_act", "gelu"), [("gelu", "erf"), ("gelu_new", "tanh"), ("gelu_pytorch_tanh", "tanh")]
)
def test_config_is_read(source, tmp_path, hidden_act, gelu):
    write_config(tmp_path, source, hidden_act=hidden_act)
    wanted = {
        "vocab_size": 120,
        "hidden_size": 24,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "hidden_dropout_prob": 0.5,
        "gelu": gelu,
    }
    for path in (tmp_path, tmp_path / "model.safetensors", tmp_path / "config.json"):
        assert read_huggingface_config(path) == wanted


def test_config_that_transformers_saves_agrees(source, theirs, tmp_path):
    theirs(source).save_pretrained(tmp_path)
    check_config(source.config, tmp_path)
    assert read_huggingface_config(tmp_path)["layer_norm_eps"] == 1e-12


@pytest.mark.parametrize(
    ("name", "there", "field", "here"),
    [
        ("vocab_size", 28996, "vocab_size", "120"),
        ("hidden_size", 48, "hidden_size", "24"),
        ("num_hidden_layers", 6, "num_hidden_layers", "3"),
        ("num_attention_heads", 12, "num_attention_heads", "4"),
        ("layer_norm_eps", 1e-5, "layer_norm_eps", "1e-12"),
        ("hidden_act", "gelu_new", "gelu", "'erf'"),
    ],
)
def test_a_config_that_disagrees_is_named_with_both_values(
    source, tmp_path, name, there, field, here
):
    write_config(tmp_path, source)
    check_config(source.config, tmp_path)
    write_config(tmp_path, source, **{name: there})
    with pytest.raises(ValueError) as caught:
        check_config(source.config, tmp_path)
    message = str(caught.value)
    shown = "tanh" if name == "hidden_act" else str(there)
    assert "\n" not in message
    for part in (str(tmp_path / "config.json"), field, shown, here):
        assert part in message, message


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ('{"hidden_act": "relu"}', "'relu'"),
        ('{"model_type": "roberta"}', "'roberta'"),
        ('{"position_embedding_type": "relative_key"}', "'relative_key'"),
        ('{"hidden_size": ', "JSON"),
        ("[1]", "list"),
        (None, "no such file"),
    ],
)
def test_a_config_that_cannot_be_used_is_named(source, tmp_path, content, named):
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(ValueError) as caught:
        check_config(source.config, tmp_path)
    message = str(caught.value)
    assert "\n" not in message
    assert named in message and str(tmp_path / "config.json") in message
