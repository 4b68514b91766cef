"""Clipping and wires: the algebra that ties the modes to one another, on gloo ranks."""

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from ranks import on_ranks

from bert.batch import Sample, pack
from bert.config import BertConfig
from bert.model import BertForPreTraining
from optim.clipping import build_clipping, clip_factor, scale_to_norm, whole_norm
from optim.communication import CommunicationTimer, check_wire
from optim.precision import Precision
from optim.sync import DDPSync, SyncConfig, build_sync

CONFIG = BertConfig(
    vocab_size=50,
    hidden_size=8,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=16,
    max_position_embeddings=128,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
SMALL = 0.002  # MiB: several buckets for this model
BOUND = 0.05  # far below the norm of its gradient


def samples() -> list[Sample]:
    draw = np.random.default_rng(1)
    made = []
    for masked in (3, 60, 5, 17):
        tokens = draw.integers(0, 50, 70)
        positions = np.sort(draw.choice(70, masked, replace=False))
        made.append(Sample(tokens, 30, positions, tokens[positions], int(draw.integers(2))))
    return made


def model(dtype: torch.dtype) -> BertForPreTraining:
    return BertForPreTraining(CONFIG, torch.Generator().manual_seed(0)).to(dtype)


def gradient(of: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.grad.flatten() for p in of.parameters() if p.grad is not None]).clone()


CUT = [[[0], [1]], [[2], [3]]]  # samples of each micro-batch of each rank


def reduced(rank: int, settings: dict[str, dict[str, Any]], cut=CUT, dtype=torch.float64) -> dict:
    """The reduced gradient of one step under each of several settings."""
    results = {}
    made = samples()
    batches = [pack([made[i] for i in chosen]) for chosen in cut[rank]]
    for name, setting in settings.items():
        ours = model(dtype)
        sync = build_sync(SyncConfig(**setting), ours, Precision("fp32"))
        sync.settle(batches[0])
        buckets = sync.buckets
        for _ in range(2):
            sync.forward_backward(batches)
            results[name] = {"gradient": gradient(ours), "buckets": sync.buckets}
            results[name]["clipped"] = sync.report()[1]
            torch._foreach_zero_([p.grad for p in ours.parameters()])
        assert sync.buckets == buckets
    return results


def of_ranks(settings: dict[str, dict[str, Any]], **more: Any) -> dict[str, Any]:
    """The same on two ranks; they must agree to the bit."""
    first, second = on_ranks(2, reduced, settings, *more.values())
    for name in settings:
        assert torch.equal(first[name]["gradient"], second[name]["gradient"])
    return first


def test_the_modes_agree_where_they_must() -> None:
    found = of_ranks(
        {
            "none": {"clip": "none", "bucket_cap_mb": SMALL},
            "none, one bucket": {"clip": "none"},
            "infinite": {"clip": "bucket_before", "max_norm": math.inf, "bucket_cap_mb": SMALL},
            "buckets": {"clip": "bucket_before", "max_norm": BOUND, "bucket_cap_mb": SMALL},
            "one bucket": {"clip": "bucket_before", "max_norm": BOUND},
            "rank": {"clip": "rank_before", "max_norm": BOUND},
            "infinite rank": {"clip": "rank_before", "max_norm": math.inf},
        }
    )
    assert found["buckets"]["buckets"] > 3 and found["one bucket"]["buckets"] == 1
    assert torch.equal(found["infinite"]["gradient"], found["none"]["gradient"])
    for pair in (("one bucket", "rank"), ("infinite rank", "none"), ("none, one bucket", "none")):
        one, other = (found[name]["gradient"] for name in pair)
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-15)
    whole = float(found["none"]["gradient"].norm())
    for name in ("buckets", "one bucket", "rank"):
        assert float(found[name]["gradient"].norm()) <= BOUND * (1 + 1e-12)
        assert found[name]["clipped"] >= 0.5
    assert whole > 2 * BOUND
    assert found["infinite"]["clipped"] == found["none"]["clipped"] == 0.0


def by_hand(rank: int, bound: float) -> dict[str, torch.Tensor]:
    """Clipping per bucket computed without hooks: of the accumulated and of each micro-batch."""
    made = samples()
    sync = build_sync(
        SyncConfig(clip="bucket_before", bucket_cap_mb=SMALL),
        model(torch.float64),
        Precision("fp32"),
    )
    assert isinstance(sync, DDPSync)
    sync.settle(pack([made[0]]))
    names = {id(p): name for name, p in sync.parameters()}
    layout = [[names[id(p)] for p in bucket] for bucket in sync._buckets.parameters]
    counts = pack(made).counts
    results = {}
    for name, groups in (("accumulated", [[0, 1], [2, 3]]), ("micro", [[0], [1], [2], [3]])):
        parts: dict[str, list[torch.Tensor]] = {}
        for chosen in groups:
            ours = model(torch.float64)
            for sample in chosen:
                batch = pack([made[sample]])
                (ours(batch).loss(counts) * 2).backward()
            for bucket in layout:
                grads = {n: p.grad.clone() for n, p in ours.named_parameters() if n in bucket}
                limit = bound / math.sqrt(len(layout))
                norm = math.sqrt(sum(float(g.square().sum()) for g in grads.values()))
                for n, g in grads.items():
                    parts.setdefault(n, []).append(g * min(1.0, limit / norm) / 2)
        total = {n: torch.stack(gs).sum(0) for n, gs in parts.items()}
        results[name] = torch.cat(
            [total[n].flatten() for n, _ in model(torch.float64).named_parameters()]
        )
    return results


def test_both_ways_of_clipping_with_accumulation() -> None:
    clipped = {"clip": "bucket_before", "max_norm": BOUND, "bucket_cap_mb": SMALL}
    found = of_ranks({"accumulated": clipped, "micro": {**clipped, "clip_accumulated": False}})
    expected = on_ranks(1, by_hand, BOUND)[0]
    for name in ("accumulated", "micro"):
        torch.testing.assert_close(found[name]["gradient"], expected[name], rtol=1e-9, atol=1e-14)
    assert not torch.allclose(found["accumulated"]["gradient"], found["micro"]["gradient"])


def test_the_fp16_wire_rounds_and_the_norm_is_taken_before() -> None:
    plain = {"clip": "none", "bucket_cap_mb": SMALL}
    clipped = {"clip": "bucket_before", "max_norm": BOUND, "bucket_cap_mb": SMALL}
    rank = {"clip": "rank_before", "max_norm": BOUND}
    found = of_ranks(
        {
            name + wire: {**setting, "wire": wire}
            for name, setting in (("plain", plain), ("clipped", clipped), ("rank", rank))
            for wire in ("fp32", "fp16")
        },
        cut=CUT,
        dtype=torch.float32,
    )
    for name in ("plain", "clipped", "rank"):
        exact, rounded = found[f"{name}fp32"]["gradient"], found[f"{name}fp16"]["gradient"]
        assert not torch.equal(exact, rounded)
        # fp16 keeps 11 bits of what each rank sends; a sum of opposite signs may keep fewer
        difference = (rounded - exact).abs()
        assert float(difference.max()) < 2**-10 * float(exact.abs().max())
        assert float(difference.norm()) < 2**-10 * float(exact.norm())


def normalised(rank: int) -> dict[str, torch.Tensor]:
    made = samples()
    own = pack([made[0], made[1]] if rank == 0 else [made[2]])
    ours = model(torch.float64)
    sync = build_sync(SyncConfig(clip="none", normalisation="rank"), ours, Precision("fp32"))
    sync.forward_backward([own])
    alone = model(torch.float64)
    alone(own).loss(own.counts).backward()
    return {"reduced": gradient(ours), "alone": gradient(alone)}


def test_rank_normalisation_is_the_mean_of_the_ranks_gradients() -> None:
    first, second = on_ranks(2, normalised)
    torch.testing.assert_close(
        first["reduced"], (first["alone"] + second["alone"]) / 2, rtol=1e-9, atol=1e-14
    )


def collectives(rank: int) -> dict[str, int]:
    made, counted = samples(), []
    real = dist.all_reduce

    def counting(*arguments: Any, **named: Any) -> Any:
        counted.append(1)
        return real(*arguments, **named)

    dist.all_reduce = counting
    found = {}
    for clip in ("bucket_before", "rank_before", "none"):
        sync = build_sync(
            SyncConfig(clip=clip, wire="fp16", bucket_cap_mb=SMALL),
            model(torch.float32),
            Precision("fp32"),
        )
        sync.settle(pack(made))
        counted.clear()
        sync.forward_backward([pack([one]) for one in made])
        found[clip] = len(counted) - 1 - sync.buckets  # one more for the counts
        assert sync.report()[0].buckets == sync.buckets
    return found


def test_exactly_one_collective_for_each_bucket() -> None:
    for found in on_ranks(2, collectives):
        assert set(found.values()) == {0}, found


def half_precision(rank: int) -> dict[str, Any]:
    """fp16 autocast on a model whose gradient overflows at the first scale."""
    made = samples()
    ours = model(torch.float32)
    with torch.no_grad():
        ours.bert.embeddings.word_embeddings.weight.mul_(40)
    reference = model(torch.float32)
    reference.load_state_dict(ours.state_dict())
    precision = Precision("fp16")
    sync = build_sync(
        SyncConfig(clip="bucket_before", max_norm=BOUND, bucket_cap_mb=SMALL), ours, precision
    )
    first = precision.scale
    sync.settle(pack(made))
    sync.forward_backward([pack(made)])
    sync32 = build_sync(
        SyncConfig(clip="bucket_before", max_norm=BOUND, bucket_cap_mb=SMALL),
        reference,
        Precision("fp32"),
    )
    sync32.settle(pack(made))
    sync32.forward_backward([pack(made)])
    return {
        "first": first,
        "scale": precision.scale,
        "fp16": gradient(ours),
        "fp32": gradient(reference),
    }


def test_fp16_finds_its_scale_before_the_run_and_the_bound_scales_with_it() -> None:
    first, second = on_ranks(2, half_precision)
    assert first["scale"] == second["scale"] < first["first"]
    assert torch.isfinite(first["fp16"]).all()
    norm = float(first["fp16"].norm())
    assert norm <= BOUND * 1.001 and norm == pytest.approx(float(first["fp32"].norm()), rel=0.05)
    cosine = torch.nn.functional.cosine_similarity(first["fp16"], first["fp32"], dim=0)
    assert cosine > 0.99


# --- without ranks --------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_stays_so(bad: float) -> None:
    bucket = torch.tensor([1.0, bad, 2.0])
    assert scale_to_norm([bucket], 0.1) == 1.0
    assert torch.isfinite(bucket).tolist() == [True, False, True]


def test_a_norm_beyond_fp32_does_not_make_zeros_of_a_gradient() -> None:
    bucket = torch.full((3,), 1e30)
    scale_to_norm([bucket], 0.1)
    assert bucket.all()


def test_the_norm_of_a_large_fp32_gradient_is_exact() -> None:
    large = torch.rand(1 << 24, generator=torch.Generator().manual_seed(0))
    assert float(whole_norm([large])) == pytest.approx(float(large.double().norm()), rel=1e-7)


def test_a_gradient_of_zeros_stays_one() -> None:
    bucket = torch.zeros(3)
    scale_to_norm([bucket], 0.1)
    assert torch.equal(bucket, torch.zeros(3))
    assert clip_factor(torch.tensor(0.0), math.inf) == 1.0


def test_a_large_fp16_gradient_does_not_overflow_its_norm() -> None:
    large = torch.full((1000,), 6e4)
    assert large.half().norm() == math.inf
    scale_to_norm([large], 1.0)
    assert float(large.half().float().norm()) == pytest.approx(1.0, rel=1e-3)


def test_bf16_needs_nccl_and_unknown_names_are_listed() -> None:
    with pytest.raises(ValueError, match=r"sync\.wire bf16 needs NCCL.*choose fp16 or fp32"):
        check_wire("bf16", "cpu")
    check_wire("bf16", "cuda")
    with pytest.raises(ValueError, match=r"sync\.wire 'fp8'; choose one of: fp32, fp16, bf16"):
        check_wire("fp8", "cpu")
    with pytest.raises(ValueError, match=r"sync\.clip 'each'; choose one of: global_after, bucket"):
        build_clipping("each", 1.0)
    with pytest.raises(ValueError, match=r"clip_accumulated false goes with .* not none"):
        SyncConfig(clip="none", clip_accumulated=False)


def test_loss_scale_halves_and_doubles_and_has_a_floor() -> None:
    precision = Precision("fp16")
    assert precision.scale == 65536.0
    for _ in range(30):
        precision.update(finite=False)
    assert precision.scale == 1.0 and precision.exhausted
    for _ in range(2000):
        precision.update(finite=True)
    assert precision.scale == 2.0
    plain = Precision("fp32")
    plain.update(finite=False)
    assert (plain.scale, plain.exhausted) == (1.0, False)


def test_times_cover_overlapping_buckets_once() -> None:
    timer = CommunicationTimer()
    timer._begin, timer._starts, timer._ends = 10.0, [11.0, 12.0, 14.0], [12.5, 13.0, 16.0]
    times = timer.times()
    assert (times.backward, times.all_reduce, times.exposed, times.buckets) == (4.0, 4.0, 2.0, 3)
