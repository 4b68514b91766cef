"""WikiExtractor's files and JSON Lines: what is kept, what is refused, and the reference's text."""

import bz2
import hashlib
import json
import tarfile
from pathlib import Path

import pytest

from dataprep.documents import Document, DocumentReader, read_documents
from dataprep.sentences import SentencesConfig, build_splitter

DOCS = """\ufeff<doc id="12" url="https://en.wikipedia.org/wiki?curid=12" title="One &amp; two">
One &amp; two

First [sic] paragraph, x &lt; y.
Title.
[]
<br>
Second <b>one</b>, &amp;lt; once.

</doc>
<doc id="13" url="?curid=13" title="A redirect">
A redirect


</doc>

<doc id="14" url="?curid=14" title="Named "so"">
Another first line

</doc>
"""
FIRST = Document("One & two", "First sic paragraph, x < y.\nTitle.\nSecond one, &lt; once.")
EXPECTED = [FIRST, Document('Named "so"', "Another first line")]


def write(path: Path, content: str) -> Path:
    data = content.encode()
    path.write_bytes(bz2.compress(data) if path.suffix == ".bz2" else data)
    return path


# --- WikiExtractor --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["wiki_00", "wiki_00.bz2", "wiki_00.txt"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_articles_without_their_titles(tmp_path: Path, name: str, end: str) -> None:
    reader = DocumentReader(write(tmp_path / name, DOCS.replace("\n", end)))
    assert reader.format == "wikiextractor"
    assert list(reader) == EXPECTED
    assert reader.counts == {"documents": 2, "empty": 1}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (DOCS + "stray", r":21: 'stray' stands outside <doc \.\.\. title=\.\.\.> and </doc>"),
        (DOCS.replace("\n\n</doc>\n<doc id", "\n<doc id"), ":9: a <doc> before the </doc> of li"),
        (DOCS[:-10], ": cut off: no </doc> for the <doc> of line 17; extract it again"),
        ("", ": no document with text .0 empty.; leave the file out"),
        ('<doc id="1" url="" title="A">\nA\n</doc>\n', ": no document with text .1 empty."),
    ],
)
def test_files_that_do_not_fit(tmp_path: Path, content: str, message: str) -> None:
    path = write(tmp_path / "wiki_00", content)
    with pytest.raises(ValueError, match=message) as error:
        list(read_documents(path, "wikiextractor"))
    assert str(error.value).startswith(str(path)) and "\n" not in str(error.value)


# --- JSON Lines -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.bz2", "wiki_00"])
def test_json_lines(tmp_path: Path, name: str) -> None:
    lines = [
        {"id": "1", "url": "u", "title": "A", "text": "A\n\nOne.\r\n \nTwo [sic] <b>.\n"},
        {"text": "Three \u2028é."},
        {"title": None, "text": "A"},
        {"title": "A", "text": " A \n"},
    ]
    content = "\n".join(map(json.dumps, lines)) + "\n\n"
    reader = DocumentReader(write(tmp_path / name, content))
    assert reader.format == "jsonl"
    assert list(reader) == [
        Document("A", "One.\nTwo [sic] <b>."),
        Document("", "Three \u2028é."),
        Document("", "A"),
    ]
    assert reader.counts == {"documents": 3, "empty": 1}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "cut', "no JSON (Unterminated"),
        ("[1]", "a list, not an object; each line must be"),
        ('{"title": "A"}', "no 'text'; each line must be an object such as"),
        ('{"text": 3}', "'text' is no string"),
        ('{"text": null}', "'text' is no string"),
        ('{"text": "a", "title": 3}', "'title' is no string"),
        ('{"text": "a \\ud83d"}', "half of a surrogate pair"),
        ("[" * 100_000, "no JSON"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = write(tmp_path / "a.jsonl", f'{{"text": "good"}}\n\n{line}\n')
    documents = read_documents(path)
    assert next(documents).text == "good"
    with pytest.raises(ValueError) as error:
        next(documents)
    assert str(error.value).startswith(f"{path}:3: {message}") and "\n" not in str(error.value)


# --- the reference's own text ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def stages(shared_data: Path) -> dict[str, str]:
    """The reference's files for its sample, by name."""
    archive = shared_data / "mlperf" / "reference_outputs" / "sample_data" / "stages.tar.xz"
    with tarfile.open(archive) as tar:
        found = {member.name[2:]: tar.extractfile(member) for member in tar if member.isfile()}
        return {name: file.read().decode() for name, file in found.items() if file}


def blocks(text: str) -> list[str]:
    return [block.strip("\n") for block in text.split("\n\n") if block.strip()]


@pytest.mark.parametrize("name", ["wiki_00", "wiki_01", "wiki_02", "wiki_03"])
def test_text_is_that_of_the_clean_up(shared_data: Path, stages: dict[str, str], name: str) -> None:
    documents = read_documents(shared_data / "mlperf" / "sample_data" / name)
    expected = [
        "\n".join(line.strip() for line in block.split("\n") if line.strip())
        for block in blocks(stages[f"{name}.2"])
    ]
    assert [document.text for document in documents] == expected


def test_sentences_give_the_md5s_of_the_held_out_articles(
    shared_data: Path, stages: dict[str, str]
) -> None:
    split = build_splitter(SentencesConfig(punkt_dir=shared_data / "punkt" / "english"))
    folder = shared_data / "mlperf" / "sample_data"
    wanted = set(stages["results/eval.md5"].split())
    found = set()
    for path in sorted(folder.iterdir()):
        for number, document in enumerate(read_documents(path)):
            text = "\n".join(split(document.text))
            # the reference begins each file's first article with an empty line
            for form in (text, f"\n{text}") if number == 0 else (text,):
                found.add(hashlib.md5(form.encode()).hexdigest())
    assert wanted <= found
