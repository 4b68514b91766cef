"""Looking at a finished folder: what it holds, a sample in words."""

from collections.abc import Iterator
from pathlib import Path

from dataprep.blocks import Sample
from dataprep.lengths import LengthHistogram
from dataprep.manifest import Manifest, read_manifest
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


def show_sample(path: Path, place: int) -> Iterator[str]:
    """A sample in words: WordPieces joined, masks as <what stands there=what it was>.

    Args:
        path: a folder of shards or stripes, or one of its files.
        place: in the order of the folder (stripes: sorted by length), or the row of the file.

    Raises:
        ValueError: no shards there, no such place, or another vocabulary beside the shards.
    """
    shard, row = (Shard(path), place) if path.is_file() else _locate(path, place)
    if not 0 <= row < len(shard):
        raise ValueError(f"{path}: no sample {place}; it holds 0 to {len(shard) - 1}")
    vocabulary = load_vocabulary(shard.path.parent / VOCABULARY_NAME)
    if vocabulary.sha256 != shard.header.vocabulary_sha256:
        raise ValueError(
            f"{shard.path.parent / VOCABULARY_NAME}: the shards were made with another one; "
            "give back theirs"
        )
    sample = shard.sample(row)
    kind = "random" if sample.next_sentence_label else "next"
    yield (
        f"{shard.path} row {row}: {len(sample.tokens)} tokens, {len(sample.mlm_labels)} masked, "
        f"{kind} pair"
    )
    pieces = _pieces(sample, vocabulary)
    yield "A: " + _joined(pieces[: sample.second_segment_start])
    yield "B: " + _joined(pieces[sample.second_segment_start :])


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
