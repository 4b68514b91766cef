"""The checkpoint at the end of a run: weights that transformers reads, and the training state."""

import os
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file

from bert.model import BertForPreTraining
from bert.pretrained import write_huggingface_config
from train.trainer import RunResult

CHECKPOINT_FOLDER = "checkpoint"


def save_checkpoint(
    folder: Path, model: BertForPreTraining, optimizer: torch.optim.Optimizer, result: RunResult
) -> Path:
    """Write ``folder/checkpoint/``, whole or not at all.

    It holds ``model.safetensors`` and ``config.json``, as transformers' BertForPreTraining reads
    them, and ``training_state.pt`` with the optimizer's state and the samples and steps trained.
    All load without running code.
    """
    target = folder / CHECKPOINT_FOLDER
    temporary = folder / f"{CHECKPOINT_FOLDER}.tmp-{os.getpid()}"
    try:
        temporary.mkdir()
        weights = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
        save_file(weights, temporary / "model.safetensors", metadata={"format": "pt"})
        write_huggingface_config(model.config, temporary)
        state = {
            "optimizer": optimizer.state_dict(),
            "samples": result.samples,
            "steps": result.steps,
        }
        torch.save(state, temporary / "training_state.pt")
        temporary.rename(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target
