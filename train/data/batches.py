"""The steps of a run for one rank, and its part of the evaluation set."""

import hashlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice, product
from typing import Any, TypeVar

import numpy as np
import torch

from bert.batch import Batch, FlatSamples, Sample, pack, pack_flat
from bert.config import BertConfig
from dataprep.blocks import SampleBlock
from dataprep.lengths import Int64Array
from dataprep.order import Order, build_order, key_of
from dataprep.order.budget import Budget, mask_rule, token_budget
from train.dali import assemble_with_dali
from train.data.config import DataConfig
from train.data.dataset import Dataset
from train.data.device import DeviceCopy
from train.data.prefetch import Prefetched
from train.data.steps import StepBatches, StepSamples
from train.distributed import World
from train.exchange import Arrival, Exchange, Parcel

T = TypeVar("T")


class TrainingBatches:
    """The steps of a run for one rank, epoch after epoch, without end.

    Args:
        dataset: sorted stripes, open when the iteration starts.
        config: how steps are cut.
        world: this rank.
        seed: of the order, the same on all ranks.
        start: (epoch, step) of the first step; any is found at once.
        exchange: what moves samples between ranks; None: each rank reads what it trains on.
        static: fill every micro-batch up to this budget; None: no filler.

    Attributes:
        width: W, the number of slots of all ranks.

    Raises:
        ValueError: the ranks do not divide the width, the accumulation does not fit, the dataset
            holds less than one step, or ``start`` lies after the last step of its epoch.
    """

    def __init__(
        self,
        dataset: Dataset,
        config: DataConfig,
        world: World,
        seed: int,
        start: tuple[int, int] = (0, 0),
        exchange: Exchange | None = None,
        static: Budget | None = None,
    ) -> None:
        self._static = static
        self._dataset = dataset
        self._config = config
        self._world = world
        self._seed = seed
        self._start = start
        self._exchange = exchange
        self.width = config.slots(world.size)
        self._slots = np.arange(world.rank, self.width, world.size)
        first = self.order(start[0])
        self._micro_batch = first.micro_batch_of_column(config.accumulation)
        if not 0 <= start[1] < first.steps:
            raise ValueError(
                f"step {start[1]} of epoch {start[0]}, which has {first.steps} steps; start at one "
                "of them, with the data, width and batch of the run that goes on"
            )
        self._running: list[Prefetched[Any]] = []

    def order(self, epoch: int) -> Order:
        """Which samples make up the steps of an epoch."""
        return build_order(
            self._config.order,
            self._dataset.histogram,
            self.width,
            self._config.batch,
            self._seed,
            epoch,
        )

    @property
    def most_samples(self) -> int:
        """The most samples of a step over all ranks."""
        return self.width * len(self._micro_batch)

    def budget(self, samples: int = 1) -> Budget:
        """The most that a micro-batch holds on any rank, from the lengths.

        Args:
            samples: of the run; all epochs that it comes to are looked at.

        Raises:
            ValueError: ``data.token_budget`` is a number, and less than that.
        """
        rule = mask_rule(self._dataset.manifest)
        found: Budget | None = None
        epoch = left = 0
        while found is None or left < samples:
            order = self.order(epoch)
            one = token_budget(order, self._config.accumulation, rule)
            found = one if found is None else found.union(one)
            # no more than it trains on: a short step holds less, packed rows several
            full = order.steps * self.width * self._config.batch
            left += min(full, self._dataset.samples)
            epoch += 1
        given = self._config.token_budget
        if isinstance(given, int):
            if given < found.tokens:
                raise ValueError(
                    f"data.token_budget {given} is less than the {found.tokens} tokens of the "
                    "largest micro-batch; raise it, or set it to auto"
                )
            found = found.of_tokens(given)
        return found

    def describe(self, epoch: int) -> dict[str, Any]:
        """Of an epoch: its steps, how many samples sit it out, and the digest of their places."""
        order = self.order(epoch)
        places = order.left_out.astype("<i8")
        return {
            "steps": order.steps,
            "left_out": len(places),
            "left_out_sha256": hashlib.sha256(places.tobytes()).hexdigest(),
        }

    def __iter__(self) -> Iterator[StepBatches]:
        copy = DeviceCopy(self._world.device)
        if self._exchange is None:
            steps = self._ahead(map(copy.send, self._assembled(self._samples())))
        else:
            steps = map(copy.send, self._assembled(self._exchanged(self._exchange)))
        return map(copy.receive, steps)

    def close(self) -> None:
        """Wait for the threads of iterations that have ended, or end now."""
        for thread in self._running:
            thread.join()
        self._running = []

    def _ahead(self, items: Iterator[T]) -> Iterator[T]:
        thread = Prefetched(items, self._config.prefetch)
        self._running.append(thread)
        try:
            yield from thread
        finally:
            thread.stop()

    def _positions(self) -> Iterator[tuple[Order, int, int, tuple[int, int]]]:
        """Of each step from the first on: order, epoch, step in it, and where the next stands."""
        epoch, first = self._start
        while True:
            order = self.order(epoch)
            for step in range(first, order.steps):
                following = (epoch, step + 1) if step + 1 < order.steps else (epoch + 1, 0)
                yield order, epoch, step, following
            epoch, first = epoch + 1, 0

    def _samples(self) -> Iterator[StepSamples]:
        for order, epoch, step, following in self._positions():
            places = order.places(step, self._slots)
            block = self._dataset.block(places[places >= 0])
            yield StepSamples(epoch, step, following, places, block)

    def _exchanged(self, exchange: Exchange) -> Iterator[StepSamples]:
        """The same, through the ranks that read them.

        The loader's thread reads and packs up. Collectives are started by the thread that takes
        the steps: there all ranks take equally many, while the loader of one rank may be stopped
        a step before that of another. A step's exchange starts before the one before it is
        trained on.
        """
        waiting: tuple[StepSamples, Arrival] | None = None
        for step, parcel in self._ahead(self._parcels(exchange)):
            arrival = exchange.start(parcel)
            if waiting is not None:
                yield replace(waiting[0], block=waiting[1].block())
            waiting = step, arrival

    def _parcels(self, exchange: Exchange) -> Iterator[tuple[StepSamples, Parcel]]:
        """What this rank has read, packed up, and the step without its samples."""
        for order, epoch, step, following in self._positions():
            reads = order.reads(step, exchange.slots)[exchange.own]
            block = self._dataset.block(reads[reads >= 0])
            parcel = exchange.pack(order, step, block)
            yield StepSamples(epoch, step, following, parcel.places, SampleBlock.empty()), parcel

    def _assembled(self, steps: Iterator[StepSamples]) -> Iterator[StepBatches]:
        assemble = ASSEMBLIES[self._config.loader]
        per_step = len(self._slots) * self._config.accumulation
        taken: deque[StepSamples] = deque()  # an assembly may be some micro-batches ahead

        def micro_batches() -> Iterator[FlatSamples]:
            for step in steps:
                taken.append(step)
                yield from self._micro_batches(step)

        batches = assemble(micro_batches(), self._world.device)
        static = self._static
        if static is not None:
            batches = (batch.filled(static.tokens, static.masked_tokens) for batch in batches)
        while micro := list(islice(batches, per_step)):
            step = taken.popleft()
            yield StepBatches(
                epoch=step.epoch,
                step_in_epoch=step.step_in_epoch,
                micro_batches=self._with_dropout_seeds(step, micro),
                places=step.places,
                resume=step.resume,
            )

    def _with_dropout_seeds(self, step: StepSamples, micro: list[Batch]) -> list[Batch]:
        """Dropout by (seed, step, slot): the same after a resume, and on any number of ranks."""
        cuts = product(self._slots.tolist(), range(self._config.accumulation))
        return [
            replace(batch, dropout_seed=key_of(self._seed, step.epoch, f"dropout {name}"))
            for batch, name in zip(
                micro, (f"{step.step_in_epoch} {slot} {cut}" for slot, cut in cuts), strict=True
            )
        ]

    def _micro_batches(self, step: StepSamples) -> Iterator[FlatSamples]:
        """The samples of each micro-batch of each slot, shortest first."""
        there = step.places >= 0
        row_SC = np.cumsum(there).reshape(there.shape) - 1
        for rows_C, there_C in zip(row_SC, there, strict=True):
            for micro_batch in range(self._config.accumulation):
                yield flat(step.block, rows_C[there_C & (self._micro_batch == micro_batch)])


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
        places = np.arange(self._world.rank, self._dataset.samples, self._world.size)
        for start in range(0, len(places), self._batch):
            block = self._dataset.block(places[start : start + self._batch])
            yield pack_flat(flat(block, np.arange(len(block)))).to(self._world.device)


def flat(block: SampleBlock, rows: Int64Array) -> FlatSamples:
    """These rows of a block, shortest first; rows of one length stay in their order."""
    chosen = block.take(rows[np.argsort(block.lengths[rows], kind="stable")])
    return FlatSamples(
        tokens=chosen.tokens,
        lengths=chosen.lengths,
        second_segment_start=chosen.second_segment_start,
        mlm_positions=chosen.mlm_positions,
        masks=chosen.masks,
        mlm_labels=chosen.mlm_ids,
        next_sentence_labels=chosen.next_sentence_label,
    )


def assemble_natively(
    micro_batches: Iterator[FlatSamples], device: torch.device
) -> Iterator[Batch]:
    """Each micro-batch on the CPU; it is copied to the device later."""
    return map(pack_flat, micro_batches)


ASSEMBLIES: dict[str, Callable[[Iterator[FlatSamples], torch.device], Iterator[Batch]]] = {
    "native": assemble_natively,
    "dali": assemble_with_dali,
}


def synthetic_batch(model: BertConfig, tokens: int, longest: int) -> Batch:
    """A micro-batch of made-up tokens, for work that must not touch the training data.

    Args:
        model: what it must fit.
        tokens: T, at least 1.
        longest: the longest sample in tokens; all samples but one are as long.
    """
    length = min(longest, model.max_position_embeddings)
    generator = np.random.default_rng(0)
    made = []
    for start in range(0, tokens, length):
        ids = generator.integers(0, model.vocab_size, min(length, tokens - start))
        masked = np.arange(0, len(ids), 6)
        made.append(Sample(ids, len(ids) // 2, masked, ids[masked], 0))
    return replace(pack(made), dropout_seed=0)
