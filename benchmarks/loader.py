"""How fast a rank assembles its micro-batches, and whether its memory stays flat.

    python -m benchmarks.loader --lengths FILE.tsv [--samples 200000] [--json]
    python -m benchmarks.loader --data DIR [--json]

One process with one thread for torch, warm cache. Samples a second are those of the loader alone:
nothing is trained. The rate is by CPU-seconds of the whole process, so that what else the machine
does matters little; by the clock it stands beside. Memory is the process's own (anonymous), after
a tenth and at the end of ``--samples``; the memory map of the stripes is not counted.
"""

import argparse
import json
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.made_stripes import make_stripes
from dataprep.commandline import run_command
from dataprep.lengths import read_histogram
from dataprep.order import OrderConfig
from train.dali import dali_installed
from train.data import DataConfig, Dataset, TrainingBatches
from train.distributed import World

# name: (loader, preload, batch, accumulation, scheme)
CASES: dict[str, tuple[str, bool, int, int, str]] = {
    "native, batch 16": ("native", False, 16, 1, "presorted"),
    "native, batch 4": ("native", False, 4, 1, "presorted"),
    "native, batch 48 in 3": ("native", False, 48, 3, "presorted"),
    "native, preloaded": ("native", True, 16, 1, "presorted"),
    "native, packed rows": ("native", False, 16, 1, "packed"),
    "dali, batch 16": ("dali", False, 16, 1, "presorted"),
}
RANKS = 1  # the measured rank loads whole epochs


def anonymous_mb() -> float:
    """MiB of the process's own memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("RssAnon"))
    return int(line.split()[1]) / 1024


def measure(folder: Path, case: tuple[str, bool, int, int, str], samples: int) -> dict[str, float]:
    """Load ``samples`` samples on one rank; rates in samples a second, memory in MiB."""
    loader, preload, batch, accumulation, scheme = case
    config = DataConfig(
        train=str(folder),
        evaluation="",
        batch=batch,
        accumulation=accumulation,
        loader=loader,  # type: ignore[arg-type]
        preload=preload,
        order=OrderConfig(scheme=scheme),  # type: ignore[arg-type]
    )
    dataset = Dataset(folder)
    dataset.open(preload)
    done = tokens = 0
    memory = 0.0
    world = World(0, RANKS, torch.device("cpu"))
    with closing(TrainingBatches(dataset, config, world, seed=1)) as batches:
        steps = iter(batches)
        next(steps)  # threads and pipelines start, the first block of the plan is found
        clock, processor = time.perf_counter(), time.process_time()
        for step in steps:
            done += sum(micro.samples for micro in step.micro_batches)
            tokens += sum(micro.tokens for micro in step.micro_batches)
            if memory == 0.0 and done >= samples // 10:
                memory = anonymous_mb()
            if done >= samples:
                break
        seconds, processor_seconds = time.perf_counter() - clock, time.process_time() - processor
        end = anonymous_mb()
        del steps
    return {
        "samples": done,
        "mean_length": tokens / done,
        "samples_per_cpu_second": done / processor_seconds,
        "samples_per_second": done / seconds,
        "memory_mb_at_a_tenth": memory,
        "memory_mb_at_the_end": end,
    }


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.loader")
    parser.add_argument("--data", type=Path, help="folder of presorted stripes")
    parser.add_argument("--lengths", type=Path, help="histogram; stripes are made of it")
    parser.add_argument("--samples", type=int, default=200_000, help="to load, and to make")
    parser.add_argument("--stripes", type=int, default=8, help="to make")
    parser.add_argument("--only", help="the one case to measure, by name")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    if (options.data is None) == (options.lengths is None):
        print("give either --data or --lengths", file=sys.stderr)
        return 2
    if options.only is not None and options.only not in CASES:
        print(f"--only '{options.only}'; choose one of: {', '.join(CASES)}", file=sys.stderr)
        return 2
    torch.set_num_threads(1)
    rows: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as made:
        folder = options.data or Path(made)
        if options.data is None:
            make_stripes(folder, read_histogram(options.lengths), options.samples, options.stripes)
        for name in [options.only] if options.only else CASES:
            if CASES[name][0] == "dali" and not dali_installed():
                print(f"skipped: {name}: NVIDIA DALI is not installed", file=sys.stderr)
                continue
            rows[name] = measure(folder, CASES[name], options.samples)
    if options.json:
        print(json.dumps(rows, indent=1))
        return 0
    table = Table("loader", "mean length", "samples / CPU-s", "samples / s", "memory, MiB")
    for name, row in rows.items():
        memory = f"{row['memory_mb_at_a_tenth']:.0f} - {row['memory_mb_at_the_end']:.0f}"
        rates = (f"{row[key]:,.0f}" for key in ("samples_per_cpu_second", "samples_per_second"))
        table.add_row(name, f"{row['mean_length']:.1f}", *rates, memory)
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(run_command("benchmarks.loader", main))
