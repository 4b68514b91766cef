"""Optimizers by name, and which parameters weight decay leaves alone."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from optim.lamb import Lamb


@dataclass(frozen=True)
class OptimizerConfig:
    """The optimizer and its numbers.

    Args:
        name: adamw (decoupled weight decay, Loshchilov and Hutter 2019, arXiv 1711.05101) or lamb
            (You et al. 2020, arXiv 1904.00962, as MLPerf's reference has it)
        learning_rate: the peak rate; the schedule multiplies it
        beta_1: decay of the first moment
        beta_2: decay of the second moment
        epsilon: added to the root of the second moment
        weight_decay: times the rate, per step; not applied to biases and LayerNorm
        bias_correction: divide the moments by 1 - beta^step, as Adam, MLPerf's reference LAMB and
            apex do; the original BERT did not
    """

    name: Literal["adamw", "lamb"] = "adamw"
    learning_rate: float = 1e-4
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-6
    weight_decay: float = 0.01
    bias_correction: bool = True

    def __post_init__(self) -> None:
        for name in ("beta_1", "beta_2"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"optimizer.{name} {getattr(self, name)} must lie in [0, 1)")
        for name in ("learning_rate", "epsilon"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"optimizer.{name} {getattr(self, name)} must be above 0")
        if not 0 <= self.weight_decay < float("inf"):
            raise ValueError(f"optimizer.weight_decay {self.weight_decay} must not be negative")


def parameter_groups(
    named_parameters: Iterable[tuple[str, nn.Parameter]], weight_decay: float
) -> list[dict[str, Any]]:
    """Two groups: weights; biases and LayerNorm parameters, without decay or layer adaptation.

    The names decide, as in google-research/bert ``AdamWeightDecayOptimizer`` and MLPerf's reference
    LAMB (``LayerNorm``, ``layer_norm``, ``bias``). Each group records its parameters' names under
    ``names``, and under ``adapt`` whether LAMB's trust ratio applies.
    """
    weights: dict[str, nn.Parameter] = {}
    exempt: dict[str, nn.Parameter] = {}
    for name, parameter in named_parameters:
        is_exempt = "LayerNorm" in name or "layer_norm" in name or name.endswith("bias")
        (exempt if is_exempt else weights)[name] = parameter
    return [
        {
            "params": list(group.values()),
            "weight_decay": 0.0 if group is exempt else weight_decay,
            "adapt": group is not exempt,
            "names": list(group),
        }
        for group in (weights, exempt)
        if group
    ]


def build_optimizer(
    config: OptimizerConfig, named_parameters: Iterable[tuple[str, nn.Parameter]]
) -> torch.optim.Optimizer:
    """The optimizer of a configuration.

    Raises:
        ValueError: no such optimizer; the valid names are listed.
    """
    if config.name not in _BUILDERS:
        raise ValueError(f"optimizer.name '{config.name}'; choose one of: {', '.join(_BUILDERS)}")
    return _BUILDERS[config.name](config, parameter_groups(named_parameters, config.weight_decay))


def _adamw(config: OptimizerConfig, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    if not config.bias_correction:
        return _lamb(config, [{**group, "adapt": False} for group in groups])
    # fused: one pass over the parameters, a fifth of the time of foreach on a CPU core
    return torch.optim.AdamW(
        groups,
        lr=config.learning_rate,
        betas=(config.beta_1, config.beta_2),
        eps=config.epsilon,
        fused=True,
    )


def _lamb(config: OptimizerConfig, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    return Lamb(
        groups,
        lr=config.learning_rate,
        betas=(config.beta_1, config.beta_2),
        eps=config.epsilon,
        bias_correction=config.bias_correction,
    )


_BUILDERS = {"adamw": _adamw, "lamb": _lamb}
