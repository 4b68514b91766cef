"""Weights and settings of checkpoints in the Hugging Face format (safetensors and config.json).

Names are those that transformers 5.24 gives ``BertModel`` (no prefix) and ``BertForPreTraining``
(prefix ``bert.``, heads under ``cls.``); the ``gamma`` and ``beta`` of its older files are
understood too.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from bert.config import BertConfig
from bert.model import BertForPreTraining

WEIGHTS_NAME = "model.safetensors"
CONFIG_NAME = "config.json"

WORD_EMBEDDINGS = "bert.embeddings.word_embeddings.weight"
DECODER_WEIGHT = "cls.predictions.decoder.weight"
DECODER_BIAS = "cls.predictions.decoder.bias"
MLM_BIAS = "cls.predictions.bias"
# Another name for a tensor of ours, which some files have beside it or instead of it.
COPIES = {DECODER_WEIGHT: WORD_EMBEDDINGS, DECODER_BIAS: MLM_BIAS}
# What a checkpoint may lack: these start fresh.
OPTIONAL_PREFIXES = ("bert.pooler.", "cls.")

GELU_OF_HIDDEN_ACT = {"gelu": "erf", "gelu_new": "tanh", "gelu_pytorch_tanh": "tanh"}
# The settings of config.json that must be those of the model for the weights to mean the same.
CHECKED_FIELDS = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "type_vocab_size",
    "layer_norm_eps",
    "gelu",
)


@dataclass(frozen=True)
class LoadReport:
    """What became of each tensor.

    Attributes:
        loaded: names of the model's parameters that were read from the file.
        fresh: names of the model's parameters that the file lacks; they stay as initialised.
        ignored: names in the file that the model has no use for.
    """

    loaded: tuple[str, ...]
    fresh: tuple[str, ...]
    ignored: tuple[str, ...]


def load_huggingface(model: BertForPreTraining, path: str | Path) -> LoadReport:
    """Copy the weights of a safetensors file into ``model``, whatever its dtype and device.

    Nothing is copied before everything has been checked, so an error leaves the model as it was.
    Pooler and heads may be missing; the weights of the encoder may not.

    Args:
        model: the model to fill.
        path: the file, or a folder with ``model.safetensors``.

    Returns:
        The names that were loaded, that stay fresh and that were ignored.

    Raises:
        ValueError: one line that names the file and what is wrong with it: not there, unreadable,
            a weight of the encoder missing, a shape that differs from the model's, a tensor given
            twice or not in floating point, a decoder that is not tied to the embedding.
    """
    file = _weights_file(Path(path))
    stored = _read(file)
    parameters = dict(model.named_parameters())
    names = _match_names(file, stored, parameters)
    _check_complete(file, names, parameters)
    _check_tensors(file, names, stored, parameters)
    _check_copies(file, stored, names)
    with torch.no_grad():
        for ours, theirs in names.items():
            parameters[ours].copy_(stored[theirs])
    used = set(names.values())
    return LoadReport(
        loaded=tuple(name for name in parameters if name in names),
        fresh=tuple(name for name in parameters if name not in names),
        ignored=tuple(sorted(name for name in stored if name not in used)),
    )


def read_huggingface_config(path: str | Path) -> dict[str, Any]:
    """The fields of ``BertConfig`` that a checkpoint's config.json states.

    Args:
        path: the folder of the checkpoint, a file in it, or the JSON file itself.

    Returns:
        Field name -> value; ``hidden_act`` is translated to ``gelu``. A field that the file does
        not state is left out.

    Raises:
        ValueError: one line: no config.json, not JSON, another architecture than BERT's, an
            activation function other than GELU.
    """
    file = _config_file(Path(path))
    try:
        stated = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{file}: cannot be read as JSON ({_one_line(error)})") from error
    if not isinstance(stated, dict):
        raise ValueError(f"{file}: holds a {type(stated).__name__}, a JSON object is needed")
    for key, wanted in (("model_type", "bert"), ("position_embedding_type", "absolute")):
        if stated.get(key, wanted) != wanted:
            raise ValueError(
                f"{file}: {key} is {stated[key]!r}, only {wanted!r} can be loaded; "
                "choose another checkpoint"
            )
    known = {field.name for field in fields(BertConfig)} - {"gelu", "attention"}
    found = {name: value for name, value in stated.items() if name in known}
    if "hidden_act" in stated:
        found["gelu"] = _gelu(file, stated["hidden_act"])
    return found


def write_huggingface_config(config: BertConfig, folder: Path) -> None:
    """Write the config.json with which transformers reads a model's weights."""
    content = {name: value for name, value in asdict(config).items() if name != "attention"}
    kinds = {kind: act for act, kind in reversed(GELU_OF_HIDDEN_ACT.items())}
    content |= {"hidden_act": kinds[content.pop("gelu")], "model_type": "bert"}
    content["architectures"] = ["BertForPreTraining"]
    (folder / CONFIG_NAME).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def check_config(config: BertConfig, path: str | Path) -> None:
    """Refuse a model whose settings are not those that a checkpoint was trained with.

    Shapes show most differences; the number of heads, GELU and LayerNorm's epsilon leave no trace
    in the weights. Dropout and the initialiser are free to differ.

    Args:
        config: the settings of the model.
        path: as for ``read_huggingface_config``.

    Raises:
        ValueError: as ``read_huggingface_config``, or one line that names each setting that
            differs with both values.
    """
    stated = read_huggingface_config(path)
    ours = asdict(config)
    differing = [
        f"{name} is {ours[name]!r} here and {stated[name]!r} there"
        for name in CHECKED_FIELDS
        if name in stated and stated[name] != ours[name]
    ]
    if differing:
        raise ValueError(
            f"{_config_file(Path(path))}: the checkpoint is of another model: "
            f"{'; '.join(differing)}; set the model's values to the checkpoint's"
        )


def _weights_file(path: Path) -> Path:
    if path.is_file():
        return path
    if not path.is_dir():
        raise ValueError(f"{path}: no such file or folder; give a folder with {WEIGHTS_NAME}")
    if not (path / WEIGHTS_NAME).is_file():
        raise ValueError(f"{path}: has no {WEIGHTS_NAME}; give the safetensors file itself")
    return path / WEIGHTS_NAME


def _config_file(path: Path) -> Path:
    if path.suffix == ".json":
        file = path
    else:
        file = (path if path.is_dir() else path.parent) / CONFIG_NAME
    if not file.is_file():
        raise ValueError(f"{file}: no such file; put the checkpoint's {CONFIG_NAME} there")
    return file


def _gelu(file: Path, hidden_act: object) -> str:
    if hidden_act not in GELU_OF_HIDDEN_ACT:
        raise ValueError(
            f"{file}: hidden_act is {hidden_act!r}, only {', '.join(GELU_OF_HIDDEN_ACT)} can be "
            "loaded; choose another checkpoint"
        )
    return GELU_OF_HIDDEN_ACT[str(hidden_act)]


def _read(file: Path) -> dict[str, Tensor]:
    """Every tensor of the file, memory-mapped: only what is copied later is read."""
    try:
        with safe_open(file, framework="pt") as opened:
            return {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise ValueError(
            f"{file}: cannot be read as safetensors ({_one_line(error)}); fetch it again"
        ) from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _our_name(stored: str) -> str:
    """The name that a tensor of the file has, or would have, in our model."""
    name = stored.replace("LayerNorm.gamma", "LayerNorm.weight")
    name = name.replace("LayerNorm.beta", "LayerNorm.bias")
    return name if name.startswith(("bert.", "cls.")) else f"bert.{name}"


def _match_names(file: Path, stored: Mapping[str, Tensor], ours: Iterable[str]) -> dict[str, str]:
    """Our name -> the file's name, for all that both have."""
    wanted = set(ours)
    names: dict[str, str] = {}
    for theirs in stored:
        name = _our_name(theirs)
        if name in names:
            raise ValueError(
                f"{file}: {name} is given twice, as {names[name]} and {theirs}; remove one"
            )
        if name in wanted:
            names[name] = theirs
    if MLM_BIAS not in names and DECODER_BIAS in stored:
        names[MLM_BIAS] = DECODER_BIAS
    return names


def _check_complete(file: Path, names: dict[str, str], ours: Iterable[str]) -> None:
    missing = [
        name for name in ours if name not in names and not name.startswith(OPTIONAL_PREFIXES)
    ]
    if missing:
        raise ValueError(
            f"{file}: lacks {len(missing)} weights of the encoder, first {missing[0]}; give a "
            "BERT checkpoint of at least as many layers as the model"
        )


def _check_tensors(
    file: Path,
    names: dict[str, str],
    stored: dict[str, Tensor],
    ours: dict[str, torch.nn.Parameter],
) -> None:
    for name, theirs in names.items():
        tensor, wanted = stored[theirs], tuple(ours[name].shape)
        if tuple(tensor.shape) != wanted:
            raise ValueError(
                f"{file}: {theirs} has shape {tuple(tensor.shape)}, the model wants {wanted}; "
                f"set the model's sizes to those of the checkpoint's {CONFIG_NAME}"
            )
        if not tensor.is_floating_point():
            raise ValueError(
                f"{file}: {theirs} is {tensor.dtype}, floating point is wanted; "
                "give a checkpoint that is not quantised"
            )


def _check_copies(file: Path, stored: dict[str, Tensor], names: dict[str, str]) -> None:
    """A decoder of its own could not be kept, and dropping it would change the outputs."""
    for copy, original in COPIES.items():
        if copy in stored and not torch.equal(stored[copy], stored[names[original]]):
            raise ValueError(
                f"{file}: {copy} differs from {names[original]}, the model ties them; choose a "
                "checkpoint with a tied decoder"
            )
