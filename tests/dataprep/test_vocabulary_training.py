"""A vocabulary of one's own: order, case, determinism, and what is refused."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from dataprep.tokenization import SPECIAL_TOKENS, build_tokenizer, load_vocabulary
from dataprep.vocabulary_training import MAX_ALPHABET, train_vocabulary

ROOT = Path(__file__).parents[2]


def texts(count: int = 400) -> list[str]:
    draw = random.Random(2)
    stems = ["Walk", "talk", "Été", "river", "build", "stone", "house", "green"]
    ends = ["", "s", "er", "ing", "ed", "ly", "est", "ness"]
    return [
        " ".join(draw.choice(stems) + draw.choice(ends) for _ in range(12)) + "."
        for _ in range(count)
    ]


def test_special_tokens_then_characters_then_pieces(tmp_path: Path) -> None:
    vocabulary = train_vocabulary(texts(), 200, True, tmp_path / "vocab.txt")
    assert vocabulary == load_vocabulary(tmp_path / "vocab.txt")
    assert len(vocabulary) <= 200
    assert vocabulary.tokens[:5] == SPECIAL_TOKENS
    rest = vocabulary.tokens[5:]
    singles = [token for token in rest if len(token) == 1]
    inner = [token for token in rest if len(token) == 3 and token.startswith("##")]
    assert rest[: len(singles)] == tuple(sorted(singles))
    assert rest[len(singles) : len(singles) + len(inner)] == tuple(sorted(inner))
    assert "." in singles and "##." not in inner, "a stop is a word of its own"
    tokens = build_tokenizer(vocabulary, lowercase=True).encode("Walking houses.").tokens
    assert tokens == ["walking", "houses", "."]


@pytest.mark.parametrize("lowercase", [True, False])
def test_case_and_accents_can_be_kept(tmp_path: Path, lowercase: bool) -> None:
    tokens = train_vocabulary(texts(), 300, lowercase, tmp_path / "v").tokens
    assert ("Été" in tokens, "ete" in tokens) == (not lowercase, lowercase)
    assert ("W" in tokens) == (not lowercase)


def test_order_and_runs_change_nothing(tmp_path: Path) -> None:
    one = train_vocabulary(texts(), 150, True, tmp_path / "a")
    assert one == train_vocabulary(reversed(texts()), 150, True, tmp_path / "b")
    code = (
        "import sys, pathlib, dataprep.vocabulary_training as t\n"
        "t.train_vocabulary(sys.stdin.read().split('\\n'), 150, True, pathlib.Path(sys.argv[1]))"
    )
    for seed in ("1", "2", "3"):
        subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / seed)],
            input="\n".join(texts()),
            text=True,
            check=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed, "TOKENIZERS_PARALLELISM": "true"},
        )
        assert load_vocabulary(tmp_path / seed) == one


def test_a_word_that_cannot_be_spelt_is_left_out_whole(tmp_path: Path) -> None:
    common = [chr(0x4E00 + i) * 2 for i in range(MAX_ALPHABET - 4)]
    tokens = train_vocabulary(
        [*common, "walk walk walk", "wa☃lk", "x" * 5000], 2000, True, tmp_path / "v"
    ).tokens
    assert "walk" in tokens
    assert "☃" not in tokens and "x" not in tokens
    assert sum(len(token) == 1 for token in tokens) <= MAX_ALPHABET


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (10, r"vocabulary size 10: special tokens and characters of the text take \d+ already"),
        (70_000, "vocabulary size 70000: at most 65536 tokens fit the shards"),
    ],
)
def test_sizes_that_make_no_vocabulary(tmp_path: Path, size: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        train_vocabulary(texts(), size, True, tmp_path / "vocab.txt")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", [[], [""], [" \n", "\u200b\x07"]])
def test_no_word_at_all(tmp_path: Path, text: list[str]) -> None:
    with pytest.raises(ValueError, match="no word to train a vocabulary on; give a corpus"):
        train_vocabulary(text, 100, True, tmp_path / "vocab.txt")


def test_real_text_is_known_to_its_own_vocabulary(shared_data: Path, tmp_path: Path) -> None:
    source = shared_data / "mlperf" / "sample_data" / "wiki_00"
    lines = source.read_text(encoding="utf-8").split("\n")[:300]
    vocabulary = train_vocabulary(lines, 3000, True, tmp_path / "vocab.txt")
    assert len(vocabulary) == 3000
    encoded = build_tokenizer(vocabulary, lowercase=True).encode_batch(lines)
    ids = [one for encoding in encoded for one in encoding.ids]
    assert ids.count(vocabulary.id("[UNK]")) / len(ids) < 0.001
