"""What the order of samples does to the time of a step: two ranks, real text, each scheme in turn.

    python -m benchmarks.step_time --compare order [--repeats 12] [--json]

Two processes of one thread each train a small model through DDP on gloo. In each round every
scheme takes some steps in turn, in an order drawn anew; ratios are taken round by round.

- step: time of a whole step, from asking for the batch to the clipped gradient
- per 1,000 tokens: the same by the tokens of both ranks; all schemes hold about as many
- wait: share of the time in which a rank has nothing to do but wait in the all-reduce for the
  other: its exposed all-reduce beyond that of the rank which comes last, mean over ranks
- ratio: of the time per token to that of the fastest scheme, with its 95 % interval
"""

import argparse
import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from rich.console import Console
from rich.table import Table

from benchmarks.gradient_overlap.figures import ratio_interval
from benchmarks.wiki_slice import prepare
from bert.config import BertConfig
from bert.model import BertForPreTraining
from dataprep.errors import describe
from dataprep.lengths import LengthHistogram
from dataprep.order import OrderConfig
from optim.clipping import build_clipping
from optim.communication import leave_group
from optim.precision import Precision
from optim.sync import SyncConfig, build_sync
from train.data import DataConfig, Dataset, StepBatches, TrainingBatches, synthetic_batch
from train.distributed import World
from train.exchange import Exchange, build_exchange

RANKS = 2
BATCH = 16
BINS = (128, 256, 384, 512)
MODEL = BertConfig(
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=256,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)


def schemes_of(histogram: LengthHistogram) -> dict[str, tuple[OrderConfig, int]]:
    """Name -> order and batch, all with about the same tokens in a step.

    Strata have the dataset's own mix of lengths; packed rows are as many as full ones would be.
    """
    edges = np.searchsorted(histogram.lengths, BINS, side="right")
    shares = np.diff(histogram.starts[edges], prepend=0) / histogram.samples
    ends = np.rint(BATCH * np.cumsum(shares)).astype(int)
    counts = tuple(max(1, count) for count in np.diff(ends, prepend=0).tolist())
    rows = max(1, round(BATCH * histogram.mean / BINS[-1]))
    strata: dict[str, Any] = {"strata_bins": BINS, "strata_counts": counts}
    return {
        "presorted": (OrderConfig("presorted"), BATCH),
        "random": (OrderConfig("random"), BATCH),
        "strata": (OrderConfig("strata", **strata), sum(counts)),
        "exchange, plain": (OrderConfig("exchange"), BATCH),
        "exchange, strata and snake": (
            OrderConfig("exchange", with_strata=True, deal="snake", **strata),
            sum(counts),
        ),
        "packed": (OrderConfig("packed"), rows),
    }


class Contestant:
    """One scheme: its batches, and what they have taken so far."""

    def __init__(self, order: OrderConfig, batch: int, dataset: Dataset, world: World) -> None:
        config = DataConfig(train="", evaluation="", batch=batch, order=order)
        first = TrainingBatches(dataset, config, world, seed=1).order(0)
        self.exchange: Exchange | None = build_exchange(
            first, world.size, world, dataset.histogram, dataset.header.max_predictions
        )
        self.batches = TrainingBatches(dataset, config, world, seed=1, exchange=self.exchange)
        self.steps: Iterator[StepBatches] = iter(self.batches)

    @property
    def bytes_sent(self) -> int:
        """By this rank so far, samples alone."""
        return 0 if self.exchange is None else self.exchange.bytes_sent


def measure(rank: int, folder: Path, store: str, rounds: int, steps: int) -> dict[str, Any]:
    """All rounds on one rank.

    Returns:
        for each scheme, by round: seconds and tokens of a step, mean over ``steps``, ``wait`` as a
        share, and bytes sent for a step; over both ranks but for the seconds.
    """
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        store=dist.FileStore(store, RANKS),  # type: ignore[attr-defined]
        rank=rank,
        world_size=RANKS,
        timeout=timedelta(seconds=120),
    )
    world = World(rank, RANKS, torch.device("cpu"))
    dataset = Dataset(folder)
    dataset.open()
    model = BertForPreTraining(MODEL, torch.Generator().manual_seed(0))
    sync = build_sync(SyncConfig(bucket_cap_mb=1.0), model, Precision("fp32"))
    sync.settle(synthetic_batch(MODEL, BATCH * 256, 512))
    clip = build_clipping("global_after", 1.0)
    contestants = {
        name: Contestant(order, batch, dataset, world)
        for name, (order, batch) in schemes_of(dataset.histogram).items()
    }
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in contestants}

    def turn(contestant: Contestant) -> dict[str, float]:
        tokens, exposed, sent = 0, [], contestant.bytes_sent
        dist.barrier()
        start = time.perf_counter()
        for _ in range(steps):
            batches = next(contestant.steps)
            model.zero_grad()
            sync.forward_backward(batches.micro_batches)
            clip(list(model.parameters()))
            exposed.append(sync.report()[0].exposed)
            tokens += sum(micro.tokens for micro in batches.micro_batches)
        seconds = time.perf_counter() - start
        all_exposed = torch.zeros(RANKS, steps, dtype=torch.float64)
        all_exposed[rank] = torch.tensor(exposed)
        dist.all_reduce(all_exposed)
        sums = torch.tensor([tokens, contestant.bytes_sent - sent], dtype=torch.float64)
        dist.all_reduce(sums)
        waited = (all_exposed - all_exposed.min(0).values).sum()
        return {
            "seconds": seconds / steps,
            "tokens": float(sums[0]) / steps,
            "wait": float(waited) / RANKS / seconds,
            "bytes": float(sums[1]) / steps,
        }

    for number in range(rounds + 1):  # the first warms up
        # another order each round, the same on both ranks
        for name in np.random.default_rng(number).permutation(list(contestants)).tolist():
            rows[name].append(turn(contestants[name]))
    dist.barrier()
    leave_group()
    return {name: taken[1:] for name, taken in rows.items()}


def _rank(rank: int, folder: Path, work: str, rounds: int, steps: int) -> None:
    measured = measure(rank, folder, f"{work}/store", rounds, steps)
    if rank == 0:
        (Path(work) / "rows.json").write_text(json.dumps(measured))


def run(folder: Path, rounds: int, steps: int) -> dict[str, list[dict[str, float]]]:
    """Both ranks; what rank 0 measured.

    Raises:
        ValueError: a rank failed.
    """
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as work:
        ranks = [
            context.Process(target=_rank, args=(rank, folder, work, rounds, steps), daemon=True)
            for rank in range(RANKS)
        ]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
        if any(process.exitcode for process in ranks):
            raise ValueError(f"a rank ended with code {[p.exitcode for p in ranks]}; see above")
        rows: dict[str, list[dict[str, float]]] = json.loads((Path(work) / "rows.json").read_text())
        return rows


def figures(measured: dict[str, list[dict[str, float]]]) -> dict[str, dict[str, Any]]:
    """Medians over the rounds, and ratios of the time per token to the fastest scheme's."""
    rates = {
        name: [row["seconds"] / row["tokens"] for row in rows] for name, rows in measured.items()
    }
    fastest = min(rates, key=lambda name: statistics.median(rates[name]))
    return {
        name: {
            "step_s": statistics.median(row["seconds"] for row in rows),
            "tokens_per_step": statistics.mean(row["tokens"] for row in rows),
            "s_per_1000_tokens": 1000 * statistics.median(rates[name]),
            "wait": statistics.mean(row["wait"] for row in rows),
            "bytes_per_step": statistics.mean(row["bytes"] for row in rows),
            "ratio_to_fastest": ratio_interval(rates[name], rates[fastest]),
        }
        for name, rows in measured.items()
    }


def main() -> int:
    """Prepare, measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.step_time")
    parser.add_argument("--compare", choices=["order"], required=True, help="what differs")
    data = Path("../shared/data")
    corpus = data / "wiki_text" / "enwiki-2021-slice-AA.tar.xz"
    parser.add_argument("--corpus", type=Path, default=corpus, help="WikiExtractor's output")
    vocabulary = data / "vocab" / "bert-uncased-vocab.txt"
    parser.add_argument("--vocab", type=Path, default=vocabulary, help="BERT's vocab.txt")
    parser.add_argument("--work", type=Path, default=Path("data/wiki_slice"), help="prepared data")
    parser.add_argument("--megabytes", type=int, default=20, help="of text to prepare")
    parser.add_argument("--length", type=int, default=512, help="max_seq_length of the samples")
    parser.add_argument("--repeats", type=int, default=12, help="rounds, at least 10 to quote")
    parser.add_argument("--steps", type=int, default=6, help="of each scheme in a round")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    for name in ("megabytes", "length", "repeats", "steps"):
        if getattr(options, name) < 1:
            print(f"--{name} {getattr(options, name)} must be at least 1", file=sys.stderr)
            return 2
    try:
        folder = prepare(
            options.corpus, options.vocab, options.work, options.megabytes, options.length
        )
        rows = figures(run(folder, options.repeats, options.steps))
    except (ValueError, OSError) as error:
        print(describe(error), file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(rows, indent=1))
    else:
        print_table(rows)
    return 0


def print_table(rows: dict[str, dict[str, Any]]) -> None:
    """The figures as a table, times in milliseconds."""
    table = Table("order", "step", "tokens", "per 1,000 tokens", "wait, %", "bytes moved", "ratio")
    for name, row in rows.items():
        table.add_row(
            name,
            f"{1000 * row['step_s']:.0f}",
            f"{row['tokens_per_step']:,.0f}",
            f"{1000 * row['s_per_1000_tokens']:.1f}",
            f"{100 * row['wait']:.1f}",
            f"{row['bytes_per_step']:,.0f}",
            "{1:.3f} ({0:.3f} - {2:.3f})".format(*row["ratio_to_fastest"]),
        )
    Console(width=110).print(table)


if __name__ == "__main__":
    sys.exit(main())
