"""The roofline: bounds by hand, and the chart of versions."""

from __future__ import annotations

from math import cos, radians, sin

import pytest

from tilewright import ops, te
from tilewright.base.errors import TargetError
from tilewright.codegen.detect import resolve
from tilewright.lab.pictures.roofline import bounds_of, roofline
from tilewright.lab.pictures.scales import width_of
from tilewright.target import Target

from .checks import checked, words

SVG = "{http://www.w3.org/2000/svg}"
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


@pytest.mark.parametrize("share", [0.02, 0.17, 0.5, 0.8, 1.0])
def test_names_of_versions_cover_no_name_of_a_memory(share: float) -> None:
    """The point of a program that is bound by memory is left, where the lines have their names."""
    func = ops.softmax_func(256, 1024)
    bounds = bounds_of(func, CPU)
    assert bounds is not None
    least = bounds.flops / min(bounds.peak, bounds.intensity * bounds.bandwidths["memory"])
    shown = checked(roofline(func, CPU, {"v1": least / share}))
    (group,) = (g for g in shown.iter(f"{SVG}g") if g.get("class") == "names")
    turned = [t for t in group if t.get("transform")]
    (version,) = (t for t in group if (t.text or "").startswith("v1"))
    wide = width_of(version.text or "")
    right = float(version.get("x", "")) + (wide if version.get("text-anchor") == "start" else 0)
    low = float(version.get("y", ""))
    assert len(turned) == 4
    for name in turned:
        angle, x, y = map(float, name.get("transform", "")[7:-1].split())
        begin = float(name.get("x", "")) - x
        for along in range(0, int(width_of(name.text or "")), 4):
            for up in (4, 14):  # above the line, as high as capitals are
                a, b = radians(angle), begin + along
                at = x + b * cos(a) + up * sin(a), y + b * sin(a) - up * cos(a)
                assert not (right - wide < at[0] < right and low - 10 < at[1] < low + 2)


def test_the_name_of_the_peak_stands_above_its_line() -> None:
    shown = checked(roofline(FUNC, CPU, {}))
    (name,) = (t for t in shown.iter(f"{SVG}text") if (t.text or "").startswith("peak"))
    lines = [p.get("d", "") for p in shown.iter(f"{SVG}path") if p.get("class", "")[:4] == "line"]
    peak = float(lines[0].partition("L")[0].split()[1])
    assert float(name.get("y", "")) <= peak - 4


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
