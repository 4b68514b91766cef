"""Text parts to the tokens of their documents."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from dataprep.blocks import UInt16Array, offsets_of
from dataprep.holdout import HoldOut
from dataprep.lengths import Int64Array
from dataprep.parts import read_parts
from dataprep.progress import advance
from dataprep.samples import TokenizedDocuments

_BATCH_CHARACTERS = 1 << 18  # tokenised at once, of however many documents


class Tokenizer(Protocol):
    """What makes tokens of sentences."""

    def encode(self, sentences: Sequence[str]) -> tuple[UInt16Array, Int64Array]:
        """The tokens of n sentences one after the other [T], and how many each has [n]."""


def tokenise_parts(
    sources: Sequence[Path],
    tokenizer: Tokenizer,
    holdout: HoldOut,
    counts: Counter[str],
) -> TokenizedDocuments:
    """The documents of text parts; sentences and documents without a token are left out.

    Args:
        sources: text parts: a sentence a line, an empty line between documents.
        tokenizer: of their sentences.
        holdout: says which documents are taken.
        counts: what was taken and left out is added here.
    """
    names: list[str] = []
    read_sizes: list[int] = []

    def sentences() -> Iterator[str]:
        for document in read_parts(sources):
            name = holdout.name(document)
            if not holdout.takes(name):
                counts["documents_not_taken"] += 1
                continue
            names.append(name)
            advance(documents=1, bytes=sum(map(len, document)))
            read_sizes.append(len(document))
            yield from document

    batches = [tokenizer.encode(batch) for batch in _batches(sentences())]
    tokens = np.concatenate([np.zeros(0, np.uint16), *(batch for batch, _ in batches)])
    sizes = np.concatenate([np.zeros(0, np.int64), *(sizes for _, sizes in batches)])
    owners = np.repeat(np.arange(len(names)), read_sizes)[sizes > 0]
    document_sizes = np.bincount(owners, minlength=len(names))
    digests = [name for name, size in zip(names, document_sizes, strict=True) if size]
    counts.update(
        documents=len(digests),
        sentences=len(owners),
        documents_without_tokens=len(names) - len(digests),
        documents_copied=len(digests) - len(set(digests)),
        sentences_without_tokens=len(sizes) - len(owners),
    )
    return TokenizedDocuments(
        tokens=tokens,
        sentence_starts=offsets_of(sizes[sizes > 0]),
        document_starts=offsets_of(document_sizes[document_sizes > 0]),
        digests=digests,
    )


def _batches(sentences: Iterator[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    characters = 0
    for sentence in sentences:
        batch.append(sentence)
        characters += len(sentence)
        if characters >= _BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch
