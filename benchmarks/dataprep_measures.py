"""What the benchmark of data preparation measures, each in a process of its own.

A worker is held to one thread, so CPU-seconds are those of one core; peak memory is the process's
largest resident set.
"""

import multiprocessing
import os
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dataprep.engine import EngineConfig, Job, run_jobs
from dataprep.holdout import HoldOut
from dataprep.manifest import FileEntry
from dataprep.parts import read_parts
from dataprep.presort import PresortConfig, presort
from dataprep.sample_stages import METHODS, Recipe
from dataprep.samples import SamplesConfig
from dataprep.shards import ShardWriter
from dataprep.tokenization import build_tokenizer, load_vocabulary
from dataprep.tokenized import tokenise_parts

MEGABYTE = 1_000_000
_SEED = 12345
_ENCODED_AT_ONCE = 4096


@dataclass(frozen=True)
class Task:
    """Text parts, the vocabulary's file, a builder's name, how often the text is gone through."""

    parts: Sequence[Path]
    vocabulary: Path
    builder: str
    dupe_factor: int

    def recipe(self) -> Recipe:
        """MLPerf's lengths and probabilities."""
        vocabulary = load_vocabulary(self.vocabulary)
        config = SamplesConfig(dupe_factor=self.dupe_factor)
        return Recipe(vocabulary, True, config, HoldOut(), _SEED, self.builder)


def in_fresh_process(
    function: Callable[..., dict[str, float]], *arguments: Any
) -> dict[str, float]:
    """What a function returns, called in a new process, whose CPU time and memory are its own."""
    os.environ.update(TOKENIZERS_PARALLELISM="false", RAYON_NUM_THREADS="1", OMP_NUM_THREADS="1")
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context) as executor:
        return executor.submit(function, *arguments).result()


def tokenise_alone(parts: Sequence[Path], vocabulary: Path) -> dict[str, float]:
    """The baseline: `tokenizers` on batches of sentences, and nothing kept."""
    tokenizer = build_tokenizer(load_vocabulary(vocabulary), lowercase=True)
    sentences = [sentence for document in read_parts(parts) for sentence in document]
    start = time.process_time()
    tokens = 0
    for first in range(0, len(sentences), _ENCODED_AT_ONCE):
        some = sentences[first : first + _ENCODED_AT_ONCE]
        encoded = tokenizer.encode_batch_fast(some, add_special_tokens=False)
        tokens += sum(len(one.ids) for one in encoded)
    return {
        "cpu_seconds": time.process_time() - start,
        "sentences": len(sentences),
        "tokens": tokens,
    }


def stages(task: Task, folder: Path) -> dict[str, float]:
    """One worker, part after part: CPU-seconds of each stage, what was made, and peak memory."""
    totals: Counter[str] = Counter()
    for number, _ in enumerate(task.parts):
        for name, value in _make_shard(task, number, folder / f"{number:05d}.h5").items():
            totals[name] += value  # type: ignore[assignment]
    return {**totals, "peak_mb": _peak_mb()}


def _make_shard(task: Task, number: int, target: Path) -> dict[str, float]:
    recipe, counts = task.recipe(), Counter[str]()
    method = METHODS[task.builder]
    start = time.process_time()
    tokenizer = method.tokenizer(recipe.vocabulary, recipe.lowercase)
    documents = tokenise_parts([task.parts[number]], tokenizer, recipe.holdout, counts)
    tokenised = time.process_time()
    with ShardWriter(target, recipe.header({})) as writer:
        for block in method.builder(documents, recipe, number).blocks():
            writer.write_block(block)
    return {
        "tokenise_seconds": tokenised - start,
        "build_seconds": time.process_time() - tokenised,
        "sentences": counts["sentences"],
        "samples": writer.entry.counts["samples"],
        "tokens": writer.entry.counts["tokens"],
    }


def workers(task: Task, folder: Path, count: int) -> dict[str, float]:
    """All parts by so many workers, each part in a fresh process: seconds of wall and of CPU."""
    targets = [folder / f"{number:05d}.h5" for number in range(len(task.parts))]
    jobs = [
        Job(target.name, partial(_job, task, number, target), {"workers": count})
        for number, target in enumerate(targets)
    ]
    start, cpu = time.perf_counter(), _cpu_seconds()
    entries = run_jobs(folder, jobs, EngineConfig("processes", workers=count))
    return {
        "wall_seconds": time.perf_counter() - start,
        "cpu_seconds": _cpu_seconds() - cpu,
        "peak_mb": max(entry.counts["peak_kb"] for entry in entries) / 1000,
    }


def _job(task: Task, number: int, target: Path) -> list[FileEntry]:
    _make_shard(task, number, target)
    return [
        FileEntry(target.name, target.stat().st_size, "", {"peak_kb": round(_peak_mb() * 1000)})
    ]


def sort(shards: Sequence[Path], folder: Path, samples: int) -> dict[str, float]:
    """Presort so many samples; the shards are repeated until they hold as many."""
    start, cpu = time.perf_counter(), _cpu_seconds()
    presort(shards, folder, PresortConfig(samples=samples), _SEED)
    return {
        "wall_seconds": time.perf_counter() - start,
        "cpu_seconds": _cpu_seconds() - cpu,
        "peak_mb": _peak_mb(),
    }


def repeated(paths: Sequence[Path], times: int) -> Iterator[Path]:
    """The paths one after the other, so many times."""
    for _ in range(times):
        yield from paths


def _cpu_seconds() -> float:
    """Of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _peak_mb() -> float:
    """The largest resident set of this process so far."""
    status = Path("/proc/self/status")
    if status.is_file():  # getrusage counts what the parent had when it started this process
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(lines["VmHWM"].split()[0]) * 1024 / MEGABYTE
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MEGABYTE
