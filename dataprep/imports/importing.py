"""Foreign records into shards: a shard a source, nothing converted with loss."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dataprep.imports.hdf5 import hdf5_widths, is_hdf5, read_hdf5
from dataprep.imports.records import Record, RecordConverter, Widths
from dataprep.imports.tfrecord import is_tfrecord, read_tfrecord, tfrecord_widths
from dataprep.manifest import FileEntry
from dataprep.shards import ShardHeader, ShardWriter
from dataprep.storage import file_sha256
from dataprep.tokenization import Vocabulary

_MLPERF = Widths(max_seq_length=512, max_predictions=76)
_MAX_WIDTH = 65535  # positions are stored as u2
UNKNOWN_DOCUMENTS = ""  # the held_out_sha256 of shards whose documents nobody recorded


@dataclass(frozen=True)
class ImportConfig:
    """How records are imported.

    Args:
        format: one of `IMPORT_FORMATS`; auto goes by each file's first bytes.
        max_seq_length: the longest sample in tokens; null for the width of the data, which records
            of variable length don't have (MLPerf's: 512).
        max_predictions: the most masked tokens of a sample; null likewise (MLPerf's: 76).
        only_held_out: the records are an evaluation set. Which documents they were made of is not
            recorded in them, so that nothing can check it against a training set's.
    """

    format: str = "auto"
    max_seq_length: int | None = None
    max_predictions: int | None = None
    only_held_out: bool = False


def import_records(
    sources: Sequence[Path], folder: Path, vocabulary: Vocabulary, config: ImportConfig
) -> list[FileEntry]:
    """Import files, in their order, as ``part-00000.h5`` and so on.

    Returns:
        An entry a shard; counts: ``samples``, ``tokens``, ``masked_tokens``, ``unknown_tokens``.

    Raises:
        ValueError: as `import_widths` and `import_file`.
    """
    widths = import_widths(sources, config)
    return [
        import_file(source, folder / f"part-{number:05d}.h5", vocabulary, widths, config)
        for number, source in enumerate(sources)
    ]


def import_widths(sources: Sequence[Path], config: ImportConfig) -> Widths:
    """The longest sample and the most masked tokens of all sources, as their shards record them.

    Raises:
        ValueError: no source, one of no known format, sources of several widths or of other ones
            than configured, no width in the data and none configured.
    """
    if not sources:
        raise ValueError("sources: none given; name at least one file of records")
    found: dict[Widths, Path] = {}
    for source in sources:
        widths = _reader(source, config.format).widths(source)
        if widths:
            found.setdefault(widths, source)
    if len(found) > 1:
        (first, path), (other, other_path) = list(found.items())[:2]
        raise ValueError(
            f"{other_path}: records of {tuple(other)} tokens and masked tokens, but {tuple(first)} "
            f"in {path}; import them into folders of their own"
        )
    own, source = next(iter(found.items()), (None, sources[0]))
    return Widths(
        *(
            _width(source, name, getattr(config, name), getattr(own, name, None), usual)
            for name, usual in zip(Widths._fields, _MLPERF, strict=True)
        )
    )


def _width(source: Path, name: str, wanted: int | None, there: int | None, usual: int) -> int:
    """One of the widths, by what is configured and what the data says."""
    if there is None and wanted is None:
        raise ValueError(
            f"{source}: records of variable length don't tell {name}; give it (MLPerf's is {usual})"
        )
    if there is not None and wanted not in (None, there):
        raise ValueError(f"{source}: {name} is {there} in the data, not {wanted}; leave it out")
    width = there if wanted is None else wanted
    if width is None or not 1 <= width <= _MAX_WIDTH:
        raise ValueError(f"{source}: {name} {width} must lie between 1 and {_MAX_WIDTH}")
    return width


def import_file(
    source: Path, target: Path, vocabulary: Vocabulary, widths: Widths, config: ImportConfig
) -> FileEntry:
    """Import one file as one shard; each of a folder's may be a job of its own.

    Args:
        source: a TFRecord file, or HDF5 of fixed or variable length.
        target: the shard; left alone on an error.
        vocabulary: that the records were made with.
        widths: by `import_widths`, equal for all shards of a folder.
        config: as of `import_widths`.

    Raises:
        ValueError: the file is damaged or of no known format, or holds no record, or one that a
            sample cannot hold exactly (file, record from 0, field and value).
    """
    reader = _reader(source, config.format)
    converter = RecordConverter(vocabulary, widths)
    header = ShardHeader(
        vocabulary_sha256=vocabulary.sha256,
        vocabulary_size=len(vocabulary),
        max_seq_length=widths.max_seq_length,
        max_predictions=widths.max_predictions,
        builder="imported",
        seed=0,
        held_out_sha256=UNKNOWN_DOCUMENTS,
        only_held_out=config.only_held_out,
        sources={source.name: file_sha256(source)},
    )
    unknown, unknown_tokens, records = vocabulary.id("[UNK]"), 0, 0
    with ShardWriter(target, header) as writer:
        for record in reader.read(source):
            try:
                sample = converter.sample(record)
            except ValueError as error:
                raise ValueError(f"{source}: record {records}: {error}") from None
            writer.write(sample)
            unknown_tokens += int((sample.tokens == unknown).sum())
            records += 1
        if not records:
            raise ValueError(f"{source}: no record; leave the file out")
    return replace(writer.entry, counts={**writer.entry.counts, "unknown_tokens": unknown_tokens})


@dataclass(frozen=True)
class _Reader:
    recognises: Callable[[Path], bool]
    widths: Callable[[Path], Widths | None]
    read: Callable[[Path], Iterator[Record]]


_READERS = {
    "tfrecord": _Reader(is_tfrecord, tfrecord_widths, read_tfrecord),
    "hdf5": _Reader(is_hdf5, hdf5_widths, read_hdf5),
}
IMPORT_FORMATS = ("auto", *_READERS)


def _reader(path: Path, format: str) -> _Reader:
    if format not in IMPORT_FORMATS:
        raise ValueError(f"import format '{format}': give one of {', '.join(IMPORT_FORMATS)}")
    try:
        if format != "auto":
            path.open("rb").close()
            return _READERS[format]
        for reader in _READERS.values():
            if reader.recognises(path):
                return reader
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}; check the path") from None
    raise ValueError(
        f"{path}: no TFRecord and no HDF5 file by its first bytes; give BERT's records"
    )
