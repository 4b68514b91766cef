"""Documents of a corpus file: a MediaWiki dump, WikiExtractor's output, JSON Lines or plain text.

Files are streamed, bzip2 is recognised by its content. A damaged file may show only after many
documents have been read: a caller throws away what it made of them when the iteration raises.
"""

import bz2
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

from dataprep.mediawiki import PAGE_COUNTS, clean_markup, load_libraries, read_pages
from dataprep.text_documents import Document as Document
from dataprep.text_documents import read_json_lines, read_text, read_wikiextractor

_BOM = b"\xef\xbb\xbf"
_SNIFFED_BYTES = 4096


_ReadDocuments = Callable[[BinaryIO, Path, Counter[str]], Iterator[Document]]


def read_documents(path: Path, format: str = "auto") -> Iterator[Document]:
    """The documents of a file; as iterating over a `DocumentReader`, which also counts.

    Raises:
        ValueError: see `DocumentReader`.
    """
    return iter(DocumentReader(path, format))


class DocumentReader:
    """The documents of one file, streamed; each iteration reads it from the start.

    Args:
        path: in UTF-8 (a byte order mark and CRLF are accepted), perhaps bzip2:

            - mediawiki: an export, 0.10 or 0.11;
            - wikiextractor: ``<doc id= url= title=>`` ... ``</doc>``;
            - jsonl: an object with ``text`` and perhaps ``title`` a line, such as WikiExtractor
              writes with --json;
            - text: an empty line, or one of white space only, ends a document.
        format: one of `DOCUMENT_FORMATS`; auto goes by the name (.xml, .jsonl, .txt, also with
            .bz2), then by the content.
        section_titles: keep the titles of an article's sections as paragraphs of their own.

    Attributes:
        format: of the file, never auto.
        counts: what the last iteration has met so far. Always ``documents``; but for plain text
            also ``empty`` (nothing left by cleaning); for a dump also ``pages`` and the other pages
            that are no document: ``redirects``, ``other_namespaces``, ``other_content`` (not
            wikitext).

    Raises:
        ValueError: an unknown format, no such file, a content that tells no format, missing
            libraries; while iterating: not UTF-8 (byte and line), cut off or damaged (pages read
            so far), not what its format says (line), no document in it.
    """

    def __init__(self, path: Path, format: str = "auto", *, section_titles: bool = False) -> None:
        if format not in DOCUMENT_FORMATS:
            raise ValueError(
                f"document format '{format}': give one of {', '.join(DOCUMENT_FORMATS)}"
            )
        head = _head(path)
        self.path = path
        self.format = _detect_format(path, head) if format == "auto" else format
        self.counts: Counter[str] = Counter()
        self._read = _READERS[self.format]
        if self.format == "mediawiki":
            load_libraries()
            self._read = partial(_read_dump, section_titles=section_titles)

    def __iter__(self) -> Iterator[Document]:
        self.counts = counts = Counter(dict.fromkeys((*_left_out(self.format), "documents"), 0))
        try:
            with _open(self.path) as stream:
                for document in self._read(stream, self.path, counts):
                    counts["documents"] += 1
                    yield document
        except (EOFError, OSError) as error:
            raise _unreadable(self.path, error, counts) from None
        if not counts["documents"]:
            raise ValueError(_no_document(self.path, self.format, counts))


def _left_out(format: str) -> tuple[str, ...]:
    """The names of what a reader counts beside documents."""
    if format == "mediawiki":
        return (*PAGE_COUNTS, "empty")
    return () if format == "text" else ("empty",)


def _open(path: Path) -> BinaryIO:
    with path.open("rb") as file:
        compressed = file.read(3) == b"BZh"
    return cast(BinaryIO, bz2.open(path)) if compressed else path.open("rb")


def _head(path: Path) -> bytes:
    """The first bytes of a file's content."""
    try:
        with _open(path) as stream:
            return stream.read(_SNIFFED_BYTES)
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file; give a dump or a text file") from None
    except (EOFError, OSError) as error:
        raise _unreadable(path, error, Counter()) from None


def _unreadable(path: Path, error: EOFError | OSError, counts: Counter[str]) -> ValueError:
    unit = "pages" if "pages" in counts else "documents"
    after = f"after {counts[unit]} {unit}; download it again"
    if isinstance(error, EOFError):
        return ValueError(f"{path}: the bzip2 file is cut off {after}")
    if error.errno is None:  # bz2's own
        return ValueError(f"{path}: the bzip2 file is damaged ({error}) {after}")
    return ValueError(f"{path}: cannot be read: {error.strerror}; give a file that can")


def _detect_format(path: Path, head: bytes) -> str:
    name = path.name.lower().removesuffix(".bz2")
    content = head.removeprefix(_BOM).lstrip()
    if name.endswith(".xml") or content.startswith((b"<?xml", b"<mediawiki")):
        return "mediawiki"
    if content.startswith(b"<doc id="):  # whatever its name: the tags are no text
        return "wikiextractor"
    if name.endswith(".txt"):
        return "text"
    if name.endswith(".jsonl") or re.match(rb'\{\s*"', content):
        return "jsonl"
    if content.startswith(b"<") or b"\x00" in head or not _is_utf8(head):
        raise ValueError(
            f"{path}: no known format by its name and first bytes "
            f"({head[:12]!r}); give the format: {', '.join(list(DOCUMENT_FORMATS)[1:])}"
        )
    return "text"


def _is_utf8(head: bytes) -> bool:
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        # the last character may be cut by the end of what was read
        return len(head) == _SNIFFED_BYTES and error.start > len(head) - 4
    return True


def _no_document(path: Path, format: str, counts: Counter[str]) -> str:
    if format == "text":
        return f"{path}: no document: empty or blank; give lines of text, a document a block"
    if format != "mediawiki":
        return f"{path}: no document with text ({counts['empty']} empty); leave the file out"
    reasons = ", ".join(f"{counts[name]} {name}" for name in (*PAGE_COUNTS, "empty"))
    return f"{path}: no article of namespace 0 with text ({reasons}); give a pages-articles dump"


def _read_dump(
    stream: BinaryIO, path: Path, counts: Counter[str], section_titles: bool = False
) -> Iterator[Document]:
    for page in read_pages(stream, str(path), counts):
        text = clean_markup(page.wikitext, section_titles=section_titles)
        if text:
            yield Document(page.title, text)
        else:
            counts["empty"] += 1


_READERS: dict[str, _ReadDocuments] = {
    "mediawiki": _read_dump,
    "wikiextractor": read_wikiextractor,
    "jsonl": read_json_lines,
    "text": read_text,
}
DOCUMENT_FORMATS = ("auto", *_READERS)
