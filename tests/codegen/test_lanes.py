"""Vectors of indices that are divided and compared: where lanes cross into the next quotients."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.codegen.build import compile_func
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse

from .machinery import check

TARGETS = [f"cpu -mcpu={cpu} -threads=1" for cpu in ("x86-64-v3", "x86-64")]
LANES = 16


def divided(n: int, step: int, first: int = 0) -> Func:
    """Quotients, remainders and elements that both say, of ramps that begin before zero too."""
    at = f"T.ramp(i - 40 + {first}, {step}, {LANES})"
    by = f"T.broadcast({n}, {LANES})"
    return parse(f"""
def f(Q: T.Buffer((1280,), "int64"), R: T.Buffer((1280,), "int64"), X: T.Buffer(({n},), "float32"),
      Y: T.Buffer((1280,), "float32")):
    for i in range(80):
        Q[T.ramp(i * 16, 1, 16)] = {at} // {by}
        R[T.ramp(i * 16, 1, 16)] = {at} % {by}
        Y[T.ramp(i * 16, 1, 16)] = X[({at} // T.broadcast(3, {LANES}) + {at}) % {by}]
""")


@pytest.mark.grid
@pytest.mark.parametrize("target", ["cpu -threads=1", *TARGETS])
@pytest.mark.parametrize("step", [1, 3, -1, -5])
@pytest.mark.parametrize("n", [1, 2, 3, 7, 15, 16, 33, 1000])
def test_quotients_and_remainders(n: int, step: int, target: str) -> None:
    check(divided(n, step), target=target)


@pytest.mark.parametrize("first", [(1 << 40) + 5, -(1 << 50), (1 << 31) - 16, -(1 << 31)])
def test_far_from_zero(first: int) -> None:
    check(divided(1000, 1, first))


@pytest.mark.parametrize("n", [(1 << 30) - 16, (1 << 30) - 15, 1 << 31, 1 << 40])
def test_what_32_bits_do_not_hold(n: int) -> None:
    at = f"T.ramp(i * {n} - 5, 1, 16)"
    check(
        parse(f"""
def f(Q: T.Buffer((64,), "int64"), R: T.Buffer((64,), "int64")):
    for i in range(4):
        Q[T.ramp(i * 16, 1, 16)] = {at} // T.broadcast({n}, 16)
        R[T.ramp(i * 16, 1, 16)] = {at} % T.broadcast({n}, 16)
""")
    )


@pytest.mark.parametrize("op", ["<", "<=", ">", ">=", "==", "!="])
def test_comparisons(op: str) -> None:
    """Below the diagonal, on it and beyond; and with what is farther off than 32 bits reach."""
    at = "T.ramp(i * 16, 1, 16)"
    column, row = f"{at} % T.broadcast(37, 16)", f"{at} // T.broadcast(37, 16)"
    far = f"T.broadcast((i - 40) * {1 << 33}, 16)"
    check(
        parse(f"""
def f(Y: T.Buffer((1280,), "bool"), Z: T.Buffer((1280,), "bool")):
    for i in range(80):
        Y[T.ramp(i * 16, 1, 16)] = {column} {op} {row}
        Z[T.ramp(i * 16, 1, 16)] = {column} {op} {row} + {far}
""")
    )


def test_a_mask_keeps_reads_in_bounds() -> None:
    """X ends where the condition does, at the end of what memory there is."""
    at = "T.ramp(i * 16, 1, 16)"
    mask = f"{at} % T.broadcast(100, 16) + {at} // T.broadcast(100, 16) < T.broadcast(100, 16)"
    func = parse(f"""
def f(X: T.Buffer((9901,), "float32"), Y: T.Buffer((10000,), "float32")):
    for i in range(625):
        Y[{at}] = T.select({mask}, T.load(X[{at}], mask={mask}), T.broadcast(T.float32(-1.0), 16))
""")
    check(func, [np.arange(9901, dtype="f4"), np.zeros(10000, "f4")])


def test_vectors_are_not_divided() -> None:
    """One division of the index that all lanes share, in whole vectors of comparisons."""
    at = "T.ramp(i * 16, 1, 16)"
    width = "T.broadcast(1000, 16)"
    text = f"""
def f(X: T.Buffer((1000000,), "float32"), Y: T.Buffer((1000000,), "float32")):
    for i in range(62500):
        Y[{at}] = T.load(X[{at}], mask={at} % {width} <= {at} // {width})
"""
    llvm = compile_func(parse(text), "cpu -mcpu=skylake-avx512 -threads=1").source("llvm")
    assert "div <16" not in llvm
    assert "rem <16" not in llvm
    assert "x i64>" not in llvm
