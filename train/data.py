"""From stripes to micro-batches: the plan says which samples, the memory map gives them.

What one training step of one rank reads, in order:

1. ``dataprep.order.Plan`` gives the places of the step's samples for the slots this rank serves.
2. Place i of the sorted order is row i // K of stripe i mod K.
3. Each slot's B samples are packed into A micro-batches.
4. A background thread stays a few steps ahead.
"""

import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bert.batch import Batch, Sample, pack
from bert.config import BertConfig
from dataprep.lengths import LengthHistogram
from dataprep.manifest import Manifest, read_manifest
from dataprep.order import Plan, micro_batch_of_slice
from dataprep.shards import Shard, ShardHeader
from train.distributed import World


@dataclass(frozen=True)
class DataConfig:
    """What a run trains and evaluates on, and how it is cut.

    Args:
        train: folder of the training stripes
        evaluation: folder of the evaluation stripes
        batch: B, samples per slot and step
        width: W, the number of slots, a multiple of the ranks; null: as many as ranks
        accumulation: A, the micro-batches that a slot's samples are cut into; divides the batch
        evaluation_batch: samples per micro-batch of the evaluation
        prefetch: how many steps are assembled ahead
    """

    train: str
    evaluation: str
    batch: int = 4
    width: int | None = None
    accumulation: int = 1
    evaluation_batch: int = 16
    prefetch: int = 2

    def __post_init__(self) -> None:
        for name in ("batch", "evaluation_batch", "prefetch"):
            if getattr(self, name) < 1:
                raise ValueError(f"data.{name} {getattr(self, name)} must be at least 1")
        if self.width is not None and self.width < 1:
            raise ValueError(f"data.width {self.width} must be at least 1, or null")
        micro_batch_of_slice(self.batch, self.accumulation)

    def slots(self, ranks: int) -> int:
        """W for a number of ranks.

        Raises:
            ValueError: the ranks do not divide the width.
        """
        width = self.width or ranks
        if width % ranks:
            raise ValueError(
                f"data.width {width} is not a multiple of the {ranks} ranks; choose one that is, "
                "or start another number of ranks"
            )
        return width

    def global_batch(self, ranks: int) -> int:
        """W*B, samples per step."""
        return self.slots(ranks) * self.batch


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

    def open(self) -> None:
        """Map the stripes into memory.

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
            shards.append(shard)
        self._shards = shards

    def sample(self, place: int) -> Sample:
        """The sample at a place of the sorted order."""
        row, stripe = divmod(place, len(self._shards))
        return Sample(*self._shards[stripe].sample(row))


@dataclass(frozen=True)
class StepBatches:
    """What one rank computes in one step, and where in the plan it stands.

    Attributes:
        epoch, step_in_epoch: the place in the plan, counted from 0.
        micro_batches: of all slots of the rank.
    """

    epoch: int
    step_in_epoch: int
    micro_batches: list[Batch]


class TrainingBatches:
    """The steps of a run for one rank, epoch after epoch, without end.

    Args:
        dataset: sorted stripes, open when the iteration starts.
        config: how steps are cut.
        world: this rank.
        seed: of the order, the same on all ranks.

    Raises:
        ValueError: the ranks do not divide the width, or the dataset holds less than one step.
    """

    def __init__(self, dataset: Dataset, config: DataConfig, world: World, seed: int) -> None:
        self._dataset = dataset
        self._config = config
        self._world = world
        self._seed = seed
        self._width = config.slots(world.size)
        self._slots = np.arange(world.rank, self._width, world.size)
        self._micro_batch = micro_batch_of_slice(config.batch, config.accumulation)
        self._plan(0)  # refuses a dataset of less than a step

    def _plan(self, epoch: int) -> Plan:
        return Plan(self._dataset.histogram, self._width, self._config.batch, self._seed, epoch)

    def __iter__(self) -> Iterator[StepBatches]:
        return _ahead(self._steps(), self._config.prefetch)

    def _steps(self) -> Iterator[StepBatches]:
        epoch = 0
        while True:
            plan = self._plan(epoch)
            for step in range(plan.steps):
                batches = self._micro_batches(plan, step)
                yield StepBatches(epoch, step, [batch.to(self._world.device) for batch in batches])
            epoch += 1

    def _micro_batches(self, plan: Plan, step: int) -> Iterator[Batch]:
        for places in plan.places(step, self._slots):
            for micro_batch in range(self._config.accumulation):
                chosen = places[self._micro_batch == micro_batch]
                yield pack([self._dataset.sample(place) for place in chosen.tolist()])


class EvaluationBatches:
    """A rank's part of the evaluation set; nothing is dropped.

    Rank r takes the places r, r + R, ... of the sorted order, so all ranks are equally busy; one
    may hold a sample more than another, or none.
    """

    def __init__(self, dataset: Dataset, config: DataConfig, world: World) -> None:
        self._dataset = dataset
        self._batch = config.evaluation_batch
        self._world = world

    def __iter__(self) -> Iterator[Batch]:
        places = range(self._world.rank, self._dataset.samples, self._world.size)
        for start in range(0, len(places), self._batch):
            samples = [self._dataset.sample(place) for place in places[start : start + self._batch]]
            yield pack(samples).to(self._world.device)


def synthetic_batch(model: BertConfig, samples: int) -> Batch:
    """A micro-batch of made-up tokens, for work that must not touch the training data."""
    length = min(128, model.max_position_embeddings)
    generator = np.random.default_rng(0)
    made = []
    for _ in range(samples):
        tokens = generator.integers(0, model.vocab_size, length)
        masked = np.arange(0, length, 7)
        made.append(Sample(tokens, length // 2, masked, tokens[masked], 0))
    return pack(made)


def _ahead(steps: Iterator[StepBatches], size: int) -> Iterator[StepBatches]:
    """Draw from ``steps`` in a thread, at most ``size`` ahead; its errors are raised here."""
    ready: queue.Queue[StepBatches | BaseException] = queue.Queue(size)
    stopped = threading.Event()

    def put(item: StepBatches | BaseException) -> None:
        while not stopped.is_set():
            try:
                return ready.put(item, timeout=0.1)
            except queue.Full:
                continue

    def work() -> None:
        try:
            for step in steps:
                put(step)
                if stopped.is_set():
                    return
        except BaseException as error:  # noqa: BLE001 - handed to the consumer
            put(error)

    thread = threading.Thread(target=work, name="loader", daemon=True)
    thread.start()
    try:
        while True:
            item = ready.get()
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stopped.set()
        thread.join()
