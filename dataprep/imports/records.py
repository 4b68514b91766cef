"""What the foreign formats have in common: a record's fields, and its way to a sample and back.

Field names are those of BERT's ``create_pretraining_data.py``, which all the formats use.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dataprep.blocks import Sample
from dataprep.tokenization import Vocabulary

IntArray = NDArray[np.int64]


class Record(NamedTuple):
    """A record of S tokens and P masked positions, with padding or without.

    Attributes:
        input_ids: [S] token ids, masks applied.
        input_mask: [S] 1 for tokens, 0 for padding; None where nothing is padded.
        segment_ids: [S] 0 for the first segment, 1 for the second.
        masked_lm_positions: [P] places in input_ids.
        masked_lm_ids: [P] the original token ids there.
        masked_lm_weights: [P] 1 for masked positions, 0 for padding; None where the format has no
            weights: padding is then what follows the first position 0, or nothing.
        next_sentence_labels: [1] 0: the second segment follows the first; 1: it is random.
    """

    input_ids: IntArray
    input_mask: IntArray | None
    segment_ids: IntArray
    masked_lm_positions: IntArray
    masked_lm_ids: IntArray
    masked_lm_weights: NDArray[np.float64] | None
    next_sentence_labels: IntArray


class Widths(NamedTuple):
    """The padded sizes of records: tokens, and masked positions."""

    max_seq_length: int
    max_predictions: int


class RecordConverter:
    """Makes samples of records, and refuses what a sample cannot hold exactly.

    Args:
        vocabulary: that the records were made with.
        widths: the most tokens and masked positions of a sample.
    """

    def __init__(self, vocabulary: Vocabulary, widths: Widths) -> None:
        self._vocabulary_size = len(vocabulary)
        self._cls, self._sep = vocabulary.id("[CLS]"), vocabulary.id("[SEP]")
        self._widths = widths

    def sample(self, record: Record) -> Sample:
        """The sample of a record.

        Raises:
            ValueError: field and value that are wrong, without the file and the record's number.
        """
        size = _unpadded(record.input_ids, record.input_mask, "input_mask")
        masked = _masked(record)
        for found, name in zip((size, masked), Widths._fields, strict=True):
            limit = getattr(self._widths, name)
            if found > limit:
                raise ValueError(f"{found} values, more than {name} {limit}; raise {name}")
        tokens = record.input_ids[:size]
        labels = record.masked_lm_ids[:masked]
        for name, ids in (("input_ids", tokens), ("masked_lm_ids", labels)):
            _check_range(name, ids, self._vocabulary_size, "tokens of the vocabulary")
        if size < 2 or tokens[0] != self._cls or tokens[-1] != self._sep:
            raise ValueError(
                f"input_ids: {tokens[:1]} ... {tokens[-1:]}, not [CLS] {self._cls} first and [SEP] "
                f"{self._sep} last; give the vocabulary that the records were made with"
            )
        _check_zero("input_ids", record.input_ids[size:])
        _check_zero("masked_lm_ids", record.masked_lm_ids[masked:])
        _check_zero("masked_lm_positions", record.masked_lm_positions[masked:])
        return Sample(
            tokens=tokens.astype(np.uint16),
            second_segment_start=_second_segment_start(record, size),
            mlm_positions=_positions(record.masked_lm_positions[:masked], size),
            mlm_labels=labels.astype(np.uint16),
            next_sentence_label=_label(record.next_sentence_labels),
        )


def _masked(record: Record) -> int:
    """The number of masked positions of a record."""
    positions, weights = record.masked_lm_positions, record.masked_lm_weights
    if len(positions) != len(record.masked_lm_ids):
        raise ValueError(
            f"masked_lm_positions: {len(positions)} for {len(record.masked_lm_ids)} masked_lm_ids; "
            "there must be as many"
        )
    if weights is not None:
        return _unpadded(positions, weights, "masked_lm_weights")
    if record.input_mask is None:  # no padding
        return len(positions)
    return _unpadded(positions, (positions != 0).astype(np.int64), "masked_lm_positions != 0")


def _unpadded(values: IntArray, mask: IntArray | NDArray[np.float64] | None, name: str) -> int:
    """How many values come before the padding; the mask must be ones, then zeros."""
    if mask is None:
        return len(values)
    if len(mask) != len(values):
        raise ValueError(f"{name}: {len(mask)} values for {len(values)}; there must be as many")
    size = int(np.count_nonzero(mask))
    if not (mask[:size] == 1).all():
        place = int(np.flatnonzero(mask[:size] != 1)[0])
        raise ValueError(f"{name}: {mask[place]} at {place}; it must be ones, then zeros only")
    return size


def _second_segment_start(record: Record, size: int) -> int:
    segment_ids = record.segment_ids
    if len(segment_ids) != len(record.input_ids):
        raise ValueError(
            f"segment_ids: {len(segment_ids)} for {len(record.input_ids)} input_ids; there must be "
            "as many"
        )
    start = size - int(np.count_nonzero(segment_ids[:size]))
    wrong = segment_ids[:size] != (np.arange(size) >= max(start, 1))
    if wrong.any():
        place = int(np.flatnonzero(wrong)[0])
        raise ValueError(
            f"segment_ids: {segment_ids[place]} at {place}; they must be zeros, then ones up to "
            "the last token"
        )
    _check_zero("segment_ids", segment_ids[size:])
    return start


def _positions(positions: IntArray, size: int) -> NDArray[np.uint16]:
    _check_range("masked_lm_positions", positions, size, "tokens of the record")
    steps = np.diff(positions)
    if not (steps > 0).all():
        place = int(np.flatnonzero(steps <= 0)[0])
        raise ValueError(
            f"masked_lm_positions: {positions[place + 1]} after {positions[place]}; they must "
            "ascend, each once"
        )
    return positions.astype(np.uint16)


def _label(labels: IntArray) -> int:
    if labels.shape != (1,) or labels[0] not in (0, 1):
        raise ValueError(f"next_sentence_labels: {labels}; it must be one 0 or 1")
    return int(labels[0])


def _check_range(name: str, values: IntArray, limit: int, what: str) -> None:
    outside = (values < 0) | (values >= limit)
    if outside.any():
        place = int(np.flatnonzero(outside)[0])
        raise ValueError(f"{name}: {values[place]} at {place} lies outside the {limit} {what}")


def _check_zero(name: str, padding: IntArray) -> None:
    if padding.any():
        place = int(np.flatnonzero(padding)[0])
        raise ValueError(f"{name}: {padding[place]} at {place} of the padding, which must be zeros")
