"""Looking at a finished folder: what it holds, a sample in words, whether its bytes are right."""

from collections.abc import Iterator
from pathlib import Path

from dataprep.lengths import LengthHistogram
from dataprep.manifest import Manifest, read_manifest
from dataprep.shards import Shard
from dataprep.storage import file_sha256
from dataprep.tokenization import VOCABULARY_NAME, load_vocabulary


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


def show_sample(folder: Path, place: int) -> Iterator[str]:
    """A sample in words, by its place in the order of the folder (stripes: sorted by length).

    Args:
        folder: of shards or stripes.
        place: 0 <= place < samples.

    Raises:
        ValueError: no folder of shards, no such place, or another vocabulary beside the shards.
    """
    manifest = read_manifest(folder, ("samples", "presort"))
    if not 0 <= place < manifest.samples:
        raise ValueError(f"{folder}: no sample {place}; it holds 0 to {manifest.samples - 1}")
    vocabulary = load_vocabulary(folder / VOCABULARY_NAME)
    if vocabulary.sha256 != manifest.shard_header["vocabulary_sha256"]:
        raise ValueError(f"{folder / VOCABULARY_NAME}: the shards were made with another one")
    path, row = _locate(folder, manifest, place)
    sample = Shard(path).sample(row)
    words = [vocabulary.tokens[i] for i in sample.tokens.tolist()]
    for position, label in zip(
        sample.mlm_positions.tolist(), sample.mlm_labels.tolist(), strict=True
    ):
        words[position] = f"<{words[position]}={vocabulary.tokens[label]}>"
    kind = "random" if sample.next_sentence_label else "next"
    yield f"{path} row {row}: {len(words)} tokens, {len(sample.mlm_labels)} masked, {kind} pair"
    yield "A: " + " ".join(words[: sample.second_segment_start])
    yield "B: " + " ".join(words[sample.second_segment_start :])


def _locate(folder: Path, manifest: Manifest, place: int) -> tuple[Path, int]:
    if manifest.stage == "presort":
        row, stripe = divmod(place, len(manifest.files))
        return folder / manifest.files[stripe].file, row
    for entry in manifest.files:
        if place < entry.counts["samples"]:
            return folder / entry.file, place
        place -= entry.counts["samples"]
    raise AssertionError("the manifest's counts and lengths disagree")


def verify_folder(folder: Path) -> Iterator[str]:
    """Read every byte and compare it with the manifest; yields a line per file.

    Raises:
        ValueError: the first file whose content is not what was written.
    """
    manifest = read_manifest(folder)
    for entry in manifest.files:
        path = folder / entry.file
        found = Shard(path).content_sha256() if path.suffix == ".h5" else file_sha256(path)
        if found != entry.sha256:
            raise ValueError(
                f"{path}: content digest {found[:12]}, the manifest says {entry.sha256[:12]}; "
                f"delete it and run stage '{manifest.stage}' again"
            )
        yield f"{path}: as written"
