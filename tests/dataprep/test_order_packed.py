"""Packed rows: their limits, and how full they are."""

import numpy as np

from dataprep.lengths import LengthHistogram
from dataprep.order import OrderConfig, build_order
from dataprep.order.packed import pack_lengths


def test_packed_rows_hold_at_most_their_tokens_and_samples() -> None:
    dataset = LengthHistogram(dict.fromkeys(range(5, 129), 30))
    order = build_order(OrderConfig("packed", row_tokens=128, row_samples=3), dataset, 2, 5, 0, 0)
    assert order.columns == 15
    filled = []
    for step in range(order.steps):
        rows = order.lengths(step, np.arange(2)).reshape(2, 5, 3)
        assert rows.sum(axis=2).max() <= 128
        assert (rows.max(axis=2) > 0).all()
        filled.append(rows.sum() / (10 * 128))
    assert np.mean(filled) > 0.95
    assert order.micro_batch_of_column(5).tolist() == [i for i in range(5) for _ in range(3)]


def test_packing_uses_each_sample_once_and_follows_best_fit() -> None:
    patterns = pack_lengths(LengthHistogram({60: 4, 40: 3, 30: 2, 8: 1}), 100, 3)
    lengths = np.array([8, 30, 40, 60])
    rows = [
        sorted((lengths[runs[runs >= 0]].tolist()), reverse=True)
        for runs, rows in zip(patterns.runs, np.diff(patterns.starts), strict=True)
        for _ in range(rows)
    ]
    assert sorted(rows) == [[40], [60, 30], [60, 30, 8], [60, 40], [60, 40]]
