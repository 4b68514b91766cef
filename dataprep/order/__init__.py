"""Which samples make up step t: why no rank waits for another, with no byte moved.

The dataset is sorted by length once, offline, and dealt into K stripes (``presort``): place i of
the sorted order is row i // K of stripe i mod K. A run has W slots (its width; W ranks of one slot
each, or fewer ranks of several) that take B samples each per step. ``build_order`` gives the order
of an epoch; the scheme ``presorted`` is the project's own, the others are published ones to compare
with (``OrderConfig``).

Guaranteed of every scheme, for any number of samples that fills a step:

- Each sample appears at most once an epoch; ``Order.left_out`` are just those that do not appear.
- All slots take the same number of steps. With ``drop``, they also take equally many samples
  (``packed``: rows); with ``keep``, the last step is short, and slots without a sample join in it.
- The order is a function of (scheme, seed, epoch, W, B) and of the lengths alone: it is the same on
  all ranks without communication, needs no shard, and any step is found at once. The number of
  ranks and of micro-batches does not change the global batches.

Guaranteed of ``presorted`` besides, and why no rank waits:

- Row m of every slot is of one length, or of two neighbouring ones where a run of equal lengths
  ends: within a step, the slots are equally busy whatever the lengths are.
- A step takes one sample from each of B equal slices of the sorted order: steps are equal to one
  another, and each has the dataset's own length mix. Neighbouring steps are not alike.
- Within a run of equal length samples change places each epoch, so that a sample meets other
  companions, and its place does not tell its document. The left-out places are drawn uniformly, so
  they are as long as the others, and differ by epoch.
"""

from dataprep.order.build import build_order
from dataprep.order.config import OrderConfig
from dataprep.order.permutation import key_of, permute
from dataprep.order.presorted import Presorted
from dataprep.order.scheme import Order, micro_batch_of_slice

__all__ = [
    "Order",
    "OrderConfig",
    "Presorted",
    "build_order",
    "key_of",
    "micro_batch_of_slice",
    "permute",
]
