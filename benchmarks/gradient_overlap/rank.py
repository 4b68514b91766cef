"""What one rank measures: every mode and wire in turn, round by round.

python -m benchmarks.gradient_overlap.rank RANK MASTER ROUNDS TOKENS TARGET
"""

import json
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from benchmarks.packed_model import make_batch
from bert.batch import Batch
from bert.config import BertConfig
from bert.model import BertForPreTraining
from optim.clipping import build_clipping
from optim.communication import average, leave_group
from optim.precision import Precision
from optim.sync import GradSync, SyncConfig, build_sync

MODES = ("none", "global_after", "bucket_before", "rank_before")
WIRES = ("fp32", "fp16")
# about 1.4 million parameters, 0.2 MiB buckets: communication comparable to backward at 100 Mbit/s
MODEL = BertConfig(
    vocab_size=1000,
    hidden_size=160,
    num_hidden_layers=4,
    num_attention_heads=4,
    intermediate_size=640,
    max_position_embeddings=128,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
BUCKET_MB = 0.2
PORT = 29_411


class Contestant:
    """One mode with one wire: a model of its own and what a step of it does.

    Attributes:
        exposed: seconds from a step's last gradient to the end of its last all-reduce.
        timelines: of each step.
    """

    def __init__(self, mode: str, wire: str, batch: Batch) -> None:
        self.model = BertForPreTraining(MODEL, torch.Generator().manual_seed(0))
        config = SyncConfig(
            clip=mode,  # type: ignore[arg-type]
            wire=wire,  # type: ignore[arg-type]
            bucket_cap_mb=BUCKET_MB,
            max_norm=0.1,
        )
        self.sync: GradSync = build_sync(config, self.model, Precision("fp32"))
        self._clip = build_clipping(mode, config.max_norm)
        self._batch = batch
        self.exposed: list[float] = []
        self.timelines: list[dict[str, Any]] = []
        self.sync.settle(batch)

    def step(self) -> float:
        """Seconds of a step."""
        self.model.zero_grad()
        start = time.perf_counter()
        self.sync.forward_backward([self._batch])
        self._clip(list(self.model.parameters()))
        taken = time.perf_counter() - start
        self.exposed.append(self.sync.report()[0].exposed)
        self.timelines.append(self.sync.timeline())
        return taken


def compute_alone(batch: Batch) -> Callable[[], float]:
    """A function that takes a step without communication and returns its seconds."""
    model = BertForPreTraining(MODEL, torch.Generator().manual_seed(0))
    clip = build_clipping("global_after", 0.1)

    def step() -> float:
        model.zero_grad()
        start = time.perf_counter()
        torch.autograd.backward(model(batch).loss(batch.counts))
        clip(list(model.parameters()))
        return time.perf_counter() - start

    return step


def communicate_alone(model: nn.Module, wire: str) -> Callable[[], float]:
    """A function that all-reduces a gradient of the model's size and returns its seconds."""
    flat = torch.randn(sum(parameter.numel() for parameter in model.parameters()))

    def reduce() -> float:
        start = time.perf_counter()
        average(flat, wire)
        return time.perf_counter() - start

    return reduce


def work(rank: int, master: str, rounds: int, tokens: int) -> dict[str, Any]:
    """Measure all rounds on one rank.

    Returns:
        ``seconds``: of each job, by round; ``exposed``: of each mode and wire, by round;
        ``timelines``: of each mode with fp32, by round. All in seconds.
    """
    torch.set_num_threads(1)
    limit = timedelta(seconds=60)
    store = dist.TCPStore(master, PORT, 2, rank == 0, limit)  # type: ignore[attr-defined]
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=120)
    )
    batch = make_batch([128] * (tokens // 128), MODEL.vocab_size, seed=rank)
    contestants = {
        f"{mode} {wire}": Contestant(mode, wire, batch) for mode in MODES for wire in WIRES
    }
    some = next(iter(contestants.values())).model
    jobs: dict[str, Callable[[], float]] = {"compute": compute_alone(batch)}
    jobs |= {f"communication {wire}": communicate_alone(some, wire) for wire in WIRES}
    jobs |= {name: contestant.step for name, contestant in contestants.items()}
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    names = list(jobs)
    for number in range(rounds + 1):  # the first warms up
        # another order each round, the same on both ranks
        for name in np.random.default_rng(number).permutation(names).tolist():
            dist.barrier()
            seconds[name].append(jobs[name]())
    dist.barrier()
    leave_group()
    return {
        "seconds": {name: taken[1:] for name, taken in seconds.items()},
        "exposed": {name: job.exposed[1:] for name, job in contestants.items()},
        "timelines": {mode: contestants[f"{mode} fp32"].timelines[1:] for mode in MODES},
    }


if __name__ == "__main__":
    rank, master, rounds, tokens, target = sys.argv[1:]
    measured = work(int(rank), master, int(rounds), int(tokens))
    if rank == "0":
        Path(target).write_text(json.dumps(measured))
