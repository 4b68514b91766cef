"""The gradient of a step is that of its whole batch, however ranks and micro-batches cut it."""

import time

import numpy as np
import pytest
import torch
from ranks import on_ranks

from bert.batch import Batch, Sample, pack
from bert.config import BertConfig
from bert.model import BertForPreTraining
from optim.precision import Precision
from optim.sync import SyncConfig, build_sync

CONFIG = BertConfig(
    vocab_size=50,
    hidden_size=8,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=16,
    max_position_embeddings=128,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
# masked tokens of four samples of a step: as unequal as can be, one without any
MASKED = (3, 60, 0, 17)


def samples() -> list[Sample]:
    draw = np.random.default_rng(1)
    made = []
    for masked in MASKED:
        tokens = draw.integers(0, 50, 70)
        positions = np.sort(draw.choice(70, masked, replace=False))
        made.append(Sample(tokens, 30, positions, tokens[positions], int(draw.integers(2))))
    return made


def model() -> BertForPreTraining:
    return BertForPreTraining(CONFIG, torch.Generator().manual_seed(0)).double()


def gradient(of: BertForPreTraining) -> torch.Tensor:
    return torch.cat([p.grad.flatten() for p in of.parameters() if p.grad is not None])


def whole_gradient() -> torch.Tensor:
    reference, batch = model(), pack(samples())
    reference(batch).loss(batch.counts).backward()
    return gradient(reference)


def work(rank: int, cut: list[list[list[int]]], bucket_cap_mb: float) -> dict[str, torch.Tensor]:
    """One step; ``cut[rank]`` are the samples of each of the rank's micro-batches."""
    made, ours = samples(), model()
    sync = build_sync(SyncConfig(bucket_cap_mb=bucket_cap_mb), ours, Precision("fp32"))
    batches: list[Batch] = [pack([made[i] for i in chosen]) for chosen in cut[rank]]
    sync.settle(batches[0])
    assert not gradient(ours).any()
    stats = sync.forward_backward(batches)
    return {"gradient": gradient(ours), "stats": stats.to_vector()}


@pytest.mark.parametrize(
    "cut",
    [
        [[[0, 1, 2, 3]]],
        [[[0], [1], [2], [3]]],
        [[[0, 1]], [[2, 3]]],
        [[[0], [3]], [[1], [2]]],
        [[[2]], [[0, 1, 3]]],
        [[[1]], [[0, 3]], [[2]]],
    ],
    ids=["whole", "accumulated", "two ranks", "both", "unequal ranks", "three ranks"],
)
def test_the_gradient_is_that_of_the_whole_batch(cut: list[list[list[int]]]) -> None:
    results = on_ranks(len(cut), work, cut, 25.0)
    expected = whole_gradient()
    for result in results:
        torch.testing.assert_close(result["gradient"], expected, rtol=1e-9, atol=1e-14)
    total = torch.stack([result["stats"] for result in results]).sum(0)
    assert total[2] == sum(MASKED) and total[5] == 4


def test_many_small_buckets_give_the_same() -> None:
    results = on_ranks(2, work, [[[0, 1]], [[2, 3]]], 0.0005)
    torch.testing.assert_close(results[0]["gradient"], whole_gradient(), rtol=1e-9, atol=1e-14)


def settle_only(rank: int) -> list[torch.Tensor]:
    ours = model()
    before = [p.detach().clone() for p in ours.parameters()]
    torch.manual_seed(rank)
    state = torch.get_rng_state()
    build_sync(SyncConfig(), ours, Precision("fp32")).settle(pack(samples()))
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(before, ours.parameters(), strict=True))
    return [p.grad for p in ours.parameters() if p.grad is not None]


def test_settling_leaves_weights_gradients_and_random_state() -> None:
    for gradients in on_ranks(2, settle_only):
        assert gradients and not any(one.any() for one in gradients)


def slow_forward(rank: int, clip: str) -> float:
    ours = model()
    ours.register_forward_pre_hook(lambda *_: time.sleep(0.5))
    sync = build_sync(SyncConfig(clip=clip), ours, Precision("fp32"))
    batch = pack(samples())
    sync.forward_backward([batch, batch])
    return sync.report()[0].backward


@pytest.mark.parametrize("clip", ["global_after", "rank_before"])
def test_the_forward_pass_is_no_part_of_backwards_time(clip: str) -> None:
    assert 0 < on_ranks(1, slow_forward, clip)[0] < 0.5
