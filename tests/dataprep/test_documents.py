"""Documents of text files and dumps: formats, errors, and a real dump against the reference."""

import bz2
import html
import re
import statistics
import tarfile
from collections import Counter
from pathlib import Path

import pytest

from dataprep.documents import DOCUMENT_FORMATS, Document, DocumentReader, read_documents

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared" / "data"
REFERENCE = SHARED / "mlperf" / "reference_outputs" / "gensim_dump" / "stages.tar.xz"

XML = (
    '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/" version="0.10">\n'
    "<page><title>A</title><ns>0</ns><id>1</id><revision><id>1</id><text>'''A''' is.\n"
    "\n== Title ==\nB &amp;amp; [[c]].</text></revision></page>\n"
    '<page><title>B</title><ns>0</ns><id>2</id><redirect title="A" /><revision><id>2</id>'
    "<text>#REDIRECT [[A]]</text></revision></page>\n"
    "<page><title>Help:C</title><ns>12</ns><id>3</id><revision><id>3</id>"
    "<text>C.</text></revision></page>\n"
    "<page><title>D</title><ns>0</ns><id>4</id><revision><id>4</id>"
    "<text>* a list</text></revision></page>\n"
    "</mediawiki>\n"
)
NO_ARTICLE = XML.replace("<ns>0</ns>", "<ns>4</ns>")
ARTICLE = Document("A", "A is.\nB & c.")
XML_COUNTS = {
    "pages": 4,
    "redirects": 1,
    "other_namespaces": 1,
    "other_content": 0,
    "empty": 1,
    "documents": 1,
}


def write(path: Path, content: bytes | str) -> Path:
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(bz2.compress(data) if path.suffix == ".bz2" else data)
    return path


def texts(path: Path, format: str = "auto") -> list[str]:
    return [document.text for document in read_documents(path, format)]


# --- formats --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["d.xml", "d.xml.bz2", "D.XML", "d.bz2", "d", "d.XML.BZ2", "d.dat"]
)
def test_a_dump_is_recognised(tmp_path: Path, name: str) -> None:
    reader = DocumentReader(write(tmp_path / name, XML))
    assert reader.format == "mediawiki"
    assert list(reader) == [ARTICLE]
    assert reader.counts == XML_COUNTS
    assert list(reader) == [ARTICLE], "a second iteration reads it again"
    assert reader.counts == XML_COUNTS


@pytest.mark.parametrize("head", ["<?xml version='1.0' encoding='UTF-8'?>\n", "\ufeff", "\n  "])
def test_heads_of_dumps(tmp_path: Path, head: str) -> None:
    assert list(read_documents(write(tmp_path / "dump", head + XML))) == [ARTICLE]


@pytest.mark.parametrize("name", ["t.txt", "t.txt.bz2", "t", "t.bz2", "t.text"])
def test_text_is_recognised(tmp_path: Path, name: str) -> None:
    reader = DocumentReader(write(tmp_path / name, "One.\nTwö.\n\nThree.\n"))
    assert reader.format == "text"
    assert list(reader) == [Document("", "One.\nTwö."), Document("", "Three.")]
    assert reader.counts == {"documents": 2}


def test_a_character_across_the_end_of_the_sniffed_bytes(tmp_path: Path) -> None:
    assert texts(write(tmp_path / "t", "é" * 5000))
    assert texts(write(tmp_path / "u", "x" + "é" * 5000))


def test_an_explicit_format_wins(tmp_path: Path) -> None:
    assert texts(write(tmp_path / "a.xml", "<b> text"), "text") == ["<b> text"]
    assert list(read_documents(write(tmp_path / "b.txt", XML), "mediawiki")) == [ARTICLE]


def test_titles_of_sections_can_be_kept(tmp_path: Path) -> None:
    reader = DocumentReader(write(tmp_path / "d.xml", XML), section_titles=True)
    assert [document.text for document in reader] == ["A is.\nTitle.\nB & c."]


def test_unknown_format(tmp_path: Path) -> None:
    assert DOCUMENT_FORMATS == ("auto", "mediawiki", "wikiextractor", "jsonl", "text")
    with pytest.raises(ValueError, match="document format 'html': give one of auto, mediawiki, wi"):
        read_documents(tmp_path / "a.txt", "html")


@pytest.mark.parametrize("content", [b'<document id="1">\nA\n', b"\x00\x01\x02", b"\xff\xfea\x00"])
def test_a_content_that_tells_no_format(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(ValueError, match=r"no known .* give the format: mediawiki, .*, text$"):
        read_documents(write(tmp_path / "part-0", content))


# --- plain text -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content, expected",
    [
        (b"\xef\xbb\xbfFirst.\nSecond.\n\nOther.\n", ["First.\nSecond.", "Other."]),
        (b"A.\r\nB.\r\n\r\nC.\r\n", ["A.\nB.", "C."]),
        (b"A one.\n    \nB two.\n\t\nC three.\n", ["A one.", "B two.", "C three."]),
        (b"\n\n A. \n\n\n\nB.", ["A.", "B."]),
        (b"a\n\nb\n\nc\n", ["a", "b", "c"]),
        (
            "\u200b\u200d\n\nThe cat.\n\n\x07\x07\n".encode(),
            ["\u200b\u200d", "The cat.", "\x07\x07"],
        ),
        (b"Use [MASK] and <b>.\n", ["Use [MASK] and <b>."]),
    ],
)
def test_blocks_of_text(tmp_path: Path, content: bytes, expected: list[str]) -> None:
    assert texts(write(tmp_path / "t.txt", content)) == expected


@pytest.mark.parametrize("content", ["", "\n\n\n", " \t\r\n \n", "\ufeff"])
def test_text_without_a_document(tmp_path: Path, content: str) -> None:
    path = write(tmp_path / "t.txt", content)
    with pytest.raises(
        ValueError, match=f"{path}: no document: empty or blank; give lines of text"
    ):
        texts(path)


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    path = write(tmp_path / "t.txt", "Äpfel.\n\nMore.\n".encode() + b"Caf\xe9 society.\n")
    documents = read_documents(path)
    assert next(documents).text == "Äpfel.", "it shows only later"
    with pytest.raises(ValueError) as error:
        next(documents)
    assert str(error.value) == (
        f"{path}: not UTF-8: byte 0xe9 at offset 18, line 4; convert it, as with iconv -t UTF-8"
    )


# --- files that end badly -------------------------------------------------------------------------


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no.txt: no such file; give a dump or a text file"):
        read_documents(tmp_path / "no.txt")


def test_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be read: Is a directory; give a file"):
        read_documents(tmp_path)


@pytest.mark.parametrize(
    "name, content, message",
    [
        (
            "d.xml",
            "no XML",
            r"d.xml: not XML \(syntax error: line 1, column 0\); give a MediaWiki exp",
        ),
        (
            "d.xml",
            "",
            r"d.xml: not XML \(no element found: line 1, column 0\); give a MediaWiki exp",
        ),
        ("d.xml", "<html/>", r"its root is <html>, not <mediawiki>; give a MediaWiki export"),
        ("d.xml", XML[:-80], r"damaged or cut off after 3 pages \(.*\); download it again"),
        ("d.xml.bz2", XML[:-80], r"damaged or cut off after 3 pages \(.*\); download it again"),
        (
            "d.xml",
            NO_ARTICLE,
            r"no article of namespace 0 with text \(4 pages, 1 redirects, 3 other_namespaces, "
            r"0 other_content, 0 empty\); give a pages-articles dump",
        ),
    ],
)
def test_damaged_dump(tmp_path: Path, name: str, content: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        texts(write(tmp_path / name, content))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "name, message", [("t.txt.bz2", "50000 documents"), ("d.xml.bz2", "4 pages")]
)
def test_bzip2_cut_off(tmp_path: Path, name: str, message: str) -> None:
    blank = " " * 100_000
    content = "One.\n\n" * 50_000 if "txt" in name else XML.replace("</mediawiki>", blank)
    path = tmp_path / name
    # a whole stream and the start of another, as in dumps of many streams
    path.write_bytes(bz2.compress(content.encode()) + bz2.compress(blank.encode())[:-12])
    documents = read_documents(path)
    assert next(documents)
    with pytest.raises(
        ValueError, match=f"{name}: the bzip2 file is cut off after {message}; down"
    ):
        list(documents)


def test_bzip2_damaged(tmp_path: Path) -> None:
    path = tmp_path / "t.txt.bz2"
    path.write_bytes(b"BZh9 no more of it")
    with pytest.raises(
        ValueError, match=r"the bzip2 file is damaged \(Invalid data stream\) after 0"
    ):
        texts(path)


# --- the awkward text files -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, result",
    [
        ("bad_utf8", "byte 0xe9 at offset 3, line 1"),
        ("empty", "no document"),
        ("blank", "no document"),
        ("bom", ["First sentence here.\nSecond.", "Other doc.\nMore."]),
        ("ws_only_line", ["A one.", "B two.\nC three."]),
        (
            "crlf",
            ["First sentence here.\nSecond sentence here.", "Other doc one.\nOther doc two."],
        ),
    ],
)
def test_edge_inputs(name: str, result: str | list[str]) -> None:
    path = SHARED / "edge_inputs" / f"{name}.txt"
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    if isinstance(result, str):
        with pytest.raises(ValueError, match=result):
            texts(path)
    else:
        assert texts(path) == result


# --- a real dump ----------------------------------------------------------------------------------

LEFTOVERS = ("thumb|", "Category:", "'''", "{{", "}}", "{|", "|}", "[[", "]]", "<ref", "</", "()")
LEFTOVER_PATTERN = re.compile(
    "|".join([*map(re.escape, LEFTOVERS), r"\b\d+px\b", "https?://", r"__[A-Z]+__", "&[a-z]+;"])
)


def dump_path() -> Path | None:
    shared = sorted((SHARED / "dumps").glob("*.bz2"))
    own = ROOT / "data" / "quickstart" / "enwiki-excerpt.xml.bz2"
    return next((path for path in [*shared, own] if path.is_file()), None)


@pytest.fixture(scope="module")
def articles() -> tuple[Counter[str], dict[str, str]]:
    path = dump_path()
    if path is None:
        pytest.skip("no dump excerpt under ../shared/data/dumps or data/quickstart")
    reader = DocumentReader(path)
    documents = {document.title: document.text for document in reader}
    return reader.counts, documents


def test_counts_of_the_real_dump(articles: tuple[Counter[str], dict[str, str]]) -> None:
    counts, documents = articles
    assert counts == {
        "pages": 206,
        "redirects": 100,  # one of them outside namespace 0
        "other_namespaces": 0,
        "other_content": 0,
        "empty": 1,  # a list
        "documents": 105,
    }
    assert len(documents) == 105


def test_nothing_of_the_markup_is_left(articles: tuple[Counter[str], dict[str, str]]) -> None:
    left = {
        (title, found.group())
        for title, text in articles[1].items()
        for found in LEFTOVER_PATTERN.finditer(text)
    }
    assert not left


def test_words_of_the_reference_are_there(articles: tuple[Counter[str], dict[str, str]]) -> None:
    if not REFERENCE.is_file():
        pytest.skip(f"{REFERENCE} is not there: no reference output to compare with")
    recalls, precisions = [], []
    reference = reference_articles()
    assert len(articles[1]) == sum(1 for text in reference.values() if text.strip())
    for title, text in articles[1].items():
        ours, theirs = words(text), words(reference[title])
        common = (ours & theirs).total()
        recalls.append(common / theirs.total())
        precisions.append(common / ours.total())
    assert statistics.median(recalls) > 0.999
    assert min(recalls) > 0.97
    assert statistics.median(precisions) > 0.995


def words(text: str) -> Counter[str]:
    return Counter(re.findall(r"\w+", text))


def reference_articles() -> dict[str, str]:
    """Title -> text, as WikiExtractor left it, without the title that it puts first."""
    with tarfile.open(REFERENCE) as tar:
        files = [tar.extractfile(f"./wiki_0{number}") for number in range(3)]
        content = "".join(file.read().decode() for file in files if file)
    found = re.findall(r'<doc [^>]*title="(.*?)">\n.*?\n(.*?)</doc>', content, re.DOTALL)
    return {html.unescape(title): html.unescape(text) for title, text in found}
