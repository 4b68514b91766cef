"""Small awkward text files: the right samples, or one line that says why there are none."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from dataprep.blocks import Sample
from dataprep.holdout import HoldOut
from dataprep.parts import TextParts, given_parts, read_parts, stage_parts
from dataprep.sample_stages import Recipe, make_samples
from dataprep.samples import SamplesConfig
from dataprep.sentences import SentencesConfig
from dataprep.shards import Shard
from dataprep.text_stages import make_documents, make_sentences
from dataprep.tokenization import SentenceTokenizer, Vocabulary, load_vocabulary
from dataprep.tokenized import tokenise_parts

DUPLICATES = 3
REFUSED = r"^[^\n]*1 different document\(s\) with text, but a random second segment needs [^\n]*$"


@pytest.fixture(scope="module")
def vocabulary(shared_data: Path) -> Vocabulary:
    return load_vocabulary(shared_data / "vocab" / "bert-uncased-vocab.txt")


@pytest.fixture
def recipe(vocabulary: Vocabulary) -> Recipe:
    return Recipe(vocabulary, True, SamplesConfig(dupe_factor=DUPLICATES), HoldOut(), 1)


def sentences_of(source: Path, folder: Path) -> TextParts:
    """All text stages on a file."""
    make_documents([source], folder / "documents", "text", 1)
    make_sentences(folder / "documents", folder / "sentences", SentencesConfig("lines"))
    return stage_parts(folder / "sentences")


def made(parts: TextParts, folder: Path, recipe: Recipe) -> tuple[dict[str, int], list[Sample]]:
    manifest = make_samples(parts, folder, recipe)
    shard = Shard(folder / manifest.files[0].file)
    return manifest.counts, [shard.sample(row) for row in range(len(shard))]


def segments(sample: Sample, vocabulary: Vocabulary) -> tuple[list[str], list[str]]:
    tokens = sample.tokens.copy()
    tokens[sample.mlm_positions] = sample.mlm_labels
    words = [vocabulary.tokens[token] for token in tokens]
    return words[1 : sample.second_segment_start - 1], words[sample.second_segment_start : -1]


def edge(shared_data: Path, name: str) -> Path:
    return shared_data / "edge_inputs" / f"{name}.txt"


@pytest.mark.parametrize("name", ["one_doc_one_sent", "one_doc_three"])
def test_one_document_is_refused(
    shared_data: Path, tmp_path: Path, recipe: Recipe, name: str
) -> None:
    source = edge(shared_data, name)
    with pytest.raises(ValueError, match=r"^[^\n]*1 documents for 1 parts[^\n]*$"):
        sentences_of(source, tmp_path)
    with pytest.raises(ValueError, match=REFUSED) as error:
        make_samples(given_parts([source]), tmp_path / "samples", recipe)
    assert source.name in str(error.value)
    assert not (tmp_path / "samples").exists()


def test_documents_of_one_sentence_pair_at_random(
    shared_data: Path, tmp_path: Path, recipe: Recipe, vocabulary: Vocabulary
) -> None:
    source = edge(shared_data, "two_docs_one_sent_each")
    counts, samples = made(sentences_of(source, tmp_path), tmp_path / "samples", recipe)
    assert counts["samples"] == counts["random_next"] == 2 * DUPLICATES
    cat = ["the", "cat", "sat", "on", "the", "mat", "."]
    dog = ["a", "dog", "ran", "away", "quickly", "."]
    assert [segments(sample, vocabulary) for sample in samples] == [
        (cat, dog),
        (dog, cat),
    ] * DUPLICATES
    assert all(sample.next_sentence_label == 1 for sample in samples)


def test_documents_of_one_token_pair_with_others(
    shared_data: Path, tmp_path: Path, recipe: Recipe, vocabulary: Vocabulary
) -> None:
    parts = sentences_of(edge(shared_data, "single_tok_docs"), tmp_path)
    counts, samples = made(parts, tmp_path / "samples", recipe)
    assert counts["samples"] == counts["random_next"] == 3 * DUPLICATES
    for sample in samples:
        first, second = segments(sample, vocabulary)
        assert len(first) == len(second) == 1 and first != second
        assert len(sample.mlm_positions) == 1


def test_documents_without_tokens_are_counted(
    shared_data: Path, tmp_path: Path, recipe: Recipe, vocabulary: Vocabulary
) -> None:
    parts = sentences_of(edge(shared_data, "no_tokens"), tmp_path)
    counts: Counter[str] = Counter()
    tokenizer = SentenceTokenizer(vocabulary, lowercase=True)
    documents = tokenise_parts(parts.paths, tokenizer, HoldOut(), counts)
    assert counts["documents_without_tokens"] == counts["sentences_without_tokens"] == 2
    assert [vocabulary.tokens[token] for token in documents.tokens] == ["the", "cat", "sat", "."]
    with pytest.raises(ValueError, match=REFUSED):
        made(parts, tmp_path / "samples", recipe)
    with parts.paths[0].open("a", encoding="utf-8") as part:
        part.write("\nA dog ran.\n")
    counts, samples = made(given_parts(parts.paths), tmp_path / "samples", recipe)
    assert counts["documents_without_tokens"] == 2 and counts["documents"] == 2
    assert len(samples) == 2 * DUPLICATES


def test_a_huge_sentence_is_cut_and_counted(
    shared_data: Path, tmp_path: Path, recipe: Recipe
) -> None:
    parts = sentences_of(edge(shared_data, "huge_sentence"), tmp_path)
    counts, samples = made(parts, tmp_path / "samples", recipe)
    assert counts["sentences_over_the_limit"] == 1
    assert counts["truncated_samples"] > 0 and counts["truncated_tokens"] > 4000 * DUPLICATES
    assert max(len(sample.tokens) for sample in samples) == 512


def test_special_tokens_in_the_text_are_plain(
    shared_data: Path, tmp_path: Path, recipe: Recipe, vocabulary: Vocabulary
) -> None:
    parts = sentences_of(edge(shared_data, "mask_in_text"), tmp_path)
    counts, samples = made(parts, tmp_path / "samples", recipe)
    assert counts["unknown_tokens"] == 0
    found: set[str] = set()
    for sample in samples:
        for segment in segments(sample, vocabulary):
            found |= set(segment)
            assert not {"[MASK]", "[SEP]", "[CLS]", "[PAD]"} & set(segment)
    assert {"[", "mask", "]", "sep", "pad"} <= found


def test_copies_are_counted_and_never_paired(
    shared_data: Path, tmp_path: Path, recipe: Recipe, vocabulary: Vocabulary
) -> None:
    source = edge(shared_data, "dup_docs")
    with pytest.raises(ValueError, match=REFUSED):
        made(sentences_of(source, tmp_path), tmp_path / "samples", recipe)
    part = tmp_path / "copies.txt"
    part.write_text(source.read_text().strip("\n") + "\n\nA dog ran.\nAway it went.\n")
    counts, samples = made(given_parts([part]), tmp_path / "samples", recipe)
    assert (counts["documents"], counts["documents_copied"]) == (5, 3)
    assert counts["random_next"] > 0
    for sample in samples:
        first, second = segments(sample, vocabulary)
        same_text = ("dog" in first or "away" in first) == ("dog" in second or "away" in second)
        assert same_text == (sample.next_sentence_label == 0)


def test_a_line_of_white_space_ends_a_document(
    shared_data: Path, tmp_path: Path, recipe: Recipe
) -> None:
    source = edge(shared_data, "ws_only_line")
    documents = [["A one."], ["B two.", "C three."]]
    assert list(read_parts([source])) == documents
    parts = sentences_of(source, tmp_path)
    assert list(read_parts(parts.paths)) == documents
    assert made(parts, tmp_path / "samples", recipe)[0]["documents"] == 2


@pytest.mark.parametrize("name", ["bom", "crlf"])
def test_byte_order_marks_and_line_ends_change_nothing(
    shared_data: Path, tmp_path: Path, recipe: Recipe, name: str
) -> None:
    source = edge(shared_data, name)
    plain = tmp_path / "plain" / "plain.txt"
    plain.parent.mkdir()
    content = source.read_bytes().removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n")
    assert content != source.read_bytes()
    plain.write_bytes(content)
    counts, samples = made(sentences_of(source, tmp_path), tmp_path / "samples", recipe)
    plain_parts = sentences_of(plain, plain.parent)
    plain_counts, plain_samples = made(plain_parts, plain.parent / "samples", recipe)
    assert counts == plain_counts and counts["documents"] == 2
    for one, other in zip(samples, plain_samples, strict=True):
        np.testing.assert_array_equal(one.tokens, other.tokens)
