import json
import re
import tarfile

import numpy as np
import pytest
import torch
from tf1_writer import write_checkpoint

from bert.batch import Sample, pack
from bert.config import BertConfig
from bert.loss import PretrainStats
from bert.model import BertForPreTraining
from bert.tensor_bundle import TensorBundle
from bert.tf1_checkpoint import check_tf1_config, load_tf1, read_global_step, tf1_names

QUERY = "bert/encoder/layer_1/attention/self/query/kernel"


def weights_of(model):
    """The weights under TensorFlow's names."""
    state = {ours: tensor.numpy() for ours, tensor in model.state_dict().items()}
    return {
        theirs: state[ours].T if theirs.endswith("kernel") else state[ours]
        for ours, theirs in tf1_names(model.config).items()
    }


@pytest.fixture
def source(model):
    return model(torch.float32, seed=1)


@pytest.fixture
def target(model):
    return model(torch.float32, seed=2)


@pytest.fixture
def save(tmp_path, source):
    """Function of changes -> the prefix of a checkpoint; a tensor that is None is left out."""

    def write(changes=None, **kwargs):
        tensors = weights_of(source) | {"global_step": np.array(28252)} | (changes or {})
        kept = {name: array for name, array in tensors.items() if array is not None}
        write_checkpoint(tmp_path / "model.ckpt-7", kept, **kwargs)
        return tmp_path / "model.ckpt-7"

    return write


def assert_same(ours, theirs):
    for name, value in ours.state_dict().items():
        assert torch.equal(value, theirs.state_dict()[name].to(value.dtype)), name


def assert_refused(target, path, *named):
    before = {name: value.clone() for name, value in target.state_dict().items()}
    with pytest.raises(ValueError) as caught:
        load_tf1(target, path)
    message = str(caught.value)
    assert "\n" not in message
    assert ";" in message
    for part in (str(path), *named):
        assert part in message, message
    assert all(torch.equal(before[name], value) for name, value in target.state_dict().items())


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("suffix", ["", ".index", None])
def test_all_weights(save, source, target, shards, suffix):
    prefix = save(shards=shards)
    report = load_tf1(target, prefix.parent if suffix is None else f"{prefix}{suffix}")
    assert_same(source, target)
    assert report.loaded == tuple(name for name, _ in target.named_parameters())
    assert (report.fresh, report.ignored, report.unknown) == ((), ("global_step",), ())
    assert read_global_step(prefix) == 28252


def test_other_types(save, source, model):
    name = "cls/predictions/output_bias"
    prefix = save({name: weights_of(source)[name].astype(np.float64), "global_step": None})
    target = model(torch.float64, seed=2)
    load_tf1(target, prefix)
    assert_same(target, source)
    assert read_global_step(prefix) is None


def test_ignored_and_unknown(save, source, target):
    slots = [f"{QUERY}/{slot}" for slot in ("adam_m", "adam_v", "LAMB", "LAMB_1", "lamb_m")]
    state = [*slots, "beta1_power", "beta2_power"]
    unknown = ["bert/encoder/layer_3/output/dense/kernel", "loss_scale"]
    report = load_tf1(target, save(dict.fromkeys([*state, *unknown], np.zeros(3, np.float32))))
    assert_same(source, target)
    assert report.ignored == tuple(sorted([*state, *unknown, "global_step"]))
    assert report.unknown == tuple(unknown)


def test_paths(save, target, tmp_path):
    assert_refused(target, tmp_path, "has 0 TensorFlow checkpoints")
    assert_refused(target, tmp_path / "none", "none.index: no such file")
    prefix = save()
    write_checkpoint(tmp_path / "model.ckpt-8", {"global_step": np.array(8)})
    assert_refused(target, tmp_path, "has 2 TensorFlow checkpoints")
    load_tf1(target, prefix)


def test_missing_and_misshapen_weights(save, target):
    assert_refused(target, save({QUERY: None}), f"lacks 1 weights of the model, first {QUERY}")
    swapped = np.zeros((40, 24), np.float32), np.zeros((24, 40), np.float32)
    name = QUERY.replace("attention/self/query", "intermediate/dense")
    assert_refused(target, save({name: swapped[0]}), f"{name} has shape (40, 24)", "(24, 40)")
    load_tf1(target, save({name: swapped[1]}))
    assert_refused(target, save({QUERY: np.zeros((24, 24), np.int32)}), f"{QUERY} is int32")


def test_nothing_is_copied_when_the_last_weight_is_damaged(save, target):
    prefix = save()
    entry = TensorBundle(prefix).entries["cls/seq_relationship/output_weights"]
    file = TensorBundle(prefix).data_file(0)
    data = bytearray(file.read_bytes())
    data[entry.offset] ^= 1
    file.write_bytes(data)
    assert_refused(target, prefix, "cls/seq_relationship/output_weights has a wrong checksum")


def test_configuration(tmp_path):
    config = BertConfig(hidden_size=8, num_attention_heads=2, gelu="tanh")
    stated = {"hidden_size": 8, "num_attention_heads": 2, "hidden_act": "gelu"}
    file = tmp_path / "bert_config.json"
    with pytest.raises(ValueError, match=r"bert_config.json: no such file; put"):
        check_tf1_config(config, tmp_path)
    file.write_text(json.dumps(stated))
    for path in (tmp_path, tmp_path / "model.ckpt-7", tmp_path / "model.ckpt-7.index", file):
        check_tf1_config(config, path)
        check_tf1_config(BertConfig(hidden_size=8, num_attention_heads=2, gelu="erf"), path)
    with pytest.raises(ValueError, match="num_attention_heads is 4 here and 2 there"):
        check_tf1_config(BertConfig(hidden_size=8, num_attention_heads=4), tmp_path)
    with pytest.raises(ValueError, match="layer_norm_eps is 1e-05 here"):
        check_tf1_config(
            BertConfig(hidden_size=8, num_attention_heads=2, layer_norm_eps=1e-5), tmp_path
        )
    file.write_text(json.dumps(stated | {"hidden_act": "relu"}))
    with pytest.raises(ValueError, match="hidden_act is 'relu'"):
        check_tf1_config(config, tmp_path)


def test_names_are_the_parameters_and_those_of_published_logs(source, shared_data):
    assert list(tf1_names(source.config)) == [name for name, _ in source.named_parameters()]
    large = list(tf1_names(BertConfig(num_hidden_layers=24)).values())
    assert len(large) == 398
    with tarfile.open(shared_data / "published_logs.tar.xz") as logs:
        member = next(m for m in logs if re.fullmatch(r"v2\.1/.*/result_0\.txt", m.name))
        text = logs.extractfile(member).read().decode()
    assert re.findall(r'"weights_initialization".*"tensor": "([^"]*)"', text) == large


@pytest.fixture
def golden(shared_data):
    with np.load(shared_data / "checkpoints" / "tf1_tiny_lamb" / "golden.npz") as arrays:
        return {name: arrays[name] for name in arrays.files if "after_step" not in name}


@pytest.fixture
def reference(shared_data):
    """The reference's checkpoint in our model."""
    folder = shared_data / "checkpoints" / "tf1_tiny_lamb"
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = BertConfig(**sizes, **dropout, intermediate_size=32, gelu="tanh")
    check_tf1_config(config, folder)
    model = BertForPreTraining(config)
    report = load_tf1(model, folder)
    assert (len(report.loaded), len(report.ignored), report.unknown) == (46, 95, ())
    assert read_global_step(folder) == 2
    return model


def packed(golden):
    """batch2 without its padding, and the rows in the order of the packed batch."""
    field = {name[7:]: values for name, values in golden.items() if name.startswith("batch2/")}
    lengths = field["input_mask"].sum(axis=1)
    samples = [
        Sample(
            tokens=field["input_ids"][row, :length],
            second_segment_start=int(field["segment_ids"][row].argmax()),
            mlm_positions=field["masked_lm_positions"][row][real],
            mlm_labels=field["masked_lm_ids"][row][real],
            next_sentence_label=int(field["next_sentence_labels"][row, 0]),
        )
        for row, length in enumerate(lengths)
        for real in [field["masked_lm_weights"][row] > 0]
    ]
    return pack(samples), np.argsort(lengths, kind="stable"), lengths


def test_outputs_of_the_reference(reference, golden):
    batch, order, lengths = packed(golden)
    hidden_TD = reference.encode(batch)
    wanted = np.concatenate([golden["sequence_output"][row, : lengths[row]] for row in order])
    np.testing.assert_allclose(hidden_TD.detach(), wanted, rtol=0, atol=1e-5)
    pooled_BD = reference.pool(hidden_TD, batch).detach()
    np.testing.assert_allclose(pooled_BD, golden["pooled_output"][order], rtol=0, atol=1e-5)
    stats: PretrainStats = reference(batch)
    assert stats.mlm_loss == pytest.approx(golden["mlm_loss"], abs=1e-5)
    assert stats.nsp_loss == pytest.approx(golden["nsp_loss"], abs=1e-5)
    assert float(stats.loss(batch.counts).detach()) == pytest.approx(golden["loss"], abs=1e-5)
    assert stats.mlm_accuracy == pytest.approx(golden["masked_lm_accuracy"], abs=1e-5)


def test_gradients_of_the_reference(reference, golden):
    batch, _, _ = packed(golden)
    reference(batch).loss(batch.counts).backward()
    squares = 0.0
    parameters = dict(reference.named_parameters())
    for ours, theirs in tf1_names(reference.config).items():
        gradient = parameters[ours].grad.double().numpy()
        wanted = golden[f"grad/{theirs}"].astype(np.float64)
        if theirs.endswith("kernel"):
            wanted = wanted.T
        # A bias of the keys shifts all scores of a query alike: its gradient is rounding noise.
        noise = 1e-9 if theirs.endswith("key/bias") else 0.0
        error = np.linalg.norm(gradient - wanted)
        assert error <= 1e-5 * np.linalg.norm(wanted) + noise, (theirs, error)
        squares += np.square(gradient).sum()
    assert squares**0.5 == pytest.approx(golden["grad_global_norm"], rel=1e-5)
