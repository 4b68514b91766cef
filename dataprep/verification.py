"""Whether a finished folder is right: its bytes, and for shards what they mean."""

import hashlib
import struct
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dataprep.blocks import SampleBlock
from dataprep.holdout import HoldOut, read_holdout
from dataprep.manifest import Manifest, read_manifest
from dataprep.presort import PresortConfig, picked
from dataprep.sample_rules import BlockCheck
from dataprep.shards import Shard
from dataprep.storage import file_sha256
from dataprep.tokenization import VOCABULARY_NAME, Vocabulary, load_vocabulary

_ROWS = 4096  # checked at once


def verify_folder(
    folder: Path, source: Path | None = None, holdout: Path | None = None
) -> Iterator[str]:
    """Check every byte and every sample of a stage's folder; yields a line per check.

    Args:
        folder: of any stage.
        source: for stripes, the folder of samples they were made of: each sample (of the subset
            that was taken) must be in the stripes as often as there.
        holdout: the list of evaluation documents: none of them may be trained on, or, where the
            samples are theirs, all must be. Stripes do not name their documents: needs ``source``.

    Raises:
        ValueError: the first finding, with file, row and value.
    """
    manifest = read_manifest(folder)
    yield from _verify_digests(folder, manifest)
    if manifest.stage in ("samples", "presort"):
        yield from _verify_shards(folder, manifest)
    if manifest.stage == "presort":
        yield _verify_order(folder, manifest)
        if source is not None:
            yield _verify_same_samples(folder, manifest, source)
    elif source is not None:
        raise ValueError(f"{folder}: of stage '{manifest.stage}'; a source is for stripes alone")
    if holdout is not None:
        with_documents = source or folder
        before = read_manifest(with_documents, ("samples",))
        yield _verify_holdout(with_documents, before, holdout)


def _verify_digests(folder: Path, manifest: Manifest) -> Iterator[str]:
    for entry in manifest.files:
        path = folder / entry.file
        found = Shard(path).content_sha256() if path.suffix == ".h5" else file_sha256(path)
        if found != entry.sha256:
            raise ValueError(
                f"{path}: content digest {found[:12]}, the manifest says {entry.sha256[:12]}; "
                f"delete it and run stage '{manifest.stage}' again"
            )
        yield f"{path}: as written"


# --- what each sample must be ---------------------------------------------------------------------


def _verify_shards(folder: Path, manifest: Manifest) -> Iterator[str]:
    vocabulary = load_vocabulary(folder / VOCABULARY_NAME)
    lengths: NDArray[np.int64] = np.zeros(1 << 16, np.int64)
    contents: dict[str, Path] = {}
    for entry in manifest.files:
        path = folder / entry.file
        shard = Shard(path)
        _check_header(shard, manifest, vocabulary)
        counts = {"samples": len(shard), "tokens": 0, "masked_tokens": 0}
        for first in range(0, len(shard), _ROWS):
            block = shard.block(first, min(first + _ROWS, len(shard)))
            BlockCheck(shard, vocabulary, block, first).run()
            lengths += np.bincount(block.lengths, minlength=len(lengths))
            counts["tokens"] += len(block.tokens)
            counts["masked_tokens"] += len(block.mlm_ids)
        _check_counts(path, counts, entry.counts)
        twin = contents.setdefault(entry.sha256, path)
        if twin != path and len(shard):
            raise ValueError(f"{path}: the same samples as {twin}; run its stage again")
    yield f"{folder}: every sample is well formed, no two files are alike"
    for length in np.flatnonzero(lengths).tolist() + list(manifest.lengths):
        if lengths[length] != manifest.lengths.get(length, 0):
            raise ValueError(
                f"{folder}: {lengths[length]} samples of length {length}, the manifest says "
                f"{manifest.lengths.get(length, 0)}; run stage '{manifest.stage}' again"
            )
    yield f"{folder}: {manifest.samples:,} samples, lengths as in the manifest"


def _check_header(shard: Shard, manifest: Manifest, vocabulary: Vocabulary) -> None:
    found = {k: v for k, v in asdict(shard.header).items() if k != "sources"}
    for name, value in manifest.shard_header.items():
        if found.get(name) != value:
            raise ValueError(
                f"{shard.path}: {name} {found.get(name)}, the manifest says {value}; run stage "
                f"'{manifest.stage}' again"
            )
    if (vocabulary.sha256, len(vocabulary)) != (
        shard.header.vocabulary_sha256,
        shard.header.vocabulary_size,
    ):
        raise ValueError(f"{shard.path}: made with another vocabulary than the {VOCABULARY_NAME} "
                         "beside it; run its stage again")  # fmt: skip


def _check_counts(path: Path, found: dict[str, int], wanted: dict[str, int]) -> None:
    for name, count in found.items():
        if wanted.get(name) != count:
            raise ValueError(
                f"{path}: {count} {name}, the manifest says {wanted.get(name)}; run its stage again"
            )


# --- what the stripes must be ---------------------------------------------------------------------


def _verify_order(folder: Path, manifest: Manifest) -> str:
    """Place i of the sorted order is row i // K of stripe i mod K."""
    paths = [folder / entry.file for entry in manifest.files]
    first = Shard(paths[0]).lengths()
    after = [*paths[1:], None]
    for stripe, (path, following) in enumerate(zip(paths, after, strict=True)):
        here = Shard(path).lengths()
        wanted = (manifest.samples - stripe + len(paths) - 1) // len(paths)
        if len(here) != wanted:
            raise ValueError(f"{path}: {len(here)} samples, dealt in turn it would be {wanted}")
        # after the last stripe comes the first one's next row
        there = first[1:] if following is None else Shard(following).lengths()
        size = min(len(here), len(there))
        falls = here[:size] > there[:size]
        if falls.any():
            row = int(falls.argmax())
            raise ValueError(
                f"{path} row {row}: length {here[row]}, the next place's is {there[row]}; not "
                "sorted: run stage 'presort' again"
            )
    return f"{folder}: sorted by length and dealt in turn to {len(paths)} stripes"


def _verify_same_samples(folder: Path, manifest: Manifest, source: Path) -> str:
    before = read_manifest(source, ("samples",))
    if manifest.sources != before.file_digests:
        raise ValueError(f"{folder}: made from other samples than those of {source}; run presort")
    config = PresortConfig(**manifest.settings)
    paths = [source / entry.file for entry in before.files]
    wanted = multiset_digest(
        block.take(rows) for block, rows, _ in picked(paths, config, manifest.seed)
    )
    everything = PresortConfig()
    stripes = [folder / entry.file for entry in manifest.files]
    found = multiset_digest(block for block, _, _ in picked(stripes, everything, 0))
    if found != wanted:
        raise ValueError(
            f"{folder}: its samples, digest {found:032x}, are not those of {source}, "
            f"{wanted:032x}; run stage 'presort' again"
        )
    return f"{folder}: each sample of {source} as often as there, digest {found:032x}"


def multiset_digest(blocks: Iterable[SampleBlock]) -> int:
    """The sum mod 2^128 of the samples' hashes: the same in any order, another if one is lost."""
    total = 0
    for block in blocks:
        total += sum(map(int.from_bytes, _sample_hashes(block)))
    return total % (1 << 128)


def _sample_hashes(block: SampleBlock) -> Iterator[bytes]:
    tokens, positions, ids = (
        np.ascontiguousarray(values, "<u2").data.cast("B")
        for values in (block.tokens, block.mlm_positions, block.mlm_ids)
    )
    spans = pairwise((2 * block.token_offsets).tolist())
    masks = pairwise((2 * block.mlm_offsets).tolist())
    starts, labels = block.second_segment_start.tolist(), block.next_sentence_label.tolist()
    for (a, b), (c, d), start, label in zip(spans, masks, starts, labels, strict=True):
        one = hashlib.blake2b(struct.pack("<IIIB", b - a, d - c, start, label), digest_size=16)
        one.update(tokens[a:b])
        one.update(positions[c:d])
        one.update(ids[c:d])
        yield one.digest()


# --- whose documents they are ---------------------------------------------------------------------


def _verify_holdout(folder: Path, manifest: Manifest, holdout: Path) -> str:
    documents = 0
    chosen: HoldOut = read_holdout(holdout, bool(manifest.shard_header["only_held_out"]))
    for entry in manifest.files:
        shard = Shard(folder / entry.file)
        named = shard.document_md5s()
        if len(shard) and not named:
            raise ValueError(f"{shard.path}: names no documents; run stage 'samples' again")
        for row, digest in enumerate(named):
            if not chosen.takes(digest):
                rule = "is not one of" if chosen.only_these else "must not be trained on: it is in"
                raise ValueError(f"{shard.path} document {row}: {digest} {rule} {holdout}")
        documents += len(named)
    if manifest.shard_header["held_out_sha256"] != chosen.sha256:
        raise ValueError(
            f"{folder}: made with another list of evaluation documents than {holdout}; run stage "
            "'samples' again"
        )
    share = "all" if chosen.only_these else "none"
    return f"{folder}: {documents:,} documents, {share} held out"
