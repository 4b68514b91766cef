"""Totals, shares and the histogram; and the report on a whole pipeline."""

from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from dataprep.blocks import Sample
from dataprep.lengths import LengthHistogram, read_histogram
from dataprep.manifest import Manifest, read_manifest
from dataprep.picks import takes_duplicate
from dataprep.pipeline import PipelineConfig, run_pipeline
from dataprep.report import report
from dataprep.samples import SamplesConfig
from dataprep.sentences import SentencesConfig
from dataprep.shards import Shard
from dataprep.statistics import draw_histogram, length_table, statistics_lines, statistics_of

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def prepared(corpus_file: Path, vocabulary_file: Path, tmp_path_factory) -> Path:
    root: Path = tmp_path_factory.mktemp("prepared") / "data"
    source = root.parent / "corpus.txt"
    unknown = "\n".join("qqq the river zzz ." for _ in range(30))
    source.write_text(f"{corpus_file.read_text()}\n{unknown}\n\n\u200b\n")
    config = PipelineConfig(
        sources=[str(source)],
        vocab=str(vocabulary_file),
        output=str(root),
        parts=2,
        evaluation_documents=5,
        evaluation_samples=10,
        sentences=SentencesConfig(splitter="lines"),
        samples=SamplesConfig(max_seq_length=64, max_predictions=10, dupe_factor=2),
        stripes=3,
    )
    for _ in run_pipeline(config):
        pass
    return root


def samples_of(folder: Path) -> list[Sample]:
    shards = [Shard(folder / entry.file) for entry in read_manifest(folder).files]
    return [shard.sample(row) for shard in shards for row in range(len(shard))]


@pytest.mark.parametrize("name", ["train", "evaluation", "samples/train", "samples/evaluation"])
def test_totals_are_those_of_the_samples(prepared: Path, name: str) -> None:
    found = statistics_of(prepared / name)
    samples = samples_of(prepared / name)
    restored = []
    for sample in samples:
        tokens = sample.tokens.copy()
        tokens[sample.mlm_positions] = sample.mlm_labels
        restored.append(tokens)
    unknown = sum(int((tokens == 1).sum()) for tokens in restored)
    total = sum(map(len, restored))
    assert (found.histogram.samples, found.histogram.tokens) == (len(samples), total)
    assert found.masked_tokens == sum(len(sample.mlm_labels) for sample in samples)
    assert found.random_next == sum(sample.next_sentence_label for sample in samples)
    if name.startswith("samples/"):  # counted in the text, each token once
        counts = read_manifest(prepared / name).counts
        assert (found.unknown_tokens, found.text_tokens) == (
            counts["unknown_tokens"],
            counts["text_tokens"],
        )
        assert 0 < found.text_tokens < total
    else:
        assert (found.unknown_tokens, found.text_tokens) == (unknown, total - 3 * len(samples))
    assert found.masked_share == pytest.approx(found.masked_tokens / total)
    assert found.random_share == pytest.approx(found.random_next / len(samples))
    if "train" in name:
        assert found.unknown_share > 0


def test_what_the_manifest_counted_is_not_read_again(prepared: Path, tmp_path: Path) -> None:
    manifest = read_manifest(prepared / "samples" / "train")
    counts = {"random_next": 3, "masked_tokens": 5, "unknown_tokens": 7, "text_tokens": 70}
    replace(manifest, files=[], lengths={9: 6}).write(tmp_path)
    entry = replace(manifest.files[0], file="manifest.json", bytes=0, counts=counts)
    for _ in range(3):  # until the manifest's own size stands in it
        entry = replace(entry, bytes=(tmp_path / "manifest.json").stat().st_size)
        replace(manifest, files=[entry], lengths={9: 6}).write(tmp_path)
    found = statistics_of(tmp_path)
    assert (found.random_share, found.unknown_share) == (0.5, 0.1)


def test_totals_in_lines(prepared: Path) -> None:
    lines = list(statistics_lines(statistics_of(prepared / "train")))
    assert [line.split()[1 if i == 0 else 0] for i, line in enumerate(lines)] == [
        "samples,", "lengths:", "second", "masked:", "[UNK]:"
    ]  # fmt: skip


def test_the_wikipedia_histogram_as_a_table_and_a_picture(
    shared_data: Path, tmp_path: Path
) -> None:
    histogram = read_histogram(shared_data / "lengths" / "wikipedia_512.tsv")
    assert histogram.mean == pytest.approx(255.83, abs=0.01)
    assert histogram.share_at_longest == pytest.approx(0.2343, abs=5e-5)
    bins = histogram.binned(16)
    assert (len(bins), bins[0][:2], bins[-1][:2]) == (17, (1, 32), (512, 512))
    assert sum(count for *_, count in bins) == histogram.samples
    stream = StringIO()
    Console(width=100, file=stream).print(length_table(histogram))
    assert (text := stream.getvalue()).count("%") == 34
    assert "1 to 32" in text and "23.43%" in text and "100.00%" in text
    draw_histogram(histogram, tmp_path / "lengths.png")
    assert (tmp_path / "lengths.png").read_bytes().startswith(PNG)
    assert [path.name for path in tmp_path.iterdir()] == ["lengths.png"]


@pytest.mark.parametrize("counts", [{5: 3}, {1: 1}, {7: 1, 8: 2, 9: 3}, {3: 5, 500: 1}])
def test_bins_hold_each_sample_once(counts: dict[int, int]) -> None:
    histogram = LengthHistogram(counts)
    for number in (1, 4, 16):
        bins = histogram.binned(number)
        longest = max(counts)
        assert bins[-1] == (longest, longest, counts[longest])
        lengths = [x for first, last, _ in bins for x in range(first, last + 1)]
        assert lengths == list(range(1, longest + 1))
        for first, last, count in bins:
            assert count == sum(n for length, n in counts.items() if first <= length <= last)


def test_an_empty_histogram_has_an_empty_table(tmp_path: Path) -> None:
    assert LengthHistogram({}).binned(8) == []
    assert length_table(LengthHistogram({})).row_count == 0
    draw_histogram(LengthHistogram({}), tmp_path / "empty.png")


def test_case_18_every_count_of_every_stage_is_in_the_report(prepared: Path) -> None:
    lines = report(prepared)
    text = "\n".join(lines)
    for stage in ("documents", "sentences", "holdout", "samples/train", "samples/evaluation"):
        for name, count in read_manifest(prepared / stage).counts.items():
            assert not count or f"{count:,} {name.replace('_', ' ')}" in text, (stage, name)
    assert "documents not taken" in text and "documents without tokens" in text
    for part in ("second segments: ", "masked: ", "[UNK]: ", "time:", "set evaluation:"):
        assert part in text
    assert (prepared / "lengths.png").read_bytes().startswith(PNG)
    assert any(line.endswith("lengths.png") for line in lines)


@dataclass(frozen=True)
class TimedManifest(Manifest):
    seconds: dict[str, float] = field(default_factory=dict)


def test_the_report_takes_a_stages_seconds_from_its_manifest(
    prepared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(folder: Path, stages: tuple[str, ...] = ()) -> Manifest:
        manifest = read_manifest(folder, stages)
        seconds = {"waited": 12.25} if folder.name == "sentences" else {}
        fields = {name: getattr(manifest, name) for name in manifest.__dataclass_fields__}
        return TimedManifest(**fields, seconds=seconds)

    monkeypatch.setattr("dataprep.report.read_manifest", read)
    lines = report(prepared)
    assert "  sentences: 12.2 s waited" in lines
    assert any(line.startswith("  documents: ") and "processor" in line for line in lines)


def test_a_report_needs_every_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"samples/train.*not a finished stage"):
        report(tmp_path)


def test_case_21_a_share_of_documents_and_duplicates_is_uniform_and_grows() -> None:
    pairs = [(f"{document:032x}", duplicate) for document in range(2000) for duplicate in range(5)]
    few, many = (
        [pair for pair in pairs if takes_duplicate(*pair, share=share, seed=1)]
        for share in (0.1, 0.3)
    )
    assert set(few) < set(many)
    # six standard deviations of 10,000 draws
    assert abs(len(few) - 1000) < 180 and abs(len(many) - 3000) < 275
    by_duplicate = np.bincount([duplicate for _, duplicate in many])
    assert abs(by_duplicate - 600).max() < 125
    assert not any(takes_duplicate(*pair, share=0.0, seed=1) for pair in pairs)
    assert all(takes_duplicate(*pair, share=1.0, seed=1) for pair in pairs)
    other = {pair for pair in pairs if takes_duplicate(*pair, share=0.1, seed=2)}
    assert len(other & set(few)) < 200
