"""Samples: MLPerf's semantics within statistical bounds, and the awkward corpora."""

from pathlib import Path

import numpy as np
import pytest

from dataprep.blocks import Sample
from dataprep.samples import SampleBuilder, SamplesConfig, TokenizedDocuments
from dataprep.tokenization import Vocabulary, load_vocabulary

FIRST_WORD = 7  # ids below are special tokens and punctuation


@pytest.fixture(scope="module")
def vocabulary(vocabulary_file: Path) -> Vocabulary:
    return load_vocabulary(vocabulary_file)


def documents_of(
    sizes: list[list[int]], vocabulary: Vocabulary, seed: int = 0
) -> TokenizedDocuments:
    """Documents of random words; ``sizes`` are the tokens of each sentence of each document."""
    flat = [size for sentences in sizes for size in sentences]
    draw = np.random.default_rng(seed)
    return TokenizedDocuments(
        tokens=draw.integers(FIRST_WORD, len(vocabulary), sum(flat)).astype(np.uint16),
        sentence_starts=np.cumsum([0, *flat]),
        document_starts=np.cumsum([0, *map(len, sizes)]),
        digests=[str(i) for i in range(len(sizes))],
    )


def random_sizes(count: int, seed: int = 1) -> list[list[int]]:
    draw = np.random.default_rng(seed)
    return [draw.integers(1, 40, draw.integers(1, 60)).tolist() for _ in range(count)]


@pytest.fixture(scope="module")
def made(vocabulary: Vocabulary) -> tuple[list[Sample], SampleBuilder, SamplesConfig]:
    config = SamplesConfig(max_seq_length=128, max_predictions=20, dupe_factor=3)
    builder = SampleBuilder(documents_of(random_sizes(200), vocabulary), vocabulary, config, (1, 0))
    return list(builder.build()), builder, config


def originals(sample: Sample) -> np.ndarray:
    tokens = sample.tokens.copy()
    tokens[sample.mlm_positions] = sample.mlm_labels
    return tokens


def test_every_sample_has_the_form_of_a_pair(made, vocabulary: Vocabulary) -> None:
    samples, _, config = made
    separator = vocabulary.id("[SEP]")
    for sample in samples:
        tokens = originals(sample)
        assert 5 <= len(tokens) <= config.max_seq_length
        assert tokens[0] == vocabulary.id("[CLS]")
        assert np.flatnonzero(tokens == separator).tolist() == [
            sample.second_segment_start - 1,
            len(tokens) - 1,
        ]


def test_masks_follow_the_rule(made, vocabulary: Vocabulary) -> None:
    samples, builder, config = made
    masked = kept = replaced = total = 0
    for sample in samples:
        size = len(sample.tokens)
        assert len(sample.mlm_labels) == min(20, max(1, round(size * 0.15)), size - 3)
        assert (np.diff(sample.mlm_positions.astype(int)) > 0).all()
        assert not {0, sample.second_segment_start - 1, size - 1} & set(sample.mlm_positions)
        now = sample.tokens[sample.mlm_positions]
        masked += (now == vocabulary.id("[MASK]")).sum()
        kept += (now == sample.mlm_labels).sum()
        total += len(now)
    replaced = total - masked - kept
    assert total == builder.counts["masked_tokens"] > 20_000
    # a random replacement is the mask or the token itself once in len(vocabulary) each
    size = len(vocabulary)
    for count, share in (
        (masked, 0.8 + 0.1 / size),
        (kept, 0.1 + 0.1 / size),
        (replaced, 0.1 - 0.2 / size),
    ):
        assert abs(count / total - share) < 4.5 * np.sqrt(share * (1 - share) / total)


def test_masked_positions_are_spread_evenly(made) -> None:
    samples, _, _ = made
    places = np.concatenate([s.mlm_positions / len(s.tokens) for s in samples])
    counts, _ = np.histogram(places, bins=8, range=(0.05, 0.95))
    assert counts.std() / counts.mean() < 0.06


def test_next_sentence_labels_tell_the_truth(vocabulary: Vocabulary) -> None:
    # every token occurs once, so that its place in the corpus is known
    words = len(vocabulary) - FIRST_WORD
    sizes = [[2, 3, 2, 4], [3, 2, 2], [4, 4, 3], [2] * 6]
    assert sum(map(sum, sizes)) <= words
    documents = documents_of(sizes, vocabulary)
    documents.tokens[:] = np.arange(len(documents.tokens)) + FIRST_WORD
    owner = np.repeat(np.arange(4), [sum(size) for size in sizes])
    config = SamplesConfig(max_seq_length=14, max_predictions=2, dupe_factor=200)
    labels = []
    for sample in SampleBuilder(documents, vocabulary, config, (3,)).build():
        tokens = originals(sample).astype(int) - FIRST_WORD
        first = tokens[1 : sample.second_segment_start - 1]
        second = tokens[sample.second_segment_start : -1]
        labels.append(sample.next_sentence_label)
        assert (np.diff(first) == 1).all() and (np.diff(second) == 1).all()
        if sample.next_sentence_label:
            assert owner[first[0]] != owner[second[0]]
        else:
            assert owner[first[0]] == owner[second[0]] and second[0] > first[-1]
    assert 0.4 < np.mean(labels) < 0.75


def test_about_half_of_the_pairs_are_random(made) -> None:
    samples, builder, _ = made
    share = builder.counts["random_next"] / len(samples)
    # one-sentence chunks can only be random, so a little over a half
    assert 0.5 < share < 0.62


def test_most_samples_are_full_and_some_documents_are_cut_short(vocabulary: Vocabulary) -> None:
    config = SamplesConfig(max_seq_length=128, max_predictions=20, dupe_factor=1)
    long_documents = [[10] * 300] * 100
    samples = list(
        SampleBuilder(documents_of(long_documents, vocabulary), vocabulary, config, (1,)).build()
    )
    full = np.mean([len(sample.tokens) >= 120 for sample in samples])
    assert 0.5 < full < 0.95  # a tenth of the documents aims at 2 to 125 tokens, in more samples
    never = SamplesConfig(max_seq_length=128, max_predictions=20, short_sequence_probability=0.0)
    sizes = [
        len(sample.tokens)
        for sample in SampleBuilder(
            documents_of(long_documents, vocabulary), vocabulary, never, (1,)
        ).build()
    ]
    assert np.mean(np.array(sizes) >= 118) > 0.93


def test_the_longer_segment_gives_way_and_the_count_is_right(vocabulary: Vocabulary) -> None:
    config = SamplesConfig(max_seq_length=23, max_predictions=3, dupe_factor=20)
    builder = SampleBuilder(documents_of([[30], [31], [4]], vocabulary), vocabulary, config, (1,))
    samples = list(builder.build())
    for sample in samples:
        first, second = (
            sample.second_segment_start - 2,
            len(sample.tokens) - sample.second_segment_start - 1,
        )
        assert first + second == 20 or min(first, second) == 4
        if min(first, second) != 4:
            assert (first, second) == (10, 10)
    assert builder.counts["truncated_samples"] == len(samples)


def test_the_draw_depends_on_seed_and_document_only(vocabulary: Vocabulary) -> None:
    config = SamplesConfig(max_seq_length=64, max_predictions=10, dupe_factor=1)

    def tokens(seed: tuple[int, ...]) -> list[list[int]]:
        documents = documents_of(random_sizes(20), vocabulary)
        builder = SampleBuilder(documents, vocabulary, config, seed)
        return [sample.tokens.tolist() for sample in builder.build()]

    assert tokens((1, 0)) == tokens((1, 0))
    assert tokens((1, 0)) != tokens((1, 1))
    assert tokens((1, 0)) != tokens((2, 0))


def test_duplicates_have_other_masks(vocabulary: Vocabulary) -> None:
    config = SamplesConfig(max_seq_length=64, max_predictions=10, dupe_factor=2)
    documents = documents_of([[9] * 5, [8] * 5], vocabulary)
    samples = list(SampleBuilder(documents, vocabulary, config, (1,)).build())
    positions = {tuple(sample.mlm_positions.tolist()) for sample in samples}
    assert len(positions) > 2


def test_one_document_is_refused_and_copies_do_not_count(vocabulary: Vocabulary) -> None:
    one = documents_of([[5, 5, 5]], vocabulary)
    with pytest.raises(ValueError, match=r"1 different document\(s\)"):
        SampleBuilder(one, vocabulary, SamplesConfig(), (1,))
    copies = TokenizedDocuments(
        np.tile(one.tokens, 2), np.arange(7) * 5, np.array([0, 3, 6]), ["same", "same"]
    )
    with pytest.raises(ValueError, match=r"1 different document\(s\)"):
        SampleBuilder(copies, vocabulary, SamplesConfig(), (1,))


def test_documents_of_one_sentence_pair_with_others(vocabulary: Vocabulary) -> None:
    config = SamplesConfig(max_seq_length=32, max_predictions=5, dupe_factor=4)
    samples = list(
        SampleBuilder(documents_of([[5], [6], [7]], vocabulary), vocabulary, config, (1,)).build()
    )
    assert len(samples) == 12
    assert all(sample.next_sentence_label == 1 for sample in samples)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("max_seq_length", 4),
        ("max_seq_length", 70_000),
        ("max_predictions", 0),
        ("dupe_factor", 0),
        ("masked_lm_probability", 15.0),
        ("short_sequence_probability", -0.1),
    ],
)
def test_settings_out_of_range_are_named(setting: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{setting} {value} must"):
        SamplesConfig(**{setting: value})
