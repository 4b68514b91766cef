"""What clipping does to the overlap of backward and all-reduce, on a real slow link.

    python -m benchmarks.gradient_overlap --rate 100mbit,400mbit [--json] [--figure FILE.png]

Two ranks, one thread each, in two network namespaces joined by a shaped link (root and iproute2
needed; says so and ends otherwise). Every mode takes one step in turn, for at least ten rounds, in
the same two processes; times are medians, ratios are taken round by round.

- step: one forward and backward with its reduction and clipping
- compute: the same without any communication
- communication: the flat gradient all-reduced alone
- exposed: step - compute, what the backward pass does not hide
- limit: max(compute, communication), the least a step can take
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from rich.console import Console
from rich.table import Table
from scipy import stats
from torch import nn

from benchmarks.packed_model import make_batch
from benchmarks.shaped_link import Host, shaped_link, unavailable
from bert.batch import Batch
from bert.config import BertConfig
from bert.model import BertForPreTraining
from optim.clipping import build_clipping
from optim.communication import average
from optim.precision import Precision
from optim.sync import GradSync, SyncConfig, build_sync

MODES = ("none", "global_after", "bucket_before", "rank_before")
WIRES = ("fp32", "fp16")
TIMELINE_MODES = ("global_after", "bucket_before", "rank_before")
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


# --- one rank -------------------------------------------------------------------------------------


class Contestant:
    """One mode with one wire: a model of its own and what a step of it does."""

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
        self.sync.settle(batch)

    def step(self) -> float:
        """Seconds of a step."""
        self.model.zero_grad()
        start = time.perf_counter()
        self.sync.forward_backward([self._batch])
        self._clip(list(self.model.parameters()))
        return time.perf_counter() - start


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


def work(rank: int, master: str, repeats: int, tokens: int, target: Path) -> None:
    """Measure on one rank; rank 0 writes the seconds of all rounds to ``target``."""
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
    for repeat in range(repeats + 1):
        # another order each round, the same on both ranks
        for name in np.random.default_rng(repeat).permutation(names).tolist():
            dist.barrier()
            taken = jobs[name]()
            if repeat:  # the first round warms up
                seconds[name].append(taken)
    timelines = {mode: contestants[f"{mode} fp32"].sync.timeline() for mode in TIMELINE_MODES}
    if rank == 0:
        buckets = contestants["bucket_before fp32"].sync.buckets
        content = {"seconds": seconds, "timelines": timelines, "buckets": buckets}
        target.write_text(json.dumps(content))
    dist.barrier()
    dist.destroy_process_group()


# --- both ranks and what they measured ------------------------------------------------------------


def measure(rate: str, repeats: int, tokens: int) -> dict[str, Any]:
    """Run two ranks over a link of this rate; what rank 0 measured."""
    with shaped_link(rate) as hosts, tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "seconds.json"
        ranks = [
            _start(rank, host, hosts[0].address, [str(repeats), str(tokens), str(target)])
            for rank, host in enumerate(hosts)
        ]
        try:
            for process in ranks:
                if process.wait(timeout=1800) != 0:
                    raise ValueError(f"a rank ended with code {process.returncode}; see above")
        finally:
            for process in ranks:
                process.kill()
                process.wait()
        content: dict[str, Any] = json.loads(target.read_text())
        return content


def _start(rank: int, host: Host, master: str, options: list[str]) -> "subprocess.Popen[bytes]":
    arguments = [sys.executable, "-m", "benchmarks.gradient_overlap", "--worker"]
    environment = {
        **os.environ,
        "GLOO_SOCKET_IFNAME": host.interface,
        "OMP_NUM_THREADS": "1",
    }
    return subprocess.Popen(
        host.command([*arguments, str(rank), master, *options]), env=environment, stdout=sys.stderr
    )


def rows_of(rate: str, seconds: dict[str, list[float]]) -> list[dict[str, Any]]:
    """A row for each mode and wire; times are medians."""
    compute = statistics.median(seconds["compute"])
    rows = []
    for mode in MODES:
        for wire in WIRES:
            steps = seconds[f"{mode} {wire}"]
            step = statistics.median(steps)
            communication = statistics.median(seconds[f"communication {wire}"])
            row: dict[str, Any] = {
                "rate": rate,
                "mode": mode,
                "wire": wire,
                "step_s": step,
                "compute_s": compute,
                "communication_s": communication,
                "exposed_s": step - compute,
                "limit_s": max(compute, communication),
            }
            for other in ("none", "global_after"):
                row[f"ratio_to_{other}"] = ratio_interval(steps, seconds[f"{other} {wire}"])
            rows.append(row)
    return rows


def ratio_interval(steps: list[float], others: list[float]) -> list[float]:
    """The geometric mean of ratios taken round by round, and its 95 % interval: [low, mean, high].

    The interval is that of Student's t on the logarithms.
    """
    logs = np.log(np.array(steps) / np.array(others))
    if not logs.any():
        return [1.0, 1.0, 1.0]
    spread = stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / math.sqrt(len(logs))
    return [float(np.exp(logs.mean() + sign * spread)) for sign in (-1, 0, 1)]


def print_table(rows: list[dict[str, Any]]) -> None:
    """The rows as a table, times in milliseconds."""
    table = Table("rate", "clip", "wire", "step", "compute", "comm.", "exposed", "limit",
                  "ratio to none", "ratio to global_after")  # fmt: skip
    for row in rows:
        times = [
            row[f"{name}_s"] for name in ("step", "compute", "communication", "exposed", "limit")
        ]
        ratios = [
            "{1:.3f} ({0:.3f} - {2:.3f})".format(*row[f"ratio_to_{other}"])
            for other in ("none", "global_after")
        ]
        table.add_row(
            row["rate"], row["mode"], row["wire"], *(f"{1000 * t:.0f}" for t in times), *ratios
        )
    Console(width=130).print(table)


def draw(rate: str, timelines: dict[str, dict[str, Any]], path: Path) -> None:
    """One step of each mode as bars: the backward pass above, the buckets' all-reduces below."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(len(timelines), 1, sharex=True, figsize=(9, 5))
    for axis, (mode, timeline) in zip(axes, timelines.items(), strict=True):
        end = timeline["gradients_ready"]
        axis.broken_barh([(0, 1000 * end)], (1.1, 0.8), color="#4477aa")
        spans = [(1000 * a, 1000 * (b - a)) for a, b in timeline["all_reduces"]]
        axis.broken_barh(spans, (0.1, 0.8), color="#ee9944", edgecolor="white", linewidth=0.5)
        axis.set_yticks([0.5, 1.5], ["all-reduce", "backward"])
        axis.set_ylim(0, 2)
        axis.set_title(mode, loc="left", fontsize=10)
    axes[-1].set_xlabel(f"milliseconds since the backward pass began ({rate}, fp32)")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> int:
    """Measure and print."""
    if sys.argv[1:2] == ["--worker"]:
        rank, master, repeats, tokens, target = sys.argv[2:]
        work(int(rank), master, int(repeats), int(tokens), Path(target))
        return 0
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gradient_overlap")
    parser.add_argument("--rate", default="100mbit,400mbit", help="of the link, comma-separated")
    parser.add_argument("--repeats", type=int, default=12, help="rounds, at least 10 to quote")
    parser.add_argument("--tokens", type=int, default=8192, help="of a rank's step")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--figure", type=Path, help="PNG of one step's timeline at the first rate")
    options = parser.parse_args()
    reason = unavailable()
    if reason:
        print(f"skipped: no shaped link here: {reason}", file=sys.stderr)
        return 0
    rows: list[dict[str, Any]] = []
    for number, rate in enumerate(options.rate.split(",")):
        print(f"measuring at {rate} ...", file=sys.stderr)
        try:
            measured = measure(rate, options.repeats, options.tokens)
        except subprocess.CalledProcessError as error:
            why = str(error.stderr).strip().splitlines()[0]
            print(f"--rate {rate}: tc refuses it ({why}); write such as 100mbit", file=sys.stderr)
            return 2
        rows += rows_of(rate, measured["seconds"])
        if options.figure and number == 0:
            draw(rate, measured["timelines"], options.figure)
    if options.json:
        print(json.dumps(rows, indent=1))
    else:
        print_table(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
