"""Sources in groups, groups in parts, and the ways to an evaluation set."""

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from dataprep.holdout import HoldOut
from dataprep.manifest import read_manifest
from dataprep.parts import Group, deal_parts, document_md5, given_parts, read_parts
from dataprep.pipeline import PipelineConfig, run_pipeline
from dataprep.sample_stages import Recipe, make_shard
from dataprep.samples import SamplesConfig
from dataprep.sentences import SentencesConfig
from dataprep.shards import Shard
from dataprep.tokenization import load_vocabulary


def test_sources_are_grouped_until_there_are_no_more_than_parts() -> None:
    assert deal_parts([10], 4) == [Group(range(0, 1), 4)]
    assert deal_parts([30, 10], 4) == [Group(range(0, 1), 3), Group(range(1, 2), 1)]
    assert deal_parts([10] * 6, 3) == [Group(range(i, i + 2), 1) for i in (0, 2, 4)]
    assert deal_parts([1, 1, 100], 2) == [Group(range(0, 3), 2)]
    for sizes, parts in (([5, 0, 7, 100, 3, 3], 4), ([1] * 500, 7), ([0, 0], 3)):
        groups = deal_parts(sizes, parts)
        assert [i for group in groups for i in group.sources] == list(range(len(sizes)))
        assert sum(group.parts for group in groups) == parts
        assert all(group.parts >= 1 and len(group.sources) for group in groups)


def test_by_default_a_part_is_32_mib_of_sources() -> None:
    assert sum(group.parts for group in deal_parts([64 << 20, 64 << 20], None)) == 4
    assert deal_parts([5], None) == [Group(range(0, 1), 1)]
    with pytest.raises(ValueError, match="parts 0 must be at least 1"):
        deal_parts([5], 0)


def test_parts_of_one_name_are_refused(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "part.txt").write_text("x\n")
    with pytest.raises(ValueError, match=r"another part is called part\.txt too; rename one"):
        given_parts([tmp_path / "a" / "part.txt", tmp_path / "b" / "part.txt"])


# --- the pipeline on text parts -------------------------------------------------------------------


@pytest.fixture
def text_parts(corpus_file: Path, tmp_path: Path) -> list[Path]:
    """The corpus as two text parts and an evaluation text that has two documents of theirs."""
    documents = list(read_parts([corpus_file]))
    paths = []
    for name, chosen in (("p0", documents[:20]), ("p1", documents[20:]), ("eval", documents[5:9])):
        paths.append(tmp_path / f"{name}.txt")
        paths[-1].write_text("\n".join("\n".join(sentences) + "\n" for sentences in chosen))
    return paths


def config_of(text_parts: list[Path], vocabulary: Path, output: Path) -> PipelineConfig:
    return PipelineConfig(
        sources=[str(path) for path in text_parts[:2]],
        vocab=str(vocabulary),
        output=str(output),
        format="parts",
        evaluation_sources=[str(text_parts[2])],
        evaluation_samples=4,
        sentences=SentencesConfig(splitter="lines"),
        samples=SamplesConfig(max_seq_length=64, max_predictions=10, dupe_factor=2),
        stripes=2,
    )


@pytest.mark.parametrize("builder", ["fast", "reference"])
def test_an_evaluation_text_is_not_trained_on(
    text_parts: list[Path], vocabulary_file: Path, tmp_path: Path, builder: str
) -> None:
    config = replace(config_of(text_parts, vocabulary_file, tmp_path / "out"), builder=builder)
    for _ in run_pipeline(config):
        pass
    held_out = {document_md5(sentences) for sentences in read_parts(text_parts[2:])}
    train, evaluation = (
        {md5 for path in (tmp_path / "out" / "samples" / name).glob("*.h5")
         for md5 in Shard(path).document_md5s()}
        for name in ("train", "evaluation")
    )  # fmt: skip
    assert evaluation == held_out and len(train) == 36 and not train & held_out
    assert read_manifest(tmp_path / "out" / "evaluation").samples == 4
    header = Shard(tmp_path / "out" / "train" / "stripe-00000.h5").header
    assert header.builder == builder
    assert header.is_trained_for(Shard(tmp_path / "out" / "evaluation" / "stripe-00000.h5").header)


def test_a_list_of_md5s_holds_documents_out(
    text_parts: list[Path], vocabulary_file: Path, tmp_path: Path
) -> None:
    listed = tmp_path / "eval.md5"
    md5s = [document_md5(sentences) for sentences in read_parts(text_parts[2:])]
    first = next(iter(read_parts(text_parts[2:])))
    md5s[0] = document_md5(["", *first])  # as the reference lists the first article of a file
    listed.write_text("\n".join([*md5s, hashlib.md5(b"not there").hexdigest()]))
    config = config_of(text_parts, vocabulary_file, tmp_path / "out")
    config = replace(config, evaluation_sources=None, evaluation_list=str(listed))
    for _ in run_pipeline(config):
        pass
    counts = [
        read_manifest(tmp_path / "out" / "samples" / name).counts["documents"]
        for name in ("train", "evaluation")
    ]
    assert counts == [36, 4]
    with pytest.raises(ValueError, match="evaluation_list and evaluation_sources are both given"):
        replace(config, evaluation_sources=["x"])


def test_only_about_as_many_samples_as_wanted_are_made(
    text_parts: list[Path], vocabulary_file: Path, tmp_path: Path
) -> None:
    """A part of the whole run's samples, of all documents alike, never a prefix."""
    config = config_of(text_parts, vocabulary_file, tmp_path / "whole")
    config = replace(config, samples=replace(config.samples, dupe_factor=40))
    for _ in run_pipeline(config):
        pass
    config = replace(config, output=str(tmp_path / "some"), training_samples=300)
    for _ in run_pipeline(config):
        pass
    whole, some = (
        [sample.tokens.tobytes()
         for path in sorted((tmp_path / name / "samples" / "train").glob("*.h5"))
         for shard in [Shard(path)] for sample in map(shard.sample, range(len(shard)))]
        for name in ("whole", "some")
    )  # fmt: skip
    assert 300 <= len(some) < 0.6 * len(whole)
    assert set(some) <= set(whole)
    assert read_manifest(tmp_path / "some" / "train").samples == 300
    # each of 36 documents has 40 passes: a share of each is there, in proportion
    manifest = read_manifest(tmp_path / "some" / "samples" / "train")
    share = manifest.settings["share"]
    taken = 1 - manifest.counts["passes_not_taken"] / (36 * 40)
    assert abs(taken - share) < 4 * (share * (1 - share) / (36 * 40)) ** 0.5
    with pytest.raises(ValueError, match="9999 samples wanted, the source holds"):
        for _ in run_pipeline(replace(config, training_samples=9999)):
            pass


def test_text_that_the_vocabulary_does_not_know_is_refused(
    vocabulary_file: Path, tmp_path: Path
) -> None:
    """Such as cased text with an uncased vocabulary, where every name would become [UNK]."""
    text = tmp_path / "part.txt"
    text.write_text("the river city .\nQqq Xyz Vvv the .\n\nthe war .\nthe city .\n")
    config = SamplesConfig(max_seq_length=32, max_predictions=4, dupe_factor=1)
    recipe = Recipe(load_vocabulary(vocabulary_file), True, config, HoldOut(), 1)
    with pytest.raises(ValueError, match=r"part\.txt: 2\d% of the tokens are \[UNK\].*at most 10%"):
        make_shard(given_parts([text]), tmp_path / "a.h5", recipe)
    assert not (tmp_path / "a.h5").exists()
    allowed = replace(recipe, config=replace(config, max_unknown_share=0.5))
    assert make_shard(given_parts([text]), tmp_path / "a.h5", allowed).counts["unknown_tokens"] == 3


def test_a_blank_part_is_named(tmp_path: Path) -> None:
    paths = [tmp_path / "a.txt", tmp_path / "b.txt"]
    paths[0].write_text("text .\n")
    paths[1].write_text(" \n\n")
    with pytest.raises(ValueError, match=r"b\.txt: no document: empty or blank; leave the file"):
        list(read_parts(paths))
