"""Samples exactly as MLPerf's reference makes them, faults included, faster.

The semantics are those of ``create_pretraining_data.py`` (google-research/bert at eedf5716): all
draws come from one stream of ``random.Random``, in the script's order. What is drawn depends on
lengths alone, so first everything is drawn and kept as places in the documents; the tokens are
put together when the samples, shuffled, are handed out.
"""

import random
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np

from dataprep.blocks import Sample, SampleBlock
from dataprep.samples import SPECIAL_POSITIONS, SamplesConfig, TokenizedDocuments
from dataprep.tokenization import Vocabulary

_RANDOM_DOCUMENT_TRIES = 10
_BLOCK_SAMPLES = 512


class _Pair(NamedTuple):
    """Both segments as places in the tokens, first <= i < stop, and the label."""

    first: int
    first_stop: int
    second: int
    second_stop: int
    label: int


class _Drawn:
    """All that was drawn: 41 bytes a sample and 4 a masked token."""

    def __init__(self) -> None:
        self.pairs = [array("q"), array("q"), array("q"), array("q"), array("B")]
        self.mask_starts = array("q", [0])
        self.mask_positions = array("H")
        self.mask_ids = array("H")

    def __len__(self) -> int:
        return len(self.mask_starts) - 1

    def append(self, pair: _Pair, positions: list[int], ids: list[int]) -> None:
        for column, value in zip(self.pairs, pair, strict=True):
            column.append(value)
        self.mask_positions.extend(positions)
        self.mask_ids.extend(ids)
        self.mask_starts.append(len(self.mask_positions))

    def pair(self, sample: int) -> _Pair:
        return _Pair(*(column[sample] for column in self.pairs))


class _Stream:
    """Random(seed), drawing what its methods draw, in less time."""

    def __init__(self, seed: int) -> None:
        stream = random.Random(seed)
        self.random = stream.random
        self._bits = stream.getrandbits

    def below(self, limit: int) -> int:
        """0 <= n < limit, as Random.randint draws."""
        bits = limit.bit_length()
        value = self._bits(bits)
        while value >= limit:
            value = self._bits(bits)
        return value

    def shuffle(self, items: list[int]) -> None:
        """Shuffle in place, as Random.shuffle does."""
        draw = self._bits
        last = len(items) - 1
        while last > 0:
            bits = (last + 1).bit_length()
            next_last = (1 << (bits - 1)) - 2  # from here on one bit less is drawn
            for i in range(last, next_last, -1):
                j = draw(bits)
                while j > i:
                    j = draw(bits)
                items[i], items[j] = items[j], items[i]
            last = next_last


class ReferenceBuilder:
    """Makes the samples of one text part as the reference does: same input, same samples.

    Its faults are kept: where ten draws found no other document, a random second segment comes from
    the first one's and is labelled as following. They are counted:

    - ``own_document_as_next``: all of those;
    - ``self_pairs``: those of them where the segments share a sentence;
    - ``random_from_copy``: the second segment comes from a copy of the document.

    Args:
        documents: of one text part, in the order of the file. Sentences without tokens and
            documents without sentences are left out, as the reference does.
        vocabulary: of the tokens.
        config: lengths and probabilities.
        seed: of the stream.

    Attributes:
        counts: what was made and cut, and the faults.

    Raises:
        ValueError: no document.
    """

    def __init__(
        self,
        documents: TokenizedDocuments,
        vocabulary: Vocabulary,
        config: SamplesConfig,
        seed: int,
    ) -> None:
        if not len(documents):
            raise ValueError("0 documents with text; give a text part that has some")
        self._documents = documents
        self._config = config
        self._seed = seed
        self._cls, self._sep, self._mask = map(vocabulary.id, ("[CLS]", "[SEP]", "[MASK]"))
        self._vocabulary_size = len(vocabulary)
        self._longest = config.max_seq_length - SPECIAL_POSITIONS
        self._starts: list[int] = documents.sentence_starts.tolist()
        # [CLS] and [SEP] written in the text are never masked
        literal = np.isin(documents.tokens, (self._cls, self._sep))
        self._unmaskable: frozenset[int] = frozenset(np.flatnonzero(literal).tolist())
        self.counts: Counter[str] = Counter()

    def build(self) -> Iterator[Sample]:
        """All samples, in the reference's order: shuffled."""
        self._draw = _Stream(self._seed)
        self._order = list(range(len(self._documents)))
        self._draw.shuffle(self._order)
        drawn = _Drawn()
        for _ in range(self._config.dupe_factor):
            for place in range(len(self._order)):
                for pair in self._pairs(place):
                    drawn.append(pair, *self._masks(pair))
        samples = list(range(len(drawn)))
        self._draw.shuffle(samples)
        self.counts.update(samples=len(drawn), masked_tokens=len(drawn.mask_ids))
        for sample in samples:
            yield self._sample(drawn, sample)

    def blocks(self) -> Iterator[SampleBlock]:
        """The samples of ``build``, many at once."""
        samples = self.build()
        while some := list(islice(samples, _BLOCK_SAMPLES)):
            yield SampleBlock.of(some)

    def _bounds(self, place: int) -> tuple[int, int]:
        """First and last + 1 sentence of a document by its place in the shuffled order."""
        document = self._order[place]
        begin, end = self._documents.document_starts[document : document + 2].tolist()
        return begin, end

    def _pairs(self, place: int) -> Iterator[_Pair]:
        starts = self._starts
        begin, end = self._bounds(place)
        target = self._longest
        if self._draw.random() < self._config.short_sequence_probability:
            target = 2 + self._draw.below(self._longest - 1)
        while begin < end:
            # sentences up to the target length, at least one
            stop = bisect_left(starts, starts[begin] + target, begin + 1, end)
            cut = begin + 1
            if stop - begin >= 2:
                cut += self._draw.below(stop - begin - 1)
            if stop - begin == 1 or self._draw.random() < 0.5:
                wanted = target - (starts[cut] - starts[begin])
                second, second_stop, label = self._random_segment(place, (begin, cut), wanted)
                following = cut  # what the random segment replaced is used again
            else:
                second, second_stop = cut, stop
                label, following = 0, stop
            yield self._truncate(
                _Pair(starts[begin], starts[cut], starts[second], starts[second_stop], label)
            )
            begin = following

    def _random_segment(
        self, place: int, first: tuple[int, int], wanted: int
    ) -> tuple[int, int, int]:
        """First and last sentence (exclusive) and the label."""
        other = place
        for _ in range(_RANDOM_DOCUMENT_TRIES):
            other = self._draw.below(len(self._order))
            if other != place:
                break
        begin, end = self._bounds(other)
        begin += self._draw.below(end - begin)
        stop = bisect_left(self._starts, self._starts[begin] + wanted, begin + 1, end)
        if other == place:
            self.counts["own_document_as_next"] += 1
            self.counts["self_pairs"] += begin < first[1] and first[0] < stop
            return begin, stop, 0
        self.counts["random_next"] += 1
        digests = self._documents.digests
        copied = digests[self._order[place]] == digests[self._order[other]]
        self.counts["random_from_copy"] += copied
        return begin, stop, 1

    def _truncate(self, pair: _Pair) -> _Pair:
        """Take tokens off the longer segment, each from a random end, until both fit."""
        first, first_stop, second, second_stop, label = pair
        first_size, second_size = first_stop - first, second_stop - second
        excess = first_size + second_size - self._longest
        if excess > 0:
            self.counts.update(truncated_samples=1, truncated_tokens=excess)
        for _ in range(excess):
            from_front = self._draw.random() < 0.5
            if first_size > second_size:
                first_size -= 1
                first += from_front
            else:
                second_size -= 1
                second += from_front
        return _Pair(first, first + first_size, second, second + second_size, label)

    def _masks(self, pair: _Pair) -> tuple[list[int], list[int]]:
        """Masked positions in the sample, in the order drawn, and the ids put there."""
        first_size, second_size = pair.first_stop - pair.first, pair.second_stop - pair.second
        size = first_size + second_size + SPECIAL_POSITIONS
        candidates = [*range(1, first_size + 1), *range(first_size + 2, size - 1)]
        # position in the sample + shift = place in the tokens
        shifts = (pair.first - 1, pair.second - first_size - 2)
        if self._unmaskable:
            candidates = [
                position
                for position in candidates
                if position + shifts[position > first_size] not in self._unmaskable
            ]
        self._draw.shuffle(candidates)
        wanted = max(1, round(size * self._config.masked_lm_probability))
        positions = candidates[: min(wanted, self._config.max_predictions)]
        tokens, draw, mask = self._documents.tokens, self._draw.random, self._mask
        ids = []
        for position in positions:
            if draw() < 0.8:
                ids.append(mask)
            elif draw() < 0.5:
                ids.append(int(tokens[position + shifts[position > first_size]]))
            else:
                ids.append(self._draw.below(self._vocabulary_size))
        return positions, ids

    def _sample(self, drawn: _Drawn, sample: int) -> Sample:
        pair = drawn.pair(sample)
        first = self._documents.tokens[pair.first : pair.first_stop]
        second = self._documents.tokens[pair.second : pair.second_stop]
        second_start = len(first) + 2
        tokens = np.empty(len(first) + len(second) + SPECIAL_POSITIONS, np.uint16)
        tokens[0], tokens[second_start - 1], tokens[-1] = self._cls, self._sep, self._sep
        tokens[1 : second_start - 1] = first
        tokens[second_start:-1] = second
        masks = slice(*drawn.mask_starts[sample : sample + 2])
        positions = np.array(drawn.mask_positions[masks], np.uint16)
        order = np.argsort(positions)
        positions = positions[order]
        labels = tokens[positions]
        tokens[positions] = np.array(drawn.mask_ids[masks], np.uint16)[order]
        return Sample(tokens, second_start, positions, labels, pair.label)
