"""Text parts: a sentence a line, an empty line between documents; the form of MLPerf's text.

A part is the unit of parallel work of the stages that follow.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dataprep.manifest import read_manifest
from dataprep.storage import file_sha256

_SOURCE_BYTES_A_PART = 32 << 20


@dataclass(frozen=True)
class Group:
    """Sources that are read together, and into how many parts their documents are dealt."""

    sources: range
    parts: int


def deal_parts(sizes: Sequence[int], parts: int | None) -> list[Group]:
    """Groups of neighbouring sources, at most as many as parts, with their shares of the parts.

    Args:
        sizes: of the sources, in bytes.
        parts: how many in all; by default one for each 32 MiB.
    """
    total = max(sum(sizes), 1)
    wanted = max(1, round(total / _SOURCE_BYTES_A_PART)) if parts is None else parts
    if wanted < 1:
        raise ValueError(f"parts {parts} must be at least 1")
    starts = [0]
    for size in sizes:
        starts.append(starts[-1] + size)
    # the group in whose span of bytes a source starts
    owners = [min(wanted - 1, start * wanted // total) for start in starts[:-1]]
    firsts = [i for i, owner in enumerate(owners) if i == 0 or owner != owners[i - 1]]
    spans = [range(a, b) for a, b in zip(firsts, [*firsts[1:], len(sizes)], strict=True)]
    shares = _apportion([starts[s.stop] - starts[s.start] for s in spans], wanted)
    return [Group(span, share) for span, share in zip(spans, shares, strict=True)]


def _apportion(sizes: Sequence[int], parts: int) -> list[int]:
    """One part each, the others by the largest size a part (Jefferson's method)."""
    shares = [1] * len(sizes)
    for _ in range(parts - len(sizes)):
        largest = max(range(len(sizes)), key=lambda i: sizes[i] / (shares[i] + 1))
        shares[largest] += 1
    return shares


def document_md5(sentences: Sequence[str]) -> str:
    """A document's name in the list of held-out ones: md5 of its sentences joined by newlines."""
    return hashlib.md5("\n".join(sentences).encode(), usedforsecurity=False).hexdigest()


def read_parts(paths: Sequence[Path]) -> Iterator[list[str]]:
    """The documents of text parts, as lists of sentences.

    Raises:
        ValueError: a part is not UTF-8 (byte, offset and line are named), or has no document.
    """
    for path in paths:
        sentences: list[str] = []
        found, offset = False, 0
        with path.open("rb") as stream:
            for number, line in enumerate(stream, 1):
                try:
                    sentence = line.decode("utf-8").rstrip("\r\n")
                except UnicodeDecodeError as error:
                    raise ValueError(
                        f"{path}: not UTF-8: byte 0x{line[error.start]:02x} at offset "
                        f"{offset + error.start}, line {number}; convert it, as with iconv -t UTF-8"
                    ) from None
                offset += len(line)
                if sentence.strip():
                    found = True
                    sentences.append(sentence)
                elif sentences:
                    yield sentences
                    sentences = []
        if sentences:
            yield sentences
        if not found:
            raise ValueError(f"{path}: no document: empty or blank; leave the file out")


@dataclass(frozen=True)
class TextParts:
    """The parts of a corpus: files in their order, and the sha256 of each."""

    paths: Sequence[Path]
    digests: Sequence[str]

    @property
    def sources(self) -> dict[str, str]:
        """File name -> sha256."""
        return {path.name: sha for path, sha in zip(self.paths, self.digests, strict=True)}

    def each(self) -> list["TextParts"]:
        """Every part on its own."""
        pairs = zip(self.paths, self.digests, strict=True)
        return [TextParts([path], [digest]) for path, digest in pairs]


def stage_parts(folder: Path) -> TextParts:
    """The text parts that stage ``sentences`` left in a folder."""
    files = read_manifest(folder, ("sentences",)).files
    return TextParts([folder / entry.file for entry in files], [entry.sha256 for entry in files])


def given_parts(paths: Sequence[Path]) -> TextParts:
    """Text parts from elsewhere; reads them for their digests.

    Raises:
        ValueError: two of them have the same name.
    """
    names = [path.name for path in paths]
    for path in paths:
        if names.count(path.name) > 1:
            raise ValueError(f"{path}: another part is called {path.name} too; rename one")
    return TextParts(paths, [file_sha256(path) for path in paths])
