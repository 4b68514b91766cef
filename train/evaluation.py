"""Accuracy over the whole evaluation set: a ratio of sums over all ranks."""

from collections.abc import Iterable

import torch

from bert.batch import Batch
from bert.loss import PretrainStats
from bert.model import BertForPreTraining
from train.distributed import World


class Evaluator:
    """Evaluates the model on this rank's part; the sums are reduced once, at the end.

    Every rank must call it, also one whose part is empty, and every rank gets the same result.
    """

    def __init__(self, model: BertForPreTraining, batches: Iterable[Batch], world: World) -> None:
        self._model = model
        self._batches = batches
        self._world = world

    def __call__(self) -> PretrainStats:
        """The statistics of the whole set."""
        total = PretrainStats.zeros(self._world.device)
        training = self._model.training
        self._model.eval()
        with torch.inference_mode():
            for batch in self._batches:
                total = total + self._model(batch)
        self._model.train(training)
        return PretrainStats.from_vector(self._world.sum(total.to_vector()))
