"""The shard format: flat, unpadded samples in contiguous HDF5 datasets, and their reader.

This is the only file that knows the field names. For n samples with T tokens and M masked
positions in all:

====================== ====== ======= ==========================================================
dataset                type   shape   meaning
====================== ====== ======= ==========================================================
tokens                 u2     T       [CLS] first [SEP] second [SEP], masks applied
token_offsets          u8     n+1     sample i is tokens[token_offsets[i]:token_offsets[i+1]]
second_segment_start   u2     n       index within the sample where segment 1 starts
next_sentence_label    u1     n       0: the second segment follows the first; 1: it is random
mlm_positions          u2     M       masked positions within the sample, ascending
mlm_ids                u2     M       the original token ids there
mlm_offsets            u8     n+1     like token_offsets, for the two masked datasets
document_md5s          u1     16 D    of the D documents that the samples were made of, in order
====================== ====== ======= ==========================================================

Contiguous datasets can be memory-mapped (3 to 6 microseconds a sample) but cannot grow, so a shard
is written in two passes: raw temporary streams, then datasets of known size, then a rename.
"""

import errno
import hashlib
import json
import os
import tempfile
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import h5py
import numpy as np
from numpy.typing import NDArray

from dataprep.blocks import Sample, SampleBlock, UInt16Array
from dataprep.manifest import FileEntry
from dataprep.storage import fetched, is_local, replacing

FORMAT_VERSION = 2
FIELDS: dict[str, str] = {
    "tokens": "<u2",
    "token_offsets": "<u8",
    "second_segment_start": "<u2",
    "next_sentence_label": "<u1",
    "mlm_positions": "<u2",
    "mlm_ids": "<u2",
    "mlm_offsets": "<u8",
    "document_md5s": "<u1",
}
_ROW_FIELDS = ("second_segment_start", "next_sentence_label")
_COPY_BYTES = 1 << 22
_NOT_WHOLE = "not a whole shard of this project; delete it and run its stage again"


@dataclass(frozen=True)
class ShardHeader:
    """What a shard's samples were made with; all but the sources equal in a folder's shards.

    ``held_out_sha256`` is that of the list of evaluation documents; ``only_held_out`` says whether
    the samples are theirs or everybody else's.
    """

    vocabulary_sha256: str
    vocabulary_size: int
    max_seq_length: int
    max_predictions: int
    builder: str
    seed: int
    held_out_sha256: str
    only_held_out: bool
    sources: dict[str, str] = field(default_factory=dict)

    def same_kind(self, other: "ShardHeader") -> bool:
        """Whether samples of both may stand in one folder: all but seed and sources equal."""
        return replace(self, seed=other.seed, sources=other.sources) == other

    def is_trained_for(self, evaluation: "ShardHeader") -> bool:
        """Whether ``evaluation`` holds just the documents that were left out of this one."""
        trained = replace(self, only_held_out=True)
        return not self.only_held_out and trained.same_kind(evaluation)


class ShardWriter:
    """Write one shard; on an exception inside the ``with`` block nothing is left.

    After the block, ``entry`` describes the file.
    """

    entry: FileEntry

    def __init__(self, path: Path, header: ShardHeader) -> None:
        self._path = path
        self._header = header
        self._streams: dict[str, IO[bytes]] = {}
        self._sizes = dict.fromkeys(FIELDS, 0)

    def __enter__(self) -> Self:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        for name in FIELDS:
            beside = self._path.parent if is_local(self._path) else None
            self._streams[name] = tempfile.TemporaryFile(dir=beside)
        self._append("token_offsets", np.zeros(1, "<u8"))
        self._append("mlm_offsets", np.zeros(1, "<u8"))
        return self

    def _append(self, name: str, values: NDArray[Any]) -> None:
        data = np.ascontiguousarray(values, FIELDS[name])
        self._streams[name].write(data.data)
        self._sizes[name] += len(data)

    def write(self, sample: Sample) -> None:
        """Append a sample."""
        self._append("tokens", sample.tokens)
        self._append("token_offsets", np.array([self._sizes["tokens"]]))
        self._append("second_segment_start", np.array([sample.second_segment_start]))
        self._append("next_sentence_label", np.array([sample.next_sentence_label]))
        self._append("mlm_positions", sample.mlm_positions)
        self._append("mlm_ids", sample.mlm_labels)
        self._append("mlm_offsets", np.array([self._sizes["mlm_ids"]]))

    def write_block(self, block: SampleBlock) -> None:
        """Append the samples of a block."""
        self._append("token_offsets", block.token_offsets[1:] + self._sizes["tokens"])
        self._append("mlm_offsets", block.mlm_offsets[1:] + self._sizes["mlm_ids"])
        for name in FIELDS.keys() - {"token_offsets", "mlm_offsets", "document_md5s"}:
            self._append(name, getattr(block, name))

    def write_document(self, md5: str) -> None:
        """Record a document, as 32 hexadecimal digits, of which samples are made."""
        self._append("document_md5s", np.frombuffer(bytes.fromhex(md5), "<u1"))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self._finish()
        finally:
            for stream in self._streams.values():
                stream.close()

    def _finish(self) -> None:
        digest = hashlib.sha256()
        with replacing(self._path) as temporary:
            # alignment keeps the 8-byte offsets aligned in the memory map
            with h5py.File(temporary, "w", alignment_threshold=1, alignment_interval=64) as file:
                for name, kind in FIELDS.items():
                    self._copy(file, name, kind, digest)
                file.attrs["format_version"] = FORMAT_VERSION
                file.attrs["header"] = json.dumps(asdict(self._header))
                file.attrs["sha256"] = digest.hexdigest()
            size = temporary.stat().st_size
        self.entry = FileEntry(
            file=self._path.name,
            bytes=size,
            sha256=digest.hexdigest(),
            counts={
                "samples": self._sizes["next_sentence_label"],
                "tokens": self._sizes["tokens"],
                "masked_tokens": self._sizes["mlm_ids"],
            },
        )

    def _copy(self, file: h5py.File, name: str, kind: str, digest: "hashlib._Hash") -> None:
        dataset = file.create_dataset(name, (self._sizes[name],), kind)
        digest.update(f"{name} {kind} {self._sizes[name]}\n".encode())
        stream, start = self._streams[name], 0
        stream.seek(0)
        while data := stream.read(_COPY_BYTES):
            values = np.frombuffer(data, kind)
            dataset[start : start + len(values)] = values
            digest.update(data)
            start += len(values)


class Shard:
    """A memory-mapped shard.

    Raises:
        ValueError: the file is missing, cut off, no shard, or of another format version.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with fetched(path) as local:  # a fetched file is deleted, its memory map stays
                self._map(local)
        except FileNotFoundError:
            raise ValueError(f"{path}: no such file; run the stage that makes it") from None
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.EACCES, errno.EIO):
                raise ValueError(f"{path}: cannot be opened: {os.strerror(error.errno)}") from None
            raise ValueError(f"{path}: {_NOT_WHOLE}") from None
        except (KeyError, TypeError, ValueError) as error:
            if str(error).startswith(str(path)):
                raise
            raise ValueError(f"{path}: {_NOT_WHOLE}") from None
        self._check_offsets()

    def _map(self, local: Path) -> None:
        with h5py.File(local, "r") as file:
            version = file.attrs["format_version"]
            if version != FORMAT_VERSION:
                raise ValueError(
                    f"{self.path}: shard format {version}, this release reads {FORMAT_VERSION}; "
                    "prepare the data again"
                )
            self.header = ShardHeader(**json.loads(file.attrs["header"]))
            self.sha256 = str(file.attrs["sha256"])
            places = {name: _place(file[name]) for name in FIELDS}
        # one map for all fields: each map keeps a file descriptor
        content = np.memmap(local, np.uint8, "r")
        self._fields = {
            name: np.frombuffer(content, FIELDS[name], count, offset)
            for name, (offset, count) in places.items()
        }

    def _check_offsets(self) -> None:
        for name, content in (("token_offsets", "tokens"), ("mlm_offsets", "mlm_ids")):
            offsets = self._fields[name]
            ends = (0, len(self._fields[content]))
            if len(offsets) != len(self) + 1 or (offsets[0], offsets[-1]) != ends:
                raise ValueError(f"{self.path}: {name} do not fit {content}; run its stage again")

    def __len__(self) -> int:
        return len(self._fields["second_segment_start"])

    def load(self) -> None:
        """Read all of it into memory; the memory map is let go."""
        self._fields = {name: values.copy() for name, values in self._fields.items()}

    def sample(self, row: int) -> Sample:
        """The sample of a row; its arrays are views of the memory map."""
        fields = self._fields
        first, last = fields["token_offsets"][row : row + 2].tolist()
        mlm_first, mlm_last = fields["mlm_offsets"][row : row + 2].tolist()
        return Sample(
            tokens=fields["tokens"][first:last],
            second_segment_start=int(fields["second_segment_start"][row]),
            mlm_positions=fields["mlm_positions"][mlm_first:mlm_last],
            mlm_labels=fields["mlm_ids"][mlm_first:mlm_last],
            next_sentence_label=int(fields["next_sentence_label"][row]),
        )

    def block(self, first: int, last: int) -> SampleBlock:
        """The samples of rows first <= row < last; all but the offsets are views of the map."""
        rows = {name: self._fields[name][first:last] for name in _ROW_FIELDS}
        tokens = self._fields["token_offsets"][first : last + 1].astype(np.int64)
        mlm = self._fields["mlm_offsets"][first : last + 1].astype(np.int64)
        return SampleBlock(
            tokens=self._fields["tokens"][tokens[0] : tokens[-1]],
            token_offsets=tokens - tokens[0],
            mlm_positions=self._fields["mlm_positions"][mlm[0] : mlm[-1]],
            mlm_ids=self._fields["mlm_ids"][mlm[0] : mlm[-1]],
            mlm_offsets=mlm - mlm[0],
            **rows,
        )

    def lengths(self) -> UInt16Array:
        """The number of tokens of each sample, [n]."""
        return np.diff(self._fields["token_offsets"]).astype(np.uint16)

    def document_md5s(self) -> list[str]:
        """Of the documents that the samples were made of; empty for a sorted stripe."""
        content = self._fields["document_md5s"].tobytes().hex()
        return [content[start : start + 32] for start in range(0, len(content), 32)]

    def label_counts(self) -> NDArray[np.int64]:
        """How often each token id is the original of a masked position, [V]; reads them all."""
        return np.bincount(self._fields["mlm_ids"], minlength=self.header.vocabulary_size)

    def content_sha256(self) -> str:
        """The digest of the content as it lies there now; reads all of it."""
        digest = hashlib.sha256()
        for name, kind in FIELDS.items():
            values = self._fields[name]
            digest.update(f"{name} {kind} {len(values)}\n".encode())
            digest.update(np.ascontiguousarray(values).data)
        return digest.hexdigest()


def _place(dataset: h5py.Dataset) -> tuple[int, int]:
    """Offset in the file, in bytes, and number of elements."""
    kind = FIELDS[dataset.name[1:]]
    offset = dataset.id.get_offset()
    if len(dataset) == 0:  # has no place in the file
        return 0, 0
    if offset is None or dataset.ndim != 1 or dataset.dtype != kind:
        raise TypeError(f"dataset {dataset.name} is not contiguous {kind}")
    return offset, len(dataset)
