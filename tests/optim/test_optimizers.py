"""AdamW against its formula and torch's own, and what configurations refuse."""

import math

import pytest
import torch
from torch import nn

from optim.lamb import Lamb
from optim.optimizers import OptimizerConfig, build_optimizer, parameter_groups


class Small(nn.Module):
    """Has one parameter of each kind."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.dense = nn.Linear(5, 4)
        self.LayerNorm = nn.LayerNorm(4)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """A number to lower."""
        return self.LayerNorm(self.dense(inputs)).pow(3).sum()


def test_biases_and_layer_norm_do_not_decay() -> None:
    decayed, exempt = parameter_groups(Small().named_parameters(), 0.25)
    assert (decayed["names"], decayed["weight_decay"]) == (["dense.weight"], 0.25)
    assert exempt["names"] == ["dense.bias", "LayerNorm.weight", "LayerNorm.bias"]
    assert exempt["weight_decay"] == 0.0
    assert (decayed["adapt"], exempt["adapt"]) == (True, False)


def test_names_alone_decide() -> None:
    names = ["cls.predictions.bias", "bert.embeddings.LayerNorm.weight", "a.layer_norm.weight"]
    weights = ["bert.embeddings.word_embeddings.weight", "biased.weight", "scale"]
    parameters = {name: nn.Parameter(torch.zeros(2)) for name in [*names, *weights]}
    groups = parameter_groups(parameters.items(), 0.0)
    assert [group["names"] for group in groups] == [weights, names]
    assert [group["adapt"] for group in groups] == [True, False]


@pytest.mark.parametrize("corrected", [True, False])
def test_adamw_follows_its_formula(corrected: bool) -> None:
    config = OptimizerConfig(
        learning_rate=0.02,
        beta_1=0.8,
        beta_2=0.95,
        epsilon=1e-3,
        weight_decay=0.1,
        bias_correction=corrected,
    )
    model = Small().double()
    optimizer = build_optimizer(config, model.named_parameters())
    expected = {name: p.detach().clone() for name, p in model.named_parameters()}
    first = {name: torch.zeros_like(p) for name, p in expected.items()}
    second = {name: torch.zeros_like(p) for name, p in expected.items()}
    for step in range(1, 6):
        optimizer.zero_grad()
        model(torch.randn(3, 5, dtype=torch.float64)).backward()
        for name, parameter in model.named_parameters():
            gradient = parameter.grad
            first[name] = 0.8 * first[name] + 0.2 * gradient
            second[name] = 0.95 * second[name] + 0.05 * gradient**2
            c1, c2 = (1 - 0.8**step, 1 - 0.95**step) if corrected else (1.0, 1.0)
            rate = (first[name] / c1) / ((second[name] / c2).sqrt() + 1e-3)
            decay = 0.1 if name == "dense.weight" else 0.0
            expected[name] = expected[name] - 0.02 * (rate + decay * expected[name])
        optimizer.step()
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(parameter.detach(), expected[name], rtol=1e-12, atol=1e-14)


def test_adamw_is_torchs_plain_one() -> None:
    ours, theirs = Small(), Small()
    config = OptimizerConfig(learning_rate=0.01, epsilon=1e-6, weight_decay=0.05)
    optimizers = [
        build_optimizer(config, ours.named_parameters()),
        torch.optim.AdamW(
            [
                {"params": [theirs.dense.weight], "weight_decay": 0.05},
                {
                    "params": [theirs.dense.bias, *theirs.LayerNorm.parameters()],
                    "weight_decay": 0.0,
                },
            ],
            lr=0.01,
            eps=1e-6,
            foreach=False,
        ),
    ]
    for _ in range(10):
        inputs = torch.randn(3, 5)
        for model, optimizer in zip((ours, theirs), optimizers, strict=True):
            optimizer.zero_grad()
            model(inputs).backward()
            optimizer.step()
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-7), (torch.float64, 1e-15)])
def test_lamb_without_trust_ratios_is_the_fused_adamw(dtype: torch.dtype, tolerance: float) -> None:
    ours, theirs = Small().to(dtype), Small().to(dtype)
    config = OptimizerConfig(learning_rate=0.01, beta_2=0.9, weight_decay=0.05)
    fused = build_optimizer(config, theirs.named_parameters())
    assert isinstance(fused, torch.optim.AdamW)
    groups = parameter_groups(ours.named_parameters(), config.weight_decay)
    core = Lamb([{**group, "adapt": False} for group in groups], lr=0.01, betas=(0.9, 0.9))
    for _ in range(20):
        inputs = torch.randn(3, 5, dtype=dtype)
        for model, optimizer in ((ours, core), (theirs, fused)):
            optimizer.zero_grad()
            model(inputs).backward()
            optimizer.step()
        # the same gradients for both: rounding must not grow over the steps
        for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(one, other, rtol=20 * tolerance, atol=20 * tolerance)
            other.data.copy_(one.data)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: OptimizerConfig(beta_1=1.0), r"optimizer\.beta_1 1\.0 must lie in \[0, 1\)"),
        (lambda: OptimizerConfig(epsilon=0.0), r"optimizer\.epsilon 0\.0 must be above 0"),
        (lambda: OptimizerConfig(learning_rate=math.inf), r"learning_rate inf must be above 0"),
        (lambda: OptimizerConfig(weight_decay=-1.0), r"weight_decay -1\.0 must not be negative"),
        (
            lambda: build_optimizer(OptimizerConfig(name="sgd"), []),  # type: ignore[arg-type]
            r"optimizer\.name 'sgd'; choose one of: adamw, lamb",
        ),
    ],
)
def test_wrong_settings_are_named(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
