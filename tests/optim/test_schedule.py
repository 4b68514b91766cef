"""Schedules against published formulas and checkpoints, at every step."""

import math

import pytest
import torch
from torch import nn

from optim.schedule import Schedule, ScheduleConfig, build_rate, corners


def reference(step: int, peak: float, config: ScheduleConfig) -> float:
    """MLPerf's TensorFlow reference at global_step ``step``, which is 0 in the first update."""
    progress = min(step, config.training_steps) / config.training_steps
    rate = (peak - config.end_learning_rate) * (1 - progress) ** config.power
    rate += config.end_learning_rate
    warmed = step - config.start_warmup_step
    if config.warmup_steps and warmed < config.warmup_steps:
        rate = warmed / config.warmup_steps * peak
    return rate


def nvidia(step: int, peak: float, config: ScheduleConfig) -> float:
    """NVIDIA's submissions in the update ``step``, counted from 1."""
    offset = 1 if config.start_warmup_step == 0 else 0
    warmed = step - offset - config.start_warmup_step
    if warmed < config.warmup_steps:
        return peak * warmed / config.warmup_steps
    return peak * (1 - min((step - offset) / config.training_steps, 1))


def samsung(step: int) -> float:
    """Samsung's schedule of training v2.0 in the update ``step``, counted from 1."""
    base, end = 3.9299421615882676e-4, 4.94549100544884e-5
    if step <= 65:
        return base * (step + 16) / 82
    return end + (base - end) * max(0.0, 1 - (step - 82) / (179 - 82))


@pytest.mark.parametrize(
    ("start", "warmup", "total", "power", "end"),
    [
        (0, 0, 13700, 1.0, 0.0),
        (0, 100, 1141, 1.0, 0.0),
        (-76, 287, 600, 1.0, 0.0),
        (-100, 290, 600, 0.5, 1e-5),
        (-700, 0, 700, 1.0, 0.0),
        (0, 3, 10, 2.0, 1e-4),
    ],
)
def test_polynomial_is_the_references(
    start: int, warmup: int, total: int, power: float, end: float
) -> None:
    config = ScheduleConfig(
        "polynomial",
        warmup_steps=warmup,
        training_steps=total,
        start_warmup_step=start,
        end_learning_rate=end,
        power=power,
        first_step=0,
    )
    rate = build_rate(config)
    for step in range(1, total + 20):
        expected = reference(step - 1, 3.3e-3, config)
        assert rate(step, 3.3e-3) == pytest.approx(expected, rel=1e-12, abs=1e-17)


@pytest.mark.parametrize(
    ("start", "warmup", "total", "first"),
    [(0, 0, 6700, 0), (0, 50, 700, 0), (-200000, 200330, 700, 1), (-76, 256, 820, 1)],
)
def test_polynomial_is_nvidias(start: int, warmup: int, total: int, first: int) -> None:
    config = ScheduleConfig(
        "polynomial",
        warmup_steps=warmup,
        training_steps=total,
        start_warmup_step=start,
        first_step=first,  # type: ignore[arg-type]
    )
    rate = build_rate(config)
    for step in range(1, total + 20):
        expected = nvidia(step, 2.58e-3, config)
        assert rate(step, 2.58e-3) == pytest.approx(expected, rel=1e-12, abs=1e-17)


def test_two_piece_is_samsungs() -> None:
    config = ScheduleConfig(
        "two_piece",
        warmup_steps=82,
        training_steps=299,
        start_warmup_step=-16,
        decay_steps=179,
        end_learning_rate=4.94549100544884e-5,
    )
    rate = build_rate(config)
    for step in range(1, 320):
        assert rate(step, 3.9299421615882676e-4) == pytest.approx(samsung(step), rel=1e-12)
    assert rate(65, 3.9299421615882676e-4) == pytest.approx(3.88e-4, abs=5e-7)
    assert rate(66, 3.9299421615882676e-4) == pytest.approx(4.50e-4, abs=5e-7)
    assert {rate(step, 3.9299421615882676e-4) for step in range(179, 400)} == {4.94549100544884e-5}


def test_linear_and_constant_at_their_corners() -> None:
    linear = build_rate(ScheduleConfig("linear", warmup_steps=4, training_steps=12))
    assert [linear(step, 1.0) for step in (1, 2, 4, 5, 8, 12, 13)] == [
        0.25, 0.5, 1.0, 7 / 8, 0.5, 0.0, 0.0,
    ]  # fmt: skip
    constant = build_rate(ScheduleConfig("constant", warmup_steps=4))
    assert [constant(step, 2.0) for step in (1, 4, 5, 90_000)] == [0.5, 2.0, 2.0, 2.0]
    assert build_rate(ScheduleConfig("linear", 0, 10))(1, 1.0) == 0.9
    to_end = build_rate(ScheduleConfig("linear", 0, 10, end_learning_rate=0.5, decay_steps=5))
    assert [to_end(step, 1.5) for step in (1, 4, 5, 9)] == pytest.approx([1.3, 0.7, 0.5, 0.5])


@pytest.mark.parametrize("name", ["linear", "constant"])
def test_the_start_of_the_warm_up_may_lie_before_at_and_after_the_first_step(name) -> None:
    for start, expected in ((-2, [3 / 4, 1.0, 1.0]), (0, [0.25, 0.5, 0.75]), (2, [0, 0, 0.25])):
        rate = build_rate(ScheduleConfig(name, 4, 1_000_000_000, start_warmup_step=start))
        assert [rate(step, 1.0) for step in (1, 2, 3)] == pytest.approx(expected, rel=1e-8)


def test_corners() -> None:
    samsung_config = ScheduleConfig("two_piece", 82, 299, start_warmup_step=-16, decay_steps=179)
    assert corners(samsung_config) == [1, 65, 66, 178, 179, 299]
    assert corners(ScheduleConfig("polynomial", 3, 10, first_step=0)) == [1, 3, 4, 10, 11]
    assert corners(ScheduleConfig("constant", 0, 10)) == [1, 10]
    assert corners(ScheduleConfig("linear", 0, 10, start_warmup_step=-5)) == [1, 9, 10]


def test_the_rate_that_is_returned_is_the_rate_in_use() -> None:
    model = nn.Linear(3, 2)
    groups = [{"params": [model.weight]}, {"params": [model.bias]}]
    optimizer = torch.optim.SGD(groups, lr=0.5)
    schedule = Schedule(ScheduleConfig("linear", 2, 10), optimizer)
    for step, expected in ((1, 0.25), (2, 0.5), (6, 0.25), (1, 0.25)):
        assert schedule.set_rate(step) == expected
        assert [group["lr"] for group in optimizer.param_groups] == [expected] * 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(warmup_steps=-1), "warmup_steps -1 must not be negative"),
        (dict(training_steps=0), "training_steps 0 must lie beyond step 0, where the warm-up ends"),
        (
            dict(warmup_steps=50, start_warmup_step=60, training_steps=110),
            r"training_steps 110 must lie beyond step 110, where the warm-up ends "
            r"\(start_warmup_step 60 \+ warmup_steps 50\)",
        ),
        (dict(warmup_steps=90, decay_steps=80), "decay_steps 80 must lie beyond step 90"),
        (
            dict(name="two_piece", warmup_steps=82, start_warmup_step=-16, decay_steps=70),
            "decay_steps 70 must lie beyond step 82, from which the decay of schedule two_piece",
        ),
        (
            dict(name="polynomial", training_steps=-5, start_warmup_step=-10),
            "training_steps -5 must lie beyond step 0, from which",
        ),
        (dict(training_steps=100, decay_steps=101), "decay_steps 101 must not lie beyond schedule"),
        (dict(power=2.0), r"power 2\.0 has no use in schedule linear; leave it out"),
        (dict(name="constant", end_learning_rate=1e-5), "end_learning_rate 1e-05 has no use"),
        (dict(name="constant", decay_steps=10), "decay_steps 10 has no use in schedule constant"),
        (dict(name="polynomial", power=0.0), r"power 0\.0 must be above 0"),
        (dict(end_learning_rate=math.nan), "end_learning_rate nan must not be negative"),
        (dict(first_step=2), "first_step 2 must be 0 or 1"),
    ],
)
def test_impossible_schedules_are_refused_in_one_line(settings, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        ScheduleConfig(**settings)
    assert "\n" not in str(caught.value)


def test_unknown_names_and_an_end_above_the_peak_are_refused() -> None:
    with pytest.raises(ValueError, match="'cosine'; choose one of: linear, constant, polynomial"):
        build_rate(ScheduleConfig("cosine"))  # type: ignore[arg-type]
    optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=1e-4)
    with pytest.raises(ValueError, match=r"end_learning_rate 0\.001 must not exceed optimizer"):
        Schedule(ScheduleConfig(end_learning_rate=1e-3), optimizer)
