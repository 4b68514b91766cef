"""The report on a prepared data set: what came in, what was dropped or cut, what came out."""

from collections.abc import Iterator
from pathlib import Path

from dataprep.engine.receipts import stage_seconds
from dataprep.manifest import Manifest, read_manifest
from dataprep.statistics import draw_histogram, statistics_lines, statistics_of

CHART_NAME = "lengths.png"
_SETS = ("train", "evaluation")
_STAGES = ("documents", "sentences", "holdout", *(f"samples/{name}" for name in _SETS), *_SETS)
_MADE = {  # what a stage counts of its result; all else is passed over, cut or noteworthy
    "documents": ("documents",),
    "sentences": ("documents", "sentences"),
    "holdout": ("documents",),
    "samples": ("documents", "sentences", "samples", "tokens", "masked_tokens", "random_next"),
    "presort": ("samples", "tokens", "masked_tokens"),
}


def report(root: Path) -> list[str]:
    """The report on all folders of a pipeline under ``root``; draws ``lengths.png`` there.

    Raises:
        ValueError: a folder is missing or unfinished.
    """
    manifests = {stage: read_manifest(root / stage) for stage in _STAGES}
    lines: list[str] = []
    for stage, manifest in manifests.items():
        lines += _stage_lines(stage, manifest)
    for name in _SETS:
        statistics = statistics_of(root / name)
        lines.append(f"set {name}:")
        lines += [f"  {line}" for line in statistics_lines(statistics)]
        if name == "train":
            draw_histogram(statistics.histogram, root / CHART_NAME)
            lines.append(f"  histogram of lengths: {root / CHART_NAME}")
    return [*lines, "time:", *_time_lines(root, manifests)]


def _stage_lines(stage: str, manifest: Manifest) -> Iterator[str]:
    counts = manifest.counts
    made = [name for name in _MADE.get(manifest.stage, ()) if name in counts]
    files = f"{len(manifest.sources)} files in, {len(manifest.files)} out"
    yield f"{stage}: {files}; {', '.join(_counted(counts, made))}"
    others = [name for name in sorted(counts) if name not in made and counts[name]]
    if others:
        yield f"  passed over, cut or noted: {', '.join(_counted(counts, others))}"


def _counted(counts: dict[str, int], names: list[str]) -> Iterator[str]:
    for name in names:
        yield f"{counts[name]:,} {name.replace('_', ' ')}"


def _time_lines(root: Path, manifests: dict[str, Manifest]) -> Iterator[str]:
    for stage, manifest in manifests.items():
        seconds: dict[str, float] = getattr(manifest, "seconds", {})
        if not seconds:  # then those of the receipts
            in_jobs, processor = stage_seconds(root / stage)
            seconds = {"in its jobs": in_jobs, "of processor time": processor}
        yield f"  {stage}: {', '.join(f'{value:.1f} s {name}' for name, value in seconds.items())}"
