"""Documents of UTF-8 files: blocks of plain text, WikiExtractor's ``<doc>`` blocks, JSON Lines.

Each reader streams the documents of a stream of bytes and counts those it leaves out. All of them
give a document as its title and its paragraphs, one a line, without empty lines.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

_DOC = re.compile(r'<doc\s[^\n]*?title="(.*)"\s*>', re.DOTALL)
_ESCAPES = {"&lt;": "<", "&gt;": ">", "&quot;": '"', "&amp;": "&"}
_ESCAPE = re.compile("|".join(_ESCAPES))
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")
_SURROGATE = re.compile("[\ud800-\udfff]")
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")


@dataclass(frozen=True)
class Document:
    """A document: one paragraph a line, without empty lines; plain text has the title ''."""

    title: str
    text: str


def read_text(stream: BinaryIO, path: Path, counts: Counter[str]) -> Iterator[Document]:
    """Blocks of lines; an empty line, or one of white space only, ends a document.

    Raises:
        ValueError: not UTF-8 (byte and line).
    """
    paragraphs: list[str] = []
    for _, line in _decoded_lines(stream, path):
        if line:
            paragraphs.append(line)
        elif paragraphs:
            yield Document("", "\n".join(paragraphs))
            paragraphs = []
    if paragraphs:
        yield Document("", "\n".join(paragraphs))


def read_wikiextractor(stream: BinaryIO, path: Path, counts: Counter[str]) -> Iterator[Document]:
    """What stands between ``<doc ... title="...">`` and ``</doc>`` lines.

    The first line goes where it repeats the title, and so do tags and the brackets around
    ``[words]``: the text is then, line by line, that of the MLPerf reference's clean-up. The four
    escapes of newer releases (``&lt; &gt; &quot; &amp;``) are decoded once.

    Args:
        stream: of the file.
        path: named in errors.
        counts: ``empty`` counts the articles of which nothing is left.

    Raises:
        ValueError: not UTF-8; text outside of documents, or a document that does not end (line).
    """
    title: str | None = None
    paragraphs: list[str] = []
    started = 0
    for number, line in _decoded_lines(stream, path):
        opening = _DOC.fullmatch(line)
        if title is None and opening:
            title, started, paragraphs = _unescape(opening[1]), number, []
        elif title is None and line:
            raise ValueError(
                f"{path}:{number}: '{line[:20]}' stands outside <doc ... title=...> and </doc>; "
                "give files as WikiExtractor writes them"
            )
        elif title is not None and opening:
            raise ValueError(
                f"{path}:{number}: a <doc> before the </doc> of line {started}; extract it again"
            )
        elif title is not None and line == "</doc>":
            lines = [_TAG.sub("", _BRACKETS.sub(r"\1", text)) for text in paragraphs]
            yield from _document(title, lines, counts)
            title = None
        elif line:
            paragraphs.append(_unescape(line))
    if title is not None:
        raise ValueError(
            f"{path}: cut off: no </doc> for the <doc> of line {started}; extract it again"
        )


def read_json_lines(stream: BinaryIO, path: Path, counts: Counter[str]) -> Iterator[Document]:
    """A JSON object a line: ``text``, and ``title`` where there is one.

    Other keys are passed over, as WikiExtractor's id and url; so are empty lines. The first line of
    the text goes where it repeats the title.

    Args:
        stream: of the file.
        path: named in errors.
        counts: ``empty`` counts the objects without text.

    Raises:
        ValueError: not UTF-8; a line that is no such object (file:line).
    """
    for number, line in _decoded_lines(stream, path):
        if not line:
            continue
        try:
            found = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            raise _bad_line(path, number, f"no JSON ({error})") from None
        if not isinstance(found, dict):
            raise _bad_line(path, number, f"a {type(found).__name__}, not an object")
        title, text = found.get("title"), found.get("text")
        if not isinstance(text, str) or not isinstance(title, str | None):
            key = "title" if isinstance(text, str) else "text"
            raise _bad_line(path, number, f"'{key}' is no string" if key in found else "no 'text'")
        if _SURROGATE.search(text + (title or "")):
            raise _bad_line(path, number, "half of a surrogate pair, which is no character")
        yield from _document(title or "", text.split("\n"), counts)


def _bad_line(path: Path, number: int, reason: str) -> ValueError:
    return ValueError(
        f'{path}:{number}: {reason}; each line must be an object such as {{"text": "..."}}'
    )


def _document(title: str, lines: list[str], counts: Counter[str]) -> Iterator[Document]:
    """A document without its empty lines and repeated title, or none where nothing is left."""
    paragraphs = [stripped for line in lines if (stripped := line.strip())]
    if paragraphs and paragraphs[0] == title.strip():
        del paragraphs[0]
    if paragraphs:
        yield Document(title, "\n".join(paragraphs))
    else:
        counts["empty"] += 1


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda match: _ESCAPES[match[0]], text)


def _decoded_lines(stream: BinaryIO, path: Path) -> Iterator[tuple[int, str]]:
    """Number, from 1, and content of each line, without white space around it."""
    offset = 0
    for number, line in enumerate(stream, 1):
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path}: not UTF-8: byte 0x{line[error.start]:02x} at offset "
                f"{offset + error.start}, line {number}; convert it, as with iconv -t UTF-8"
            ) from None
        offset += len(line)
        yield number, (text.removeprefix("\ufeff") if number == 1 else text).strip()
