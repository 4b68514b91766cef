import dataclasses

import numpy as np
import pytest
import torch

from bert.batch import Sample, pack

HOST_FIELDS = ("lengths", "filler_tokens", "filler_masks", "dropout_seed")


def sample(tokens, second=1, positions=(), labels=(), label=0):
    arrays = (np.array(values, dtype=np.uint16) for values in (tokens, positions, labels))
    tokens, positions, labels = arrays
    return Sample(tokens, second, positions, labels, label)


def test_pack_spelled_out():
    packed = pack(
        [
            sample([10, 11, 12], second=2, positions=[2, 0], labels=[70, 71], label=1),
            sample([20, 21], second=1, positions=[1], labels=[72]),
            sample([30, 31], second=2, label=1),
        ]
    )
    assert packed.tokens_T.tolist() == [20, 21, 30, 31, 10, 11, 12]
    assert packed.positions_T.tolist() == [0, 1, 0, 1, 0, 1, 2]
    assert packed.segments_T.tolist() == [0, 1, 0, 0, 0, 0, 1]
    assert packed.cu_seqlens.tolist() == [0, 2, 4, 7]
    assert packed.mlm_positions_M.tolist() == [1, 6, 4]
    assert packed.mlm_labels_M.tolist() == [72, 70, 71]
    assert packed.nsp_labels_B.tolist() == [0, 1, 1]
    assert packed.lengths == (2, 2, 3)
    assert (packed.samples, packed.tokens) == (3, 7)
    assert packed.counts.tolist() == [3.0, 3.0]
    assert packed.counts.dtype == torch.float64


def test_pack_agrees_with_the_samples(samples):
    given = samples()
    packed = pack(given)
    ordered = sorted(given, key=lambda one: len(one.tokens))
    for row, one in enumerate(ordered):
        start, end = packed.cu_seqlens[row : row + 2].tolist()
        assert packed.tokens_T[start:end].tolist() == one.tokens.tolist()
        inside = (packed.mlm_positions_M >= start) & (packed.mlm_positions_M < end)
        assert (packed.mlm_positions_M[inside] - start).tolist() == one.mlm_positions.tolist()
        assert packed.mlm_labels_M[inside].tolist() == one.mlm_labels.tolist()
        assert packed.segments_T[start:end].sum() == end - start - one.second_segment_start


def test_dtypes(batch):
    packed = batch()
    for field in dataclasses.fields(packed):
        if field.name not in HOST_FIELDS:
            wanted = torch.int32 if field.name == "cu_seqlens" else torch.int64
            assert getattr(packed, field.name).dtype == wanted, field.name


def test_ids_above_the_signed_range_survive():
    assert pack([sample([65535, 40000], positions=[1], labels=[65535])]).tokens_T.tolist() == [
        65535,
        40000,
    ]


def test_to_moves_every_tensor(batch):
    packed = batch()
    moved = packed.to("meta", non_blocking=True)
    assert moved.lengths == packed.lengths
    assert moved.counts.tolist() == packed.counts.tolist()
    for field in dataclasses.fields(packed):
        if field.name not in HOST_FIELDS:
            assert getattr(moved, field.name).device.type == "meta", field.name


@pytest.mark.skipif(not torch.cuda.is_available(), reason="page-locked memory needs a GPU")
def test_pin_memory(batch):
    packed = batch().pin_memory()
    assert packed.tokens_T.is_pinned()
    assert packed.to("cuda", non_blocking=True).tokens_T.tolist() == packed.tokens_T.tolist()


def test_a_batch_is_frozen(batch):
    with pytest.raises(dataclasses.FrozenInstanceError):
        batch().lengths = ()


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ([], "0 samples"),
        ([sample([])], "0 tokens"),
        ([sample([1, 2], positions=[2], labels=[9]), sample([1, 2])], "masked position 2"),
        ([sample([1, 2], positions=[0, 1], labels=[9])], "1 labels for 2"),
    ],
)
def test_what_cannot_be_packed(given, named):
    with pytest.raises(ValueError, match=named) as caught:
        pack(given)
    assert "\n" not in str(caught.value)
