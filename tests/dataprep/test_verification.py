"""What verify must find: every damage that leaves the digests right is made, and is named."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from dataprep.blocks import Sample
from dataprep.inspection import show_sample
from dataprep.manifest import Manifest, read_manifest
from dataprep.pipeline import PipelineConfig, run_pipeline
from dataprep.presort import PresortConfig, presort
from dataprep.sample_stages import make_stripes
from dataprep.samples import SamplesConfig
from dataprep.sentences import SentencesConfig
from dataprep.shards import FIELDS, Shard, ShardHeader, ShardWriter
from dataprep.tokenization import Vocabulary, load_vocabulary, save_vocabulary
from dataprep.verification import multiset_digest, verify_folder


@pytest.fixture(scope="module")
def prepared(corpus_file: Path, vocabulary_file: Path, tmp_path_factory) -> Path:
    root: Path = tmp_path_factory.mktemp("prepared") / "data"
    config = PipelineConfig(
        sources=[str(corpus_file)],
        vocab=str(vocabulary_file),
        output=str(root),
        parts=3,
        evaluation_documents=6,
        evaluation_samples=10,
        sentences=SentencesConfig(splitter="lines"),
        samples=SamplesConfig(max_seq_length=64, max_predictions=10, dupe_factor=2),
        stripes=3,
    )
    for _ in run_pipeline(config):
        pass
    return root


@pytest.fixture
def stripes(prepared: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(prepared / "train", tmp_path / "train"))


def sign(path: Path) -> None:
    """Make the digests of a changed file right again, in the file and in the manifest."""
    digest = Shard(path).content_sha256()
    with h5py.File(path, "a") as file:
        file.attrs["sha256"] = digest
    manifest = read_manifest_of_any_size(path.parent)
    files = [
        replace(entry, sha256=digest, bytes=path.stat().st_size)
        if entry.file == path.name
        else entry
        for entry in manifest.files
    ]
    replace(manifest, files=files).write(path.parent)


def read_manifest_of_any_size(folder: Path) -> Manifest:
    path = folder / "manifest.json"
    content = json.loads(path.read_text())
    for entry in content["files"]:
        entry["bytes"] = (folder / entry["file"]).stat().st_size
    path.write_text(json.dumps(content))
    return read_manifest(folder)


def change(path: Path, edit: Callable[[h5py.File], None]) -> None:
    with h5py.File(path, "a") as file:
        edit(file)
    sign(path)


def finding(folder: Path, **other: Path) -> str:
    with pytest.raises(ValueError) as error:
        list(verify_folder(folder, **other))
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_sound_folder_has_a_line_for_each_check(prepared: Path) -> None:
    held_out = prepared / "holdout" / "evaluation.md5"
    for name, kept in (("train", "none"), ("evaluation", "all")):
        source = prepared / "samples" / name
        lines = list(verify_folder(prepared / name, source, held_out))
        assert [line.split(": ")[1].split()[0] for line in lines[:3]] == ["as"] * 3
        assert "every sample is well formed, no two files are alike" in lines[3]
        assert "lengths as in the manifest" in lines[4]
        assert "sorted by length and dealt in turn to 3 stripes" in lines[5]
        assert "as often as there" in lines[6]
        assert lines[7].endswith(f"documents, {kept} held out")
        assert len(list(verify_folder(source, holdout=held_out))) > 3
    for name in ("documents", "sentences", "holdout"):
        assert all(line.endswith("as written") for line in verify_folder(prepared / name))


ROW = 5  # of the samples that are damaged
Edit = Callable[[h5py.File, int, int, int], None]


def set_token(place: int, value: int) -> Edit:
    def edit(file: h5py.File, first: int, end: int, mask: int) -> None:
        file["tokens"][(first if place >= 0 else end) + place] = value

    return edit


def set_field(name: str, value: int) -> Edit:
    def edit(file: h5py.File, first: int, end: int, mask: int) -> None:
        file[name][mask if name.startswith("mlm") else ROW] = value

    return edit


def unsort_masks(file: h5py.File, first: int, end: int, mask: int) -> None:
    two = file["mlm_positions"][mask : mask + 2]
    file["mlm_positions"][mask : mask + 2] = two[::-1]


def move_offset(name: str, by: int) -> Edit:
    def edit(file: h5py.File, first: int, end: int, mask: int) -> None:
        file[name][ROW] = int(file[name][ROW + 1]) + by

    return edit


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (set_token(0, 5), r"the first token must be \[CLS\], id 2, found 5"),
        (set_token(-1, 5), r"the last token must be \[SEP\], id 3, found 5"),
        (set_token(1, 60_000), "token ids must be under .*, found 60000"),
        (set_field("second_segment_start", 2), "leave a token to both segments, found 2"),
        (set_field("second_segment_start", 3), r"must follow \[SEP\], id 3"),
        (set_field("second_segment_start", 999), "leave a token to both segments, found 999"),
        (set_field("next_sentence_label", 2), "next_sentence_label must be 0 or 1, found 2"),
        (set_field("mlm_positions", 0), r"not on \[CLS\] or \[SEP\] or outside, found 0"),
        (set_field("mlm_positions", 999), r"not on \[CLS\] or \[SEP\] or outside, found 999"),
        (set_field("mlm_ids", 60_000), "masked ids must be under .*, found 60000"),
        (unsort_masks, "masked positions must ascend"),
        (move_offset("mlm_offsets", 0), "masked positions must be 1 to 10, found 0"),
        (move_offset("token_offsets", -2), "length must lie in 5 to 64, found 2"),
        (move_offset("token_offsets", 3), "length must lie in 5 to 64, found -3"),
    ],
)
def test_a_malformed_sample_is_named_with_file_row_and_value(
    stripes: Path, edit: Edit, message: str
) -> None:
    path = stripes / "stripe-00001.h5"
    shard = Shard(path)
    block = shard.block(0, len(shard))
    first, end = block.token_offsets[ROW : ROW + 2].tolist()
    expected = int((block.masks >= 2).argmax()) if edit is unsort_masks else ROW
    mask = int(block.mlm_offsets[expected])
    change(path, lambda file: edit(file, first, end, mask))
    found = finding(stripes)
    assert found.startswith(f"{path} row ")
    assert re.search(message, found), found
    row = int(found.removeprefix(f"{path} row ").split(":")[0])
    assert row == expected


def test_a_mask_on_the_middle_separator_is_found(stripes: Path) -> None:
    path = stripes / "stripe-00000.h5"
    sample = Shard(path).sample(0)
    change(path, lambda file: file["mlm_positions"].__setitem__(0, sample.second_segment_start - 1))
    assert f"{path} row 0: masked positions must lie on text" in finding(stripes)


def test_a_changed_byte_is_found_by_its_digest(stripes: Path) -> None:
    with h5py.File(stripes / "stripe-00002.h5", "a") as file:
        file["next_sentence_label"][0] ^= 1
    assert "stripe-00002.h5: content digest" in finding(stripes)


def test_offsets_that_do_not_start_at_zero_are_refused(stripes: Path) -> None:
    with h5py.File(stripes / "stripe-00000.h5", "a") as file:
        file["token_offsets"][0] = 1
    assert "token_offsets do not fit tokens" in finding(stripes)


def test_case_13_a_shard_cut_by_1_kb_is_named(stripes: Path) -> None:
    path = stripes / "stripe-00001.h5"
    path.write_bytes(path.read_bytes()[:-1024])
    assert "stripe-00001.h5" in finding(stripes) and "the manifest says" in finding(stripes)
    read_manifest_of_any_size(stripes)
    assert f"{path}: not a whole shard" in finding(stripes)


def test_counts_histogram_and_header_must_be_the_manifests(stripes: Path) -> None:
    manifest = read_manifest(stripes)
    files = [replace(manifest.files[0], counts={**manifest.files[0].counts, "masked_tokens": 7})]
    replace(manifest, files=[*files, *manifest.files[1:]]).write(stripes)
    assert "masked_tokens, the manifest says 7" in finding(stripes)
    length = next(iter(manifest.lengths))
    replace(manifest, lengths={**manifest.lengths, length: 999}).write(stripes)
    assert f"samples of length {length}, the manifest says 999" in finding(stripes)
    replace(manifest, lengths={**manifest.lengths, 4000: 1}).write(stripes)
    assert "0 samples of length 4000, the manifest says 1" in finding(stripes)
    replace(manifest, shard_header={**manifest.shard_header, "seed": 8}).write(stripes)
    assert "stripe-00000.h5: seed 12345, the manifest says 8" in finding(stripes)
    manifest.write(stripes)
    with (stripes / "vocab.txt").open("a") as file:
        file.write("one-more\n")
    assert "made with another vocabulary than the vocab.txt beside it" in finding(stripes)


def remake(prepared: Path, folder: Path, config: PresortConfig) -> Path:
    make_stripes(prepared / "samples" / "train", folder, config, 12345)
    return folder


def test_stripes_in_another_order_are_found(prepared: Path, tmp_path: Path) -> None:
    folder = remake(prepared, tmp_path / "t", PresortConfig(2))
    manifest = read_manifest(folder)
    a, b = (folder / entry.file for entry in manifest.files)
    a.rename(folder / "x")
    b.rename(a)
    (folder / "x").rename(b)
    first, second = manifest.files
    swapped = [replace(second, file=first.file), replace(first, file=second.file)]
    replace(manifest, files=swapped).write(folder)
    assert "dealt in turn" in (found := finding(folder)) or "not sorted" in found


def test_a_stripe_that_is_not_sorted_is_found(stripes: Path) -> None:
    path = stripes / "stripe-00001.h5"
    shard = Shard(path)
    rows = np.arange(len(shard))
    swapped = shard.block(0, len(shard)).take(np.concatenate([rows[-1:], rows[1:-1], rows[:1]]))
    with h5py.File(path, "a") as file:
        for name in FIELDS.keys() - {"document_md5s"}:
            file[name][:] = getattr(swapped, name)
    sign(path)
    assert "not sorted: run stage 'presort' again" in finding(stripes)


def test_case_12_two_equal_files_are_found(stripes: Path) -> None:
    manifest = read_manifest(stripes)
    first, second = manifest.files[:2]
    shutil.copy(stripes / first.file, stripes / second.file)
    replace(manifest, files=[first, replace(first, file=second.file), manifest.files[2]]).write(
        stripes
    )
    assert f"{second.file}: the same samples as" in finding(stripes)


@pytest.mark.parametrize(
    "config", [PresortConfig(2), PresortConfig(2, samples=50), PresortConfig(2, 50, "random")]
)
def test_a_sample_that_is_not_the_sources_is_found(
    prepared: Path, tmp_path: Path, config: PresortConfig
) -> None:
    source = prepared / "samples" / "train"
    folder = remake(prepared, tmp_path / "t", config)
    assert "as often as there" in list(verify_folder(folder, source))[-1]
    path = folder / "stripe-00000.h5"
    label = Shard(path).sample(3).next_sentence_label
    change(path, lambda file: file["next_sentence_label"].__setitem__(3, 1 - label))
    assert len(list(verify_folder(folder))) == 5
    assert "are not those of" in finding(folder, source=source)
    assert "made from other samples" in finding(folder, source=prepared / "samples" / "evaluation")


def test_the_multiset_digest_sees_copies_and_not_the_order(prepared: Path) -> None:
    shard = Shard(prepared / "train" / "stripe-00000.h5")
    block = shard.block(0, len(shard))
    rows = np.arange(len(shard))
    whole = multiset_digest([block])
    assert multiset_digest([block.take(rows[::-1])]) == whole
    assert multiset_digest([shard.block(0, 9), shard.block(9, len(shard))]) == whole
    assert multiset_digest([block.take(np.concatenate([rows[:1], rows[:-1]]))]) != whole


def test_an_evaluation_document_in_the_training_set_is_found(
    prepared: Path, tmp_path: Path
) -> None:
    source = prepared / "samples" / "train"
    held_out = tmp_path / "evaluation.md5"
    document = Shard(source / "part-00001.h5").document_md5s()[2]
    lines = (prepared / "holdout" / "evaluation.md5").read_text() + document + "\n"
    held_out.write_text(lines)
    found = finding(source, holdout=held_out)
    assert f"part-00001.h5 document 2: {document} must not be trained on" in found
    held_out.write_text("0" * 32 + "\n")
    found = finding(source, holdout=held_out)
    assert "made with another list of evaluation documents" in found
    found = finding(prepared / "samples" / "evaluation", holdout=held_out)
    assert "is not one of" in found
    found = finding(prepared / "train", holdout=prepared / "holdout" / "evaluation.md5")
    assert "made by stage 'presort', wanted: samples" in found
    assert "a source is for stripes alone" in finding(source, source=source)


def test_samples_without_documents_are_no_proof(prepared: Path, tmp_path: Path) -> None:
    folder = tmp_path / "samples"
    shutil.copytree(prepared / "samples" / "train", folder)
    path = folder / "part-00000.h5"
    presort([path], tmp_path / "one", PresortConfig(1), 12345)  # stripes name no documents
    shutil.copy(tmp_path / "one" / "stripe-00000.h5", path)
    sign(path)
    held_out = prepared / "holdout" / "evaluation.md5"
    assert "names no documents" in finding(folder, holdout=held_out)


# --- inspect --------------------------------------------------------------------------------------


def test_a_sample_of_a_file_is_the_one_of_its_folder(prepared: Path) -> None:
    path = prepared / "train" / "stripe-00001.h5"
    assert list(show_sample(path, 4)) == list(show_sample(prepared / "train", 3 * 4 + 1))
    with pytest.raises(ValueError, match=r"stripe-00001\.h5: no sample 9999; it holds 0 to"):
        list(show_sample(path, 9999))
    with pytest.raises(ValueError, match=r"none\.h5"):
        list(show_sample(prepared / "train" / "none.h5", 0))


def test_word_pieces_are_joined_and_masks_shown(tmp_path: Path) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "un", "##aff", "##able", "man", "##x"]
    save_vocabulary(Vocabulary(tuple(words), ""), tmp_path / "vocab.txt")
    digest = load_vocabulary(tmp_path / "vocab.txt").sha256
    header = ShardHeader(digest, len(words), 64, 10, "fast", 1, "", False)
    tokens = np.array([2, 5, 4, 7, 3, 8, 9, 3], np.uint16)
    masks, labels = np.array([2, 5], np.uint16), np.array([6, 8], np.uint16)
    with ShardWriter(tmp_path / "a.h5", header) as writer:
        writer.write(Sample(tokens, 5, masks, labels, 1))
    heading, first, second = show_sample(tmp_path / "a.h5", 0)
    assert heading.endswith("a.h5 row 0: 8 tokens, 2 masked, random pair")
    assert first == "A: [CLS] un<[MASK]=##aff>able [SEP]"
    assert second == "B: <man=man>x [SEP]"
