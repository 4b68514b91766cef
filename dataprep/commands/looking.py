"""Commands that look at what is there, or at what a run would do."""

from typing import Any

import yaml
from rich.console import Console

from dataprep.digest import canonical_digest
from dataprep.inspection import shard_paths, show_sample, summary
from dataprep.manifest import Manifest, read_manifest
from dataprep.official import expected, find_download, settings_for
from dataprep.order import OrderConfig
from dataprep.plan_report import SCHEMES, PlanSettings, plan
from dataprep.report import report
from dataprep.run_step import samples_of_run
from dataprep.shards import Shard
from dataprep.statistics import draw_histogram, length_table, statistics_lines, statistics_of
from dataprep.storage import as_path, replacing
from dataprep.verification import verify_folder


def plan_command(
    data: str,
    ranks: int,
    batch: int,
    order: OrderConfig | None = None,
    **settings: Any,
) -> None:
    """Say what a run would look like under each scheme of ordering samples, before any run.

    Args:
        data: folder of stripes, or a table of lengths (length<TAB>samples lines)
        ranks: R, as many as wanted: none is started
        batch: B, samples per slot and step
        order: also show these settings of data.order
    """
    schemes = SCHEMES if order is None else {"data.order": order, **SCHEMES}
    found = plan(as_path(data), PlanSettings(ranks, batch, **settings), schemes)
    Console(width=max(Console().width, 170)).print(found.table)
    print(*found.lines(), sep="\n")


def inspect_command(  # noqa: PLR0913 - one argument an option
    path: str,
    sample: int | None = None,
    vocab: str | None = None,
    run: str | None = None,
    step: int = 1,
    rank: int = 0,
) -> None:
    """Say what a stage's folder holds, show a sample in words, or the samples of a run's step.

    Args:
        path: folder of any stage, or a file of samples
        sample: its place in the folder's order, or its row in the file; of a file the first
        vocab: the vocabulary; null for the vocab.txt beside the samples
        run: folder of a run on these stripes: show which samples it trained on in a step
        step: of that run, counted from 1
        rank: of that run, counted from 0
    """
    found = as_path(path)
    if run is not None:
        for one in samples_of_run(as_path(run), found, step, rank):
            print(
                f"slot {one.slot}: place {one.place} = {one.file} row {one.row}, "
                f"{one.length} tokens"
            )
        return
    if sample is None and not found.is_file():
        _say(read_manifest(found))
    else:
        given = None if vocab is None else as_path(vocab)
        print(*show_sample(found, sample or 0, given), sep="\n")


def digest_command(path: str) -> None:
    """Print the digest of samples as MLPerf's reference would write them.

    Args:
        path: folder of samples or stripes, or one of its files
    """
    shards = [Shard(file) for file in shard_paths(as_path(path))]
    samples = (shard.sample(row) for shard in shards for row in range(len(shard)))
    header = shards[0].header
    records, sha256 = canonical_digest(samples, header.max_seq_length, header.max_predictions)
    print(f"records {records} sha256 {sha256}")


def verify_command(folder: str, samples: str | None = None, holdout: str | None = None) -> None:
    """Read a stage's files whole: are digests, counts and every sample right?

    Args:
        folder: of any stage
        samples: for stripes, the folder they were made of: each sample is there exactly once
        holdout: evaluation.md5: none of its documents is trained on
    """
    source = None if samples is None else as_path(samples)
    listed = None if holdout is None else as_path(holdout)
    for line in verify_folder(as_path(folder), source, listed):
        print(line, flush=True)


def stats_command(folder: str, png: str | None = None) -> None:
    """Print the lengths of samples as a table, and what they are made of.

    Args:
        folder: of samples or stripes
        png: also draw the lengths into this file
    """
    statistics = statistics_of(as_path(folder))
    print(*statistics_lines(statistics), sep="\n")
    Console().print(length_table(statistics.histogram))
    if png is not None:
        draw_histogram(statistics.histogram, as_path(png))
        print(png)


def report_command(folder: str) -> None:
    """What came in, was dropped, cut and made, by the folders of a finished run.

    Args:
        folder: the output of run
    """
    print(*report(as_path(folder)), sep="\n")


def official_command(folder: str, workers: int = 1, output: str | None = None) -> None:
    """Check MLPerf's published files and say what preparing them takes.

    Args:
        folder: with all that was downloaded, at any depth
        workers: processes at once
        output: write the settings for `run` into run.yaml of this folder, for its own output
    """
    download = find_download(as_path(folder))
    for name, path in download.files.items():
        print(f"{name}: as published ({path})")
    settings = settings_for(download, as_path(output or "data/mlperf"))
    print(*expected(download, workers), sep="\n")
    if output is not None:
        with replacing(as_path(output) / "run.yaml") as temporary:
            temporary.write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")


def _say(manifest: Manifest) -> None:
    print(*summary(manifest), sep="\n", flush=True)
