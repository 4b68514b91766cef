"""Sentences to samples: pairs for next-sentence prediction, and static masks.

The semantics are those of BERT's ``create_pretraining_data.py`` (google-research/bert at eedf5716),
which MLPerf's reference uses. Two of its faults are mended: a random second segment never comes
from the first one's document or from a copy of it, so a pair that really follows is never labelled
random and no sentence is paired with itself.

Each document draws from a generator of its own, seeded by (seed, shard, document, duplicate): the
result does not depend on the number of workers.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dataprep.shards import Sample, UInt16Array
from dataprep.tokenization import Vocabulary

SPECIAL_POSITIONS = 3  # [CLS] first [SEP] second [SEP]


@dataclass(frozen=True)
class SamplesConfig:
    """How samples are made of documents. The defaults are MLPerf's.

    Args:
        max_seq_length: the longest sample in tokens, [CLS] and both [SEP] included
        max_predictions: the most masked tokens of a sample
        masked_lm_probability: the share of a sample's tokens that is masked
        short_sequence_probability: the share of documents cut to a random shorter target length
        dupe_factor: how often the corpus is gone through, with other pairs and masks each time
    """

    max_seq_length: int = 512
    max_predictions: int = 76
    masked_lm_probability: float = 0.15
    short_sequence_probability: float = 0.1
    dupe_factor: int = 10

    def __post_init__(self) -> None:
        if not SPECIAL_POSITIONS + 2 <= self.max_seq_length <= 65535:
            raise ValueError(
                f"max_seq_length {self.max_seq_length} must lie between {SPECIAL_POSITIONS + 2} "
                "and 65535"
            )
        for name in ("max_predictions", "dupe_factor"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} {getattr(self, name)} must be at least 1")
        if not 0 < self.masked_lm_probability < 1:
            raise ValueError(
                f"masked_lm_probability {self.masked_lm_probability} must lie between 0 and 1, "
                "such as 0.15"
            )
        if not 0 <= self.short_sequence_probability <= 1:
            raise ValueError(
                f"short_sequence_probability {self.short_sequence_probability} must lie in 0 to 1"
            )


@dataclass(frozen=True)
class TokenizedDocuments:
    """Documents as one flat array of tokens.

    Attributes:
        tokens: [T] of all sentences one after the other.
        sentence_starts: [sentences + 1] where each sentence starts in ``tokens``.
        document_starts: [documents + 1] where each document starts, counted in sentences.
        digests: of each document's text; copies have the same.
    """

    tokens: UInt16Array
    sentence_starts: NDArray[np.int64]
    document_starts: NDArray[np.int64]
    digests: list[str]

    def __len__(self) -> int:
        return len(self.digests)

    def span(self, first_sentence: int, last_sentence: int) -> UInt16Array:
        """The tokens of sentences first <= i < last."""
        return self.tokens[
            self.sentence_starts[first_sentence] : self.sentence_starts[last_sentence]
        ]


class SampleBuilder:
    """Makes the samples of a shard's documents.

    Args:
        documents: of one shard; the random second segments come from the same shard.
        vocabulary: of the tokens.
        config: lengths and probabilities.
        seed: of the shard: two shards with the same seed would draw alike.

    Attributes:
        counts: what was made, cut and skipped.

    Raises:
        ValueError: fewer than two different documents.
    """

    def __init__(
        self,
        documents: TokenizedDocuments,
        vocabulary: Vocabulary,
        config: SamplesConfig,
        seed: tuple[int, ...],
    ) -> None:
        self._documents = documents
        self._config = config
        self._seed = seed
        self._cls, self._sep, self._mask = map(vocabulary.id, ("[CLS]", "[SEP]", "[MASK]"))
        self._vocabulary_size = len(vocabulary)
        first_of: dict[str, int] = {}
        for document, digest in enumerate(documents.digests):
            first_of.setdefault(digest, document)
        self._distinct = list(first_of.values())
        self.counts: Counter[str] = Counter()
        if len(self._distinct) < 2:
            raise ValueError(
                f"{len(self._distinct)} different document(s) with text, but a random second "
                "segment needs another one; use fewer parts or a larger corpus"
            )

    def build(self) -> Iterator[Sample]:
        """All samples, in the order of duplicates and documents."""
        for duplicate in range(self._config.dupe_factor):
            for document in range(len(self._documents)):
                generator = np.random.default_rng([*self._seed, document, duplicate])
                for first, second, label in self._pairs(document, generator):
                    yield self._sample(first, second, label, generator)

    def _pairs(
        self, document: int, generator: np.random.Generator
    ) -> Iterator[tuple[UInt16Array, UInt16Array, int]]:
        """First and second segment and label (1: random) of each sample of a document."""
        begin, end = self._documents.document_starts[document : document + 2].tolist()
        target = self._target_length(generator)
        starts = self._documents.sentence_starts
        while begin < end:
            # sentences up to the target length, at least one
            stop = int(np.searchsorted(starts, starts[begin] + target, side="left"))
            stop = min(max(stop, begin + 1), end)
            cut = begin + 1
            if stop - begin >= 2:
                cut = begin + int(generator.integers(1, stop - begin))
            first = self._documents.span(begin, cut)
            if stop - begin == 1 or generator.random() < 0.5:
                second = self._random_segment(document, target - len(first), generator)
                yield first, second, 1
                begin = cut  # what the random segment replaced is used again
            else:
                yield first, self._documents.span(cut, stop), 0
                begin = stop

    def _target_length(self, generator: np.random.Generator) -> int:
        longest = self._config.max_seq_length - SPECIAL_POSITIONS
        if generator.random() < self._config.short_sequence_probability:
            return int(generator.integers(2, longest, endpoint=True))
        return longest

    def _random_segment(
        self, document: int, target: int, generator: np.random.Generator
    ) -> UInt16Array:
        digests = self._documents.digests
        other = document
        while digests[other] == digests[document]:
            other = self._distinct[generator.integers(len(self._distinct))]
        begin, end = self._documents.document_starts[other : other + 2].tolist()
        first = int(generator.integers(begin, end))
        starts = self._documents.sentence_starts
        last = int(np.searchsorted(starts, starts[first] + max(target, 1), side="left"))
        return self._documents.span(first, min(last, end))

    def _sample(
        self, first: UInt16Array, second: UInt16Array, label: int, generator: np.random.Generator
    ) -> Sample:
        first, second = self._truncate(first, second, generator)
        second_start = len(first) + 2
        tokens = np.empty(len(first) + len(second) + SPECIAL_POSITIONS, np.uint16)
        tokens[0], tokens[second_start - 1], tokens[-1] = self._cls, self._sep, self._sep
        tokens[1 : second_start - 1] = first
        tokens[second_start:-1] = second
        maskable = np.delete(np.arange(1, len(tokens) - 1), len(first))
        wanted = max(1, round(len(tokens) * self._config.masked_lm_probability))
        count = min(wanted, self._config.max_predictions, len(maskable))
        positions = np.sort(generator.permutation(maskable)[:count])
        labels = tokens[positions]
        fate = generator.random(count)
        random_ids = generator.integers(0, self._vocabulary_size, count)
        tokens[positions] = np.where(
            fate < 0.8, self._mask, np.where(fate < 0.9, labels, random_ids)
        )
        self.counts.update(samples=1, random_next=label, masked_tokens=count)
        return Sample(tokens, second_start, positions.astype(np.uint16), labels, label)

    def _truncate(
        self, first: UInt16Array, second: UInt16Array, generator: np.random.Generator
    ) -> tuple[UInt16Array, UInt16Array]:
        """Take tokens off the longer segment, each from a random end, until both fit."""
        limit = self._config.max_seq_length - SPECIAL_POSITIONS
        excess = len(first) + len(second) - limit
        if excess <= 0:
            return first, second
        self.counts.update(truncated_samples=1, truncated_tokens=excess)
        # the second gives way on a tie, as in the reference
        keep_first = min(len(first), max(limit - len(second), (limit + 1) // 2))
        keep_second = limit - keep_first
        return _cut(first, keep_first, generator), _cut(second, keep_second, generator)


def _cut(segment: UInt16Array, keep: int, generator: np.random.Generator) -> UInt16Array:
    from_front = int(generator.binomial(len(segment) - keep, 0.5))
    return segment[from_front : from_front + keep]
