"""What passes from one stage of the loader to the next."""

from dataclasses import dataclass

from bert.batch import Batch
from dataprep.blocks import SampleBlock
from dataprep.lengths import Int64Array


@dataclass(frozen=True)
class StepSamples:
    """The samples of one step on one rank.

    Attributes:
        epoch, step_in_epoch: counted from 0.
        resume: (epoch, step) of the step that follows.
        places: [slots, C] of the sorted order, -1 for none.
        block: the samples of the places that are not -1, slot by slot.
    """

    epoch: int
    step_in_epoch: int
    resume: tuple[int, int]
    places: Int64Array
    block: SampleBlock


@dataclass(frozen=True)
class StepBatches:
    """What one rank computes in one step, and where in the order it stands.

    Attributes:
        epoch, step_in_epoch: the place in the order, counted from 0.
        micro_batches: of all slots of the rank, equally many in each step; some may be empty.
        places: [slots, C] of the sorted order that they are made of, -1 for none.
        resume: (epoch, step) to start at after this step, see ``TrainingBatches``.
    """

    epoch: int
    step_in_epoch: int
    micro_batches: list[Batch]
    places: Int64Array
    resume: tuple[int, int]
