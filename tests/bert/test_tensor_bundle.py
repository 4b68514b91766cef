import re
import tracemalloc

import numpy as np
import pytest
from tf1_writer import MAGIC, masked, packed_block, varint, write_checkpoint

from bert.tensor_bundle import TensorBundle

NAME = "layer_2/kernel"
TENSORS = {f"layer_{n}/kernel": np.full((n, 3), n, np.float32) for n in range(1, 12)}


@pytest.fixture
def save(tmp_path):
    """Function of changes -> the prefix of a checkpoint."""

    def write(changes=None, **kwargs):
        write_checkpoint(tmp_path / "model.ckpt-7", TENSORS | (changes or {}), **kwargs)
        return tmp_path / "model.ckpt-7"

    return write


def read_all(prefix):
    bundle = TensorBundle(prefix)
    return {name: bundle.read(name) for name in bundle.entries}


def assert_refused(prefix, *named):
    with pytest.raises(ValueError) as caught:
        read_all(prefix)
    message = str(caught.value)
    assert "\n" not in message
    assert "; " in message
    for part in (str(prefix), *named):
        assert part in message, message


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_all_tensors(save, shards):
    text = {"text": np.zeros(3, np.uint8)}
    others = {"empty": np.zeros((0, 5), np.float32), "step": np.array(3), "π": np.ones(2)}
    prefix = save(text | others, shards=shards)
    bundle, wanted = TensorBundle(prefix), TENSORS | others
    assert set(bundle.entries) == {*wanted, "text"}
    for name, array in wanted.items():
        read = bundle.read(name)
        assert read.dtype == array.dtype and read.shape == array.shape
        np.testing.assert_array_equal(read, array)
    with pytest.raises(ValueError, match=r"text is of TensorFlow's type 4, .*; save it"):
        bundle.read("text")
    with pytest.raises(ValueError, match=r"no tensor none; give"):
        bundle.read("none")


def test_damaged_data_files(save):
    prefix = save(shards=2)
    first, second = (prefix.with_name(f"{prefix.name}.data-0000{n}-of-00002") for n in (0, 1))
    whole = second.read_bytes()
    second.write_bytes(whole[:-1])
    assert_refused(prefix, second.name, "ends at byte", f"has {len(whole) - 1};")
    second.write_bytes(whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:])
    assert_refused(prefix, second.name, "has a wrong checksum")
    second.unlink()
    assert_refused(prefix, f"{second.name}: no such file", "layer_")
    second.write_bytes(whole)
    first.write_bytes(b"")
    assert_refused(prefix, first.name, "has 0;")


def test_every_cut_and_flip_of_the_index_is_found(tmp_path):
    prefix, index = tmp_path / "x", tmp_path / "x.index"
    spans = write_checkpoint(prefix, TENSORS)
    whole = index.read_bytes()
    for size in (0, 10, 47, 48, len(whole) // 2, len(whole) - 1):
        index.write_bytes(whole[:size])
        assert_refused(prefix, "does not end as")
    index.write_bytes(whole[9:])
    assert_refused(prefix)
    (properties, _), (handles, _) = spans[-2:]
    for at in range(len(whole) - 48):
        index.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        if properties <= at < handles:  # this block is not read
            read_all(prefix)
        else:
            assert_refused(prefix, "wrong checksum")


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("size", 1 << 62, "bytes, its shape needs"),
        ("size", (1 << 64) - 1, "bytes, its shape needs"),
        ("offset", 1 << 62, "ends at byte"),
        ("offset", 10**6, "ends at byte"),
        ("shard", 1, "lies in data file 1 of 1"),
        ("shape", (1 << 62, 1 << 62), "no memory can hold"),
        ("shape", (0, 1 << 62), "no memory can hold"),
        ("shape", (1,) * 65, "has 65 dimensions"),
        ("shape", ((1 << 64) - 1,), "no memory can hold"),
        ("dtype", 7, "type 7"),
    ],
)
def test_forged_entries(save, field, value, named):
    assert_refused(save(forged={NAME: {field: value}}), NAME, named)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"header": b"\x08\0"}, "speaks of 0 data files"),
        ({"header": b"\x08" + varint(1 << 40)}, f"speaks of {1 << 40} data files"),
        ({"header": b"\x08\1\x10\1"}, "big-endian"),
        ({"header": b"\x0a\1\1"}, "a number is wanted"),
        ({"header": b"\x0b\1"}, "unknown kind"),
        ({"header": b"\x0a\x7f"}, "cut off"),
        ({"compression": 1}, "compressed"),
        ({"changes": {"a\nb": np.zeros(1)}}, r"'a\nb'"),
        ({"changes": {"a" * 2000: np.zeros(1)}}, "over 1024 bytes"),
    ],
)
def test_forged_tables(save, changes, named):
    assert_refused(save(**changes), named)


def test_limits_of_the_whole_index(save, monkeypatch):
    prefix = save()
    monkeypatch.setattr("bert.tensor_bundle.MAX_TENSORS", 11)
    assert len(read_all(prefix)) == 11
    monkeypatch.setattr("bert.tensor_bundle.MAX_TENSORS", 10)
    assert_refused(prefix, "more than 10 tensors")
    monkeypatch.setattr("bert.tensor_bundle.MAX_INDEX_BYTES", 100)
    assert_refused(prefix, "over 100 bytes")


def test_a_block_used_twice(tmp_path):
    index = tmp_path / "x.index"
    one = packed_block([])
    data = one + b"\0" + masked(one + b"\0")
    handles = packed_block([(b"%d" % n, varint(0) + varint(len(one))) for n in range(9)])
    footer = (varint(0) * 2 + varint(len(data)) + varint(len(handles))).ljust(40, b"\0")
    index.write_bytes(data + handles + b"\0" + masked(handles + b"\0") + footer + MAGIC)
    assert_refused(index, "inside the block before it")


def mutate(rng, data, spans):
    """Change some bytes; with ``spans`` inside blocks, whose checksums are made right again."""
    data = bytearray(data)
    for _ in range(rng.integers(1, 4)):
        offset, size = spans[rng.integers(len(spans))] if spans else (0, len(data))
        at, run = offset + int(rng.integers(size)), int(rng.integers(1, 12))
        run = min(run, offset + size - at)
        data[at : at + run] = [
            rng.bytes(run),
            b"\xff" * run,
            bytes(run),
            b"\x80" * run,
            bytes([data[at] ^ 1 << int(rng.integers(8))]) + data[at + 1 : at + run],
        ][rng.integers(5)]
    for offset, size in spans:
        end = offset + size + 1
        data[end : end + 4] = masked(data[offset:end])
    cut = rng.integers(20) == 0 and not spans
    return bytes(data[: rng.integers(len(data))] if cut else data)


@pytest.mark.parametrize("repaired", [False, True])
def test_mutated_indexes(tmp_path, repaired):
    prefix, index = tmp_path / "x", tmp_path / "x.index"
    spans = write_checkpoint(prefix, TENSORS, per_block=4)
    whole, rng, messages = index.read_bytes(), np.random.default_rng(5), []
    tracemalloc.start()
    for _ in range(1000):
        index.write_bytes(mutate(rng, whole, spans if repaired else []))
        try:
            read_all(prefix)
        except ValueError as error:
            messages.append(str(error))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20
    assert all(str(tmp_path) in text and "; " in text for text in messages)
    assert not any("\n" in text for text in messages)
    assert len(messages) > 500
    # Were it not for the repair, the checksums would hide all the other checks.
    kinds = {re.sub(r"\d+|'.*'|[\w/\\]*layer\S*", "", text.split(": ", 1)[1]) for text in messages}
    assert (len(kinds) > 12) == repaired
