"""Looking at a finished folder: what it holds, a sample in words."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dataprep.blocks import Sample
from dataprep.lengths import LengthHistogram
from dataprep.manifest import Manifest, read_manifest
from dataprep.order import OrderConfig, build_order
from dataprep.shards import Shard
from dataprep.tokenization import VOCABULARY_NAME, Vocabulary, load_vocabulary


def summary(manifest: Manifest) -> Iterator[str]:
    """What a stage made, a line each."""
    counts = ", ".join(f"{name} {count:,}" for name, count in sorted(manifest.counts.items()))
    yield f"{manifest.stage}: {len(manifest.files)} files, {counts}"
    if manifest.lengths:
        histogram = LengthHistogram(manifest.lengths)
        longest = int(histogram.lengths[-1])
        share = manifest.lengths[longest] / histogram.samples
        yield (
            f"  lengths: mean {histogram.mean:.1f}, longest {longest} ({share:.1%} of samples), "
            f"{histogram.tokens:,} tokens"
        )
    if manifest.most_frequent_label:
        yield (
            "  always guessing the most frequent masked token ('{token}') is right in {share:.2%}"
        ).format(**manifest.most_frequent_label)


def shard_paths(path: Path) -> list[Path]:
    """The files of a folder of samples or stripes, in their order; a file is itself."""
    if path.is_file():
        return [path]
    return [path / entry.file for entry in read_manifest(path, ("samples", "presort")).files]


def show_sample(path: Path, place: int, vocab: Path | None = None) -> Iterator[str]:
    """A sample in words: WordPieces joined, masks as <what stands there=what it was>.

    Args:
        path: a folder of shards or stripes, or one of its files.
        place: in the order of the folder (stripes: sorted by length), or the row of the file.
        vocab: the vocabulary; by default the one beside the shards.

    Raises:
        ValueError: no shards there, no such place, or another vocabulary beside the shards.
    """
    shard, row = (Shard(path), place) if path.is_file() else _locate(path, place)
    if not 0 <= row < len(shard):
        raise ValueError(f"{path}: no sample {place}; it holds 0 to {len(shard) - 1}")
    vocab = shard.path.parent / VOCABULARY_NAME if vocab is None else vocab
    vocabulary = load_vocabulary(vocab)
    if vocabulary.sha256 != shard.header.vocabulary_sha256:
        raise ValueError(f"{vocab}: the shards were made with another one; give --vocab theirs")
    sample = shard.sample(row)
    kind = "random" if sample.next_sentence_label else "next"
    yield (
        f"{shard.path} row {row}: {len(sample.tokens)} tokens, {len(sample.mlm_labels)} masked, "
        f"{kind} pair"
    )
    pieces = _pieces(sample, vocabulary)
    yield "A: " + _joined(pieces[: sample.second_segment_start])
    yield "B: " + _joined(pieces[sample.second_segment_start :])


class StepSample(NamedTuple):
    """A sample of a step: who trains on it, and where it lies.

    Attributes:
        slot: that trains on it.
        place: in the sorted order.
        file: the stripe that holds it.
        row: of the stripe.
        length: in tokens.
    """

    slot: int
    place: int
    file: Path
    row: int
    length: int


def samples_of_step(  # noqa: PLR0913 - the identity of a step of a rank
    folder: Path,
    config: OrderConfig,
    width: int,
    batch: int,
    seed: int,
    epoch: int,
    step: int,
    rank: int,
    ranks: int,
) -> list[StepSample]:
    """The samples that a rank trains on in a step of an epoch, slot by slot.

    Raises:
        ValueError: no folder of stripes, one that does not suit the order, no such step or rank,
            or a width that the ranks do not divide.
    """
    manifest = read_manifest(folder, ("presort",))
    histogram = LengthHistogram(manifest.lengths)
    order = build_order(config, histogram, width, batch, seed, epoch)
    if width % ranks:
        raise ValueError(
            f"width {width} is not a multiple of the {ranks} ranks; choose one that is"
        )
    for name, value, end in (("rank", rank, ranks), ("step", step, order.steps)):
        if not 0 <= value < end:
            raise ValueError(f"{name} {value} must lie in 0 to {end - 1}")
    slots = np.arange(rank, width, ranks)
    found = []
    for slot, places in zip(slots.tolist(), order.places(step, slots), strict=True):
        trained = places[places >= 0]
        lengths = histogram.length_at(trained).tolist()
        for place, length in zip(trained.tolist(), lengths, strict=True):
            row, stripe = divmod(place, len(manifest.files))
            file = folder / manifest.files[stripe].file
            found.append(StepSample(slot, place, file, row, length))
    return found


def _pieces(sample: Sample, vocabulary: Vocabulary) -> list[tuple[str, bool]]:
    """What to show of each token, and whether it goes on the word before it."""
    tokens = [vocabulary.tokens[i] for i in sample.tokens.tolist()]
    pieces = [(token.removeprefix("##"), token.startswith("##")) for token in tokens]
    masks = zip(sample.mlm_positions.tolist(), sample.mlm_labels.tolist(), strict=True)
    for position, label in masks:
        original = vocabulary.tokens[label]
        pieces[position] = f"<{tokens[position]}={original}>", original.startswith("##")
    return pieces


def _joined(pieces: list[tuple[str, bool]]) -> str:
    return "".join(text if goes_on else f" {text}" for text, goes_on in pieces).strip()


def _locate(folder: Path, place: int) -> tuple[Shard, int]:
    manifest = read_manifest(folder, ("samples", "presort"))
    if not 0 <= place < manifest.samples:
        raise ValueError(f"{folder}: no sample {place}; it holds 0 to {manifest.samples - 1}")
    if manifest.stage == "presort":
        row, stripe = divmod(place, len(manifest.files))
        return Shard(folder / manifest.files[stripe].file), row
    for entry in manifest.files:
        if place < entry.counts["samples"]:
            return Shard(folder / entry.file), place
        place -= entry.counts["samples"]
    raise ValueError(f"{folder}: the manifest's counts and lengths disagree; run its stage again")
