"""Foreign records: every format comes back equal, and nothing is converted with loss."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from foreign_records import (
    Row,
    canonical_digest,
    frame,
    padded,
    write_fixed,
    write_tfrecord,
    write_variable,
)

from dataprep.blocks import Sample
from dataprep.imports import ImportConfig, export_hdf5, import_records
from dataprep.manifest import FileEntry
from dataprep.shards import Shard
from dataprep.tokenization import Vocabulary, load_vocabulary

S, P = 24, 4
VOCABULARY = Vocabulary(
    ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(200))), "ab" * 32
)
CLS, SEP, MASK = 2, 3, 4
WIDE = ImportConfig(max_seq_length=S, max_predictions=P)


def some_samples(count: int = 1100) -> list[Sample]:
    """Of all lengths, with none to all of the predictions; more than one block of rows."""
    draw = np.random.default_rng(3)
    samples = []
    for _ in range(count):
        size = int(draw.integers(5, S + 1))
        start = int(draw.integers(3, size - 1))
        tokens = draw.integers(5, 205, size)
        tokens[[0, start - 1, size - 1]] = CLS, SEP, SEP
        words = np.setdiff1d(np.arange(size), [0, start - 1, size - 1])
        masked = draw.choice(words, min(draw.integers(0, P + 1), len(words)), replace=False)
        masked = np.sort(masked).astype(np.uint16)
        labels = tokens[masked].astype(np.uint16)
        tokens[masked] = MASK
        samples.append(
            Sample(tokens.astype(np.uint16), start, masked, labels, int(draw.integers(2)))
        )
    return samples


SAMPLES = some_samples()
ROWS = [padded(sample, S, P) for sample in SAMPLES]
UNPADDED = [padded(sample, len(sample.tokens), len(sample.mlm_labels)) for sample in SAMPLES]
DIGEST = canonical_digest(SAMPLES, S, P)


def samples_of(path: Path) -> list[Sample]:
    shard = Shard(path)
    return [shard.sample(row) for row in range(len(shard))]


def load(
    source: Path,
    folder: Path,
    config: ImportConfig = ImportConfig(),  # noqa: B008
) -> list[FileEntry]:
    return import_records([source], folder / "shards", VOCABULARY, config)


def without(rows: list[Row], *names: str) -> list[Row]:
    return [{k: v for k, v in row.items() if k not in names} for row in rows]


# --- what goes in comes out -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("write", "config"),
    [
        (lambda path: write_tfrecord(path, ROWS), ImportConfig()),
        (lambda path: write_tfrecord(path, ROWS, packed=False), ImportConfig("tfrecord")),
        (lambda path: write_fixed(path, ROWS), ImportConfig()),
        (lambda path: write_fixed(path, without(ROWS, "masked_lm_weights"), "gzip"), WIDE),
        (lambda path: write_fixed(path, ROWS, "gzip"), ImportConfig("hdf5")),
        (lambda path: write_variable(path, UNPADDED), WIDE),
        (lambda path: write_variable(path, UNPADDED, "gzip"), WIDE),
    ],
    ids=["tfrecord", "unpacked", "fixed", "no weights, gzip", "gzip", "variable", "variable gzip"],
)
def test_every_format_gives_the_same_samples(
    tmp_path: Path, write: Callable[[Path], Path], config: ImportConfig
) -> None:
    (entry,) = load(write(tmp_path / "source"), tmp_path, config)
    shard = Shard(tmp_path / "shards" / "part-00000.h5")
    assert canonical_digest(samples_of(shard.path), S, P) == DIGEST
    assert entry.counts == {
        "samples": len(SAMPLES),
        "tokens": sum(len(sample.tokens) for sample in SAMPLES),
        "masked_tokens": sum(len(sample.mlm_labels) for sample in SAMPLES),
        "unknown_tokens": 0,
    }
    header = shard.header
    assert (header.max_seq_length, header.max_predictions) == (S, P)
    assert (header.builder, header.vocabulary_size) == ("imported", len(VOCABULARY))


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_export_and_import_again(tmp_path: Path, compression: str | None) -> None:
    sources = [
        write_fixed(tmp_path / "a", ROWS[:600]),
        write_tfrecord(tmp_path / "b", ROWS[600:]),
    ]
    import_records(sources, tmp_path / "shards", VOCABULARY, ImportConfig())
    shards = sorted((tmp_path / "shards").iterdir())
    assert [len(Shard(path)) for path in shards] == [600, len(SAMPLES) - 600]
    entry = export_hdf5(shards, tmp_path / "out.hdf5", compression)
    assert (entry.file, entry.counts["samples"]) == ("out.hdf5", len(SAMPLES))
    with h5py.File(tmp_path / "out.hdf5") as file:
        kinds = {name: str(h5py.check_vlen_dtype(file[name].dtype)) for name in file}
        assert file["input_ids"].compression == compression
        assert file["input_ids"][7].tolist() == SAMPLES[7].tokens.tolist()
    assert kinds == {
        "input_ids": "int16",
        "segment_ids": "int8",
        "masked_lm_positions": "int16",
        "masked_lm_ids": "int16",
        "next_sentence_labels": "None",
    }
    import_records([tmp_path / "out.hdf5"], tmp_path / "again", VOCABULARY, WIDE)
    assert canonical_digest(samples_of(tmp_path / "again" / "part-00000.h5"), S, P) == DIGEST


@pytest.mark.parametrize("count", [1, 2, 1030])
def test_records_of_equal_length_are_exported(tmp_path: Path, count: int) -> None:
    samples = [SAMPLES[0]] * count
    rows = [padded(sample, S, P) for sample in samples]
    load(write_fixed(tmp_path / "a", rows), tmp_path)
    export_hdf5([tmp_path / "shards" / "part-00000.h5"], tmp_path / "out.hdf5")
    import_records([tmp_path / "out.hdf5"], tmp_path / "again", VOCABULARY, WIDE)
    found = samples_of(tmp_path / "again" / "part-00000.h5")
    assert canonical_digest(found, S, P) == canonical_digest(samples, S, P)


def test_token_ids_beyond_i2_are_exported_whole(tmp_path: Path) -> None:
    large = Vocabulary((*VOCABULARY.tokens, *(f"x{i}" for i in range(65_000 - 205))), "cd" * 32)
    row = padded(SAMPLES[0], S, P)
    row["input_ids"][1] = 64_999
    import_records([write_fixed(tmp_path / "a", [row])], tmp_path / "s", large, ImportConfig())
    export_hdf5([tmp_path / "s" / "part-00000.h5"], tmp_path / "out.hdf5")
    import_records([tmp_path / "out.hdf5"], tmp_path / "again", large, WIDE)
    assert samples_of(tmp_path / "again" / "part-00000.h5")[0].tokens[1] == 64_999


def test_training_and_evaluation_sets_go_together(tmp_path: Path) -> None:
    source = write_fixed(tmp_path / "a", ROWS[:9])
    headers = []
    for only_held_out in (False, True):
        folder = tmp_path / str(only_held_out)
        load(source, folder, ImportConfig(only_held_out=only_held_out))
        headers.append(Shard(folder / "shards" / "part-00000.h5").header)
    train, evaluation = headers
    assert train.is_trained_for(evaluation)
    assert not train.is_trained_for(train) and not evaluation.is_trained_for(train)


# --- recorded files -------------------------------------------------------------------------------


def uncased(shared_data: Path) -> Vocabulary:
    return load_vocabulary(shared_data / "vocab" / "bert-uncased-vocab.txt")


def test_the_sample_of_real_records(shared_data: Path, tmp_path: Path) -> None:
    source = shared_data / "tfrecord" / "sample_text.tfrecord"
    (entry,) = import_records([source], tmp_path, uncased(shared_data), ImportConfig())
    header = Shard(tmp_path / entry.file).header
    assert (entry.counts["samples"], header.max_seq_length, header.max_predictions) == (45, 128, 20)


@pytest.mark.parametrize(
    ("name", "widths", "digest"),
    [
        (
            "seq128_pred20_dupe2_seed12345.tfrecord",
            (128, 20),
            "29d9b85396146b29e887e8917b35bed11f9684d73754a8af93b41d5c2f1d0036",
        ),
        (
            "seq512_pred76_dupe2_seed12345.tfrecord",
            (512, 76),
            "d1423d2f05c1e04832e41ccfb4ef4928af88510424ca42b9547c4769948bafb2",
        ),
    ],
)
def test_records_of_the_reference_have_its_digest(
    shared_data: Path, tmp_path: Path, name: str, widths: tuple[int, int], digest: str
) -> None:
    folder = shared_data / "mlperf" / "reference_outputs" / "create_pretraining_data"
    (entry,) = import_records([folder / name], tmp_path, uncased(shared_data), ImportConfig())
    assert canonical_digest(samples_of(tmp_path / entry.file), *widths) == digest
    export_hdf5([tmp_path / entry.file], tmp_path / "out.hdf5", "gzip")
    config = ImportConfig("hdf5", *widths)
    import_records([tmp_path / "out.hdf5"], tmp_path / "again", uncased(shared_data), config)
    assert canonical_digest(samples_of(tmp_path / "again" / entry.file), *widths) == digest


# --- what a sample cannot hold --------------------------------------------------------------------


def changed(name: str, place: int, value: float) -> Row:
    """A record of 24 tokens with two masked positions, 5 and 7, and one wrong value."""
    tokens = [CLS, *range(5, 14), SEP, *range(20, 26), SEP]
    tokens[5] = tokens[7] = MASK
    row = padded(
        Sample(
            np.array(tokens, np.uint16),
            11,
            np.array([5, 7], np.uint16),
            np.array([9, 11], np.uint16),
            1,
        ),
        S,
        P,
    )
    row[name][place] = value
    return row


WRONG = [
    ("input_ids", 3, 205, "input_ids: 205 at 3 lies outside the 205 tokens of the vocabulary"),
    ("input_ids", 3, -1, "input_ids: -1 at 3 lies outside"),
    ("input_ids", 0, 9, r"not \[CLS\] 2 first and \[SEP\] 3 last; give the vocabulary"),
    ("input_ids", 20, 7, "input_ids: 7 at 2 of the padding"),
    ("input_mask", 3, 0, "input_mask: 0 at 3; it must be ones, then zeros only"),
    ("input_mask", 20, 1, "input_mask: 0 at 18; it must be ones"),
    ("input_mask", 3, 2, "input_mask: 2 at 3"),
    ("segment_ids", 3, 1, "segment_ids: 1 at 3; they must be zeros, then ones"),
    ("segment_ids", 13, 0, "segment_ids: 1 at 11; they must be zeros, then ones"),
    ("segment_ids", 13, 2, "segment_ids: 2 at 13"),
    ("segment_ids", 20, 1, "segment_ids: 1 at 2 of the padding"),
    ("masked_lm_positions", 0, 7, "masked_lm_positions: 7 after 7; they must ascend"),
    ("masked_lm_positions", 0, 8, "masked_lm_positions: 7 after 8; they must ascend"),
    ("masked_lm_positions", 1, 18, "masked_lm_positions: 18 at 1 lies outside the 18 tokens"),
    ("masked_lm_positions", 2, 9, "masked_lm_positions: 9 at 0 of the padding"),
    ("masked_lm_ids", 0, 205, "masked_lm_ids: 205 at 0 lies outside"),
    ("masked_lm_ids", 3, 1, "masked_lm_ids: 1 at 1 of the padding"),
    ("masked_lm_weights", 1, 0.5, "masked_lm_weights: 0.5 at 1; it must be ones"),
    ("masked_lm_weights", 0, 0.0, "masked_lm_weights: 0.0 at 0; it must be ones"),
    ("masked_lm_weights", 0, float("nan"), "masked_lm_weights: nan at 0"),
    ("next_sentence_labels", 0, 2, r"next_sentence_labels: \[2\]; it must be one 0 or 1"),
]


@pytest.mark.parametrize("write", [write_tfrecord, write_fixed])
@pytest.mark.parametrize(("name", "place", "value", "message"), WRONG)
def test_what_a_sample_cannot_hold_is_named(
    tmp_path: Path,
    write: Callable[[Path, list[Row]], Path],
    name: str,
    place: int,
    value: float,
    message: str,
) -> None:
    source = write(tmp_path / "source", [ROWS[0], ROWS[1], changed(name, place, value)])
    with pytest.raises(ValueError, match=f"{source}: record 2: .*{message}") as error:
        load(source, tmp_path)
    assert "\n" not in str(error.value)
    assert not list(tmp_path.glob("shards/*")), "nothing half-written"


def test_a_hole_among_positions_without_weights(tmp_path: Path) -> None:
    rows = without([changed("masked_lm_positions", 0, 0)], "masked_lm_weights")
    with pytest.raises(ValueError, match="record 0: masked_lm_positions != 0: 0 at 0; it must be"):
        load(write_fixed(tmp_path / "source", rows), tmp_path)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("input_ids", [CLS, *range(5, 28), SEP], "25 values, more than max_seq_length 24; raise"),
        ("segment_ids", [0, 0, 1], "segment_ids: 3 for 18 input_ids"),
        ("masked_lm_ids", [5], "masked_lm_positions: 2 for 1 masked_lm_ids"),
        ("masked_lm_positions", [0, 5], None),
    ],
)
def test_records_of_variable_length(
    tmp_path: Path, name: str, values: list[int], message: str | None
) -> None:
    row = changed("input_ids", 4, 8)
    for key, size in (("input_ids", 18), ("segment_ids", 18)):
        row[key] = row[key][:size]
    for key in ("masked_lm_positions", "masked_lm_ids"):
        row[key] = row[key][:2]
    row[name] = values
    source = write_variable(tmp_path / "source", [row])
    if message is None:  # nothing is padded, so a position 0 is one
        load(source, tmp_path, WIDE)
        found = samples_of(tmp_path / "shards" / "part-00000.h5")[0].mlm_positions
        assert found.tolist() == values
    else:
        with pytest.raises(ValueError, match=f"record 0: {message}"):
            load(source, tmp_path, WIDE)


# --- files that are not what they should be -------------------------------------------------------


@pytest.mark.parametrize("write", [write_tfrecord, write_fixed, write_variable])
@pytest.mark.parametrize("cut", [1, 3000])
def test_a_file_cut_off(tmp_path: Path, write: Callable[..., Path], cut: int) -> None:
    source = write(tmp_path / "source", UNPADDED if write is write_variable else ROWS)
    source.write_bytes(source.read_bytes()[:-cut])
    with pytest.raises(ValueError, match=f"{source}: .*; copy it again") as error:
        load(source, tmp_path, WIDE)
    assert "\n" not in str(error.value)
    assert not list(tmp_path.glob("shards/*"))


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (2, "no TFRecord and no HDF5 file by its first bytes"),
        (40, "record 0: its checksum is wrong: damaged; copy it again"),
        (-50, "record 49: its checksum is wrong"),
    ],
)
def test_a_changed_byte_in_a_tfrecord(tmp_path: Path, place: int, message: str) -> None:
    source = write_tfrecord(tmp_path / "source", ROWS[:50])
    data = bytearray(source.read_bytes())
    data[place] ^= 1
    source.write_bytes(data)
    with pytest.raises(ValueError, match=message):
        load(source, tmp_path)


def test_the_checksum_of_a_later_length(tmp_path: Path) -> None:
    source = write_tfrecord(tmp_path / "source", ROWS[:1])
    source.write_bytes(source.read_bytes() + b"\x05" + bytes(30))
    with pytest.raises(ValueError, match="record 1: the checksum of its length is wrong"):
        load(source, tmp_path)


@pytest.mark.parametrize("data", [b"", b"\x0a\x05ab", b"\x0b", b"\x80", b"\x0a\x80", b"\xff" * 30])
def test_a_record_that_is_no_example(tmp_path: Path, data: bytes) -> None:
    source = tmp_path / "source"
    source.write_bytes(frame(data) + write_tfrecord(tmp_path / "rest", ROWS[:1]).read_bytes())
    with pytest.raises(ValueError, match=r"record 0: (no protobuf|features missing: input_ids)"):
        load(source, tmp_path)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({**ROWS[0], "extra": [1]}, "features missing: none, unknown: extra"),
        (without(ROWS[:1], "input_mask")[0], "features missing: input_mask, unknown: none"),
    ],
)
def test_features_that_do_not_fit(tmp_path: Path, row: Row, message: str) -> None:
    with pytest.raises(ValueError, match=f"record 0: {message}"):
        load(write_tfrecord(tmp_path / "source", [row]), tmp_path)


def test_records_of_several_widths(tmp_path: Path) -> None:
    row = padded(SAMPLES[0], S + 2, P)
    source = write_tfrecord(tmp_path / "a", [ROWS[0]])
    other = write_fixed(tmp_path / "b", [row])
    with pytest.raises(ValueError, match=f"{other}: records of .26, 4. .* but .24, 4. in {source}"):
        import_records([source, other], tmp_path / "s", VOCABULARY, ImportConfig())
    with pytest.raises(ValueError, match="max_seq_length is 24 in the data, not 512; leave it out"):
        load(source, tmp_path, ImportConfig(max_seq_length=512))


def test_variable_length_needs_widths(tmp_path: Path) -> None:
    source = write_variable(tmp_path / "source", UNPADDED[:2])
    with pytest.raises(ValueError, match=r"don't tell max_seq_length; give it \(MLPerf's is 512\)"):
        load(source, tmp_path)
    with pytest.raises(ValueError, match=r"don't tell max_predictions; give it \(MLPerf's is 76"):
        load(source, tmp_path, ImportConfig(max_seq_length=S))


def hdf5(path: Path, **datasets: Any) -> Path:
    """A file of two records of fixed length with some datasets replaced, or left out (None)."""
    fields = {name: np.array([row[name] for row in ROWS[:2]]) for name in ROWS[0]} | datasets
    with h5py.File(path, "w") as file:
        for name, values in fields.items():
            if values is not None:
                file.create_dataset(name, data=values)
    return path


@pytest.mark.parametrize(
    ("datasets", "message"),
    [
        ({"masked_lm_ids": None}, "datasets missing: masked_lm_ids, unknown: none"),
        ({"tokens": [1]}, "datasets missing: none, unknown: tokens"),
        ({"input_mask": None}, "no dataset input_mask to tell padding from tokens"),
        ({"segment_ids": np.zeros((3, S), int)}, "segment_ids: 3 records, input_ids 2"),
        ({"segment_ids": np.zeros(2, int)}, r"segment_ids: shape \(2,\) of int64 doesn't fit"),
        ({"input_ids": np.zeros((2, S))}, "input_ids: float64 values; they must be integers"),
        ({"input_ids": 3}, "input_ids: no dataset of records"),
        ({"input_mask": np.ones((2, S - 1), int)}, "record 0: input_mask: 23 values for 24"),
        ({"next_sentence_labels": np.zeros((2, 2), int)}, r"record 0: next_sentence_labels: \[0 0"),
    ],
)
def test_datasets_that_do_not_fit(tmp_path: Path, datasets: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        load(hdf5(tmp_path / "source", **datasets), tmp_path)
    assert "\n" not in str(error.value)


def test_labels_in_a_column_are_read(tmp_path: Path) -> None:
    load(hdf5(tmp_path / "source"), tmp_path)
    assert len(samples_of(tmp_path / "shards" / "part-00000.h5")) == 2


@pytest.mark.parametrize(
    ("content", "format", "message"),
    [
        (None, "auto", "source: cannot be read: No such file or directory; check the path"),
        (None, "hdf5", "source: cannot be read: No such file"),
        (b"text of some length", "auto", "no TFRecord and no HDF5 file by its first bytes"),
        (b"text of some length", "hdf5", "no whole HDF5 file"),
        (b"text of some length", "tfrecord", "record 0: the checksum of its length is wrong"),
        (b"", "auto", "no TFRecord and no HDF5"),
        (b"", "tfrecord", "no record; leave the file out"),
        (b"", "parquet", "import format 'parquet': give one of auto, tfrecord, hdf5"),
    ],
)
def test_other_files(tmp_path: Path, content: bytes | None, format: str, message: str) -> None:
    if content is not None:
        (tmp_path / "source").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        load(tmp_path / "source", tmp_path, ImportConfig(format))


def test_no_source_and_no_shard(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="sources: none given"):
        import_records([], tmp_path, VOCABULARY, ImportConfig())
    with pytest.raises(ValueError, match="shards: none given"):
        export_hdf5([], tmp_path / "out.hdf5")
    with pytest.raises(ValueError, match="compression 'lzf': give gzip, or none"):
        export_hdf5([tmp_path / "a.h5"], tmp_path / "out.hdf5", "lzf")


def test_a_shard_is_not_exported_over_itself(tmp_path: Path) -> None:
    load(write_fixed(tmp_path / "a", ROWS[:2]), tmp_path)
    shard = tmp_path / "shards" / "part-00000.h5"
    before = shard.read_bytes()
    with pytest.raises(ValueError, match="part-00000.h5: is one of the shards to be exported"):
        export_hdf5([shard], shard)
    assert shard.read_bytes() == before


def test_shards_made_differently_are_not_exported_together(tmp_path: Path) -> None:
    load(write_fixed(tmp_path / "a", ROWS[:2]), tmp_path)
    wider = [padded(sample, S, P + 1) for sample in SAMPLES[:2]]
    load(write_fixed(tmp_path / "b", wider), tmp_path / "other")
    shards = [folder / "shards" / "part-00000.h5" for folder in (tmp_path, tmp_path / "other")]
    with pytest.raises(ValueError, match="made otherwise than .*; export it alone"):
        export_hdf5(shards, tmp_path / "out.hdf5")
    assert not (tmp_path / "out.hdf5").exists()
