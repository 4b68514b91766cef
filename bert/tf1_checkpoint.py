"""Weights of TensorFlow 1 checkpoints of BERT, the start of the MLPerf benchmark among them.

Names are those of google-research/bert ``run_pretraining.py``, whose graph the MLPerf reference
kept. Dense kernels are stored input first, ours output first.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import Parameter

from bert.config import BertConfig
from bert.model import BertForPreTraining
from bert.pretrained import LoadReport, check_config, read_huggingface_config
from bert.tensor_bundle import TensorBundle

CONFIG_NAME = "bert_config.json"
GLOBAL_STEP = "global_step"
# What the training program keeps beside the weights: counters, and slots named WEIGHT/SLOT.
TRAINING_STATE = re.compile(
    r"global_step|beta[12]_power(_\d+)?|.+/((adam|lamb)_[mv]|(Adam|LAMB)(_\d+)?|Momentum)"
)
# What bert_config.json does not state, because the TensorFlow graph has it built in.
LAYER_NORM_EPS = 1e-12


@dataclass(frozen=True)
class Tf1LoadReport(LoadReport):
    """What became of each tensor; ``fresh`` is empty.

    Attributes:
        unknown: those of ``ignored`` that are neither slots of an optimizer nor counters: weights
            of another model, or of more layers.
    """

    unknown: tuple[str, ...]


def tf1_names(config: BertConfig) -> dict[str, str]:
    """Our name -> the name in a TensorFlow checkpoint, for every parameter of the model.

    In the order of the model, which is also that of MLPerf's ``weights_initialization`` events:
    398 of them for BERT-large.
    """
    names = {
        f"bert.embeddings.{kind}_embeddings.weight": f"bert/embeddings/{kind}_embeddings"
        for kind in ("word", "position", "token_type")
    }
    names |= _norm("bert.embeddings.LayerNorm")
    for layer in range(config.num_hidden_layers):
        here = f"bert.encoder.layer.{layer}"
        for projection in ("query", "key", "value"):
            names |= _dense(f"{here}.attention.self.{projection}")
        names |= _dense(f"{here}.attention.output.dense")
        names |= _norm(f"{here}.attention.output.LayerNorm")
        names |= _dense(f"{here}.intermediate.dense")
        names |= _dense(f"{here}.output.dense")
        names |= _norm(f"{here}.output.LayerNorm")
    names |= _dense("bert.pooler.dense")
    names["cls.predictions.bias"] = "cls/predictions/output_bias"
    names |= _dense("cls.predictions.transform.dense")
    names |= _norm("cls.predictions.transform.LayerNorm")
    names["cls.seq_relationship.weight"] = "cls/seq_relationship/output_weights"
    names["cls.seq_relationship.bias"] = "cls/seq_relationship/output_bias"
    return names


def load_tf1(model: BertForPreTraining, path: str | Path) -> Tf1LoadReport:
    """Copy the weights of a TensorFlow 1 checkpoint into ``model``, whatever its dtype and device.

    Nothing is copied before everything has been checked, checksums included, so an error leaves
    the model as it was. Slots of the optimizer are not read. Takes no memory of the host's but for
    one tensor at a time.

    Args:
        model: the model to fill.
        path: the prefix of the checkpoint's files (``model.ckpt-28252``), its ``.index`` file, or
            a folder with exactly one checkpoint.

    Returns:
        The names that were loaded (ours) and that were ignored (the file's).

    Raises:
        ValueError: one line that names the file, the tensor and the remedy: not there, damaged, a
            weight missing, a shape that differs from the model's, not in floating point.
    """
    bundle = TensorBundle(path)
    parameters = dict(model.named_parameters())
    names = tf1_names(model.config)
    _check_complete(bundle, names.values())
    for ours, theirs in names.items():
        _check_tensor(bundle, theirs, parameters[ours])
    arrays = {ours: _read_weight(bundle, theirs) for ours, theirs in names.items()}
    with torch.no_grad():
        for ours, array in arrays.items():
            tensor = torch.from_numpy(np.array(array))
            parameters[ours].copy_(tensor.T if _is_transposed(names[ours]) else tensor)
    ignored = tuple(sorted(bundle.entries.keys() - set(names.values())))
    return Tf1LoadReport(
        loaded=tuple(parameters),
        fresh=(),
        ignored=ignored,
        unknown=tuple(name for name in ignored if not TRAINING_STATE.fullmatch(name)),
    )


def read_global_step(path: str | Path) -> int | None:
    """The step that a checkpoint was saved at, None if it does not say.

    Args:
        path: as for ``load_tf1``.

    Raises:
        ValueError: one line: the checkpoint cannot be read, or its step is not one integer.
    """
    bundle = TensorBundle(path)
    if GLOBAL_STEP not in bundle.entries:
        return None
    stored = bundle.read(GLOBAL_STEP)
    if stored.shape != () or stored.dtype.kind != "i":
        raise ValueError(
            f"{bundle.index}: {GLOBAL_STEP} is {stored.dtype} of shape {stored.shape}, one "
            "integer is wanted; fetch the checkpoint again"
        )
    return int(stored)


def check_tf1_config(config: BertConfig, path: str | Path) -> None:
    """Refuse a model whose settings are not those of the checkpoint's bert_config.json.

    GELU is free to differ: where the file says "gelu" the MLPerf reference computes the tanh
    approximation and other programs the exact function. LayerNorm's epsilon is not in the file; it
    must be the 1e-12 of the TensorFlow graph.

    Args:
        config: the settings of the model.
        path: as for ``load_tf1``, or the JSON file itself.

    Raises:
        ValueError: one line: no bert_config.json, not JSON, an activation function other than
            GELU, or each setting that differs with both values.
    """
    path = Path(path)
    folder = path if path.is_dir() else path.parent
    file = path if path.suffix == ".json" else folder / CONFIG_NAME
    if not file.is_file():
        raise ValueError(f"{file}: no such file; put the checkpoint's {CONFIG_NAME} there")
    stated = read_huggingface_config(file)
    check_config(replace(config, gelu=stated.get("gelu", config.gelu)), file)
    if "layer_norm_eps" not in stated and config.layer_norm_eps != LAYER_NORM_EPS:
        raise ValueError(
            f"{file}: layer_norm_eps is {config.layer_norm_eps} here, checkpoints of TensorFlow "
            f"were trained with {LAYER_NORM_EPS}; set the model's value to that"
        )


def _dense(module: str) -> dict[str, str]:
    return _pair(module, "kernel", "bias")


def _norm(module: str) -> dict[str, str]:
    return _pair(module, "gamma", "beta")


def _pair(module: str, weight: str, bias: str) -> dict[str, str]:
    scope = module.replace(".layer.", ".layer_").replace(".", "/")
    return {f"{module}.weight": f"{scope}/{weight}", f"{module}.bias": f"{scope}/{bias}"}


def _is_transposed(theirs: str) -> bool:
    return theirs.endswith("/kernel")


def _check_complete(bundle: TensorBundle, wanted: Iterable[str]) -> None:
    missing = [name for name in wanted if name not in bundle.entries]
    if missing:
        raise ValueError(
            f"{bundle.index}: lacks {len(missing)} weights of the model, first {missing[0]}; give "
            "a checkpoint of BERT's pre-training with as many layers as the model"
        )


def _check_tensor(bundle: TensorBundle, name: str, parameter: Parameter) -> None:
    shape, wanted = bundle.entries[name].shape, tuple(parameter.shape)
    if _is_transposed(name):
        wanted = wanted[::-1]
    if shape != wanted:
        raise ValueError(
            f"{bundle.index}: {name} has shape {shape}, the model wants {wanted}; set the model's "
            f"sizes to those of the checkpoint's {CONFIG_NAME}"
        )


def _read_weight(bundle: TensorBundle, name: str) -> npt.NDArray[Any]:
    array = bundle.read(name)
    if array.dtype.kind != "f":
        raise ValueError(
            f"{bundle.index}: {name} is {array.dtype}, floating point is wanted; give a "
            "checkpoint that is not quantised"
        )
    return array
