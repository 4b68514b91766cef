"""Awkward text, from a file to sentences: each kind has a defined, counted outcome."""

from pathlib import Path

import pytest

from dataprep.documents import DocumentReader
from dataprep.parts import document_md5
from dataprep.sentences import SentencesConfig, build_splitter
from dataprep.text_stages import make_documents, make_sentences

SPLIT = build_splitter(SentencesConfig("rules"))


@pytest.fixture
def edge_inputs(shared_data: Path) -> Path:
    return shared_data / "edge_inputs"


def sentences(path: Path) -> list[list[str]]:
    return [SPLIT(document.text) for document in DocumentReader(path)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("one_doc_one_sent", [1]),
        ("one_doc_three", [3]),
        ("two_docs_one_sent_each", [1, 1]),
        ("single_tok_docs", [1, 1, 1]),
        ("no_tokens", [1, 1, 1]),  # that no token is in two of them shows when they are tokenised
        ("huge_sentence", [1, 2]),
        ("ws_only_line", [1, 2]),
        ("bom", [2, 2]),
        ("crlf", [2, 2]),
        ("mask_in_text", [2, 2]),
    ],
)
def test_sentences_of_each_document(edge_inputs: Path, name: str, expected: list[int]) -> None:
    reader = DocumentReader(edge_inputs / f"{name}.txt")
    assert [len(SPLIT(document.text)) for document in reader] == expected
    assert reader.counts["documents"] == len(expected)


def test_a_huge_sentence_is_not_cut_yet(edge_inputs: Path) -> None:
    path = edge_inputs / "huge_sentence.txt"
    (first,) = sentences(path)[0]
    assert first.split() == path.read_text().split("\n")[0].split()
    assert len(first.split()) == 5000


def test_special_tokens_in_the_text_are_text(edge_inputs: Path) -> None:
    assert sentences(edge_inputs / "mask_in_text.txt")[0] == [
        "Use [MASK] here and [SEP] there.",
        "It is [PAD] and [CLS].",
    ]


def test_copies_share_an_md5(edge_inputs: Path) -> None:
    found = sentences(edge_inputs / "dup_docs.txt")
    md5s = [document_md5(document) for document in found]
    assert len(md5s) > len(set(md5s))


def test_a_mark_or_windows_line_ends_change_nothing(edge_inputs: Path, tmp_path: Path) -> None:
    for name in ("bom", "crlf"):
        content = (edge_inputs / f"{name}.txt").read_bytes()
        plain = tmp_path / f"{name}.txt"
        plain.write_bytes(content.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n"))
        assert plain.read_bytes() != content
        assert sentences(plain) == sentences(edge_inputs / f"{name}.txt")


@pytest.mark.parametrize("form", ["text", "jsonl", "wikiextractor"])
def test_one_document_without_an_empty_line_is_refused(tmp_path: Path, form: str) -> None:
    line = "A sentence. " * 2000
    content = {
        "text": line,
        "jsonl": f'{{"text": "{line}"}}\n',
        "wikiextractor": f'<doc id="1" url="" title="A">\nA\n\n{line}\n</doc>\n',
    }[form]
    source = tmp_path / "source"
    source.write_text(content)
    with pytest.raises(ValueError, match=r"source: 1 documents for 1 parts, .*larger corpus"):
        make_documents([source], tmp_path / "documents", form, parts=1)
    assert not (tmp_path / "documents").exists()


def test_what_is_left_out_is_counted_in_the_manifest(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": ""}\n{"text": "One. Two."}\n{"text": " "}\n')
    (tmp_path / "wiki_00").write_text(
        '<doc id="1" url="" title="A">\nA\n\n</doc>\n<doc id="2" url="" title="B">\nB\n\nC.\n</doc>'
    )
    sources = [tmp_path / "a.jsonl", tmp_path / "wiki_00"]
    manifest = make_documents(sources, tmp_path / "documents", "auto", parts=1)
    assert manifest.counts == {"documents": 2, "empty": 3}
    counts = make_sentences(tmp_path / "documents", tmp_path / "s", SentencesConfig("rules")).counts
    assert counts == {"documents": 2, "sentences": 3}


def test_words_that_only_a_tokenizer_finds_too_long_stay(tmp_path: Path) -> None:
    word = "x" * 5000
    (tmp_path / "a.txt").write_text(f"A {word} b.\n\nC.\n")
    assert sentences(tmp_path / "a.txt") == [[f"A {word} b."], ["C."]]


@pytest.mark.parametrize("splitter", ["rules", "lines"])
def test_splitting_needs_no_data_of_nltk(splitter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import nltk

    def refuse(*args: object, **kwargs: object) -> None:
        raise LookupError("no data here")

    for name in ("find", "load"):
        monkeypatch.setattr(nltk.data, name, refuse)
    monkeypatch.setattr(nltk, "download", refuse)
    assert build_splitter(SentencesConfig(splitter))("One.\nTwo.") == ["One.", "Two."]
