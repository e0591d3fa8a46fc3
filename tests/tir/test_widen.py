"""Programs in wider arithmetic: the same function, with less rounding."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import ops, te
from tilewright.tir.equality import structural_hash
from tilewright.tir.interpreter import interpret
from tilewright.tir.ir import Buffer, Func, Let
from tilewright.tir.parser import parse
from tilewright.tir.verify import verify
from tilewright.tir.visit import walk
from tilewright.tir.widen import widened


def product(dtype: str) -> Func:
    a, b = te.placeholder((5, 7), dtype, name="A"), te.placeholder((7, 6), dtype, name="B")
    k = te.reduce_axis(7, name="k")
    c = te.compute((5, 6), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return te.func([a, b, te.compute((5, 6), lambda i, j: te.exp(c[i, j]) / 3, name="D")])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_results_are_those_of_float64(dtype: str) -> None:
    func = widened(product(dtype))
    verify(func)
    assert [p.dtype for p in func.params if isinstance(p, Buffer)] == ["float64"] * 3
    rng = np.random.default_rng(0)
    a, b, d = rng.uniform(-1, 1, (5, 7)), rng.uniform(-1, 1, (7, 6)), np.empty((5, 6))
    interpret(func, a, b, d)
    np.testing.assert_allclose(d, np.exp(a @ b) / 3, rtol=1e-14)


def test_names_are_as_wide_as_what_they_stand_for() -> None:
    func = widened(ops.reduction_func("argmax", 5, 7))
    verify(func)
    assert all(n.var.dtype == n.value.dtype for n in walk(func) if type(n) is Let)
    assert structural_hash(parse(str(func))) == structural_hash(func)
    x, y = np.random.default_rng(0).uniform(-1, 1, (5, 7)), np.empty(5, np.int64)
    interpret(func, x, y)
    np.testing.assert_array_equal(y, x.argmax(axis=1))


def test_sums_of_float64_begin_in_the_middle() -> None:
    a = te.placeholder((4,), "float64", name="A")
    k = te.reduce_axis(4, name="k")
    func = te.func([a, te.compute((1,), lambda i: te.sum(a[k], axis=k), name="S")])
    values, s = np.array([1e16, 0.0, 1.0, 1.0]), np.empty(1)
    interpret(func, values, s)
    assert s[0] == 1e16
    interpret(widened(func), values, s)
    assert s[0] == 1e16 + 2
    verify(widened(func))


def test_constants_and_casts_keep_their_rounding() -> None:
    a = te.placeholder((2,), "float32", name="A")
    low = te.compute((2,), lambda i: a[i].astype("float16").astype("float32"), name="L")
    func = te.func([a, te.compute((2,), lambda i: low[i] * te.const(0.1, "float32"), name="B")])
    values, b = np.array([1.0001, 3.0]), np.empty(2)
    interpret(widened(func), values, b)
    np.testing.assert_array_equal(b, values.astype(np.float16) * np.float64(np.float32(0.1)))
