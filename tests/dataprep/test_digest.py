"""The canonical digest: sha256 of fixed-width records."""

import hashlib
import struct

import numpy as np
import pytest

from dataprep.digest import canonical_digest
from dataprep.shards import Sample


def sample(tokens: list[int], second: int, masks: dict[int, int], label: int) -> Sample:
    return Sample(
        np.array(tokens, np.uint16),
        second,
        np.array(list(masks), np.uint16),
        np.array(list(masks.values()), np.uint16),
        label,
    )


FIRST = sample([2, 40000, 3, 8, 3], 3, {1: 7, 3: 8}, 1)
SECOND = sample([2, 5, 3, 6, 9, 11, 3], 3, {}, 0)


def test_records_are_what_the_reference_writes() -> None:
    records = struct.pack(
        "<21i", *[2, 40000, 3, 8, 3, 0, 0], *[1] * 5, 0, 0, *[0, 0, 0, 1, 1, 0, 0]
    )
    records += struct.pack("<6i3fi", *[1, 3, 0], *[7, 8, 0], *[1, 1, 0], 1)
    records += struct.pack("<21i", *[2, 5, 3, 6, 9, 11, 3], *[1] * 7, *[0, 0, 0, 1, 1, 1, 1])
    records += struct.pack("<6i3fi", *[0] * 6, *[0, 0, 0], 0)
    expected = (2, hashlib.sha256(records).hexdigest())
    assert canonical_digest(iter([FIRST, SECOND]), 7, 3) == expected
    assert canonical_digest([SECOND, FIRST], 7, 3) != expected


def test_no_samples_have_a_digest() -> None:
    assert canonical_digest([], 7, 3) == (0, hashlib.sha256().hexdigest())


@pytest.mark.parametrize(("length", "masks"), [(6, 3), (7, 1)])
def test_what_does_not_fit_is_refused(length: int, masks: int) -> None:
    with pytest.raises(ValueError, match=r"sample \d: \d tokens and \d masked, at most") as error:
        canonical_digest([FIRST, SECOND], length, masks)
    assert "\n" not in str(error.value)
