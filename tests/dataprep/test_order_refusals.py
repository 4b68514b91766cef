"""Settings and data that do not suit an order are refused in one line."""

import numpy as np
import pytest

from dataprep.lengths import LengthHistogram
from dataprep.order import OrderConfig, build_order

THREE_RANGES = OrderConfig("strata", strata_bins=(40, 90, 128), strata_counts=(2, 1, 1))


def lengths(samples: int) -> LengthHistogram:
    drawn = np.random.default_rng(0).choice([5, 9, 40, 41, 100, 128], samples)
    values, counts = np.unique(drawn, return_counts=True)
    return LengthHistogram(dict(zip(values.tolist(), counts.tolist(), strict=True)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"scheme": "sorted"}, r"data.order.scheme 'sorted' is unknown; choose one of presorted,"),
        ({"remainder": "pad"}, r"data.order.remainder 'pad' is unknown; choose one of drop, keep"),
        ({"deal": "zigzag"}, r"data.order.deal 'zigzag' is unknown"),
        ({"group": 0}, r"data.order.group 0 must be at least 1, or null"),
        ({"row_samples": 0}, r"data.order.row_samples 0 must be at least 1"),
        ({"strata_bins": (256, 128)}, r"data.order.strata_bins \[256, 128\] must ascend"),
        ({"strata_counts": (1, 2)}, r"data.order.strata_counts \[1, 2\] must be 4 numbers"),
        ({"scheme": "strata", "remainder": "keep"}, r"data.order.remainder 'keep' with strata"),
    ],
)
def test_wrong_settings_are_one_line(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        OrderConfig(**settings)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("config", "samples", "message"),
    [
        (OrderConfig("exchange", group=3), 1000, r"group 3 must divide the 4 slots.*\[1, 2, 4\]"),
        (OrderConfig("strata"), 1000, r"strata_bins .* has \[.*0, 0\] samples of them; choose"),
        (OrderConfig("strata", strata_bins=(50, 100), strata_counts=(1, 1)), 1000,
         r"strata_bins \[50, 100\]: .* samples of 128 tokens; raise the last bin to 128"),
        (OrderConfig("strata", strata_bins=(5, 9, 40, 41, 99, 100, 128),
                     strata_counts=(1,) * 7), 1000, r"a batch of 6 is too small .* batch to 7"),
        (OrderConfig("packed", row_tokens=64), 1000, r"row_tokens 64: .* of 128 tokens; raise it"),
        (OrderConfig("packed", row_tokens=128), 30, r"packed rows of 30 samples, less than one st"),
        (OrderConfig("random"), 23, r"holds 23 samples, less than one step of 4 x 6 = 24"),
        (OrderConfig("exchange"), 23, r"holds 23 samples, less than one step of 4 x 6 = 24"),
        (THREE_RANGES, 30, r"samples of its ranges of lengths, of which a slot takes \[3"),
    ],
)  # fmt: skip
def test_data_that_does_not_suit_is_one_line(
    config: OrderConfig, samples: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message) as error:
        build_order(config, lengths(samples), 4, 6, 0, 0)
    assert "\n" not in str(error.value)
