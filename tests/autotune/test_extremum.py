"""An argmax along memory is computed from the maximum."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.autotune.search.sketch import sketches
from tilewright.base import dtypes
from tilewright.codegen.detect import resolve
from tilewright.target import CpuTarget
from tilewright.tir import te
from tilewright.tir.ir import Func

from .checking import run, some_rows

TARGET = CpuTarget.of(resolve("cpu -threads=1"))


def best(length: int, dtype: str = "float32", *, axis: int = 1, costly: bool = False) -> Func:
    """The numbers of the largest elements along an axis of 3 rows or columns."""
    shape = (3, length) if axis else (length, 3)
    a, r = te.placeholder(shape, dtype, name="A"), te.reduce_axis(length, "r")

    def value(i: te.Axis) -> te.Expr:
        element = a[i, r] if axis else a[r, i]
        return te.exp(element) if costly else element

    i = te.compute((3,), lambda i: te.argmax(value(i), axis=r)[0], name="I")
    return te.func([a, i], name="best")


def names(func: Func) -> list[str]:
    return [s.name for s in sketches(func, TARGET)]


def test_numbers_in_vectors_are_tried_where_values_are_expensive() -> None:
    assert names(best(1000)) == ["rows_searched"]
    assert names(best(1000, costly=True)) == ["rows_searched", "rows"]
    assert "rows_searched" not in names(best(1000, axis=0))
    assert "rows_searched" not in names(best(1))


def test_long_rows_are_searched_in_pieces() -> None:
    for length, pieces in ((100, False), (1000, True)):
        (sketch,) = sketches(best(length), TARGET)
        made = [b.name for b in sketch.func.allocs]
        assert ("I_piece" in made) == pieces


@pytest.mark.grid
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int8", "uint8"])
@pytest.mark.parametrize("length", [16, 37, 300, 1031])
def test_candidates_return_the_first_of_equals(dtype: str, length: int) -> None:
    func, rng = best(length, dtype), np.random.default_rng(length)
    x = rng.integers(0, 50, (3, length)).astype(dtypes.to_numpy(dtype))
    x[1] = x.min()
    x[2, length // 2 :] = x.max()
    if dtypes.is_float(dtype):
        x[1] = -np.inf
        x[2, length // 3 :: 7] = np.nan
    for sketch in sketches(func, TARGET):
        for row in some_rows(sketch, rng, 2):
            scheduled = sketch.trace.with_row(tuple(row.tolist())).apply(func)
            found = np.full(3, -1, np.int64)
            run(scheduled.func, TARGET, [x, found])
            np.testing.assert_array_equal(found, x.argmax(1))
