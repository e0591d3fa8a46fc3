"""The roofline: bounds by hand, and the chart of versions."""

from __future__ import annotations

import pytest

from tilewright import ops, te
from tilewright.codegen.detect import resolve
from tilewright.errors import TargetError
from tilewright.lab.roofline import bounds_of, roofline
from tilewright.target import Target

from .checks import checked, words

FUNC = ops.matmul_func(64, 64, 64)
CPU = resolve("cpu -mcpu=skylake-avx512 -threads=2")


def test_bounds_of_a_product_of_matrices() -> None:
    bounds = bounds_of(FUNC, CPU)
    assert bounds is not None
    assert bounds.flops == 2 * 64**3
    assert bounds.intensity == pytest.approx(2 * 64**3 / (3 * 64 * 64 * 4))
    rates = CPU.rates  # type: ignore[attr-defined]
    cores = min(CPU.threads, CPU.cores)  # type: ignore[attr-defined]
    assert bounds.peak == pytest.approx(2 * rates.fma * 16 * rates.hertz * cores)
    assert bounds.bandwidths["L1"] == pytest.approx(rates.loads * 64 * rates.hertz * cores)
    assert list(bounds.bandwidths) == ["L1", "L2", "L3", "memory"]
    assert sorted(bounds.bandwidths.values(), reverse=True) == list(bounds.bandwidths.values())
    for memory, rate in bounds.bandwidths.items():
        (low, start), (ridge, peak) = bounds.slope(memory)
        assert start / low == pytest.approx(rate)
        assert peak == bounds.peak
        assert bounds.span[0] <= low < ridge < bounds.span[1]


def test_the_chart_names_lines_and_versions() -> None:
    shown = words(checked(roofline(FUNC, CPU, {"written": 1e-3, "best": 2e-5})))
    for expected in ("peak ", "L1 ", "memory ", "written 1 ms", "best 20 us", "26.2 GFLOP/s"):
        assert expected in shown


def test_gpus_have_a_roofline_once_they_are_known() -> None:
    assert list(Target.parse("cuda -arch=sm_90a").bandwidths) == ["L2", "memory"]
    assert bounds_of(FUNC, Target.parse("cuda -arch=sm_90a")) is not None
    with pytest.raises(TargetError):
        bounds_of(FUNC, Target.parse("cuda"))


def test_a_program_without_operations_has_none() -> None:
    X = te.placeholder((16,), name="X")
    copy = te.func([X, te.compute((16,), lambda i: X[i], name="Y")], name="copy")
    assert bounds_of(copy, CPU) is None
    assert "no operations on floats" in words(checked(roofline(copy, CPU, {"a": 1.0})))
