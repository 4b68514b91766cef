"""The benchmark of load balance: every scheme, stripes as well as a histogram, a figure."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.load_balance import PUBLISHED, Lengths, main, measure, read_stripes
from dataprep.lengths import read_histogram
from dataprep.order.budget import MaskRule
from dataprep.pipeline import PipelineConfig, run_pipeline
from dataprep.plan_report import SCHEMES
from dataprep.samples import SamplesConfig
from dataprep.sentences import SentencesConfig


@pytest.fixture
def table(tmp_path: Path) -> Path:
    lengths = np.random.default_rng(0).integers(5, 513, 5000)
    values, counts = np.unique(lengths, return_counts=True)
    rows = zip(values.tolist(), counts.tolist(), strict=True)
    (tmp_path / "lengths.tsv").write_text("".join(f"{n}\t{c}\n" for n, c in rows))
    return tmp_path / "lengths.tsv"


def test_every_scheme_as_json_and_the_figure(table: Path, capsys) -> None:
    figure = table.parent / "loads.png"
    options = ["--ranks", "8", "--batch", "8", "--lengths", str(table), "--steps", "20"]
    assert main([*options, "--json", "--figure", str(figure)]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert list(rows) == list(SCHEMES)
    for row in rows.values():
        assert {"tokens", "squared", "spread", "bytes_per_step", "budget_waste"} <= row.keys()
        assert row["tokens"] >= 1 and row["squared"] >= 1 and 0 <= row["budget_waste"] < 1
    assert rows["presorted"]["tokens"] == min(row["tokens"] for row in rows.values())
    assert rows["presorted"]["bytes_per_step"] == 0 < rows["exchange"]["bytes_per_step"]
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_a_table(table: Path, capsys) -> None:
    assert main(["--ranks", "2", "--batch", "4", "--lengths", str(table), "--steps", "5"]) == 0
    assert "exchange snake" in capsys.readouterr().out


@pytest.mark.parametrize("world", [(1024, 16), (1368, 12), (8, 56)])
def test_published_figures_are_met_within_two_percent(shared_data, world: tuple[int, int]) -> None:
    histogram = read_histogram(shared_data / "lengths" / "wikipedia_512.tsv")
    lengths = Lengths(histogram, None, MaskRule())
    for scheme, published in PUBLISHED[world].items():
        row = measure(SCHEMES[scheme], lengths, *world, steps=24)
        assert row.tokens == pytest.approx(published, rel=0.02), scheme


@pytest.mark.parametrize(
    ("ranks", "batch", "spread"), [(1024, 16, 0.015), (64, 48, 0.015), (1368, 12, 0.02)]
)
def test_presorted_meets_its_targets(shared_data, ranks: int, batch: int, spread: float) -> None:
    histogram = read_histogram(shared_data / "lengths" / "wikipedia_512.tsv")
    lengths = Lengths(histogram, None, MaskRule())
    row = measure(SCHEMES["presorted"], lengths, ranks, batch, steps=100)
    assert row.tokens <= 1.001
    assert row.squared <= 1.002
    assert row.bytes_per_step == 0
    assert row.spread <= spread


@pytest.fixture
def stripes(tmp_path: Path, corpus_file: Path, vocabulary_file: Path) -> Path:
    config = PipelineConfig(
        sources=[str(corpus_file)],
        vocab=str(vocabulary_file),
        output=str(tmp_path / "data"),
        evaluation_documents=6,
        evaluation_samples=10,
        sentences=SentencesConfig(splitter="lines"),
        samples=SamplesConfig(max_seq_length=64, max_predictions=10, dupe_factor=4),
        stripes=3,
    )
    for _ in run_pipeline(config):
        pass
    return tmp_path / "data" / "train"


def test_stripes_are_balanced_as_their_histogram_says(stripes: Path, capsys) -> None:
    lengths = read_stripes(stripes)
    assert lengths.by_place is not None and lengths.rule.max_predictions == 10
    for scheme in ("presorted", "random", "exchange", "packed"):
        real = measure(SCHEMES[scheme], lengths, 2, 4, steps=10)
        said = measure(SCHEMES[scheme], replace(lengths, by_place=None), 2, 4, steps=10)
        assert real == said
    assert main(["--ranks", "2", "--batch", "4", "--data", str(stripes), "--json"]) == 0
    output = capsys.readouterr()
    assert "presorted" in json.loads(output.out)
    # no sample has more than 64 tokens: two of the ranges of lengths are empty
    assert "strata: left out:" in output.err


def test_stripes_that_are_not_what_the_manifest_says_are_refused(stripes: Path, capsys) -> None:
    one, other = (stripes / f"stripe-0000{i}.h5" for i in (0, 1))
    manifest = json.loads((stripes / "manifest.json").read_text())
    manifest["files"][0]["bytes"] = other.stat().st_size
    one.write_bytes(other.read_bytes())
    (stripes / "manifest.json").write_text(json.dumps(manifest))
    assert main(["--ranks", "2", "--batch", "4", "--data", str(stripes)]) == 2
    assert "stripe-00000.h5: lengths differ from those of the man" in capsys.readouterr().err


def test_wrong_data_is_one_line(tmp_path: Path, capsys) -> None:
    assert main(["--lengths", str(tmp_path / "none.tsv")]) == 2
    assert main(["--data", str(tmp_path)]) == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if "error:" in line]
    assert len(errors) == 2
    assert "none.tsv: no such file" in errors[0]
    assert "manifest.json: no such file" in errors[1]
