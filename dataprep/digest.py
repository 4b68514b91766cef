"""A digest of samples that does not depend on how they are stored.

It is the sha256 of the fixed-width records that MLPerf's reference writes, so samples made here can
be compared with recorded output of the reference.
"""

import hashlib
from collections.abc import Iterable

import numpy as np

from dataprep.blocks import Sample


def canonical_digest(
    samples: Iterable[Sample], max_seq_length: int, max_predictions: int
) -> tuple[int, str]:
    """The number of samples and the sha256, in hexadecimal, of their records in this order.

    A record is input_ids [L], input_mask [L], segment_ids [L], masked_lm_positions [P],
    masked_lm_ids [P], masked_lm_weights [P] and next_sentence_labels [1] for L = ``max_seq_length``
    and P = ``max_predictions``: little-endian int32, weights float32, padded with zeros.

    Raises:
        ValueError: a sample is longer or has more masked tokens than that.
    """
    digest = hashlib.sha256()
    count = 0
    for sample in samples:
        length, masked = len(sample.tokens), len(sample.mlm_positions)
        if length > max_seq_length or masked > max_predictions:
            raise ValueError(
                f"sample {count}: {length} tokens and {masked} masked, at most {max_seq_length} "
                f"and {max_predictions} fit a record; raise max_seq_length or max_predictions"
            )
        whole = np.zeros((3, max_seq_length), "<i4")
        whole[0, :length] = sample.tokens
        whole[1, :length] = 1
        whole[2, sample.second_segment_start : length] = 1
        predictions = np.zeros((2, max_predictions), "<i4")
        predictions[0, :masked] = sample.mlm_positions
        predictions[1, :masked] = sample.mlm_labels
        weights = np.zeros(max_predictions, "<f4")
        weights[:masked] = 1
        for part in (whole, predictions, weights, np.array(sample.next_sentence_label, "<i4")):
            digest.update(part.tobytes())
        count += 1
    return count, digest.hexdigest()
