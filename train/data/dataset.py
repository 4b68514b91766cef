"""A folder of stripes, and the samples at places of its sorted order."""

from pathlib import Path

from dataprep.blocks import Sample, SampleBlock
from dataprep.lengths import Int64Array, LengthHistogram
from dataprep.manifest import Manifest, read_manifest
from dataprep.shards import Shard, ShardHeader

_MIB = 1 << 20


class Dataset:
    """A folder of stripes. Only the manifest is read and files are stat'ed until ``open``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest: Manifest = read_manifest(folder, ("presort",))
        self.header = ShardHeader(**self.manifest.shard_header)
        self.histogram = LengthHistogram(self.manifest.lengths)
        self._shards: list[Shard] = []

    @property
    def samples(self) -> int:
        """The number of samples."""
        return self.manifest.samples

    def check_model(self, vocab_size: int, longest: int) -> None:
        """Compare with what the model can take.

        Raises:
            ValueError: more token ids or longer samples than the model has embeddings for.
        """
        if self.header.vocabulary_size > vocab_size:
            raise ValueError(
                f"{self.folder}: made with a vocabulary of {self.header.vocabulary_size} tokens, "
                f"model.vocab_size is {vocab_size}; prepare the data with the model's vocabulary"
            )
        if int(self.histogram.lengths[-1]) > longest:
            raise ValueError(
                f"{self.folder}: samples of up to {self.histogram.lengths[-1]} tokens, "
                f"model.max_position_embeddings is {longest}; prepare shorter samples"
            )

    def check_preload(self, limit_mb: int) -> None:
        """Compare what ``open(preload=True)`` would take, from the manifest, with a bound in MiB.

        Raises:
            ValueError: it takes more.
        """
        size = sum(entry.bytes for entry in self.manifest.files) / _MIB
        if size > limit_mb:
            raise ValueError(
                f"{self.folder}: {size:.0f} MiB of stripes, data.preload_limit_mb is {limit_mb}; "
                "raise it if each rank has so much memory, or set data.preload false"
            )

    def open(self, preload: bool = False) -> None:
        """Map the stripes into memory, or read them whole.

        A rank needs all stripes, whatever its slots: each epoch samples of one length change
        places.

        Raises:
            ValueError: a stripe is not what the manifest says.
        """
        shards = []
        for entry in self.manifest.files:
            shard = Shard(self.folder / entry.file)
            if not shard.header.same_kind(self.header):
                raise ValueError(
                    f"{shard.path}: made with another vocabulary or other lengths than the "
                    "manifest says; prepare the folder again"
                )
            if shard.sha256 != entry.sha256 or len(shard) != entry.counts["samples"]:
                raise ValueError(
                    f"{shard.path}: not the stripe that the manifest names (digest or number of "
                    "samples differ); prepare the folder again"
                )
            if preload:
                shard.load()
            shards.append(shard)
        self._shards = shards

    def sample(self, place: int) -> Sample:
        """The sample at a place of the sorted order."""
        row, stripe = divmod(place, len(self._shards))
        return self._shards[stripe].sample(row)

    def block(self, places: Int64Array) -> SampleBlock:
        """Copies of the samples at [n] places of the sorted order, in this order."""
        if len(places) == 0:
            return SampleBlock.empty()
        return SampleBlock.of([self.sample(place) for place in places.tolist()])
