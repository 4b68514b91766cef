"""What the fast builder's draws depend on, and that each is even."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from dataprep.blocks import Sample, offsets_of
from dataprep.draws import draw, seed_key
from dataprep.masking import Masker
from dataprep.samples import SampleBuilder, SamplesConfig, TokenizedDocuments
from dataprep.tokenization import Vocabulary, load_vocabulary

CONFIG = SamplesConfig(max_seq_length=64, max_predictions=10, dupe_factor=3)


@pytest.fixture(scope="module")
def vocabulary(vocabulary_file: Path) -> Vocabulary:
    return load_vocabulary(vocabulary_file)


def numbered(sizes: list[list[int]], digests: list[str] | None = None) -> TokenizedDocuments:
    """Documents whose every token is its own place."""
    flat = [size for sentences in sizes for size in sentences]
    return TokenizedDocuments(
        tokens=np.arange(sum(flat)).astype(np.uint16),
        sentence_starts=offsets_of(np.array(flat)),
        document_starts=offsets_of(np.array([len(sentences) for sentences in sizes])),
        digests=digests or [str(i) for i in range(len(sizes))],
    )


def some_sizes(count: int) -> list[list[int]]:
    sizes = np.random.default_rng(2)
    return [sizes.integers(1, 40, sizes.integers(1, 40)).tolist() for _ in range(count)]


def built(documents: TokenizedDocuments, vocabulary: Vocabulary) -> list[Sample]:
    return list(SampleBuilder(documents, vocabulary, CONFIG, (1, 0)).build())


def content(sample: Sample) -> tuple[object, ...]:
    return tuple(field.tolist() if hasattr(field, "tolist") else field for field in sample)


def first_token(sample: Sample) -> int:
    tokens = sample.tokens.copy()
    tokens[sample.mlm_positions] = sample.mlm_labels
    return int(tokens[1])


def test_how_many_are_made_at_once_changes_nothing(
    vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = numbered(some_sizes(30))
    expected = [content(sample) for sample in built(documents, vocabulary)]
    for tokens in (1, 1000):
        monkeypatch.setattr("dataprep.samples._BLOCK_TOKENS", tokens)
        assert [content(sample) for sample in built(documents, vocabulary)] == expected


def test_a_document_draws_for_itself(vocabulary: Vocabulary) -> None:
    sizes = some_sizes(30)
    end = sum(map(sum, sizes[:20]))
    changed = [*sizes[:20], *([5] * 9 for _ in range(10))]
    one, other = (
        [
            (sample.second_segment_start, first_token(sample), sample.next_sentence_label)
            for sample in built(numbered(each), vocabulary)
            if sample.next_sentence_label == 0 and first_token(sample) < end
        ]
        for each in (sizes, changed)
    )
    assert one == other and len(one) > 100


def test_random_segments_never_come_from_a_copy(vocabulary: Vocabulary) -> None:
    sizes = [[5, 6, 7, 8]] * 5
    documents = numbered(sizes, ["a", "b", "a", "a", "c"])
    texts = np.repeat([0, 1, 0, 0, 2], 26)
    # the first copy stands for all, so that a text's weight is not that of its copies
    sources = np.repeat([0, 1, 0, 0, 4], 26)
    config = SamplesConfig(max_seq_length=20, max_predictions=2, dupe_factor=400)
    chosen: Counter[tuple[int, int]] = Counter()
    for sample in SampleBuilder(documents, vocabulary, config, (1,)).build():
        if sample.next_sentence_label:
            tokens = sample.tokens.copy()
            tokens[sample.mlm_positions] = sample.mlm_labels
            second = tokens[sample.second_segment_start]
            assert second // 26 == sources[second]
            chosen[texts[first_token(sample)], texts[second]] += 1
    assert set(chosen) == {(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)}
    for text in range(3):
        one, other = (count for (own, _), count in chosen.items() if own == text)
        assert abs(one - other) < 4.5 * np.sqrt(one + other)


def test_every_set_of_positions_is_as_likely() -> None:
    # 2 of 5 maskable tokens: ten sets; the first segment has two of them
    masker = Masker(0.25, 2, mask=4, vocabulary_size=100)
    count = 40_000
    keys = draw(seed_key((1,)), np.arange(count))
    positions, counts = masker.choose(keys, np.full(count, 8), np.full(count, 3))
    assert (counts == 2).all()
    found = Counter(map(tuple, positions.reshape(-1, 2).tolist()))
    places = [1, 2, 4, 5, 6]
    assert set(found) == {(a, b) for a in places for b in places if a < b}
    expected = count / 10
    # chi-square with 9 degrees of freedom: 45 is beyond one in a million
    assert sum((n - expected) ** 2 / expected for n in found.values()) < 45


def test_at_most_what_is_there_is_masked() -> None:
    masker = Masker(0.99, 76, mask=4, vocabulary_size=100)
    keys = draw(seed_key((1,)), np.arange(3))
    lengths, separators = np.array([5, 6, 512]), np.array([2, 2, 100])
    positions, counts = masker.choose(keys, lengths, separators)
    assert counts.tolist() == [2, 3, 76]
    assert positions[:5].tolist() == [1, 3, 1, 3, 4]
    assert (np.diff(positions[5:].astype(int)) > 0).all()


def test_the_same_counts_whether_masked_once_or_more(vocabulary: Vocabulary) -> None:
    builder = SampleBuilder(numbered([[70, 5], [3, 61], [62]]), vocabulary, CONFIG, (1, 0))
    assert builder.counts["sentences_over_the_limit"] == 2  # 61 tokens fit
    samples = list(builder.build())
    assert builder.counts["samples"] == len(samples)
    assert builder.counts["masked_tokens"] == sum(len(s.mlm_positions) for s in samples)
    assert builder.counts["random_next"] == sum(s.next_sentence_label for s in samples)
