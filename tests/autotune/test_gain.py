"""The expected gain of another trial, and its consequences."""

from __future__ import annotations

import pytest

from tilewright import TuningError, ops
from tilewright.autotune.model.cpu.model import roofline
from tilewright.autotune.model.target_model import Roofline
from tilewright.autotune.session.budget import StopRules
from tilewright.autotune.session.gain import Progress, most_promising, relative_gain
from tilewright.target import CpuTarget

from ..refusals import refused

TARGET = CpuTarget.parse("cpu -mcpu=cascadelake -threads=1")


def progress(*best: float | None, limit: float = 0.0, seconds: float = 2.0) -> Progress:
    made = Progress(limit, [])
    for time in best:
        made.add(8, seconds, time)
    return made


def test_gain_is_the_trend_and_what_is_left_to_the_limit() -> None:
    assert progress().gain is None
    assert progress(None).gain is None
    assert progress(4.0).gain == pytest.approx(0.8 * 4.0 / 8)
    assert progress(4.0, limit=3.0).gain == pytest.approx(0.8 * 1.0 / 8)
    assert progress(4.0, 2.0).gain == pytest.approx(0.2 * 2.0 / 8 + 0.8 * 2.0 / 16)
    assert progress(9.0, 4.0, 4.0, 4.0, 4.0).gain == pytest.approx(0.8 * 4.0 / 40)
    assert progress(1.0, limit=2.0).gain == 0.0


def test_a_batch_goes_where_it_gains_most() -> None:
    slow, fast = progress(9.0), progress(1.0)
    assert most_promising([fast, progress(), slow], [1.0] * 3) == 1
    assert most_promising([fast, slow], [1.0, 1.0]) == 1
    assert most_promising([fast, slow], [10.0, 1.0]) == 0
    assert most_promising([fast, progress(9.0, limit=9.0)], [1.0, 1.0]) == 0


def test_one_of_which_nothing_ran_gets_its_turn_but_not_all() -> None:
    assert most_promising([progress(1.0), progress(None)], [1.0, 1.0]) == 1
    assert most_promising([progress(1.0), progress(None, None)], [1.0, 1.0]) == 0


def test_gain_per_second_is_a_share_of_the_weighted_time() -> None:
    alone = progress(4.0, seconds=2.0)
    assert relative_gain([alone], [1.0]) == pytest.approx((0.8 * 4.0 / 8) / (2.0 / 8) / 4.0)
    assert relative_gain([alone], [3.0]) == pytest.approx(relative_gain([alone], [1.0]))
    assert relative_gain([alone, progress(None)], [1.0, 1.0]) is None
    both = relative_gain([alone, progress(4.0, limit=4.0)], [1.0, 1.0])
    assert both == pytest.approx((0.8 * 4.0 / 8) / (2.0 / 8) / 8.0)


def test_rules_say_why() -> None:
    rules = StopRules(stop_at=0.9, min_gain=0.01)
    roof = Roofline(compute=0.9e-3, memory=0.1e-3)
    assert rules.reached(None, roof) is None
    assert rules.reached(1.01e-3, roof) is None
    assert rules.reached(0.999e-3, roof) == (
        "999 us is 90% of the roofline (900 us, bound by arithmetic)"
    )
    assert rules.futile(None) is None
    assert rules.futile(0.01) is None
    assert "expected to gain 0.005 of the time, below min_gain" in str(rules.futile(0.005))
    assert StopRules().reached(1e-9, roof) is None
    assert StopRules().futile(0.0) is None


@pytest.mark.parametrize("value", [0.0, -1.0, 1.5, float("nan"), "0.9", True])
def test_what_is_no_share_is_refused(value: object) -> None:
    with refused(TuningError, "stop_at"):
        StopRules(stop_at=value)  # type: ignore[arg-type]


def test_the_roofline_is_arithmetic_or_memory() -> None:
    rates = TARGET.rates
    peak = rates.hertz * rates.fma * 16 * 2
    product = roofline(ops.matmul_func(1024, 1024, 1024), TARGET)
    assert product.seconds == product.compute == pytest.approx(2 * 1024**3 / peak)
    stream = roofline(ops.add_relu_func(1 << 24), TARGET)
    rate = rates.hertz * rates.memory
    assert stream.seconds == stream.memory == pytest.approx(12 * 2**24 / rate, rel=0.01)
    assert roofline(ops.add_relu_func(64), TARGET).memory == 0.0


@pytest.mark.parametrize(
    ("dtypes", "cpu", "products"),
    [
        (("uint8", "int8"), "skylake-avx512", 2 * 16 * 4 / 3),
        (("uint8", "int8"), "cascadelake", 2 * 16 * 4),
        (("uint8", "int8"), "sapphirerapids", 16 * 16 * 4),
        (("int8", "int8"), "cascadelake", 2 * 16 * 4 / 3),
        (("bfloat16", "bfloat16"), "cooperlake", 2 * 16 * 2),
        (("bfloat16", "bfloat16"), "sapphirerapids", 16 * 16 * 2),
    ],
)
def test_the_roofline_is_that_of_instructions_for_groups_of_products(
    dtypes: tuple[str, str], cpu: str, products: float
) -> None:
    func = ops.matmul_func(1024, 1024, 1024, dtypes[0], dtype_b=dtypes[1])
    target = CpuTarget.parse(f"cpu -mcpu={cpu} -threads=1")
    found = roofline(func, target)
    assert found.compute == pytest.approx(1024**3 / (target.rates.hertz * products), rel=0.01)
