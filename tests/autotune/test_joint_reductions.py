"""Reductions of several values at once are scheduled in vectors, and compute what they say."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

import tilewright as tw
from tilewright.autotune.rules.fusion_groups import fusion_groups
from tilewright.autotune.rules.rule import GroupKind
from tilewright.autotune.search.sketch import sketches
from tilewright.base import dtypes
from tilewright.codegen.lower import lower
from tilewright.target import CpuTarget
from tilewright.tir import te
from tilewright.tir.interpreter import interpret
from tilewright.tir.ir import Expr, Func, Load, Store
from tilewright.tir.visit import walk

from ..hosts import processor
from .checking import Array, arguments, run, some_rows

Best = Callable[..., tuple[Expr, Expr]]
SERIAL = CpuTarget.named("cascadelake", threads=1)
SHAPES = [(3, 1), (5, 37), (2, 260), (33, 131)]
DTYPES = ["float32", "float64", "int8", "int32"]


def best(combiner: Best, rows: int, columns: int, axis: int, dtype: str = "float32") -> Func:
    """The places and values of the best of each row (`axis` 1) or column (0) of X."""
    x = te.placeholder((rows, columns), dtype, name="X")
    r = te.reduce_axis((rows, columns)[axis], name="r")
    p, v = te.compute(
        ((columns, rows)[axis],),
        lambda i: combiner(x[i, r] if axis == 1 else x[r, i], axis=r),
        name=("P", "V"),
    )
    return te.func([x, p, v], name="best")


def sums(rows: int, columns: int, axis: int) -> Func:
    """The sums, the sums of squares and the largest elements of rows or columns."""
    x = te.placeholder((rows, columns), "int32", name="X")
    r = te.reduce_axis((rows, columns)[axis], name="r")

    def element(i: Expr) -> tuple[Expr, ...]:
        e = x[i, r] if axis == 1 else x[r, i]
        return te.sum(e, axis=r), te.sum(e * e, axis=r), te.max(e, axis=r)

    results = te.compute(((columns, rows)[axis],), element, name=("S", "Q", "M"))
    return te.func([x, *results], name="sums")


def contents(dtype: str, shape: tuple[int, ...]) -> Iterator[Array]:
    """Arrays with many equal elements, all of them, the least and largest, and NaN."""
    rng = np.random.default_rng(0)
    values: list[float] = [0, 1, 2]
    if dtypes.is_float(dtype):
        limits = [-np.inf, np.inf]
        values += [-0.0]
        yield np.array([*values, *limits, np.nan], dtype)[rng.integers(6, size=shape)]
        yield np.full(shape, np.nan, dtype)
    else:
        limits = [np.iinfo(dtype).min, np.iinfo(dtype).max]
    yield np.array([*values, *limits], dtype)[rng.integers(len(values) + 2, size=shape)]
    yield np.array(values, dtype)[rng.integers(len(values), size=shape)]
    for value in (*limits, 1):
        yield np.full(shape, value, dtype)


def results_of(func: Func) -> list[Array]:
    """Arrays of zeros for all parameters but the first."""
    return [np.zeros_like(a) for a in arguments(func, 1)[1:]]


@pytest.mark.grid
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("combiner", [te.argmax, te.argmin])
def test_the_first_of_equal_elements_whatever_the_lanes(
    combiner: Best, dtype: str, axis: int
) -> None:
    rng, target = np.random.default_rng(0), processor("cpu -threads=2")
    numpys = np.argmax if combiner is te.argmax else np.argmin
    for rows, columns in SHAPES:
        shape = (rows, columns) if axis == 1 else (columns, rows)
        func = best(combiner, *shape, axis, dtype)
        scheduled = [
            sketch.trace.with_row(row.tolist()).apply(func).func
            for sketch in sketches(func, target)[:3]
            for row in some_rows(sketch, rng, 1)
        ]
        assert scheduled
        for n, x in enumerate(contents(dtype, shape)):
            wanted = results_of(func)
            if n == 0:
                interpret(func, x, *wanted)
                np.testing.assert_array_equal(wanted[0], numpys(x, axis))
            else:
                wanted[0][...] = numpys(x, axis)
                best_of = np.take_along_axis(x, np.expand_dims(wanted[0], axis), axis)
                wanted[1][...] = best_of.squeeze(axis)
            for candidate in scheduled:
                found = results_of(func)
                run(candidate, target, [x, *found])
                for a, b in zip(found, wanted, strict=True):
                    np.testing.assert_array_equal(a, b)
                    np.testing.assert_array_equal(np.signbit(a), np.signbit(b))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shape", SHAPES)
def test_sums_of_several_values(shape: tuple[int, int], axis: int) -> None:
    rng, target = np.random.default_rng(0), processor("cpu -threads=2")
    func = sums(*shape, axis)
    x = rng.integers(-9, 9, shape).astype("int32")
    wanted = x.sum(axis), (x * x).sum(axis), x.max(axis)
    for sketch in sketches(func, target):
        for row in some_rows(sketch, rng, 2):
            found = results_of(func)
            run(sketch.trace.with_row(row.tolist()).apply(func).func, target, [x, *found])
            for a, b in zip(found, wanted, strict=True):
                np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("make", [lambda *a: best(te.argmax, *a), sums])
def test_every_candidate_reads_vectors(make: Callable[..., Func], axis: int) -> None:
    """But for the value at the place that is found."""
    func = make(512, 512, axis)
    rng = np.random.default_rng(0)
    found = sketches(func, SERIAL)
    assert found
    for sketch in found:
        for row in some_rows(sketch, rng, 3):
            scheduled = sketch.trace.with_row(row.tolist()).apply(func).func
            reads = [
                n
                for n in walk(lower(scheduled, SERIAL))
                if type(n) is Load and n.buffer.name == "X"
            ]
            assert reads
            single = sum(dtypes.info(n.dtype).lanes < 8 for n in reads)
            assert single == (1 if sketch.name == "rows_searched" else 0)


@pytest.mark.parametrize("allow", ["model", "default"])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_choice_without_a_record_is_in_vectors(axis: int, allow: str) -> None:
    module = tw.build(best(te.argmin, 96, 160, axis), "cpu -threads=1", allow=(allow,))
    assert module.origin.kind == allow
    x = np.random.default_rng(0).integers(0, 50, (96, 160)).astype("float32")
    places, values = np.zeros(x.shape[1 - axis], "int64"), np.zeros(x.shape[1 - axis], "float32")
    module(x, places, values)
    np.testing.assert_array_equal(places, x.argmin(axis))
    assert " x float> " in module.source("llvm")
    assert (" x i32> " if axis else " x i64> ") in module.source("llvm")


def test_columns_keep_what_nothing_reads_in_registers() -> None:
    """The largest values are not written where their places alone are asked for."""
    x = te.placeholder((64, 96), name="X")
    r = te.reduce_axis(64, name="r")
    p = te.compute((96,), lambda j: te.argmax(x[r, j], axis=r)[0], name="P")
    func = te.func([x, p])
    first = sketches(func, SERIAL)[0]
    (row,) = some_rows(first, np.random.default_rng(0), 1)
    lowered = lower(first.trace.with_row(row.tolist()).apply(func).func, SERIAL)
    memory = {n.buffer for n in walk(lowered) if type(n) is Store and n.buffer.scope != "register"}
    assert [b.name for b in memory] == ["P"]


def test_rows_that_need_both_results_are_one_group() -> None:
    x = te.placeholder((7, 45), name="X")
    r = te.reduce_axis(45, name="r")
    p, v = te.compute((7,), lambda i: te.argmax(x[i, r], axis=r), name=("P", "V"))
    y = te.compute((7, 45), lambda i, j: te.select(p[i] == j, 0.0, x[i, j] - v[i]), name="Y")
    func, target = te.func([x, y]), processor("cpu -threads=2")
    (group,) = fusion_groups(func, target).groups
    assert group.kind is GroupKind.ROWS
    data = np.random.default_rng(0).integers(0, 20, (7, 45)).astype("float32")
    wanted, found = np.zeros_like(data), np.zeros_like(data)
    interpret(func, data, wanted)
    for sketch in sketches(func, target):
        for row in some_rows(sketch, np.random.default_rng(0), 2):
            run(sketch.trace.with_row(row.tolist()).apply(func).func, target, [data, found])
            np.testing.assert_array_equal(found, wanted)


def test_products_whose_place_is_asked_for_have_register_tiles() -> None:
    """A contraction of two results: each input is read for several of them."""
    a, b = te.placeholder((19, 30), name="A"), te.placeholder((30, 41), name="B")
    k = te.reduce_axis(30, name="k")
    p, v = te.compute((19, 41), lambda i, j: te.argmax(a[i, k] * b[k, j], axis=k), name=("P", "V"))
    func, target = te.func([a, b, p, v]), processor("cpu -threads=2")
    (group,) = fusion_groups(func, target).groups
    assert group.kind is GroupKind.CONTRACTION
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-3, 4, s).astype("float32") for s in ((19, 30), (30, 41)))
    products = x[:, :, None] * y[None]
    for sketch in sketches(func, target):
        for row in some_rows(sketch, rng, 1):
            places, values = np.zeros((19, 41), "int64"), np.zeros((19, 41), "float32")
            scheduled = sketch.trace.with_row(row.tolist()).apply(func).func
            run(scheduled, target, [x, y, places, values])
            np.testing.assert_array_equal(places, products.argmax(1))
            np.testing.assert_array_equal(values, products.max(1))
