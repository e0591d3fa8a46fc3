"""Quantised numbers: rounded quotients by constants, and floats that few bits hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.codegen.build import compile_func, to_module
from tilewright.codegen.cpu.llvm_whole import SMALLEST, reciprocal
from tilewright.codegen.detect import resolve
from tilewright.schedule import Schedule
from tilewright.tir import te
from tilewright.tir.te import Expr

from ..hosts import LESSER, processor, runs

TARGETS = ["cpu", *(f"cpu -mcpu={name}" for name in LESSER)]
COUNT = 4096
SPECIAL = [np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-45, -1e-45, 3e38, -3e38, 0.5, -0.3, -0.5, 2.5]


def numbers(seed: int, size: float) -> Any:
    """Special numbers, numbers of about a size, and of all exponents."""
    rng = np.random.default_rng(seed)
    anything = rng.integers(0, 1 << 32, COUNT, dtype=np.uint32).view(np.float32)
    near = (rng.standard_normal(COUNT // 2) * size).astype(np.float32)
    near[: COUNT // 4] = np.rint(2 * near[: COUNT // 4] / size * 100) / 2
    return np.concatenate([np.array(SPECIAL, np.float32), near, anything])[:COUNT]


def computed(element: Any, x: Any, target: str, dtype: str = "float32") -> tuple[Any, str]:
    """The results of a program in vectors, and its assembly."""
    a = te.placeholder(x.shape, str(x.dtype), name="A")
    sch = Schedule(te.func([a, te.compute(x.shape, lambda i: element(a[i]), name="B")]))
    sch.vectorize(sch.split(sch.get_loops(sch.get_block("B"))[0], factors=[None, 16])[1])
    module = to_module(compile_func(sch.func, resolve(target)))
    out = np.empty(x.shape, dtype)
    module(x, out)
    return out, module.source("asm")


def assert_same(found: Any, expected: Any) -> None:
    """Also the signs of zeros."""
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found[found == 0]), np.signbit(expected[found == 0]))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("by", [0.0255838, 3.0, -0.37, 4.0, 1e-3, 255.0, 0.46535018])
def test_rounded_quotients_are_those_of_a_division(by: float, target: str) -> None:
    """Beyond 2**23 rounding keeps the quotient: all of its digits are compared."""
    if not runs(target):
        pytest.skip("not executed here")
    x = numbers(1, 100 * by)
    x[-1000:] = np.abs(np.random.default_rng(2).standard_normal(1000)) * 2.0**30 * by
    out, code = computed(lambda v: te.round(v / te.const(by, "float32")), x, target)
    with np.errstate(all="ignore"):
        assert_same(out, np.rint(x / np.float32(by)))
    parts = reciprocal(by)
    divides = parts is None or (parts.low != 0 and not processor(target).fma)
    assert ("divps" in code) == divides


def test_divisors_without_two_parts_that_are_right_for_all_numbers_have_none() -> None:
    assert reciprocal(0.46535018) is None
    assert reciprocal(0.0) is reciprocal(float("inf")) is reciprocal(1e-30) is None
    assert reciprocal(-0.25) == (-4.0, 0.0)


@pytest.mark.parametrize("target", TARGETS)
def test_quotients_of_scaled_integers_need_no_division(target: str) -> None:
    """What is divided may be unrounded where it is not tiny; of other numbers it is divided."""
    if not runs(target):
        pytest.skip("not executed here")
    q = np.arange(-128, 128).astype(np.int8)
    s, c = np.float32(0.0721), np.float32(6)

    def element(v: Expr) -> Expr:
        return te.cast(v, "float32") * te.const(float(s), "float32") / te.const(6.0, "float32")

    out, code = computed(element, q, target)
    assert_same(out, q.astype(np.float32) * s / c)
    assert ("divps" in code) != processor(target).fma
    tiny = np.array([SMALLEST, 1e-40, 3e-39, 7e-45], np.float32).repeat(4)
    out, code = computed(lambda v: v / te.const(6.0, "float32"), tiny, target)
    assert_same(out, tiny / c)
    assert "divps" in code


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16"])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("whole", [False, True])
def test_floats_that_integers_held_are_made_without_them(
    dtype: str, target: str, whole: bool
) -> None:
    if not runs(target):
        pytest.skip("not executed here")
    x = numbers(3, 300.0)

    def integer(v: Expr) -> Expr:
        return te.cast(te.round(v) + te.const(3.0, "float32") if whole else v, dtype)

    with np.errstate(all="ignore"):
        y = np.rint(x) + np.float32(3) if whole else x
    limits = np.iinfo(dtype)
    expected = np.trunc(np.clip(np.where(np.isnan(y), 0, y), limits.min, limits.max))
    out, _ = computed(integer, x, target, dtype)
    np.testing.assert_array_equal(out, expected.astype(dtype))
    out, code = computed(lambda v: te.cast(integer(v), "float32"), x, target)
    assert_same(out, expected.astype(dtype).astype(np.float32))
    assert "cvt" not in code
