"""Sentences to samples: pairs for next-sentence prediction, and static masks.

The semantics are those of BERT's ``create_pretraining_data.py`` (google-research/bert at eedf5716),
which MLPerf's reference uses. Two of its faults are mended: a random second segment never comes
from the first one's document or from a copy of it, so a pair that really follows is never labelled
random and no sentence is paired with itself.

Each document has draws of its own, keyed by (seed, shard, document, duplicate): the result does not
depend on the number of workers.

All is computed for many samples at once. What a sample would be if it started at a given sentence
depends on that sentence's draws alone, so it is known for all sentences before the first sample is
made; a document's samples are found by following from each to where the next one starts.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dataprep.blocks import Sample, SampleBlock, UInt16Array, offsets_of, ragged_range
from dataprep.draws import UInt64Array, below, draw, happens, heads, seed_key
from dataprep.lengths import Int64Array
from dataprep.masking import Masker
from dataprep.picks import takes_duplicate
from dataprep.tokenization import Vocabulary

SPECIAL_POSITIONS = 3  # [CLS] first [SEP] second [SEP]
_BLOCK_TOKENS = 1 << 17  # made at once: the arrays stay in the processor's cache
# which draw of a sample serves what
_COIN, _CUT, _DOCUMENT, _SENTENCE, _FIRST_ENDS, _SECOND_ENDS, _CHOICE, _FATE = range(8)


@dataclass(frozen=True)
class SamplesConfig:
    """How samples are made of documents. The defaults are MLPerf's.

    Args:
        max_seq_length: the longest sample in tokens, [CLS] and both [SEP] included
        max_predictions: the most masked tokens of a sample
        masked_lm_probability: the share of a sample's tokens that is masked
        short_sequence_probability: the share of documents cut to a random shorter target length
        dupe_factor: how often the corpus is gone through, with other pairs and masks each time
        max_unknown_share: refuse text of which more than this share of the tokens is [UNK]: it is
            in another language, or cased where the vocabulary is not
    """

    max_seq_length: int = 512
    max_predictions: int = 76
    masked_lm_probability: float = 0.15
    short_sequence_probability: float = 0.1
    dupe_factor: int = 10
    max_unknown_share: float = 0.1

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
        for name in ("short_sequence_probability", "max_unknown_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} {getattr(self, name)} must lie in 0 to 1")


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


class _Pairs(NamedTuple):
    """Both segments of n samples as places in the corpus' tokens; all fields [n].

    ``keys`` are of the samples' draws; ``labels`` are 1 where the second segment is random.
    """

    keys: UInt64Array
    first: Int64Array
    first_length: Int64Array
    second: Int64Array
    second_length: Int64Array
    labels: NDArray[np.uint8]

    def part(self, start: int, stop: int) -> "_Pairs":
        """Samples start <= i < stop."""
        return _Pairs(
            self.keys[start:stop],
            self.first[start:stop],
            self.first_length[start:stop],
            self.second[start:stop],
            self.second_length[start:stop],
            self.labels[start:stop],
        )


class SampleBuilder:
    """Makes the samples of a shard's documents.

    Args:
        documents: of one shard; the random second segments come from the same shard.
        vocabulary: of the tokens.
        config: lengths and probabilities.
        seed: of the shard: two shards with the same seed would draw alike.
        share: make only this share of the (document, duplicate) pairs, see
            ``picks.takes_duplicate``; their samples are those of a whole run.

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
        share: float = 1.0,
    ) -> None:
        self._documents = documents
        self._seed = seed[0]
        self._share = share
        self._config = config
        self._key = seed_key(seed)
        self._longest = config.max_seq_length - SPECIAL_POSITIONS
        self._cls, self._sep, mask = map(vocabulary.id, ("[CLS]", "[SEP]", "[MASK]"))
        self._masker = Masker(
            config.masked_lm_probability, config.max_predictions, mask, len(vocabulary)
        )
        # copies share a rank; the first of each is the one that random segments come from
        ranks: dict[str, int] = {}
        self._ranks = np.array([ranks.setdefault(d, len(ranks)) for d in documents.digests])
        if len(ranks) < 2:
            raise ValueError(
                f"{len(ranks)} different document(s) with text, but a random second "
                "segment needs another one; use fewer parts or a larger corpus"
            )
        self._distinct = np.unique(self._ranks, return_index=True)[1]
        self._owners = np.repeat(np.arange(len(documents)), np.diff(documents.document_starts))
        too_long = np.diff(documents.sentence_starts) > self._longest
        self.counts: Counter[str] = Counter(sentences_over_the_limit=int(too_long.sum()))

    def build(self) -> Iterator[Sample]:
        """All samples, in the order of duplicates and documents."""
        for block in self.blocks():
            yield from block.samples()

    def blocks(self) -> Iterator[SampleBlock]:
        """The samples of ``build``, many at once."""
        size = max(1, _BLOCK_TOKENS // self._config.max_seq_length)
        for duplicate in range(self._config.dupe_factor):
            pairs = self._pairs(duplicate)
            for start in range(0, len(pairs.keys), size):
                yield self._block(self._fit(pairs.part(start, start + size)))

    def _pairs(self, duplicate: int) -> _Pairs:
        """All samples of one pass through the documents, not yet cut to fit."""
        starts = self._documents.sentence_starts
        document_starts = self._documents.document_starts
        document_keys = draw(draw(self._key, duplicate), np.arange(len(self._documents)))
        targets = self._target_lengths(document_keys)[self._owners]
        sentences = np.arange(len(self._owners))
        in_document = sentences - document_starts[self._owners]
        keys = draw(draw(document_keys, 2)[self._owners], in_document)
        # were a sample to start at this sentence: sentences up to the target length, at least one
        stops = np.searchsorted(starts, starts[:-1] + targets, side="left")
        stops = np.clip(stops, sentences + 1, document_starts[self._owners + 1])
        cuts = sentences + 1 + below(draw(keys, _CUT), stops - sentences - 1)
        is_random = (stops - sentences == 1) | happens(draw(keys, _COIN), 0.5)
        # what a random segment replaced is used again
        begins = _follow(np.where(is_random, cuts, stops))
        if self._share < 1:
            begins = begins[self._taken(duplicate)[self._owners[begins]]]
        keys, is_random, cuts = keys[begins], is_random[begins], cuts[begins]
        first_length = starts[cuts] - starts[begins]
        elsewhere, elsewhere_stops = self._random_segments(
            keys, self._owners[begins], targets[begins] - first_length
        )
        second = starts[np.where(is_random, elsewhere, cuts)]
        second_stop = starts[np.where(is_random, elsewhere_stops, stops[begins])]
        return _Pairs(
            keys,
            starts[begins],
            first_length,
            second,
            second_stop - second,
            is_random.astype(np.uint8),
        )

    def _taken(self, duplicate: int) -> NDArray[np.bool_]:
        """Whether each document's samples of this pass are made."""
        digests = self._documents.digests
        taken = [takes_duplicate(d, duplicate, self._share, self._seed) for d in digests]
        self.counts["passes_not_taken"] += len(taken) - sum(taken)
        return np.array(taken)

    def _target_lengths(self, document_keys: UInt64Array) -> Int64Array:
        is_short = happens(draw(document_keys, 0), self._config.short_sequence_probability)
        short = 2 + below(draw(document_keys, 1), self._longest - 1)
        return np.where(is_short, short, self._longest)

    def _random_segments(
        self, keys: UInt64Array, documents: Int64Array, wanted: Int64Array
    ) -> tuple[Int64Array, Int64Array]:
        """First and last sentence (exclusive) from another document, of ``wanted`` tokens."""
        starts, document_starts = self._documents.sentence_starts, self._documents.document_starts
        ranks = below(draw(keys, _DOCUMENT), len(self._distinct) - 1)
        ranks += ranks >= self._ranks[documents]  # never the own text
        others = self._distinct[ranks]
        begins, ends = document_starts[others], document_starts[others + 1]
        firsts = begins + below(draw(keys, _SENTENCE), ends - begins)
        stops = np.searchsorted(starts, starts[firsts] + np.maximum(wanted, 1), side="left")
        return firsts, np.minimum(stops, ends)

    def _fit(self, pairs: _Pairs) -> _Pairs:
        """Take tokens off the longer segment, each from a random end, until both fit."""
        excess = np.maximum(pairs.first_length + pairs.second_length - self._longest, 0)
        self.counts.update(
            truncated_samples=int((excess > 0).sum()), truncated_tokens=int(excess.sum())
        )
        # the second gives way on a tie, as in the reference
        room = np.maximum(self._longest - pairs.second_length, (self._longest + 1) // 2)
        keep_first = np.minimum(pairs.first_length, room)
        keep_second = np.minimum(pairs.second_length, self._longest - keep_first)
        first_cut = heads(draw(pairs.keys, _FIRST_ENDS), pairs.first_length - keep_first)
        second_cut = heads(draw(pairs.keys, _SECOND_ENDS), pairs.second_length - keep_second)
        return pairs._replace(
            first=pairs.first + first_cut,
            first_length=keep_first,
            second=pairs.second + second_cut,
            second_length=keep_second,
        )

    def _block(self, pairs: _Pairs) -> SampleBlock:
        """Put [CLS] and [SEP] around the segments and mask."""
        lengths = pairs.first_length + pairs.second_length + SPECIAL_POSITIONS
        offsets = offsets_of(lengths)
        separators = pairs.first_length + 1
        tokens = self._documents.tokens[self._places(pairs)]
        tokens[offsets[:-1]] = self._cls
        tokens[offsets[:-1] + separators] = self._sep
        tokens[offsets[1:] - 1] = self._sep
        positions, counts = self._masker.choose(draw(pairs.keys, _CHOICE), lengths, separators)
        masked = np.repeat(offsets[:-1], counts) + positions
        labels = tokens[masked]
        bits = draw(np.repeat(draw(pairs.keys, _FATE), counts), positions)
        tokens[masked] = self._masker.replacements(bits, labels)
        self.counts.update(
            samples=len(lengths),
            random_next=int(pairs.labels.sum()),
            masked_tokens=len(positions),
        )
        return SampleBlock(
            tokens=tokens,
            token_offsets=offsets,
            second_segment_start=(separators + 1).astype(np.uint16),
            next_sentence_label=pairs.labels,
            mlm_positions=positions,
            mlm_ids=labels,
            mlm_offsets=offsets_of(counts),
        )

    def _places(self, pairs: _Pairs) -> Int64Array:
        """Where each token of the samples stands in the corpus; special ones: any place."""
        # each sample is three ranges: [CLS] and the first segment, [SEP] and the second, [SEP]
        starts = np.stack([pairs.first - 1, pairs.second - 1, np.zeros_like(pairs.first)], axis=1)
        lengths = np.stack(
            [pairs.first_length + 1, pairs.second_length + 1, np.ones_like(pairs.first)], axis=1
        )
        return ragged_range(starts.ravel(), lengths.ravel())


def _follow(successors: Int64Array) -> Int64Array:
    """0, its successor, the successor's and so on, up to the end of the array."""
    following = successors.tolist()
    place, places = 0, []
    while place < len(following):
        places.append(place)
        place = following[place]
    return np.array(places, np.int64)
