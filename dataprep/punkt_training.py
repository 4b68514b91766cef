"""A Punkt model of the corpus's own language and abbreviations, trained without any download."""

import hashlib
import heapq
from collections.abc import Iterable
from pathlib import Path

from dataprep.sentences import PUNKT_FILES, split_lines
from dataprep.storage import replacing

_MEGABYTE = 1_000_000


def train_punkt(documents: Iterable[str], folder: Path, max_megabytes: float = 4.0) -> None:
    """Train Punkt (Kiss & Strunk 2006) and write the four files of a punkt_tab folder.

    The documents with the smallest md5s are trained on, as many as fit: a sample that depends
    neither on their order nor on chance, drawn in one pass and in bounded memory. Copies of a
    document count once. The files' lines are sorted, so equal documents make equal files.

    Args:
        documents: their texts, a paragraph a line.
        folder: gets the model; ``SentencesConfig.punkt_dir`` reads it.
        max_megabytes: the most text trained on, in 10^6 bytes of UTF-8. About 0.3 MB are trained on
            in a second, in some hundred bytes of memory for each byte.

    Raises:
        ValueError: a limit that is not positive, or no document that fits it.
    """
    if not max_megabytes > 0:
        raise ValueError(f"max_megabytes {max_megabytes} must be more than 0, such as 4")
    chosen = _smallest_md5s(documents, int(max_megabytes * _MEGABYTE))
    if not chosen:
        raise ValueError(
            f"no document to train punkt on within {max_megabytes} megabytes; raise max_megabytes "
            "or give a corpus with text"
        )
    for name, lines in _train("\n".join(chosen)).items():
        with replacing(folder / name) as temporary:
            temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _smallest_md5s(documents: Iterable[str], max_bytes: int) -> list[str]:
    """The documents with the smallest md5s that fit, in the order of their md5s.

    Those that wouldn't fit alone are passed over. Once one has been dropped, so is every document
    with a larger md5: otherwise what fits would depend on the order.
    """
    heap: list[tuple[int, str, int]] = []  # negative md5: the largest is on top
    held: set[int] = set()
    size, dropped = 0, -(1 << 128)
    for document in documents:
        text = "\n".join(split_lines(document))
        data = text.encode("utf-8")
        key = -int.from_bytes(hashlib.md5(data, usedforsecurity=False).digest())
        if not 0 < len(data) <= max_bytes or key in held or key <= dropped:
            continue
        held.add(key)
        heapq.heappush(heap, (key, text, len(data)))
        size += len(data)
        while size > max_bytes:
            dropped, _, bytes_less = heapq.heappop(heap)
            held.remove(dropped)
            size -= bytes_less
    return [text for _, text, _ in sorted(heap, reverse=True)]


def _train(text: str) -> dict[str, list[str]]:
    """The lines of each file of the model."""
    from nltk.tokenize.punkt import PunktTrainer  # a second of every command's start

    trainer = PunktTrainer()
    trainer.train(text, finalize=True)
    parameters = trainer.get_params()
    return dict(
        zip(
            PUNKT_FILES,
            (
                sorted(parameters.abbrev_types),
                sorted("\t".join(pair) for pair in parameters.collocations),
                sorted(parameters.sent_starters),
                sorted(f"{word}\t{flags}" for word, flags in parameters.ortho_context.items()),
            ),
            strict=True,
        )
    )
