"""The reference builder: recorded output, a plain second implementation, counted faults."""

import random
import tarfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from naive_reference import NaiveSample, naive_samples, naive_tokens

from dataprep.digest import canonical_digest
from dataprep.parts import read_parts
from dataprep.reference import ReferenceBuilder
from dataprep.reference_tokenization import ReferenceTokenizer
from dataprep.samples import SamplesConfig, TokenizedDocuments
from dataprep.shards import Sample
from dataprep.tokenization import SPECIAL_TOKENS, Vocabulary, load_vocabulary

Documents = list[list[list[int]]]
RECORDED = {
    (128, 20): (358, "29d9b85396146b29e887e8917b35bed11f9684d73754a8af93b41d5c2f1d0036"),
    (512, 76): (127, "d1423d2f05c1e04832e41ccfb4ef4928af88510424ca42b9547c4769948bafb2"),
}
READABLE = [
    "bom",
    "crlf",
    "dup_docs",
    "huge_sentence",
    "mask_in_text",
    "no_tokens",
    "one_doc_one_sent",
    "one_doc_three",
    "single_tok_docs",
    "two_docs_one_sent_each",
    "ws_only_line",
]


@pytest.fixture
def vocabulary(vocabulary_file: Path) -> Vocabulary:
    return load_vocabulary(vocabulary_file)


@pytest.fixture
def bert_vocabulary(shared_data: Path) -> Vocabulary:
    return load_vocabulary(shared_data / "vocab" / "bert-uncased-vocab.txt")


def flat(documents: Documents, digests: list[str] | None = None) -> TokenizedDocuments:
    sentences = [sentence for document in documents for sentence in document]
    return TokenizedDocuments(
        tokens=np.array(list(chain.from_iterable(sentences)), np.uint16),
        sentence_starts=np.cumsum([0, *map(len, sentences)]),
        document_starts=np.cumsum([0, *map(len, documents)]),
        digests=digests or [str(i) for i in range(len(documents))],
    )


def tokenised(path: Path, vocabulary: Vocabulary) -> Documents:
    tokenizer = ReferenceTokenizer(vocabulary, lowercase=True)
    documents = []
    for sentences in read_parts([path]):
        tokens, sizes = tokenizer.encode(sentences)
        encoded = [ids.tolist() for ids in np.split(tokens, np.cumsum(sizes)[:-1]) if len(ids)]
        if encoded:
            documents.append(encoded)
    return documents


def naively_tokenised(path: Path, vocabulary: Vocabulary) -> list[list[list[str]]]:
    known = {token: index for index, token in enumerate(vocabulary.tokens)}
    documents: list[list[list[str]]] = [[]]
    for line in path.read_bytes().decode().replace("\r", "").split("\n"):
        if not line.strip():
            documents.append([])
        tokens = naive_tokens(line, known, True, SPECIAL_TOKENS)
        if tokens:
            documents[-1].append(tokens)
    return [document for document in documents if document]


def as_samples(naive: list[NaiveSample], vocabulary: Vocabulary) -> Iterator[Sample]:
    ids = {token: index for index, token in enumerate(vocabulary.tokens)}
    for one in naive:
        yield Sample(
            np.array([ids[token] for token in one.tokens], np.uint16),
            one.segment_ids.index(1),
            np.array(one.positions, np.uint16),
            np.array([ids[label] for label in one.labels], np.uint16),
            int(one.is_random),
        )


def plain(sample: Sample) -> list[object]:
    return [x.tolist() if isinstance(x, np.ndarray) else x for x in sample]


@pytest.mark.parametrize(("length", "predictions"), RECORDED)
def test_recorded_output_of_the_reference(
    length: int, predictions: int, shared_data: Path, bert_vocabulary: Vocabulary
) -> None:
    recorded = shared_data / "mlperf" / "reference_outputs" / "create_pretraining_data"
    documents = flat(tokenised(recorded / "input.txt", bert_vocabulary))
    config = SamplesConfig(length, predictions, dupe_factor=2)
    builder = ReferenceBuilder(documents, bert_vocabulary, config, 12345)
    made = canonical_digest(builder.build(), length, predictions)
    assert made == RECORDED[length, predictions]
    assert builder.counts["samples"] == made[0]


@pytest.mark.slow
def test_a_whole_part_as_by_the_plain_algorithm(
    shared_data: Path, bert_vocabulary: Vocabulary, tmp_path: Path
) -> None:
    stages = shared_data / "mlperf" / "reference_outputs" / "sample_data" / "stages.tar.xz"
    with tarfile.open(stages) as archive:
        archive.extract("./results/part-00000-of-00500", tmp_path, filter="data")
    path = tmp_path / "results" / "part-00000-of-00500"
    config = SamplesConfig(dupe_factor=2)
    documents = flat(tokenised(path, bert_vocabulary))
    made = ReferenceBuilder(documents, bert_vocabulary, config, 12345).build()
    naive = naive_samples(
        naively_tokenised(path, bert_vocabulary), list(bert_vocabulary.tokens), config, 12345
    )
    expected = canonical_digest(as_samples(naive, bert_vocabulary), 512, 76)
    assert canonical_digest(made, 512, 76) == expected
    assert expected[0] > 4000


@pytest.mark.parametrize("name", READABLE)
def test_awkward_files_as_by_the_plain_algorithm(
    name: str, shared_data: Path, bert_vocabulary: Vocabulary
) -> None:
    path = shared_data / "edge_inputs" / f"{name}.txt"
    config = SamplesConfig(128, 20, dupe_factor=5)
    builder = ReferenceBuilder(
        flat(tokenised(path, bert_vocabulary)), bert_vocabulary, config, 12345
    )
    words = list(bert_vocabulary.tokens)
    naive = naive_samples(naively_tokenised(path, bert_vocabulary), words, config, 12345)
    expected = list(map(plain, as_samples(naive, bert_vocabulary)))
    assert list(map(plain, builder.build())) == expected
    assert len(expected) >= 5


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("config", "documents", "sentences", "size"),
    [
        (SamplesConfig(128, 20, dupe_factor=3), 30, 30, 40),
        (SamplesConfig(5, 1, 0.9, 0.5, 2), 10, 8, 4),
        (SamplesConfig(32, 20, 0.5, 1.0, 2), 17, 12, 20),
        (SamplesConfig(64, 3, 0.15, 0.0, 2), 2, 20, 200),
        (SamplesConfig(64, 76, 0.15, 0.1, 10), 20, 1, 12),
        (SamplesConfig(64, 10, 0.15, 0.1, 20), 1, 9, 12),
        (SamplesConfig(16, 4, 0.15, 0.1, 20), 1, 1, 1),
    ],
)
def test_random_text_as_by_the_plain_algorithm(
    config: SamplesConfig,
    documents: int,
    sentences: int,
    size: int,
    seed: int,
    vocabulary: Vocabulary,
) -> None:
    draw = random.Random(seed)
    # special tokens among the words: [CLS] and [SEP] are never masked
    words = range(2, len(vocabulary))
    made = [
        [draw.choices(words, k=draw.randint(1, size)) for _ in range(draw.randint(1, sentences))]
        for _ in range(documents)
    ]
    as_words = [[[vocabulary.tokens[i] for i in s] for s in document] for document in made]
    expected = naive_samples(as_words, list(vocabulary.tokens), config, seed)
    builder = ReferenceBuilder(flat(made), vocabulary, config, seed)
    samples = list(map(plain, builder.build()))
    assert samples == list(map(plain, as_samples(expected, vocabulary)))
    assert builder.counts["samples"] == len(samples) >= documents * config.dupe_factor
    assert builder.counts["random_next"] == sum(one.is_random for one in expected)
    assert builder.counts["masked_tokens"] == sum(len(one.labels) for one in expected)


def segments(sample: Sample) -> tuple[list[int], list[int]]:
    tokens = sample.tokens.copy()
    tokens[sample.mlm_positions] = sample.mlm_labels
    start = sample.second_segment_start
    return tokens[1 : start - 1].tolist(), tokens[start:-1].tolist()


def test_faults_are_counted(vocabulary: Vocabulary) -> None:
    # one document, no token twice: what follows what can be read from the samples
    document = [[token] for token in range(10, 30)]
    config = SamplesConfig(16, 4, short_sequence_probability=0.5, dupe_factor=200)
    builder = ReferenceBuilder(flat([document]), vocabulary, config, 1)
    samples = list(builder.build())
    assert not any(sample.next_sentence_label for sample in samples)
    # truncation takes tokens off, but only where both together are too long
    pairs = [segments(s) for s in samples]
    whole = [(a, b) for a, b in pairs if len(a) + len(b) < 13]
    wrong = sum(b[0] != a[-1] + 1 for a, b in whole)
    shared = sum(bool(set(a) & set(b)) for a, b in whole)
    cut = len(pairs) - len(whole)
    assert 100 < wrong <= builder.counts["own_document_as_next"] <= len(pairs)
    assert 0 < shared <= builder.counts["self_pairs"] <= shared + cut
    assert builder.counts["random_from_copy"] == builder.counts["random_next"] == 0


def test_a_sentence_alone_is_paired_with_itself(vocabulary: Vocabulary) -> None:
    config = SamplesConfig(16, 4, dupe_factor=6)
    builder = ReferenceBuilder(flat([[[10, 11, 12]]]), vocabulary, config, 1)
    assert [segments(s) for s in builder.build()] == [([10, 11, 12], [10, 11, 12])] * 6
    assert builder.counts["self_pairs"] == builder.counts["samples"] == 6
    assert builder.counts["own_document_as_next"] == 6
    assert not any(sample.next_sentence_label for sample in builder.build())


def test_copies_as_random_segments_are_counted(vocabulary: Vocabulary) -> None:
    documents = flat([[[10, 11]], [[10, 11]], [[12]]], ["a", "a", "b"])
    config = SamplesConfig(16, 4, dupe_factor=100)
    builder = ReferenceBuilder(documents, vocabulary, config, 1)
    copies = sum(first == second for first, second in map(segments, builder.build()))
    assert builder.counts["random_from_copy"] == copies > 0
    assert builder.counts["self_pairs"] == 0


def test_a_second_build_makes_the_same(vocabulary: Vocabulary) -> None:
    documents = flat([[[i, i + 1]] * 5 for i in range(10, 30)])
    builder = ReferenceBuilder(documents, vocabulary, SamplesConfig(32, 8), 1)
    first = list(map(plain, builder.build()))
    assert list(map(plain, builder.build())) == first
    other = ReferenceBuilder(documents, vocabulary, SamplesConfig(32, 8), 2)
    assert list(map(plain, other.build())) != first


def test_no_document_is_refused(vocabulary: Vocabulary) -> None:
    nothing = TokenizedDocuments(np.zeros(0, np.uint16), np.zeros(1, int), np.zeros(1, int), [])
    with pytest.raises(ValueError, match="0 documents with text"):
        ReferenceBuilder(nothing, vocabulary, SamplesConfig(), 1)
