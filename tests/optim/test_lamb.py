"""LAMB against its formula and against the steps that MLPerf's reference took."""

import copy

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bert.batch import Batch, Sample, pack
from bert.config import BertConfig
from bert.model import BertForPreTraining
from bert.tensor_bundle import TensorBundle
from bert.tf1_checkpoint import load_tf1, tf1_names
from optim.lamb import Lamb, trust_ratios
from optim.optimizers import OptimizerConfig, build_optimizer
from optim.schedule import Schedule, ScheduleConfig

CONFIG = OptimizerConfig(
    name="lamb", learning_rate=0.02, beta_1=0.8, beta_2=0.95, epsilon=1e-3, weight_decay=0.1
)


class Model(nn.Module):
    """A weight of norm far above 10, one of ordinary size, one of zeros, bias and LayerNorm."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.large = nn.Linear(5, 4)
        self.LayerNorm = nn.LayerNorm(4)
        self.small = nn.Linear(4, 3)
        self.zero = nn.Linear(3, 2, bias=False)
        with torch.no_grad():
            self.large.weight.mul_(1000)
            self.zero.weight.zero_()

    def forward(self, inputs: Tensor) -> Tensor:
        """A number to lower."""
        hidden = self.small(self.LayerNorm(self.large(inputs)).tanh())
        return hidden.pow(2).sum() + self.zero(hidden).sum()


def expected_step(  # noqa: PLR0913 - the letters of the formula
    name: str, w: Tensor, g: Tensor, m: Tensor, v: Tensor, step: int, config: OptimizerConfig
) -> Tensor:
    """One step of the formula, written plainly; renews m and v."""
    m.copy_(config.beta_1 * m + (1 - config.beta_1) * g)
    v.copy_(config.beta_2 * v + (1 - config.beta_2) * g * g)
    m_hat, v_hat = m, v
    if config.bias_correction:
        m_hat = m / (1 - config.beta_1**step)
        v_hat = v / (1 - config.beta_2**step)
    u = m_hat / (v_hat**0.5 + config.epsilon)
    ratio = 1.0
    if name in ("large.weight", "small.weight", "zero.weight"):
        u = u + config.weight_decay * w
        norms = float((w**2).sum() ** 0.5), float((u**2).sum() ** 0.5)
        ratio = norms[0] / norms[1] if min(norms) > 0 else 1.0
    return w - config.learning_rate * ratio * u


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("corrected", [True, False])
@pytest.mark.parametrize(
    ("dtype", "rtol", "atol"), [(torch.float64, 1e-12, 1e-14), (torch.float32, 3e-5, 1e-6)]
)
def test_lamb_follows_its_formula(
    dtype: torch.dtype, rtol: float, atol: float, corrected: bool, decay: float
) -> None:
    config = OptimizerConfig(
        **{**vars(CONFIG), "weight_decay": decay, "bias_correction": corrected}
    )
    model = Model().to(dtype)
    optimizer = build_optimizer(config, model.named_parameters())
    moments = {
        name: (torch.zeros_like(p).double(), torch.zeros_like(p).double())
        for name, p in model.named_parameters()
    }
    for step in range(1, 8):
        optimizer.zero_grad()
        model(torch.randn(3, 5, dtype=dtype)).backward()
        expected = {
            name: expected_step(
                name, p.detach().double(), p.grad.double(), *moments[name], step, config
            )
            for name, p in model.named_parameters()
        }
        optimizer.step()
        for name, p in model.named_parameters():
            assert p.dtype == dtype
            torch.testing.assert_close(p.detach().double(), expected[name], rtol=rtol, atol=atol)


def test_trust_ratios_are_not_clamped_and_1_where_a_norm_is_0() -> None:
    def tensor(*values: float) -> Tensor:
        return torch.tensor(values, dtype=torch.float64)

    weights = [tensor(300, 400), tensor(3e-9, 4e-9), tensor(0, 0), tensor(3, 4), tensor(0, 0)]
    updates = [tensor(6, 8), tensor(6e3, 8e3), tensor(3, 4), tensor(0, 0), tensor(0, 0)]
    ratios = [float(ratio) for ratio in trust_ratios(weights, updates)]
    assert ratios == pytest.approx([50.0, 5e-13, 1.0, 1.0, 1.0], rel=1e-15)


def test_the_norms_of_large_fp32_tensors_are_exact() -> None:
    weight, update = torch.full((3000, 1024), 0.02), torch.full((3000, 1024), 0.5)
    torch.testing.assert_close(trust_ratios([weight], [update])[0], torch.tensor(0.04))
    torch.manual_seed(0)
    weight.normal_()
    (ratio,) = trust_ratios([weight], [update])
    exact = weight.double().norm() / update.double().norm()
    assert float(ratio) == pytest.approx(float(exact), rel=1e-7)


def test_a_weight_without_decay_is_still_adapted() -> None:
    config = OptimizerConfig(**{**vars(CONFIG), "weight_decay": 0.0})
    model = Model()
    before = model.large.weight.detach().clone()
    optimizer = build_optimizer(config, model.named_parameters())
    model(torch.randn(3, 5)).backward()
    optimizer.step()
    # the step's length is rate * |w|, however long the update is
    moved = (model.large.weight.detach() - before).norm() / before.norm()
    assert float(moved) == pytest.approx(0.02, rel=1e-4)


def test_biases_and_layer_norm_take_adams_step() -> None:
    ours, theirs = Model(), Model()
    lamb = build_optimizer(CONFIG, ours.named_parameters())
    adamw = build_optimizer(
        OptimizerConfig(**{**vars(CONFIG), "name": "adamw"}), theirs.named_parameters()
    )
    inputs = torch.randn(3, 5)
    for model, optimizer in ((ours, lamb), (theirs, adamw)):
        model(inputs).backward()
        optimizer.step()
    others = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        same = torch.allclose(parameter, others[name], rtol=1e-5, atol=1e-7)
        assert same == (name not in ("large.weight", "small.weight")), name


def test_parameters_without_gradient_and_closures() -> None:
    model = Model()
    model.zero.weight.requires_grad_(False)
    optimizer = build_optimizer(CONFIG, model.named_parameters())
    assert optimizer.step() is None

    def closure() -> float:
        optimizer.zero_grad()
        loss = model(torch.ones(1, 5))
        loss.backward()
        return float(loss.detach())

    assert optimizer.step(closure) > 0
    assert not model.zero.weight.any()
    assert model.zero.weight not in optimizer.state


@pytest.mark.parametrize("name", ["lamb", "adamw"])
@pytest.mark.parametrize("schedule_first", [True, False])
def test_a_resumed_run_has_the_same_bits_and_rates(name: str, schedule_first: bool) -> None:
    config = OptimizerConfig(**{**vars(CONFIG), "name": name})
    schedule_config = ScheduleConfig("polynomial", warmup_steps=4, training_steps=12)

    def steps(model: Model, optimizer, schedule: Schedule, numbers: range) -> list[float]:
        used = []
        for number in numbers:
            torch.manual_seed(number)
            optimizer.zero_grad()
            model(torch.randn(3, 5)).backward()
            logged = schedule.set_rate(number)
            used.append(optimizer.param_groups[-1]["lr"])
            assert logged == used[-1]
            optimizer.step()
        return used

    whole = Model()
    optimizer = build_optimizer(config, whole.named_parameters())
    schedule = Schedule(schedule_config, optimizer)
    rates = steps(whole, optimizer, schedule, range(1, 6))
    saved = copy.deepcopy((whole.state_dict(), optimizer.state_dict()))
    rates += steps(whole, optimizer, schedule, range(6, 11))

    resumed = Model()
    resumed.load_state_dict(saved[0])
    optimizer = build_optimizer(config, resumed.named_parameters())
    if schedule_first:
        schedule = Schedule(schedule_config, optimizer)
    optimizer.load_state_dict(saved[1])
    if not schedule_first:
        schedule = Schedule(schedule_config, optimizer)
    assert steps(resumed, optimizer, schedule, range(6, 11)) == rates[5:]
    for one, other in zip(resumed.parameters(), whole.parameters(), strict=True):
        assert torch.equal(one, other)
    assert rates[4] != rates[5], "a step late would show"


def packed(golden: dict[str, np.ndarray], number: int) -> Batch:
    """A recorded batch without its padding."""
    arrays = {
        name.partition("/")[2]: array
        for name, array in golden.items()
        if name.startswith(f"batch{number}/")
    }
    samples = []
    for row, mask in enumerate(arrays["input_mask"]):
        length = int(mask.sum())
        real = arrays["masked_lm_weights"][row] > 0
        samples.append(
            Sample(
                tokens=arrays["input_ids"][row, :length],
                second_segment_start=length - int(arrays["segment_ids"][row].sum()),
                mlm_positions=arrays["masked_lm_positions"][row][real],
                mlm_labels=arrays["masked_lm_ids"][row][real],
                next_sentence_label=int(arrays["next_sentence_labels"][row, 0]),
            )
        )
    return pack(samples)


def test_the_reference_is_continued(shared_data) -> None:
    """Steps 3 to 5 of the recorded run, from its weights and slots after step 2."""
    folder = shared_data / "checkpoints" / "tf1_tiny_lamb"
    with np.load(folder / "golden.npz") as arrays:
        golden = dict(arrays)
    shape = dict(hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32)
    dropout = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model = BertForPreTraining(BertConfig(**shape, **dropout, gelu="tanh"))
    load_tf1(model, folder)
    names = tf1_names(model.config)
    config = OptimizerConfig(name="lamb", learning_rate=1e-2)
    optimizer = build_optimizer(config, model.named_parameters())
    assert isinstance(optimizer, Lamb)
    bundle = TensorBundle(folder)

    def ours(name: str, array: np.ndarray) -> Tensor:
        tensor = torch.from_numpy(np.array(array))
        return tensor.T.contiguous() if names[name].endswith("/kernel") else tensor

    for name, parameter in model.named_parameters():
        optimizer.state[parameter] = {
            "step": torch.tensor(2.0),
            "exp_avg": ours(name, bundle.read(f"{names[name]}/LAMB")),
            "exp_avg_sq": ours(name, bundle.read(f"{names[name]}/LAMB_1")),
        }
    schedule = Schedule(
        ScheduleConfig("polynomial", warmup_steps=3, training_steps=10, first_step=0), optimizer
    )
    for step in (3, 4, 5):
        optimizer.zero_grad()
        batch = packed(golden, step - 1)
        model(batch).loss(batch.counts).backward()
        gradients = [parameter.grad for parameter in model.parameters()]
        norm = torch.stack([gradient.double().norm() for gradient in gradients]).norm()
        assert float(norm) == pytest.approx(golden["steps"][step - 1, 3], rel=1e-6)
        torch._foreach_mul_(gradients, 1 / max(1.0, float(norm)))
        schedule.set_rate(step)
        optimizer.step()
        if step in (3, 5):
            for name, parameter in model.named_parameters():
                recorded = ours(name, golden[f"after_step{step}/{names[name]}"])
                torch.testing.assert_close(parameter.detach(), recorded, rtol=0, atol=1e-6)
