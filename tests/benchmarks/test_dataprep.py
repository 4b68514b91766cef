"""The benchmark of data preparation on a little text: every row, and one-line errors."""

import json
import random
import tarfile
from pathlib import Path

import pytest

from benchmarks.dataprep import main
from benchmarks.dataprep_corpus import make_text_parts, read_articles
from dataprep.parts import read_parts

WORDS = ["the", "of", "and", "in", "to", "was", "is", "for", "as", "on", "with", "by"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As WikiExtractor writes it, one of four blocks empty."""
    draw = random.Random(1)
    folder = tmp_path_factory.mktemp("wiki")
    for name in ("wiki_00", "wiki_01"):
        blocks = []
        for number in range(1200):
            paragraphs = [
                " ".join(f"{' '.join(draw.choices(WORDS, k=12)).capitalize()}." for _ in range(9))
                for _ in range(number % 4)
            ]
            text = "\n".join(paragraphs)
            blocks.append(f'<doc id="{number}" title="T">\nT\n\n{text}\n\n</doc>\n')
        (folder / name).write_text("".join(blocks))
    return folder


def test_articles_are_the_blocks_without_titles() -> None:
    lines = ["<doc id=1>\n", "Title\n", "\n", "A.\n", "B.\n", "\n", "</doc>\n"]
    empty = ["<doc id=2>\n", "Title\n", "\n", "</doc>\n"]
    assert list(read_articles([*lines, *empty, *lines])) == ["A.\nB."] * 2


@pytest.mark.parametrize("packed", [False, True])
def test_parts_hold_the_text_wanted(corpus: Path, tmp_path: Path, packed: bool) -> None:
    source = corpus
    if packed:
        source = tmp_path / "wiki.tar.xz"
        with tarfile.open(source, "w:xz") as archive:
            for path in sorted(corpus.iterdir()):
                archive.add(path, path.name)
    text = make_text_parts(source, tmp_path, 300_000, 100_000)
    assert len(text.paths) == 3
    assert sum(path.stat().st_size for path in text.paths) == text.bytes >= 300_000
    documents = list(read_parts(text.paths))
    assert len(documents) == text.documents
    assert sum(map(len, documents)) == text.sentences > 1000
    assert all(sentence.endswith(".") for document in documents for sentence in document)


def test_too_little_text_is_refused(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"MB of text in <doc> blocks, 90\.0 wanted"):
        make_text_parts(corpus, tmp_path, 90_000_000, 100_000)


@pytest.mark.slow
def test_every_row_is_measured(
    corpus: Path, vocabulary_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--corpus", corpus, "--vocabulary", vocabulary_file, "--work", tmp_path]
    sizes = ["--megabytes", 1, "--parts", 2, "--presort-samples", 5000]
    builders = ["--builder", "fast,reference"]
    assert main([str(option) for option in [*options, *sizes, *builders, "--json"]]) == 0
    rows = {(row["measured"], row["builder"]): row for row in json.loads(capsys.readouterr().out)}
    assert len(rows) == 2 + 2 * 9 + 1
    for (name, builder), row in rows.items():
        values = [v for v in row.values() if isinstance(v, float)]
        assert values and all(value > 0 for value in values), name
        if builder and name.startswith("all"):
            assert None not in (row["samples_per_second"], row["peak_mb"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--builder", "fast,slow"], "builder 'slow': give one of fast, reference"),
        (["--megabytes", "0"], "megabytes 0 must be at least 1"),
        (["--corpus", "/no/such"], "/no/such: no such corpus"),
    ],
)
def test_errors_are_one_line(
    options: list[str],
    message: str,
    vocabulary_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = ["--corpus", str(tmp_path), "--vocabulary", str(vocabulary_file)]
    assert main([*given, "--work", str(tmp_path), *options]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_without_a_corpus_one_is_asked_for(
    vocabulary_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("benchmarks.dataprep._CORPUS", Path("/no/such"))
    assert main(["--vocabulary", str(vocabulary_file)]) == 2
    assert "corpus: none given; name one with --corpus" in capsys.readouterr().err
