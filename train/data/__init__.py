"""From stripes to micro-batches: the order says which samples, the memory map gives them.

What one rank does for one training step:

1. ``dataprep.order`` gives the places of the sorted order for the slots this rank serves.
2. ``dataset``: place i is row i // K of stripe i mod K; the step's samples become one block.
3. Where the scheme exchanges samples, ``train.exchange`` moves them between ranks.
4. ``batches``: each slot's samples are packed into A micro-batches; ``train.dali`` does the same
   through DALI.
5. ``prefetch``: a background thread stays a few steps ahead.
"""

from train.data.batches import EvaluationBatches, TrainingBatches, synthetic_batch
from train.data.config import DataConfig
from train.data.dataset import Dataset
from train.data.steps import StepBatches

__all__ = [
    "DataConfig",
    "Dataset",
    "EvaluationBatches",
    "StepBatches",
    "TrainingBatches",
    "synthetic_batch",
]
