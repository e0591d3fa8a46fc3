"""Runs of variables that are taken as one: which are, and what becomes of vectors and chains."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import ops
from tilewright.autotune.rules.joining import join
from tilewright.autotune.search.sketch import sketches
from tilewright.codegen.detect import resolve
from tilewright.codegen.lower import lower
from tilewright.schedule import Schedule
from tilewright.target import Target
from tilewright.tir import te
from tilewright.tir.ir import INDEX, Binary, Block, Func, Load, Op, Store
from tilewright.tir.visit import walk

from .checking import arguments, expected, run, some_rows
from .selection import POINTWISE

TARGET = Target.parse("cpu -mcpu=cascadelake -threads=1")


def joined_extents(func: Func) -> list[int | object]:
    """The extents that the first block iterates over once its runs are joined."""
    sch = Schedule(func)
    join(sch, [sch.get_block(0)])
    (block, *_) = [n for n in walk(sch.func.body) if type(n) is Block]
    return [i.extent for i in block.iters]


def product_of(a: tuple[int, ...], b: tuple[int, ...], out: tuple[int, ...]) -> Func:
    """C[out] += A[a, k] * B[k, b], for dimensions numbered as they are in `out`."""
    sizes = (3, 4, 5, 6)
    x = te.placeholder((*(sizes[d] for d in a), 7), name="A")
    y = te.placeholder((7, *(sizes[d] for d in b)), name="B")
    k = te.reduce_axis(7, name="k")
    c = te.compute(
        tuple(sizes[d] for d in out),
        lambda *i: te.sum(
            x[(*(i[out.index(d)] for d in a), k)] * y[(k, *(i[out.index(d)] for d in b))], axis=[k]
        ),
        name="C",
    )
    return te.func([x, y, c])


@pytest.mark.parametrize(
    ("a", "b", "out", "wanted"),
    [
        ((0, 1), (2,), (0, 1, 2), [12, 5, 7]),
        ((0, 1, 2), (3,), (0, 1, 2, 3), [60, 6, 7]),
        ((0, 1), (2, 3), (0, 1, 2, 3), [12, 30, 7]),
        ((1, 0), (2,), (0, 1, 2), [3, 4, 5, 7]),
        ((0, 1), (2,), (0, 2, 1), [3, 5, 4, 7]),
        ((0, 1), (1, 2), (0, 1, 2), [3, 4, 5, 7]),
        ((0, 1, 2), (0, 1, 3), (0, 1, 2, 3), [3, 4, 5, 6, 7]),
    ],
)
def test_what_is_side_by_side_everywhere_is_joined(
    a: tuple[int, ...], b: tuple[int, ...], out: tuple[int, ...], wanted: list[int]
) -> None:
    assert joined_extents(product_of(a, b, out)) == wanted


def test_windows_are_not_joined() -> None:
    func = ops.conv2d_func(c=4, h=8, w=8, o=6, kernel=3, padding=0)
    assert joined_extents(func) == [1, 6, 6, 6, 4, 3, 3]
    strided = ops.conv2d_func(c=4, h=8, w=8, o=6, kernel=1, padding=0, stride=2)
    assert joined_extents(strided) == [1, 6, 4, 4, 4, 1, 1]


def test_values_of_variables_are_not_joined() -> None:
    x, w = te.placeholder((4, 6, 5), name="X"), te.placeholder((4, 3), name="W")
    c = te.reduce_axis(4, name="c")
    y = te.compute(
        (3, 6, 5), lambda o, i, j: te.sum(x[c, i, j] * w[c, o] * i.astype("float32"), axis=[c])
    )
    assert joined_extents(te.func([x, w, y])) == [3, 6, 5, 4]


@pytest.mark.parametrize("size", [14, 56])
@pytest.mark.parametrize("more", [{}, {"bias": True, "epilogue": "relu"}])
def test_vectors_run_on_from_row_to_row(size: int, more: dict[str, Any]) -> None:
    func = ops.conv2d_func(c=16, h=size, w=size, o=16, **POINTWISE, **more)
    for sketch in sketches(func, TARGET):
        across = "across" in sketch.name
        for row in some_rows(sketch, np.random.default_rng(0), 1):
            scheduled = sketch.trace.with_row(row.tolist()).apply(func).func
            lowered = lower(scheduled, TARGET)
            accesses = [n for n in walk(lowered.body) if type(n) is Load or type(n) is Store]
            masked = [n for n in accesses if n.mask is not None]
            # 14 * 14 is 12 vectors and a quarter: what is in the last one alone has a mask.
            assert across or len(masked) < len(accesses) / 2, sketch.name
            assert across or size % 4 or not masked, sketch.name
            divided = [
                n
                for a in accesses
                for e in a.indices
                for n in walk(e)
                if type(n) is Binary and n.op in (Op.FLOORDIV, Op.MOD) and n.dtype != INDEX
            ]
            assert not divided, sketch.name


def test_what_is_joined_feeds_other_contractions() -> None:
    x = te.placeholder((1, 5, 7, 9), name="X")
    w = te.placeholder((10, 5, 1, 1), name="W")
    v = te.placeholder((12, 10, 1, 1), name="V")
    u = te.placeholder((4, 12, 3, 3), name="U")
    bias = te.placeholder((10,), name="bias")
    a = ops.conv2d(x, w, bias=bias, epilogue="relu", name="A")
    b = ops.conv2d(a, v, name="B")
    func = te.func([x, w, bias, v, u, ops.conv2d(b, u, padding=1, name="C")])
    target = resolve("cpu -threads=2")
    wanted = expected(func, 1)
    for sketch in sketches(func, target):
        (row,) = some_rows(sketch, np.random.default_rng(0), 1)
        found = arguments(func, 1)
        run(sketch.trace.with_row(row.tolist()).apply(func).func, target, found)
        np.testing.assert_allclose(found[-1], wanted[-1], rtol=2e-4, atol=2e-5, err_msg=sketch.name)
