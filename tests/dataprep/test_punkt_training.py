"""Punkt trained on the corpus: what it learns, that it is reproducible, and on real text."""

import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from dataprep.documents import read_documents
from dataprep.punkt_training import train_punkt
from dataprep.sentences import PUNKT_FILES, SentencesConfig, build_splitter

ROOT = Path(__file__).parents[2]


def documents(count: int = 60, seed: int = 5) -> list[str]:
    """Made-up text in which 'blk.' and 'xqz.' are abbreviations and 'Soon' starts sentences."""
    draw = random.Random(seed)
    words = ["river", "stone", "walks", "green", "tower", "lamp", "sings", "blk. Nine", "xqz. Four"]
    return [
        "\n".join(
            " ".join(["Soon the", *draw.choices(words, k=draw.randint(4, 9)), "ended."])
            for _ in range(20)
        )
        for _ in range(count)
    ]


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_abbreviations_of_the_corpus_are_learnt(tmp_path: Path) -> None:
    train_punkt(documents(), tmp_path)
    split = build_splitter(SentencesConfig("punkt", tmp_path))
    assert split("The blk. Nine walks. It ended.") == ["The blk. Nine walks.", "It ended."]
    untrained = build_splitter(SentencesConfig("rules"))
    assert untrained("The blk. Nine walks.") == ["The blk.", "Nine walks."]
    assert sorted(files(tmp_path)) == sorted(PUNKT_FILES), "and nothing half-written"


def test_order_copies_and_hash_seeds_change_nothing(tmp_path: Path) -> None:
    texts = documents()
    train_punkt(texts, tmp_path / "a", 0.05)
    train_punkt([*reversed(texts), *texts[:7], ""], tmp_path / "b", 0.05)
    assert files(tmp_path / "a") == files(tmp_path / "b")
    code = (
        "import sys, pathlib, dataprep.punkt_training as t\n"
        "t.train_punkt(sys.stdin.read().split('\\n\\n'), pathlib.Path(sys.argv[1]), 0.05)"
    )
    for seed in ("1", "2"):
        subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / seed)],
            input="\n\n".join(texts),
            text=True,
            check=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        assert files(tmp_path / seed) == files(tmp_path / "a")


def test_the_limit_bounds_what_is_trained_on(tmp_path: Path) -> None:
    texts = documents()
    words = []
    for number, limit in enumerate((0.01, 10)):
        train_punkt(texts, tmp_path / str(number), limit)
        split = (tmp_path / str(number) / "ortho_context.tab").read_text().splitlines()
        words.append(len(split))
    assert 0 < words[0] <= words[1]
    with pytest.raises(ValueError, match="no document to train punkt on within 0.0001 megabytes"):
        train_punkt(texts, tmp_path / "none", 0.0001)
    assert not (tmp_path / "none").exists()


def test_what_fits_does_not_depend_on_the_order(tmp_path: Path) -> None:
    draw = random.Random(1)
    texts = [text[: draw.randint(40, 2000)] for text in documents(30)]
    models = set()
    for number in range(6):
        draw.shuffle(texts)
        train_punkt(texts, tmp_path / str(number), 0.004)
        models.add(str(files(tmp_path / str(number))))
    assert len(models) == 1


@pytest.mark.parametrize("limit", [0, -1, float("nan")])
def test_a_limit_without_sense(tmp_path: Path, limit: float) -> None:
    with pytest.raises(ValueError, match="max_megabytes .* must be more than 0"):
        train_punkt(documents(), tmp_path, limit)


@pytest.mark.parametrize("text", ["no stop at all", "One.", ". . .", "a"])
def test_hardly_any_text(tmp_path: Path, text: str) -> None:
    train_punkt([text], tmp_path)
    split = build_splitter(SentencesConfig("punkt", tmp_path))
    assert split("A boat. Its oar.") == ["A boat.", "Its oar."]


def test_trained_against_the_given_model_on_real_text(shared_data: Path, tmp_path: Path) -> None:
    folder = shared_data / "mlperf" / "sample_data"
    given = build_splitter(SentencesConfig(punkt_dir=shared_data / "punkt" / "english"))
    texts = [document.text for document in read_documents(folder / "wiki_00")]
    train_punkt(texts, tmp_path)
    trained = build_splitter(SentencesConfig("punkt", tmp_path))
    found, expected = Counter[str](), Counter[str]()
    for document in list(read_documents(folder / "wiki_01"))[:15]:
        found.update(trained(document.text))
        expected.update(given(document.text))
    common = (found & expected).total()
    assert 2 * common / (found.total() + expected.total()) > 0.97
