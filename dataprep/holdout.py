"""Which documents are kept for the evaluation, as a list of md5s.

The md5 is that of a document's sentences joined by newlines, as in MLPerf's list. Copies of a
document share it, so none of them is trained on.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from dataprep.engine import SERIAL, Job, run_jobs, stage_inputs
from dataprep.manifest import FileEntry, Manifest
from dataprep.parts import TextParts, document_md5, read_parts
from dataprep.storage import file_sha256, replacing

HELD_OUT_LIST = "evaluation.md5"


@dataclass(frozen=True)
class HoldOut:
    """Which documents a samples stage takes: those of the list, or all others."""

    digests: frozenset[str] = field(default_factory=frozenset)
    only_these: bool = False

    @property
    def sha256(self) -> str:
        """The digest of the list."""
        return hashlib.sha256("\n".join(sorted(self.digests)).encode()).hexdigest()

    def name(self, sentences: Sequence[str]) -> str:
        """The md5 by which a document goes, in the form that the list has.

        MLPerf's reference counts the empty line before the first article of each of its files as
        part of that article.
        """
        after_empty_line = document_md5(["", *sentences])
        return after_empty_line if after_empty_line in self.digests else document_md5(sentences)

    def takes(self, digest: str) -> bool:
        """Whether a document with this md5 is taken."""
        return (digest in self.digests) == self.only_these


def read_holdout(path: Path, only_these: bool) -> HoldOut:
    """Read a list of md5s, one a line.

    Raises:
        ValueError: no such file, or a line that is no md5.
    """
    try:
        lines = path.read_text(encoding="utf-8").split()
    except (FileNotFoundError, UnicodeDecodeError):
        raise ValueError(f"{path}: not a readable list of md5s; run stage 'holdout'") from None
    for number, line in enumerate(lines, 1):
        if len(line) != 32 or set(line) - set("0123456789abcdef"):
            raise ValueError(f"{path}: entry {number}, '{line}', is not an md5")
    return HoldOut(frozenset(lines), only_these)


def draw_holdout(parts: TextParts, folder: Path, documents: int, seed: int) -> Manifest:
    """Draw documents of a corpus: the list ``evaluation.md5``, an md5 a line.

    Which are drawn depends on their text and the seed, not on their order.

    Raises:
        ValueError: fewer than two documents wanted, or none would be left to train on.
    """
    run = partial(_draw, parts.paths, folder, documents, seed)
    return _make_list(folder, {"documents": documents}, seed, parts, run)


def list_holdout(parts: TextParts, folder: Path) -> Manifest:
    """List all documents of text parts that are an evaluation set, such as MLPerf's eval.txt."""
    return _make_list(folder, {"documents": "all"}, 0, parts, partial(_list, parts.paths, folder))


def _make_list(
    folder: Path,
    settings: dict[str, object],
    seed: int,
    parts: TextParts,
    run: partial[list[FileEntry]],
) -> Manifest:
    inputs = stage_inputs("holdout", settings, seed, parts.digests)
    entries = run_jobs(folder, [Job("holdout", run, inputs)], SERIAL)
    return Manifest("holdout", seed, settings, parts.sources, entries).write(folder)


def _draw(paths: Sequence[Path], folder: Path, documents: int, seed: int) -> list[FileEntry]:
    digests = {document_md5(sentences) for sentences in read_parts(paths)}
    if not 2 <= documents <= len(digests) - 2:
        raise ValueError(
            f"{paths[0].parent}: {documents} evaluation documents of {len(digests)} different "
            "ones; at least 2 must be held out and 2 left to train on: choose another number or "
            "give a larger corpus"
        )
    drawn = sorted(digests, key=lambda digest: hashlib.sha256(f"{seed} {digest}".encode()).digest())
    return _write(folder, drawn[:documents])


def _list(paths: Sequence[Path], folder: Path) -> list[FileEntry]:
    return _write(folder, {document_md5(sentences) for sentences in read_parts(paths)})


def _write(folder: Path, digests: Sequence[str] | set[str]) -> list[FileEntry]:
    with replacing(folder / HELD_OUT_LIST) as temporary:
        temporary.write_text("".join(f"{digest}\n" for digest in sorted(digests)))
        entry = FileEntry(
            HELD_OUT_LIST,
            temporary.stat().st_size,
            file_sha256(temporary),
            dict(Counter(documents=len(digests))),
        )
    return [entry]
