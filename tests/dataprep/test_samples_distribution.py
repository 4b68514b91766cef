"""The fast builder draws from the same distribution as the plain algorithm."""

import random
from pathlib import Path

import numpy as np
import pytest
from naive_samples import naive_pairs

from dataprep.samples import SampleBuilder, SamplesConfig, TokenizedDocuments
from dataprep.tokenization import load_vocabulary

LENGTH, SHORT, DUPLICATES = 64, 0.1, 300
DOCUMENTS = 40


def corpus() -> list[list[list[int]]]:
    """Documents whose every token is its own place, so that what was cut off shows."""
    draw = random.Random(5)
    sizes = [[draw.randint(1, 30) for _ in range(draw.randint(1, 25))] for _ in range(DOCUMENTS)]
    place, documents = 0, []
    for sentences in sizes:
        documents.append([])
        for size in sentences:
            documents[-1].append(list(range(place, place + size)))
            place += size
    return documents


def features(first: list[int], second: list[int], is_random: bool, starts: set[int]) -> list[float]:
    """What a sample looks like: sizes, label, cut at the front or not, document of the second."""
    size = len(first) + len(second)
    return [
        size,
        size == LENGTH - 3,
        size < LENGTH // 2,
        size < LENGTH // 4,
        len(first),
        len(first) > len(second),
        len(first) == len(second),
        is_random,
        is_random * len(first),
        is_random * len(second),
        (1 - is_random) * len(second),
        first[0] in starts,
        second[0] in starts,
        first[0],
        second[0],
    ]


@pytest.fixture(scope="module")
def both(vocabulary_file: Path) -> tuple[np.ndarray, np.ndarray, float, float]:
    documents = corpus()
    starts = {sentence[0] for document in documents for sentence in document}
    draw = random.Random(1)
    plain = [
        features(first, second, is_random, starts)
        for _ in range(DUPLICATES)
        for first, second, is_random in naive_pairs(documents, LENGTH, SHORT, draw)
    ]
    flat = [sentence for document in documents for sentence in document]
    tokenized = TokenizedDocuments(
        tokens=np.concatenate(flat).astype(np.uint16),
        sentence_starts=np.cumsum([0, *map(len, flat)]),
        document_starts=np.cumsum([0, *map(len, documents)]),
        digests=[str(i) for i in range(DOCUMENTS)],
    )
    config = SamplesConfig(LENGTH, 10, 0.15, SHORT, DUPLICATES)
    ours = []
    for sample in SampleBuilder(tokenized, load_vocabulary(vocabulary_file), config, (1,)).build():
        tokens = sample.tokens.copy()
        tokens[sample.mlm_positions] = sample.mlm_labels
        first = tokens[1 : sample.second_segment_start - 1].tolist()
        second = tokens[sample.second_segment_start : -1].tolist()
        ours.append(features(first, second, sample.next_sentence_label, starts))
    return np.array(plain, float), np.array(ours, float)


def test_as_many_samples(both) -> None:
    plain, ours = both
    assert len(plain) > 30_000
    assert len(ours) / len(plain) == pytest.approx(1.0, abs=0.006)


def test_every_feature_has_the_same_mean_and_spread(both) -> None:
    plain, ours = both
    for column in range(plain.shape[1]):
        one, other = plain[:, column], ours[:, column]
        error = np.sqrt(one.var() / len(one) + other.var() / len(other))
        assert abs(one.mean() - other.mean()) < 4.5 * error, f"feature {column}: mean"
        assert other.std() == pytest.approx(one.std(), rel=0.08, abs=1e-9), f"feature {column}"


def test_lengths_are_distributed_alike(both) -> None:
    plain, ours = both
    for column in (0, 4):
        bins = np.arange(0, LENGTH + 1, 4)
        expected = np.histogram(plain[:, column], bins)[0] / len(plain)
        found = np.histogram(ours[:, column], bins)[0] / len(ours)
        error = np.sqrt(expected * (1 - expected) * (1 / len(plain) + 1 / len(ours)))
        assert (abs(found - expected) < 5 * error + 1e-4).all()


def test_duplicates_of_a_document_are_drawn_anew(vocabulary_file: Path) -> None:
    documents = [[list(range(10))] * 6] * 2
    tokenized = TokenizedDocuments(
        tokens=np.tile(np.arange(10), 12).astype(np.uint16),
        sentence_starts=np.arange(0, 121, 10),
        document_starts=np.array([0, 6, 12]),
        digests=["a", "b"],
    )
    config = SamplesConfig(64, 10, 0.15, 0.0, 8)
    samples = SampleBuilder(tokenized, load_vocabulary(vocabulary_file), config, (1,)).build()
    masks = [tuple(sample.mlm_positions.tolist()) for sample in samples]
    assert len(documents) == 2 and len(set(masks)) > 0.9 * len(masks)
