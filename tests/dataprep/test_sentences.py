"""Sentences: Punkt without and with a model, against the public reference's own."""

import tarfile
from collections import Counter
from pathlib import Path

import pytest

from dataprep.sentences import SentencesConfig, SentenceSplitter, build_splitter

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
ENGLISH = SHARED / "punkt" / "english"
STAGES = SHARED / "mlperf" / "reference_outputs" / "gensim_dump" / "stages.tar.xz"

split = build_splitter(SentencesConfig("rules"))


@pytest.mark.parametrize(
    "text, sentences",
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        (
            "Dr. Lee met Mr. Roe in St. Paul. He left.",
            ["Dr. Lee met Mr. Roe in St. Paul.", "He left."],
        ),
        ("Fruit, e.g. Apples, i.e. Malus, fell.", ["Fruit, e.g. Apples, i.e. Malus, fell."]),
        (
            "It was U.S. Steel. In the U.S. The law.",
            ["It was U.S. Steel.", "In the U.S.", "The law."],
        ),
        ("Born c. 1900 at p. 3.5 km. Died.", ["Born c. 1900 at p. 3.5 km.", "Died."]),
        ('She said "Go." Then J. B. Roe went.', ['She said "Go."', "Then J. B. Roe went."]),
        ("  A \t wide\u00a0one.\u2028 Next.  ", ["A \t wide\u00a0one.", "Next."]),
        ("", []),
        (" \n\n\t\n", []),
    ],
)
def test_sentences(text: str, sentences: list[str]) -> None:
    assert split(text) == sentences


def test_paragraphs_are_never_merged() -> None:
    assert split("a title without a stop\nand a line, etc.\nas it is") == [
        "a title without a stop",
        "and a line, etc.",
        "as it is",
    ]


@pytest.mark.parametrize("splitter", ["rules", "lines"])
def test_sentences_are_single_lines_that_keep_every_word(splitter: str) -> None:
    text = "A b.\r\n\x0b\nC\x1dd. E\u2029f... G?!  H.\n\n.\n"
    sentences = build_splitter(SentencesConfig(splitter))(text)
    assert all(sentence and len(sentence.splitlines()) == 1 for sentence in sentences)
    assert " ".join(sentences).split() == text.split()


def test_lines_are_taken_as_they_are() -> None:
    assert build_splitter(SentencesConfig("lines"))("One. Still one.\n\n  Two \t x.\n") == [
        "One. Still one.",
        "Two \t x.",
    ]


def test_unknown_splitter() -> None:
    with pytest.raises(ValueError, match="splitter 'spacy': give one of punkt, rules, lines"):
        build_splitter(SentencesConfig("spacy"))


def test_a_model_that_nothing_would_use(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="lines uses no model"):
        build_splitter(SentencesConfig("lines", tmp_path))


def test_a_model_that_is_not_trained_yet() -> None:
    with pytest.raises(ValueError, match="splitter punkt: no model yet; train one, or give its"):
        build_splitter(SentencesConfig())


# --- punkt_tab folders ----------------------------------------------------------------------------


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A punkt_tab model that knows one of everything."""
    (tmp_path / "abbrev_types.txt").write_text("blk\nxqz\n")
    (tmp_path / "sent_starters.txt").write_text("soon\n")
    (tmp_path / "collocations.tab").write_text("##number##\tflats\n")
    (tmp_path / "ortho_context.tab").write_text("gone\t48\n")
    return tmp_path


def test_punkt_folder_is_read(model: Path) -> None:
    with_model = build_splitter(SentencesConfig(punkt_dir=model))
    assert with_model("The blk. A went.") == ["The blk. A went."]
    assert with_model("The blk. Soon it went.") == ["The blk.", "Soon it went."]
    assert with_model("Dr. Lee.") == ["Dr.", "Lee."]  # the model's abbreviations only
    assert split("The blk. A went.") == ["The blk.", "A went."]


def test_windows_line_ends_in_a_model(model: Path) -> None:
    (model / "abbrev_types.txt").write_bytes(b"blk\r\nxqz\r\n")
    assert SentenceSplitter(model).split("The xqz. A went.") == ["The xqz. A went."]


@pytest.mark.parametrize(
    "name", ["abbrev_types.txt", "collocations.tab", "sent_starters.txt", "ortho_context.tab"]
)
def test_incomplete_punkt_folder(model: Path, name: str) -> None:
    (model / name).unlink()
    with pytest.raises(ValueError) as error:
        build_splitter(SentencesConfig(punkt_dir=model))
    assert str(error.value).startswith(
        f"punkt_dir {model}: {name}: No such file or directory; give"
    )
    assert "\n" not in str(error.value)


def test_missing_punkt_folder(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"nowhere: abbrev_types.txt: No such file .*; give a punkt"
    ):
        build_splitter(SentencesConfig(punkt_dir=tmp_path / "nowhere"))


@pytest.mark.parametrize("content", [b"gone\n", b"gone\tmany\n", b"a\tb\tc\n", b"\xff\t1\n"])
def test_damaged_punkt_folder(model: Path, content: bytes) -> None:
    (model / "ortho_context.tab").write_bytes(content)
    with pytest.raises(ValueError, match=r"damaged|not UTF-8 at byte 0"):
        build_splitter(SentencesConfig(punkt_dir=model))


# --- against the reference ------------------------------------------------------------------------


def lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.strip()]


@pytest.fixture(scope="module")
def reference() -> tuple[str, list[str]]:
    """Text before and sentences after the reference's own splitting."""
    if not STAGES.is_file():
        pytest.skip(f"{STAGES} is not there: no reference output to compare with")
    with tarfile.open(STAGES) as tar:
        text, sentences = (
            member.read().decode()
            for member in map(tar.extractfile, ("./wiki_02.2", "./wiki_02.3"))
            if member
        )
    return text, lines(sentences)


def f1(sentences: list[str], expected: list[str]) -> float:
    common = (Counter(sentences) & Counter(expected)).total()
    return 2 * common / (len(sentences) + len(expected))


def test_untrained_rules_against_the_reference(reference: tuple[str, list[str]]) -> None:
    text, expected = reference
    assert f1(split(text), expected) > 0.98


def test_given_model_against_the_reference(reference: tuple[str, list[str]]) -> None:
    text, expected = reference
    assert f1(build_splitter(SentencesConfig(punkt_dir=ENGLISH))(text), expected) > 0.999
