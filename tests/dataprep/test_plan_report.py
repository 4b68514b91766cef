"""The plan of a run that need not exist: a row for each scheme, reasons, warnings."""

from pathlib import Path

import numpy as np
import pytest

from dataprep.lengths import LengthHistogram, read_histogram
from dataprep.order import OrderConfig, build_order
from dataprep.order.budget import MaskRule
from dataprep.order.load import loads_of
from dataprep.plan_report import (
    SCHEMES,
    PlanSettings,
    exchanged_bytes,
    plan,
    plan_row,
    seen_steps,
)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory):
    path = tmp_path_factory.mktemp("lengths") / "lengths.tsv"
    lengths = np.random.default_rng(0).integers(5, 513, 20_000)
    values, counts = np.unique(lengths, return_counts=True)
    rows = zip(values.tolist(), counts.tolist(), strict=True)
    path.write_text("length\tcount\n" + "".join(f"{n}\t{c}\n" for n, c in rows))
    return path


def test_a_row_for_every_scheme(table) -> None:
    report = plan(table, PlanSettings(ranks=8, batch=16, evaluation_interval=5000))
    assert [row.scheme for row in report.rows] == list(SCHEMES)
    assert report.refused == {}
    by_scheme = {row.scheme: row for row in report.rows}
    presorted, random = by_scheme["presorted"], by_scheme["random"]
    assert presorted.steps == random.steps == 20_000 // 128
    assert presorted.samples == 128
    assert presorted.evaluations == presorted.steps * 128 // 5000
    assert presorted.imbalance < 1.01 < 1.1 < random.imbalance
    assert presorted.imbalance_squared < 1.01 < random.imbalance_squared
    assert presorted.bytes_moved == presorted.bytes_gathered == 0
    assert 0 < by_scheme["exchange"].bytes_moved < by_scheme["exchange"].bytes_gathered
    assert presorted.budget.waste < random.budget.waste
    assert report.table.row_count == len(SCHEMES)


def test_a_row_of_all_steps_is_exact(table) -> None:
    report = plan(table, PlanSettings(ranks=4, batch=16, steps=1000, train_samples=40_000))
    row = report.rows[1]
    assert (row.scheme, row.seen, row.exact_budget) == ("random", row.steps, True)
    assert row.evaluations == 0
    assert not any(line.startswith("random: by") for line in report.lines())


def test_ranks_that_serve_several_slots_share_their_load(table) -> None:
    several = plan(table, PlanSettings(ranks=2, batch=4, width=8, steps=50))
    single = plan(table, PlanSettings(ranks=8, batch=4, steps=50))
    assert several.rows[1].tokens_mean == single.rows[1].tokens_mean
    assert several.rows[1].imbalance < single.rows[1].imbalance


def test_a_thousand_ranks_in_one_process(shared_data) -> None:
    lengths = shared_data / "lengths" / "wikipedia_512.tsv"
    report = plan(lengths, PlanSettings(1024, 16, steps=4), {"presorted": OrderConfig()})
    (row,) = report.rows
    assert row.steps == 993
    assert row.imbalance <= 1.001
    assert row.budget.waste <= 0.04
    assert "presorted: by 4 of 993 steps" in report.lines()


def test_schemes_that_do_not_suit_say_why(table) -> None:
    report = plan(table, PlanSettings(ranks=6, batch=3))
    assert "strata, exchange of 8 snake" in report.refused
    assert "a batch of 3 is too small" in report.refused["strata"]
    assert any("strata: does not suit" in line for line in report.lines())


def test_small_micro_batches_are_warned_of(table) -> None:
    settings = PlanSettings(ranks=2, batch=16, accumulation=8)
    warned = [line for line in plan(table, settings).lines() if line.startswith("warning")]
    assert len(warned) == 1 and "make micro-batches larger" in warned[0]
    settings = PlanSettings(ranks=2, batch=64)
    assert not any(line.startswith("warning") for line in plan(table, settings).lines())


def test_bytes_of_an_exchange_between_two_slots() -> None:
    """Lengths 1 to 4, of which each slot has read two: counted by hand for the draw."""
    histogram, rule = LengthHistogram({100: 1, 200: 1, 300: 1, 400: 1}), MaskRule(76)
    order = build_order(OrderConfig("exchange"), histogram, 2, 2, 1, 0)
    size = {100: 100 + 2 * 15, 200: 200 + 2 * 30, 300: 300 + 2 * 45, 400: 400 + 2 * 60}
    reads, places = (find(0, np.arange(2)).tolist() for find in (order.reads, order.places))
    moved = sum(
        2 * (size[100 * (place + 1)] + 3)
        for slot in range(2)
        for place in places[slot]
        if place not in reads[slot]
    )
    everything = sum(2 * (n + 3) for n in size.values())
    assert exchanged_bytes(order, np.array([0]), 2, rule) == (moved, everything)
    assert exchanged_bytes(order, np.array([0]), 1, rule)[0] == 0


def test_steps_seen_are_spread_over_the_epoch(table) -> None:
    order = build_order(OrderConfig(), LengthHistogram({8: 1000}), 1, 1, 0, 0)
    assert seen_steps(order, 5).tolist() == [0, 249, 499, 749, 999]
    assert seen_steps(order, 2000).tolist() == list(range(1000))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ranks": 3, "batch": 4, "width": 8}, "width 8 is not a multiple of the 3 ranks"),
        ({"ranks": 0, "batch": 4}, "ranks 0 must be at least 1"),
        ({"ranks": 1, "batch": 4, "evaluation_interval": 0}, "evaluation_interval 0 must be at"),
        ({"ranks": 1, "batch": 4, "train_samples": 0}, "train_samples 0 must be at least 1"),
    ],
)
def test_wrong_settings(settings: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PlanSettings(**settings)


def test_data_of_less_than_a_step_and_an_accumulation_that_does_not_divide(table) -> None:
    with pytest.raises(ValueError, match="less than one step of 2000 x 16 = 32000"):
        plan(table, PlanSettings(ranks=2000, batch=16))
    with pytest.raises(ValueError, match="accumulation 3 must divide the 16 samples"):
        plan(table, PlanSettings(ranks=2, batch=16, accumulation=3))
    with pytest.raises(ValueError, match="no such file"):
        plan(table.parent / "none.tsv", PlanSettings(2, 2))


def test_a_row_agrees_with_its_order() -> None:
    histogram = LengthHistogram({10: 40, 50: 40})
    row = plan_row("r", OrderConfig("random"), histogram, PlanSettings(2, 4, seed=3))
    order = build_order(OrderConfig("random"), histogram, 2, 4, 3, 0)
    tokens = loads_of(order, np.arange(order.steps)).tokens.sum(axis=1)
    assert (row.tokens_max, row.tokens_mean) == (tokens.max(), tokens.mean())
    assert row.tokens_spread == pytest.approx(tokens.std() / tokens.mean())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x7fELF\xd0\x00", "not a text; give lines of length<TAB>samples"),
        (b"0\t5\n10\t7\n", "samples of 0 tokens; a length must be at least 1"),
        (b"length\tsamples\n", "no line of the form length<TAB>samples"),
    ],
)
def test_a_file_that_is_no_table_of_lengths(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "lengths.tsv").write_bytes(content)
    with pytest.raises(ValueError, match=f"lengths.tsv: {message}"):
        read_histogram(tmp_path / "lengths.tsv")
