"""The shard format and the manifest: round trip, same bytes, and every kind of damage."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest

from dataprep.blocks import Sample, SampleBlock
from dataprep.manifest import FileEntry, Manifest, read_manifest
from dataprep.shards import Shard, ShardHeader, ShardWriter
from dataprep.storage import replacing

HEADER = ShardHeader(
    vocabulary_sha256="ab" * 32,
    vocabulary_size=100,
    max_seq_length=128,
    max_predictions=20,
    builder="fast",
    seed=1,
    held_out_sha256="ef" * 32,
    only_held_out=False,
    sources={"part-00000.txt": "cd" * 32},
)


def some_samples(count: int = 50) -> list[Sample]:
    draw = np.random.default_rng(3)
    samples = []
    for _ in range(count):
        size = int(draw.integers(5, 60))
        masked = np.sort(draw.choice(np.arange(1, size), draw.integers(0, 5), replace=False))
        samples.append(
            Sample(
                draw.integers(0, 100, size).astype(np.uint16),
                int(draw.integers(2, size)),
                masked.astype(np.uint16),
                draw.integers(0, 100, len(masked)).astype(np.uint16),
                int(draw.integers(2)),
            )
        )
    return samples


def write(path: Path, samples: list[Sample]) -> FileEntry:
    with ShardWriter(path, HEADER) as writer:
        for sample in samples:
            writer.write(sample)
    return writer.entry


def test_samples_come_back_as_written(tmp_path: Path) -> None:
    samples = some_samples()
    entry = write(tmp_path / "a.h5", samples)
    shard = Shard(tmp_path / "a.h5")
    assert (len(shard), shard.header) == (50, HEADER)
    for row, sample in enumerate(samples):
        for read, written in zip(shard.sample(row), sample, strict=True):
            np.testing.assert_array_equal(read, written)
    assert shard.lengths().tolist() == [len(sample.tokens) for sample in samples]
    assert shard.content_sha256() == shard.sha256 == entry.sha256
    assert entry.bytes == (tmp_path / "a.h5").stat().st_size


def test_same_content_gives_same_bytes_and_an_empty_shard_can_be_read(tmp_path: Path) -> None:
    for name in ("a.h5", "b.h5"):
        write(tmp_path / name, some_samples())
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()
    write(tmp_path / "empty.h5", [])
    assert len(Shard(tmp_path / "empty.h5")) == 0


def as_block(samples: list[Sample]) -> SampleBlock:
    return SampleBlock(
        tokens=np.concatenate([sample.tokens for sample in samples]),
        token_offsets=np.cumsum([0, *(len(sample.tokens) for sample in samples)]),
        second_segment_start=np.array([s.second_segment_start for s in samples], np.uint16),
        next_sentence_label=np.array([s.next_sentence_label for s in samples], np.uint8),
        mlm_positions=np.concatenate([sample.mlm_positions for sample in samples]),
        mlm_ids=np.concatenate([sample.mlm_labels for sample in samples]),
        mlm_offsets=np.cumsum([0, *(len(sample.mlm_labels) for sample in samples)]),
    )


def test_blocks_are_written_like_their_samples(tmp_path: Path) -> None:
    samples = some_samples()
    write(tmp_path / "a.h5", samples)
    with ShardWriter(tmp_path / "b.h5", HEADER) as writer:
        writer.write_block(as_block(samples[:20]))
        writer.write(samples[20])
        writer.write_block(as_block(samples[21:]))
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()


def test_datasets_can_be_mapped_and_are_aligned(tmp_path: Path) -> None:
    write(tmp_path / "a.h5", some_samples())
    with h5py.File(tmp_path / "a.h5") as file:
        assert all(d.id.get_offset() % 64 == 0 for d in file.values() if len(d))


def test_an_exception_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), ShardWriter(tmp_path / "a.h5", HEADER) as writer:
        writer.write(some_samples(1)[0])
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kept", [0, 100, 2000])
def test_a_cut_off_shard_is_named(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "a.h5"
    write(path, some_samples())
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match=rf"{path}: not a whole shard of .*; delete it"):
        Shard(path)


def test_another_format_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    write(path, some_samples())
    with h5py.File(path, "a") as file:
        file.attrs["format_version"] = 7
    with pytest.raises(ValueError, match=rf"{path}: shard format 7, this release reads 2"):
        Shard(path)


def test_some_other_hdf5_file_is_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["input_ids"] = np.zeros(3)
    with pytest.raises(ValueError, match="not a whole shard"):
        Shard(tmp_path / "a.h5")
    with pytest.raises(ValueError, match="no such file"):
        Shard(tmp_path / "none.h5")


def test_many_shards_take_one_file_descriptor_each(tmp_path: Path) -> None:
    write(tmp_path / "a.h5", some_samples())
    before = len(list(Path("/proc/self/fd").iterdir()))
    shards = [Shard(tmp_path / "a.h5") for _ in range(20)]
    assert len(list(Path("/proc/self/fd").iterdir())) - before <= len(shards)


def test_a_changed_byte_changes_the_content_digest(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    write(path, some_samples())
    with h5py.File(path, "a") as file:
        file["tokens"][7] += 1
    shard = Shard(path)
    assert shard.content_sha256() != shard.sha256


def test_replacing_is_all_or_nothing(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_text("old")
    with pytest.raises(RuntimeError), replacing(target) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert target.read_text() == "old"
    with pytest.raises(ValueError, match="is a folder; name a file in it"), replacing(tmp_path):
        pass


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("text")
    Manifest("sentences", 1, {}, {}, [FileEntry("a.txt", 4, "ab", {"documents": 2})]).write(
        tmp_path
    )
    return tmp_path


def test_manifest_round_trip(folder: Path) -> None:
    manifest = read_manifest(folder, ("sentences",))
    assert manifest.files[0].counts == manifest.counts == {"documents": 2}


def test_manifest_names_what_is_wrong(folder: Path) -> None:
    with pytest.raises(ValueError, match="made by stage 'sentences', wanted: documents"):
        read_manifest(folder, ("documents",))
    (folder / "a.txt").write_text("longer")
    with pytest.raises(ValueError, match=r"a\.txt: 6 bytes, the manifest says 4"):
        read_manifest(folder)
    (folder / "a.txt").unlink()
    with pytest.raises(ValueError, match=r"a\.txt: missing, though the manifest names it"):
        read_manifest(folder)
    with pytest.raises(ValueError, match="not a finished stage"):
        read_manifest(folder / "nowhere")


@pytest.mark.parametrize("content", ["", "[]", '{"version": 1}', '{"version": 9}', "{", "\x00"])
def test_a_damaged_manifest_is_one_line(folder: Path, content: str) -> None:
    (folder / "manifest.json").write_text(content)
    with pytest.raises(ValueError, match=r"manifest\.json: ") as error:
        read_manifest(folder)
    assert "\n" not in str(error.value)


def test_a_manifest_cannot_name_files_elsewhere(folder: Path) -> None:
    path = folder / "manifest.json"
    content = json.loads(path.read_text())
    content["files"][0]["file"] = "../a.txt"
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="lies outside"):
        read_manifest(folder)
