"""Real text for the benchmark of data preparation: WikiExtractor's output to text parts."""

import tarfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dataprep.sentences import SentencesConfig, build_splitter
from dataprep.storage import replacing

MEGABYTE = 1_000_000


@dataclass(frozen=True)
class TextParts:
    """Text parts (a sentence a line, an empty line between documents) and what making them took.

    Attributes:
        paths: of the parts, all of about one size.
        bytes: of all parts.
        documents, sentences: in all parts.
        split_seconds: CPU-seconds of sentence splitting alone.
    """

    paths: list[Path]
    bytes: int
    documents: int
    sentences: int
    split_seconds: float


def make_text_parts(corpus: Path, folder: Path, size: int, part_size: int) -> TextParts:
    """Split the first ``size`` bytes of text of a corpus into sentences, written as parts.

    Args:
        corpus: a WikiExtractor file, a folder of such files, or a tar file of them.
        folder: where the parts are written.
        size: in bytes of the parts together; the last document may go beyond.
        part_size: in bytes of a part.

    Raises:
        ValueError: no such corpus, or too little text in it.
    """
    split = build_splitter(SentencesConfig("rules"))
    paths: list[Path] = []
    lines: list[str] = []
    total = filled = documents = sentences = 0
    seconds = 0.0
    for article in read_articles(_lines(corpus)):
        start = time.process_time()
        found = split(article)
        seconds += time.process_time() - start
        if not found:
            continue
        documents, sentences = documents + 1, sentences + len(found)
        lines += [*found, ""]
        filled += sum(len(line.encode()) + 1 for line in [*found, ""])
        if filled > part_size or total + filled > size:  # a part lacks its last empty line
            paths.append(_write(folder / f"text-{len(paths):05d}.txt", lines))
            total, filled, lines = total + paths[-1].stat().st_size, 0, []
            if total >= size:
                return TextParts(paths, total, documents, sentences, seconds)
    raise ValueError(
        f"{corpus}: {(total + filled) / MEGABYTE:.1f} MB of text in <doc> blocks, "
        f"{size / MEGABYTE:.1f} wanted; lower --megabytes or give WikiExtractor's output"
    )


def read_articles(lines: Iterable[str]) -> Iterator[str]:
    """The text of each <doc> block without its first line, the title; empty ones are left out."""
    block: list[str] = []
    for line in lines:
        if line.startswith("<doc "):
            block = []
        elif line.startswith("</doc>"):
            text = "\n".join(block[1:]).strip()
            if text:
                yield text
        else:
            block.append(line.rstrip("\n"))


def _lines(corpus: Path) -> Iterator[str]:
    if corpus.is_dir():
        for path in sorted(corpus.rglob("*")):
            if path.is_file():
                yield from _lines(path)
    elif not corpus.is_file():
        raise ValueError(f"{corpus}: no such corpus; give WikiExtractor's output with --corpus")
    elif tarfile.is_tarfile(corpus):
        with tarfile.open(corpus) as archive:
            for member in archive:
                content = archive.extractfile(member)
                if content is not None:
                    yield from (line.decode("utf-8", "replace") for line in content)
    else:
        with corpus.open(encoding="utf-8", errors="replace") as file:
            yield from file


def _write(path: Path, lines: list[str]) -> Path:
    with replacing(path) as temporary:
        temporary.write_text("\n".join(lines), encoding="utf-8")
    return path
