"""Number formats of the forward and backward pass, and the scale of the loss that fp16 needs.

``fp32``: as the weights are. ``bf16``: autocast, no scale needed. ``fp16``: autocast with dynamic
loss scaling (Micikevicius et al. 2018, arXiv 1710.03740): the loss is multiplied by the scale
before backward; a step whose gradient overflows is skipped and halves it, a run of good ones
doubles it.

The first scale is found before the clock on a synthetic batch, so that no step of the run is lost
to finding it.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

PRECISIONS = ("fp32", "bf16", "fp16")
_FIRST_SCALE = 2.0**16
_LEAST_SCALE = 1.0
_GROWTH_STEPS = 2000


class Precision:
    """The number format of a run and its loss scale.

    Args:
        name: fp32, bf16 or fp16.
        device: the type of device the model runs on.

    Attributes:
        scale: what the loss is multiplied by; always 1 but for fp16.

    Raises:
        ValueError: no such precision; the valid ones are listed.
    """

    def __init__(self, name: str, device: str = "cpu") -> None:
        if name not in PRECISIONS:
            raise ValueError(f"train.precision '{name}'; choose one of: {', '.join(PRECISIONS)}")
        self.name = name
        self.scale = _FIRST_SCALE if name == "fp16" else 1.0
        self._dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(name)
        self._device = device
        self._good_steps = 0

    @property
    def scales(self) -> bool:
        """Whether an overflow is part of the method, as with fp16."""
        return self.name == "fp16"

    def autocast(self) -> AbstractContextManager[Any]:
        """The context of the forward pass."""
        if self._dtype is None:
            return nullcontext()
        return torch.autocast(self._device, self._dtype)

    def update(self, finite: bool) -> None:
        """Adapt the scale to whether a step's gradient was finite."""
        if not self.scales:
            return
        if not finite:
            self.scale = max(_LEAST_SCALE, self.scale / 2)
            self._good_steps = 0
            return
        self._good_steps += 1
        if self._good_steps == _GROWTH_STEPS:
            self.scale *= 2
            self._good_steps = 0

    @property
    def exhausted(self) -> bool:
        """Whether the scale can go no lower."""
        return self.scales and self.scale <= _LEAST_SCALE
