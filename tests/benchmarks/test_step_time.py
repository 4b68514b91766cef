"""The comparison of orders is a fair one, and runs."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.made_stripes import make_stripes
from benchmarks.step_time import RANKS, figures, run, schemes_of
from dataprep.lengths import LengthHistogram
from dataprep.order import build_order
from train.data import Dataset

MIXED = LengthHistogram({40: 30, 100: 20, 200: 30, 300: 20, 450: 10, 512: 30})


def test_all_schemes_train_on_about_as_many_tokens_in_a_step() -> None:
    many = LengthHistogram(
        dict(zip(MIXED.lengths.tolist(), (100 * MIXED.counts).tolist(), strict=True))
    )
    means = {}
    for name, (config, batch) in schemes_of(many).items():
        order = build_order(config, many, RANKS, batch, 1, 0)
        steps = [order.lengths(step, np.arange(RANKS)).sum() for step in range(order.steps)]
        means[name] = float(np.mean(steps))
    assert max(means.values()) / min(means.values()) < 1.15, means


def test_figures_are_taken_round_by_round() -> None:
    def rows(*seconds: float) -> list[dict[str, float]]:
        return [{"seconds": s, "tokens": 2000.0, "wait": s / 10, "bytes": 5.0} for s in seconds]

    found = figures({"slow": rows(2.2, 4.4, 6.6), "fast": rows(2.0, 4.0, 6.0)})
    assert found["fast"]["ratio_to_fastest"] == [1.0, 1.0, 1.0]
    np.testing.assert_allclose(found["slow"]["ratio_to_fastest"], 1.1)
    assert found["slow"]["step_s"] == 4.4 and found["slow"]["s_per_1000_tokens"] == 2.2
    assert found["fast"]["wait"] == pytest.approx(0.4) and found["fast"]["bytes_per_step"] == 5.0


@pytest.mark.slow
def test_two_ranks_measure_every_scheme(tmp_path: Path) -> None:
    make_stripes(tmp_path, MIXED, 700, 3)
    measured = run(tmp_path, rounds=2, steps=1)
    assert measured.keys() == schemes_of(Dataset(tmp_path).histogram).keys()
    for name, rows in measured.items():
        assert len(rows) == 2
        assert all(row["seconds"] > 0 and row["tokens"] > 0 for row in rows)
        assert all(0 <= row["wait"] < 1 for row in rows)
        assert all((row["bytes"] > 0) == name.startswith("exchange") for row in rows)


def test_made_stripes_have_the_lengths_they_were_given(tmp_path: Path) -> None:
    made = make_stripes(tmp_path, MIXED, 70, 4)
    dataset = Dataset(tmp_path)
    dataset.open()
    block = dataset.block(np.arange(70))
    assert (block.lengths == made.length_at(np.arange(70))).all()
    assert made.counts.tolist() == [15, 10, 15, 10, 5, 15]
    assert (block.mlm_positions < np.repeat(block.lengths, block.masks)).all()
