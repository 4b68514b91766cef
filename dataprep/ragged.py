"""Many short ranges as one flat array."""

import numpy as np
from numpy.typing import NDArray

Int64Array = NDArray[np.int64]


def offsets_of(lengths: Int64Array) -> Int64Array:
    """Where each range starts in the flat array, and the end of the last, [n + 1]."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def ragged_range(starts: Int64Array, lengths: Int64Array) -> Int64Array:
    """starts[i], starts[i] + 1, ... lengths[i] of them, for all i one after the other."""
    offsets = offsets_of(lengths)
    return np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
