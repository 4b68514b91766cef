"""The reference's tokenizer: against a plain one, and where the fast one is another."""

import random
import tarfile
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from naive_reference import naive_tokens

from dataprep.parts import read_parts
from dataprep.reference_tokenization import ReferenceTokenizer
from dataprep.tokenization import SPECIAL_TOKENS, Vocabulary, build_tokenizer, load_vocabulary

# all but surrogates; planes 4 to 13 hold no character
CODE_POINTS = [c for p in (0, 1, 2, 3, 14) for c in range(p << 16, (p + 1) << 16)]
CHARACTERS = [chr(c) for c in CODE_POINTS if not 0xD800 <= c < 0xE000]


def vocabulary_of(characters: str) -> Vocabulary:
    """One in which every character, as the start of a word or within it, has an id."""
    single = dict.fromkeys("ab" + characters)
    return Vocabulary((*SPECIAL_TOKENS, *single, *(f"##{c}" for c in single)), "")


def naive_ids(
    sentences: list[str], vocabulary: Vocabulary, lowercase: bool, special: tuple[str, ...]
) -> list[list[int]]:
    ids = {token: index for index, token in enumerate(vocabulary.tokens)}
    lines = [sentence.replace("\r", "") for sentence in sentences]  # as they are read
    return [[ids[t] for t in naive_tokens(line, ids, lowercase, special)] for line in lines]


def reference_ids(
    sentences: list[str], vocabulary: Vocabulary, lowercase: bool = True
) -> list[list[int]]:
    return split(ReferenceTokenizer(vocabulary, lowercase), sentences)


def split(tokenizer: ReferenceTokenizer, sentences: list[str]) -> list[list[int]]:
    tokens, sizes = tokenizer.encode(sentences)
    assert tokens.dtype == np.uint16 and len(sizes) == len(sentences)
    return [ids.tolist() for ids in np.split(tokens, np.cumsum(sizes)[:-1])]


def fast_ids(sentences: list[str], vocabulary: Vocabulary, lowercase: bool) -> list[list[int]]:
    tokenizer = build_tokenizer(vocabulary, lowercase)
    return [e.ids for e in tokenizer.encode_batch_fast(sentences, add_special_tokens=False)]


def alone_and_between(lowercase: bool) -> Iterator[tuple[list[str], list[str], Vocabulary]]:
    """Chunks of all characters, a sentence with each, and a vocabulary that tells them apart."""
    for start in range(0, len(CHARACTERS), 8192):
        characters = CHARACTERS[start : start + 8192]
        seen = "".join(characters)
        seen += unicodedata.normalize("NFD", seen.lower())
        sentences = [f"{c} A{c} A{c}b" for c in characters]
        yield characters, sentences, vocabulary_of("A" + seen)


@pytest.mark.slow
@pytest.mark.parametrize("lowercase", [True, False])
def test_every_character_is_tokenised_as_by_the_plain_tokenizer(lowercase: bool) -> None:
    for _, sentences, vocabulary in alone_and_between(lowercase):
        expected = naive_ids(sentences, vocabulary, lowercase, SPECIAL_TOKENS)
        assert reference_ids(sentences, vocabulary, lowercase) == expected


@pytest.mark.slow
def test_the_fast_tokenizer_differs_in_few_characters() -> None:
    differing = []
    for characters, sentences, vocabulary in alone_and_between(lowercase=True):
        ours = reference_ids(sentences, vocabulary)
        fast = fast_ids(sentences, vocabulary, lowercase=True)
        differing += [c for c, a, b in zip(characters, ours, fast, strict=True) if a != b]
    # Python and the tokenizers package know different versions of Unicode
    old = [c for c in differing if unicodedata.ucd_3_2_0.category(c) not in ("Cn", "Co")]
    # and the reference's reader drops carriage returns
    assert set(old) == {"\r", "Σ", "\u166d", "\u1734", "\u1885", "\u1886"}
    private = [c for c in CHARACTERS if unicodedata.category(c) == "Co"]
    assert set(private) <= set(differing)
    assert len(differing) - len(private) < len(CHARACTERS) // 100


def test_random_text_is_tokenised_as_by_the_plain_tokenizer() -> None:
    alphabet = "abAB  \t\u00a0\u2028\u0085\u200b.,-[]ÀéİΣσςß\u0301\u0323\u0345中ｆ가ﬁ\x00\ufffd\x1c"
    seen = alphabet + unicodedata.normalize("NFD", alphabet.lower())
    vocabulary = vocabulary_of("".join(c for c in seen if c not in "Bß"))
    draw = random.Random(3)
    sentences = ["".join(draw.choices(alphabet, k=draw.randint(0, 30))) for _ in range(4000)]
    sentences += [s.replace("a", " [SEP] ").replace("b", "[MASK]") for s in sentences[:500]]
    for lowercase in (True, False):
        expected = naive_ids(sentences, vocabulary, lowercase, SPECIAL_TOKENS)
        assert reference_ids(sentences, vocabulary, lowercase) == expected
        assert sum(not ids for ids in expected) > 50
    plain = ReferenceTokenizer(vocabulary, True, literal_special_tokens=False)
    assert split(plain, sentences) == naive_ids(sentences, vocabulary, True, ())


@pytest.mark.parametrize(
    ("text", "tokens", "fast_agrees"),
    [
        ("ΟΔΟΣ ΣΑΣ Σ", "ο ##δ ##ο ##ς σ ##α ##ς σ", False),
        ("Σάσα", "σ ##α ##σ ##α", True),
        ("a [MASK] [SEP].", "a [MASK] [ s ##e ##p ] .", False),
        ("[MA\u200bSK]", "[MASK]", False),
        ("a[MASK] [mask]", "a [ m ##a ##s ##k ] [ m ##a ##s ##k ]", True),
        ("ÀÉ e\u0301\u0323 ſ", "a ##e e [UNK]", True),
        ("a中b 가", "a 中 b [UNK]", True),
        ("a\u200bb \x07 \ufffd \ufeffa", "a ##b a", True),
        ("a\u2028b a\u0085b a\u00a0b a\tb", "a b a ##b a b a b", True),
        ("a\ue000b", "[UNK]", False),
        ("a–b «a»", "a – b [UNK] a [UNK]", True),
        ("a" * 200, " ".join(["a"] + ["##a"] * 199), True),
        ("a" * 201, "[UNK]", True),
        ("", "", True),
        (" \t ", "", True),
    ],
)
def test_awkward_text(text: str, tokens: str, fast_agrees: bool) -> None:
    vocabulary = vocabulary_of("οδςσαmskep[].中–")
    ids = [vocabulary.id(token) for token in tokens.split()]
    assert reference_ids([text], vocabulary) == [ids]
    assert (fast_ids([text], vocabulary, lowercase=True) == [ids]) == fast_agrees


def stage_3(shared_data: Path, dump: str, name: str) -> list[str]:
    path = shared_data / "mlperf" / "reference_outputs" / dump / "stages.tar.xz"
    with tarfile.open(path) as archive:
        stream = archive.extractfile(f"./{name}")
        assert stream is not None
        return stream.read().decode().split("\n")


def test_real_text_is_tokenised_as_by_the_plain_tokenizer(shared_data: Path) -> None:
    sentences = stage_3(shared_data, "gensim_dump", "wiki_02.3")
    vocabulary = load_vocabulary(shared_data / "vocab" / "bert-uncased-vocab.txt")
    expected = naive_ids(sentences, vocabulary, True, SPECIAL_TOKENS)
    assert reference_ids(sentences, vocabulary) == expected
    assert sum(map(len, expected)) > 80_000


def test_in_real_text_the_fast_tokenizer_differs_in_final_sigmas(shared_data: Path) -> None:
    sentences = stage_3(shared_data, "sample_data", "wiki_02.3")
    vocabulary = load_vocabulary(shared_data / "vocab" / "bert-uncased-vocab.txt")
    ours = reference_ids(sentences, vocabulary)
    fast = fast_ids(sentences, vocabulary, lowercase=True)
    differing = [s for s, a, b in zip(sentences, ours, fast, strict=True) if a != b]
    assert differing and all("Σ" in sentence for sentence in differing)


def test_special_words_of_the_recorded_example(shared_data: Path) -> None:
    vocabulary = load_vocabulary(shared_data / "vocab" / "bert-uncased-vocab.txt")
    text = (shared_data / "edge_inputs" / "mask_in_text.txt").read_text().split("\n")[0]
    (ids,) = reference_ids([text], vocabulary)
    assert " ".join(vocabulary.tokens[i] for i in ids) == "use [MASK] here and [SEP] there ."
    assert {103, 102} <= set(ids)


def test_more_words_than_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dataprep.reference_tokenization._MAX_REMEMBERED", 3)
    sentences = ["a b ab ba a b", "ba ab aab a"]
    vocabulary = vocabulary_of("")
    assert reference_ids(sentences, vocabulary) == naive_ids(sentences, vocabulary, True, ())


def test_documents_are_read_as_the_reference_does(tmp_path: Path) -> None:
    path = tmp_path / "part"
    lines = "\ufeff one\r\n two \n \u00a0\u2028\x1c\n\n\r\nthr\ree\r\nfo\x0bur\u2028\n\n"
    path.write_bytes(lines.encode())
    documents = list(read_parts([path]))
    assert documents == [["\ufeff one", " two "], ["thr\ree", "fo\x0bur\u2028"]]
    # the reference's reader drops carriage returns wherever they stand
    vocabulary = vocabulary_of("threfouwn")
    assert reference_ids(["thr\ree"], vocabulary) == reference_ids(["three"], vocabulary)


def test_a_byte_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    path = tmp_path / "part"
    path.write_bytes(b"one\ntw\xffo\n")
    with pytest.raises(ValueError, match=r"part: not UTF-8: byte 0xff at offset 6, line 2"):
        list(read_parts([path]))
