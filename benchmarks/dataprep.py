"""Data preparation: what a core makes in a second, memory, and several workers.

    python -m benchmarks.dataprep [--json] [--megabytes N] [--builder fast,reference] ...

Text parts are made once; then each measurement is a process of its own, one thread a worker.
MB are 10^6 bytes of text parts. The baseline is `tokenizers` alone on the same sentences.
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import dataprep_measures as measures
from benchmarks.dataprep_corpus import MEGABYTE, TextParts, make_text_parts
from dataprep.commandline import run_command
from dataprep.sample_stages import METHODS

_SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
_CORPUS = _SHARED / "wiki_text" / "enwiki-2021-slice-AA.tar.xz"
_VOCABULARY = _SHARED / "vocab" / "bert-uncased-vocab.txt"
_GROWTH = 10  # how much larger the corpus is whose memory is compared


@dataclass(frozen=True)
class Row:
    """One measurement; rates are per CPU-second, None where they have no meaning."""

    measured: str
    builder: str = ""
    mb_per_second: float | None = None
    sentences_per_second: float | None = None
    samples_per_second: float | None = None
    cpu_seconds: float | None = None
    wall_seconds: float | None = None
    peak_mb: float | None = None


class Benchmark:
    """All measurements on one set of text parts.

    Args:
        text: the parts.
        vocabulary: BERT's uncased vocab.txt.
        work: a folder for what is made.
    """

    def __init__(self, text: TextParts, vocabulary: Path, work: Path) -> None:
        self._text = text
        self._vocabulary = vocabulary
        self._work = work

    def text_rows(self) -> Iterator[Row]:
        """Sentence splitting, and tokenising with nothing else."""
        yield self._row("split sentences", self._text.split_seconds)
        alone = measures.in_fresh_process(
            measures.tokenise_alone, self._text.paths, self._vocabulary
        )
        yield self._row("tokenizers alone", alone["cpu_seconds"])

    def builder_rows(self, builder: str) -> Iterator[Row]:
        """Stages at dupe factor 1 and 10, one and two workers, and a larger corpus."""
        for dupe in (1, 10):
            found = self._stages(builder, self._text.paths, dupe)
            tokenise, build = found["tokenise_seconds"], found["build_seconds"]
            samples = found["samples"]
            if dupe == 1:
                yield self._row("tokenise", tokenise, builder)
            yield self._row(f"build and write, dupe {dupe}", build, builder, samples)
            yield self._row(f"all, dupe {dupe}", tokenise + build, builder, samples,
                            peak_mb=found["peak_mb"])  # fmt: skip
        for count in (1, 2):
            found = measures.in_fresh_process(
                measures.workers, self._task(builder, self._text.paths, 10), self._fresh(), count
            )
            name = f"dupe 10, {count} worker{'s' * (count > 1)}"
            yield Row(
                name,
                builder,
                cpu_seconds=found["cpu_seconds"],
                wall_seconds=found["wall_seconds"],
                peak_mb=found["peak_mb"],
            )
        for times in (1, _GROWTH):
            parts = list(measures.repeated(self._text.paths[:1], times))
            found = self._stages(builder, parts, 1)
            yield Row(f"corpus x {times}, dupe 1", builder, peak_mb=found["peak_mb"])

    def presort_row(self, builder: str, samples: int) -> Row:
        """Presort of so many samples."""
        made = self._stages(builder, self._text.paths, 10)
        shards = sorted((self._work / "shards").glob("*.h5"))
        times = -(-samples // int(made["samples"]))
        target = self._work / "stripes"
        target.mkdir()
        found = measures.in_fresh_process(
            measures.sort, list(measures.repeated(shards, times)), target, samples
        )
        return Row(
            f"presort {samples:,} samples",
            samples_per_second=samples / found["cpu_seconds"],
            cpu_seconds=found["cpu_seconds"],
            wall_seconds=found["wall_seconds"],
            peak_mb=found["peak_mb"],
        )

    def _stages(self, builder: str, parts: Sequence[Path], dupe: int) -> dict[str, float]:
        task = self._task(builder, parts, dupe)
        return measures.in_fresh_process(measures.stages, task, self._fresh())

    def _task(self, builder: str, parts: Sequence[Path], dupe: int) -> measures.Task:
        return measures.Task(parts, self._vocabulary, builder, dupe)

    def _fresh(self) -> Path:
        """An empty folder for shards; the last measurement's are deleted."""
        folder = self._work / "shards"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def _row(
        self,
        measured: str,
        seconds: float,
        builder: str = "",
        samples: float | None = None,
        peak_mb: float | None = None,
    ) -> Row:
        return Row(
            measured,
            builder,
            mb_per_second=self._text.bytes / MEGABYTE / seconds,
            sentences_per_second=self._text.sentences / seconds,
            samples_per_second=None if samples is None else samples / seconds,
            cpu_seconds=seconds,
            peak_mb=peak_mb,
        )


def run(options: argparse.Namespace, show: Callable[[Row], None]) -> list[Row]:
    """All rows, each shown as soon as it is there.

    Raises:
        ValueError: no corpus or vocabulary, too little text, an unknown builder, a size below 1.
    """
    builders = options.builder.split(",")
    for name in builders:
        if name not in METHODS:
            raise ValueError(f"builder '{name}': give one of {', '.join(METHODS)}")
    for name in ("megabytes", "parts", "presort_samples"):
        if getattr(options, name) < 1:
            raise ValueError(f"{name} {getattr(options, name)} must be at least 1")
    vocabulary = _given(options.vocabulary, _VOCABULARY, "vocabulary")
    corpus = _given(options.corpus, _CORPUS, "corpus")
    rows = []
    with tempfile.TemporaryDirectory(dir=options.work) as temporary:
        work = Path(temporary)
        size = options.megabytes * MEGABYTE
        text = make_text_parts(corpus, work, size, -(-size // options.parts))
        benchmark = Benchmark(text, vocabulary, work)
        for row in _rows(benchmark, builders, options.presort_samples):
            show(row)
            rows.append(row)
    return rows


def _rows(benchmark: Benchmark, builders: Sequence[str], presort_samples: int) -> Iterator[Row]:
    yield from benchmark.text_rows()
    for builder in builders:
        yield from benchmark.builder_rows(builder)
    yield benchmark.presort_row(builders[0], presort_samples)


def _given(path: Path | None, default: Path, name: str) -> Path:
    if path is None and not default.is_file():
        raise ValueError(f"{name}: none given; name one with --{name}")
    return path or default


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m benchmarks.dataprep", description=__doc__)
    parser.add_argument("--corpus", type=Path, help="WikiExtractor's output: file, folder or tar")
    parser.add_argument("--vocabulary", type=Path, help="BERT's uncased vocab.txt")
    parser.add_argument("--builder", default="fast", help="names with commas between them")
    parser.add_argument("--megabytes", type=int, default=32, help="of text")
    parser.add_argument("--parts", type=int, default=2, help="that the text is cut into")
    parser.add_argument("--presort-samples", type=int, default=1_000_000)
    parser.add_argument("--work", type=Path, help="where a temporary folder is made")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


def _table(rows: Sequence[Row]) -> Table:
    table = Table("measured", "builder", "MB/CPU-s", "sentences/CPU-s", "samples/CPU-s", "CPU s",
                  "wall s", "peak MB")  # fmt: skip
    for row in rows:
        name, builder, *values = asdict(row).values()
        digits = (2, 0, 0, 1, 1, 0)
        table.add_row(name, builder, *map(_number, values, digits))
    return table


def _number(value: Any, digits: int) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; returns the exit code."""
    options = _parser().parse_args(arguments)

    def command() -> int:
        rows = run(options, lambda row: print(f"{row.measured} ...", file=sys.stderr))
        if options.json:
            print(json.dumps([asdict(row) for row in rows], indent=1))
        else:
            Console(width=120).print(_table(rows))
        return 0

    return run_command("benchmarks.dataprep", command)


if __name__ == "__main__":
    sys.exit(main())
