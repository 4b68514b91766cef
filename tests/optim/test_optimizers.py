"""Optimizers, schedules and clipping against formulas and torch's own."""

import math

import pytest
import torch
from torch import nn

from optim.clipping import build_clipping, check_finite
from optim.optimizers import OptimizerConfig, build_optimizer, parameter_groups
from optim.schedule import Schedule, ScheduleConfig, build_multiplier
from optim.sync import SyncConfig


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


def test_adamw_follows_its_formula() -> None:
    config = OptimizerConfig(
        learning_rate=0.02, beta_1=0.8, beta_2=0.95, epsilon=1e-3, weight_decay=0.1
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
            rate = (first[name] / (1 - 0.8**step)) / (
                (second[name] / (1 - 0.95**step)).sqrt() + 1e-3
            )
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


def test_global_clipping_is_torchs() -> None:
    for bound in (0.5, 1000.0):
        ours, theirs = Small(), Small()
        inputs = torch.randn(3, 5)
        for model in (ours, theirs):
            model(inputs).backward()
        norm = build_clipping(SyncConfig(max_norm=bound))(list(ours.parameters()))
        whole = torch.cat([p.grad.flatten() for p in theirs.parameters()]).norm()
        torch.testing.assert_close(norm, whole)
        nn.utils.clip_grad_norm_(theirs.parameters(), bound)
        for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad)
        clipped = torch.cat([p.grad.flatten() for p in ours.parameters()]).norm()
        assert float(clipped) == pytest.approx(min(bound, float(whole)), rel=1e-5)


def test_without_clipping_the_gradient_is_left_to_the_bit() -> None:
    model = Small()
    model(torch.randn(3, 5)).backward()
    before = [p.grad.clone() for p in model.parameters()]
    norm = build_clipping(SyncConfig(clip="none", max_norm=1e-3))(list(model.parameters()))
    assert all(torch.equal(a, p.grad) for a, p in zip(before, model.parameters(), strict=True))
    assert norm > 1e-3


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_is_named(value: float) -> None:
    assert check_finite(torch.tensor(2.5), 3) == 2.5
    with pytest.raises(ValueError, match=f"step 3: the gradient's norm is {value}"):
        check_finite(torch.tensor(value), 3)


def test_linear_schedule_at_its_corners() -> None:
    rate = build_multiplier(ScheduleConfig("linear", warmup_steps=4, training_steps=12))
    assert [rate(step) for step in (1, 2, 4, 5, 8, 12, 13)] == [
        0.25, 0.5, 1.0, 7 / 8, 0.5, 0.0, 0.0,
    ]  # fmt: skip
    constant = build_multiplier(ScheduleConfig("constant", warmup_steps=4))
    assert [constant(step) for step in (1, 4, 5, 9_000)] == [0.25, 1.0, 1.0, 1.0]
    assert build_multiplier(ScheduleConfig("linear", 0, 10))(1) == 0.9


def test_the_rate_that_is_returned_is_the_rate_in_use() -> None:
    model = Small()
    optimizer = build_optimizer(OptimizerConfig(learning_rate=0.5), model.named_parameters())
    schedule = Schedule(ScheduleConfig("linear", 2, 10), optimizer)
    for step, expected in ((1, 0.25), (2, 0.5), (6, 0.25), (1, 0.25)):
        assert schedule.set_rate(step) == expected
        assert [group["lr"] for group in optimizer.param_groups] == [expected] * 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: OptimizerConfig(beta_1=1.0), r"optimizer\.beta_1 1\.0 must lie in \[0, 1\)"),
        (lambda: OptimizerConfig(epsilon=0.0), r"optimizer\.epsilon 0\.0 must be above 0"),
        (lambda: OptimizerConfig(learning_rate=math.inf), r"learning_rate inf must be above 0"),
        (lambda: OptimizerConfig(weight_decay=-1.0), r"weight_decay -1\.0 must not be negative"),
        (lambda: ScheduleConfig(warmup_steps=-1), r"warmup_steps -1 must not be negative"),
        (lambda: ScheduleConfig(training_steps=0), r"training_steps 0 must lie beyond the 0"),
        (lambda: SyncConfig(max_norm=-1.0), r"sync\.max_norm -1\.0 must be above 0"),
        (lambda: SyncConfig(bucket_cap_mb=0.0), r"sync\.bucket_cap_mb 0\.0 must be above 0"),
        (
            lambda: build_optimizer(OptimizerConfig(name="sgd"), []),  # type: ignore[arg-type]
            r"optimizer\.name 'sgd'; choose one of: adamw",
        ),
        (
            lambda: build_multiplier(ScheduleConfig("cosine")),  # type: ignore[arg-type]
            r"schedule\.name 'cosine'; choose one of: linear, constant",
        ),
        (
            lambda: build_clipping(SyncConfig(clip="each")),  # type: ignore[arg-type]
            r"sync\.clip 'each'; choose one of: global_after, none",
        ),
    ],
)
def test_wrong_settings_are_named(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
