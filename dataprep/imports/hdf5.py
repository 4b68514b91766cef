"""HDF5 files of BERT's pre-training records, as public scripts write them: read, and written back.

Of N records, either every dataset is a padded table (fixed length), or a row of each is a list of
its own size and nothing is padded (variable length, h5py's ``vlen``):

====================== ================ ===================
dataset                fixed            variable
====================== ================ ===================
input_ids              i4 [N, S]        i2 [N] of [tokens]
input_mask             i1 [N, S]        none
segment_ids            i1 [N, S]        i1 [N] of [tokens]
masked_lm_positions    i4 [N, P]        i2 [N] of [masked]
masked_lm_ids          i4 [N, P]        i2 [N] of [masked]
masked_lm_weights      in some, [N, P]  none
next_sentence_labels   i1 [N]           i1 [N]
====================== ================ ===================

Any integer type is read, and any compression that h5py knows.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from dataprep.blocks import Sample
from dataprep.imports.records import Record, Widths
from dataprep.manifest import FileEntry
from dataprep.shards import Shard
from dataprep.storage import file_sha256, replacing

_OPTIONAL = {"input_mask", "masked_lm_weights"}
_NAMES = set(Record._fields)
_LISTS = ("input_ids", "segment_ids", "masked_lm_positions", "masked_lm_ids")
_ROWS = 1024  # read and written at once
_SIGNATURE = b"\x89HDF\r\n\x1a\n"


def is_hdf5(path: Path) -> bool:
    """Whether a file starts as an HDF5 file does; it may end too early."""
    with path.open("rb") as stream:
        return stream.read(len(_SIGNATURE)) == _SIGNATURE


def hdf5_widths(path: Path) -> Widths | None:
    """The sizes that records are padded to; None for variable length.

    Raises:
        ValueError: as `read_hdf5`.
    """
    with _open(path) as file:
        if _is_variable(file, path):
            return None
        return Widths(file["input_ids"].shape[1], file["masked_lm_positions"].shape[1])


def read_hdf5(path: Path) -> Iterator[Record]:
    """The records of a file.

    Raises:
        ValueError: cut off or damaged; datasets that are missing, unknown, or of shapes or types
            that don't fit.
    """
    with _open(path) as file:
        variable = _is_variable(file, path)
        for start in range(0, len(file["input_ids"]), _ROWS):
            try:
                columns = {name: file[name][start : start + _ROWS] for name in file}
            except OSError as error:
                raise ValueError(
                    f"{path}: records {start} to {start + _ROWS}: damaged ({_one_line(error)}); "
                    "copy it again"
                ) from None
            for row in range(len(columns["input_ids"])):
                yield _record(columns, row, variable)


def _open(path: Path) -> h5py.File:
    try:
        return h5py.File(path, "r")
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file; check the path") from None
    except OSError as error:
        raise ValueError(
            f"{path}: no whole HDF5 file ({_one_line(error)}); copy it again"
        ) from None


def _one_line(error: OSError) -> str:
    return " ".join(str(error).split())


def _is_variable(file: h5py.File, path: Path) -> bool:
    """Whether the records are of variable length; refuses a file that is neither."""
    missing, unknown = _NAMES - _OPTIONAL - set(file), set(file) - _NAMES
    if missing or unknown:
        raise ValueError(
            f"{path}: datasets missing: {', '.join(sorted(missing)) or 'none'}, unknown: "
            f"{', '.join(sorted(unknown)) or 'none'}; give records of BERT's pre-training"
        )
    for name in file:
        if not isinstance(file[name], h5py.Dataset) or not file[name].shape:
            raise ValueError(f"{path}: {name}: no dataset of records; give BERT's records")
    variable = _is_list(file["input_ids"])
    if not variable and "input_mask" not in file:
        raise ValueError(f"{path}: no dataset input_mask to tell padding from tokens; add it")
    for name in file:
        _check_dataset(file[name], name, variable, len(file["input_ids"]), path)
    return variable


def _is_list(dataset: h5py.Dataset) -> bool:
    return h5py.check_vlen_dtype(dataset.dtype) is not None


def _check_dataset(
    dataset: h5py.Dataset, name: str, variable: bool, records: int, path: Path
) -> None:
    one_value = name == "next_sentence_labels"
    dimensions = (1, 2) if one_value else (1,) if variable else (2,)
    if _is_list(dataset) != (variable and not one_value) or dataset.ndim not in dimensions:
        raise ValueError(
            f"{path}: {name}: shape {dataset.shape} of {dataset.dtype} doesn't fit that of "
            "input_ids; give records of one layout"
        )
    kind = h5py.check_vlen_dtype(dataset.dtype) or dataset.dtype
    if kind.kind not in ("iuf" if name == "masked_lm_weights" else "iu"):
        raise ValueError(f"{path}: {name}: {kind} values; they must be integers")
    if len(dataset) != records:
        raise ValueError(f"{path}: {name}: {len(dataset)} records, input_ids {records}; there must "
                         "be as many")  # fmt: skip


def _record(columns: dict[str, Any], row: int, variable: bool) -> Record:
    integers = {
        name: np.atleast_1d(values[row]).astype(np.int64)
        for name, values in columns.items()
        if name != "masked_lm_weights"
    }
    weights = columns.get("masked_lm_weights")
    return Record(
        input_mask=None if variable else integers.pop("input_mask"),
        masked_lm_weights=None if weights is None else weights[row].astype(np.float64),
        **integers,
    )


# --- and back -------------------------------------------------------------------------------------


def export_hdf5(shards: Sequence[Path], output: Path, compression: str | None = None) -> FileEntry:
    """Write the samples of shards, in their order, as HDF5 of variable length.

    Lists are i2, or i4 where token ids or positions need it.

    Args:
        shards: of one folder, or others made alike.
        output: the file; written whole or not at all.
        compression: gzip, or None.

    Raises:
        ValueError: no shard, shards made differently, an unknown compression, an output that is one
            of the shards.
    """
    if compression not in (None, "gzip"):
        raise ValueError(f"compression '{compression}': give gzip, or none")
    if not shards:
        raise ValueError("shards: none given; name at least one")
    if any(output.exists() and output.samefile(path) for path in shards):
        raise ValueError(f"{output}: is one of the shards to be exported; choose another output")
    opened = [Shard(path) for path in shards]
    for shard in opened:
        if not shard.header.same_kind(opened[0].header):
            raise ValueError(f"{shard.path}: made otherwise than {opened[0].path}; export it alone")
    header = opened[0].header
    wide = max(header.vocabulary_size, header.max_seq_length) > np.iinfo(np.int16).max + 1
    records = sum(map(len, opened))
    with replacing(output) as temporary:
        with h5py.File(temporary, "w") as file:
            for name in _LISTS:
                kind = np.dtype("i1" if name == "segment_ids" else "<i4" if wide else "<i2")
                file.create_dataset(
                    name, (records,), h5py.vlen_dtype(kind), compression=compression
                )
            file.create_dataset("next_sentence_labels", (records,), "i1", compression=compression)
            start = 0
            for shard in opened:
                for first in range(0, len(shard), _ROWS):
                    rows = range(first, min(first + _ROWS, len(shard)))
                    _write(file, start, [shard.sample(row) for row in rows])
                    start += len(rows)
        counts = {
            "samples": records,
            "tokens": sum(int(shard.lengths().sum()) for shard in opened),
            "masked_tokens": sum(int(shard.label_counts().sum()) for shard in opened),
        }
        return FileEntry(output.name, temporary.stat().st_size, file_sha256(temporary), counts)


def _write(file: h5py.File, start: int, samples: list[Sample]) -> None:
    columns: dict[str, list[NDArray[Any]]] = {
        "input_ids": [sample.tokens for sample in samples],
        "segment_ids": [
            (np.arange(len(sample.tokens)) >= sample.second_segment_start) for sample in samples
        ],
        "masked_lm_positions": [sample.mlm_positions for sample in samples],
        "masked_lm_ids": [sample.mlm_labels for sample in samples],
    }
    for name, values in columns.items():
        kind = h5py.check_vlen_dtype(file[name].dtype)
        lists: NDArray[Any] = np.empty(
            len(values), object
        )  # not by np.array: equal sizes would make a table
        for row, value in enumerate(values):
            lists[row] = value.astype(kind)
        # h5py's own assignment takes lists of equal sizes for a table, and refuses it
        file[name].write_direct(lists, dest_sel=np.s_[start : start + len(values)])
    labels = [sample.next_sentence_label for sample in samples]
    file["next_sentence_labels"][start : start + len(labels)] = labels
