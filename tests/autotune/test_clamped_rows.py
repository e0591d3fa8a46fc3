"""Running means over clamped rows of any length: the schedule chosen untuned has no clamp left."""

from __future__ import annotations

import pytest

from tilewright.autotune.search.unmeasured import default_trace
from tilewright.codegen.detect import resolve
from tilewright.codegen.lower import lower
from tilewright.target import Target
from tilewright.tir import te
from tilewright.tir.ir import Binary, Expr, For, Func, Op
from tilewright.tir.visit import walk

from ..codegen.machinery import assert_close
from .checking import arguments, expected, run


def running_mean(rows: int, columns: int, window: int, *, clamp_first: bool = False) -> Func:
    """Means of `window` neighbours in a row, whose ends are repeated."""
    x, r = te.placeholder((rows, columns), name="X"), te.reduce_axis(window, name="r")

    def read(i: Expr, j: Expr) -> Expr:
        at = j + r - window // 2
        if clamp_first:
            return x[i, te.minimum(te.maximum(at, 0), columns - 1)]
        return x[i, te.maximum(te.minimum(at, columns - 1), 0)]

    total = te.compute((rows, columns), lambda i, j: te.sum(read(i, j), axis=r), name="S")
    return te.func([x, te.compute((rows, columns), lambda i, j: total[i, j] / window, name="Z")])


def clamps(func: Func) -> int:
    """How many minima and maxima there are inside of loops."""
    inside = {id(n): n for loop in walk(func.body) if type(loop) is For for n in walk(loop)}
    return sum(type(n) is Binary and n.op in (Op.MIN, Op.MAX) for n in inside.values())


@pytest.mark.grid
@pytest.mark.parametrize("name", ["znver5", "x86-64-v3"])
@pytest.mark.parametrize("clamp_first", [False, True])
@pytest.mark.parametrize(
    ("columns", "window"), [(1000, 8), (4000, 9), (4001, 5), (4001, 8), (4004, 3), (4004, 9)]
)
def test_rows_are_free_of_clamps(columns: int, window: int, clamp_first: bool, name: str) -> None:
    target = Target.parse(f"cpu -mcpu={name} -threads=1")
    func = running_mean(300, columns, window, clamp_first=clamp_first)
    lowered = lower(default_trace(func, target).apply(func).func, target)
    assert clamps(lowered) == 0


@pytest.mark.parametrize(("columns", "window"), [(67, 3), (100, 8), (131, 9)])
def test_means_of_clamped_rows_are_right(columns: int, window: int) -> None:
    target = resolve("cpu -threads=1")
    func = running_mean(5, columns, window)
    found = arguments(func, 0)
    run(default_trace(func, target).apply(func).func, target, found)
    assert_close(expected(func, 0)[1], found[1], 1e-5, "Z")
