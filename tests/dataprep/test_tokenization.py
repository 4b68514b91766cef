"""The vocabulary file and the tokenizer, and that only real words are special."""

import random
from pathlib import Path

import pytest

from dataprep.tokenization import (
    SentenceTokenizer,
    build_tokenizer,
    load_vocabulary,
    save_vocabulary,
)

LINES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"]


def write(path: Path, lines: list[str], end: str = "\n") -> Path:
    path.write_bytes("".join(line + end for line in lines).encode())
    return path


def test_a_vocabulary_comes_back(tmp_path: Path) -> None:
    vocabulary = load_vocabulary(write(tmp_path / "vocab.txt", LINES))
    assert (len(vocabulary), vocabulary.id("[MASK]")) == (7, 4)
    save_vocabulary(vocabulary, tmp_path / "copy.txt")
    assert load_vocabulary(tmp_path / "copy.txt") == vocabulary


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (LINES[:4] + ["a", "b"], r"no \[MASK\] among 6 tokens"),
        ([*LINES[:5], "", "a"], "line 6 is blank"),
        ([*LINES, "a"], "'a' stands on lines 6 and 8"),
        ([], r"no \[PAD\] among 0 tokens"),
        ([*LINES, *map(str, range(70_000))], "70007 tokens, at most 65536"),
    ],
)
def test_a_wrong_vocabulary_is_named(tmp_path: Path, lines: list[str], message: str) -> None:
    path = write(tmp_path / "vocab.txt", lines)
    with pytest.raises(ValueError, match=message) as error:
        load_vocabulary(path)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_missing_or_binary_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such vocabulary file"):
        load_vocabulary(tmp_path / "none.txt")
    (tmp_path / "vocab.txt").write_bytes(b"a\nb\xff")
    with pytest.raises(ValueError, match="not UTF-8 at byte 3"):
        load_vocabulary(tmp_path / "vocab.txt")


def test_literal_special_tokens_are_plain_text(tmp_path: Path) -> None:
    vocabulary = load_vocabulary(write(tmp_path / "vocab.txt", [*LINES, "[", "]", "mask"]))
    encoding = build_tokenizer(vocabulary, lowercase=True).encode("a [MASK] b")
    assert encoding.tokens == ["a", "[", "mask", "]", "b"]


@pytest.mark.parametrize("lowercase", [True, False])
def test_case_can_be_kept(tmp_path: Path, lowercase: bool) -> None:
    vocabulary = load_vocabulary(write(tmp_path / "vocab.txt", [*LINES, "A"]))
    tokens = build_tokenizer(vocabulary, lowercase).encode("A á").tokens
    assert tokens == (["a", "a"] if lowercase else ["A", "[UNK]"])


def test_the_official_vocabulary(shared_data: Path) -> None:
    path = shared_data / "vocab" / "bert-uncased-vocab.txt"
    vocabulary = load_vocabulary(path)
    assert len(vocabulary) == 30_522
    assert vocabulary.sha256 == "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"
    # the example of google-research/bert's README
    tokens = build_tokenizer(vocabulary, lowercase=True).encode("John Johanson's house").tokens
    assert tokens == ["john", "johan", "##son", "'", "s", "house"]


AWKWARD = [
    "",
    " ",
    "a  b\tc\r d\u00a0e\u3000f\u2028g\x85h\x1fi",
    "\u200b\u200d \x07\x07 x\u200by \ufffd z\x00w",
    "ΑΣ ΟΔΟΣ. Σ' ΌΣΟΣ-ΑΣ!",
    "naïve café e\u0301te\u0301 .\u0301 x =\u0338 y \u0301b a\u0338\u0301",
    "en – dash — “quotes” … ¿qué? 3½ ﬁn Ǆ ß İstanbul",
    "東京タワーis 高い。 한국어 ไทย עִבְרִית हिन्दी",
    "emoji 😀👨‍👩‍👧 x😀y 🇩🇪",
    "[MASK] [SEP][CLS] [PAD]x ##ing [UNK]",
    "don't e.g. U.S. a-b_c {d}|e~f`g^h \\ $1,000.00 a@b.com http://x.y/z?q=1",
    "w" * 199 + " " + "w" * 200 + " " + "w" * 201 + "." + "w" * 5000,
]


def random_texts(count: int) -> list[str]:
    """Of characters that are treated differently, and any others."""
    draw = random.Random(3)
    known = sorted(set("".join(AWKWARD)) - {"\n"})
    others = [chr(c) for c in draw.choices(range(0x20, 0x1FFFF), k=300) if not 0xD800 <= c < 0xE000]
    return [
        "".join(draw.choices([*known, *others, *"aeiou st"], k=draw.randint(1, 60)))
        for _ in range(count)
    ]


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("remembered", [1 << 18, 50])
def test_looked_up_tokens_are_those_of_the_tokenizer(
    shared_data: Path, monkeypatch: pytest.MonkeyPatch, lowercase: bool, remembered: int
) -> None:
    name = f"bert-{'un' if lowercase else ''}cased-vocab.txt"
    vocabulary = load_vocabulary(shared_data / "vocab" / name)
    monkeypatch.setattr("dataprep.tokenization._MAX_REMEMBERED", remembered)
    plain = build_tokenizer(vocabulary, lowercase)
    tokenizer = SentenceTokenizer(vocabulary, lowercase)
    sentences = [*AWKWARD, *random_texts(3000)]
    for start in range(0, len(sentences), 500):
        some = sentences[start : start + 500]
        tokens, sizes = tokenizer.encode(some)
        expected = [one.ids for one in plain.encode_batch(some, add_special_tokens=False)]
        assert sizes.tolist() == [len(ids) for ids in expected]
        assert tokens.tolist() == [token for ids in expected for token in ids]


def test_no_sentence_has_no_tokens(tmp_path: Path) -> None:
    vocabulary = load_vocabulary(write(tmp_path / "vocab.txt", LINES))
    tokens, sizes = SentenceTokenizer(vocabulary, True).encode([])
    assert (len(tokens), len(sizes)) == (0, 0)
