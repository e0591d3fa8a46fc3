"""Rows that are read or written from their end run in vectors, each of which is reversed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright.autotune.rules.cpu.vector_choices import packed_for, vector_choices
from tilewright.autotune.search.candidates import Rowspace
from tilewright.autotune.search.unmeasured import default_trace, model_trace
from tilewright.codegen.build import compile_func
from tilewright.codegen.detect import resolve
from tilewright.schedule import Schedule
from tilewright.schedule.block_queries import has_reduction
from tilewright.schedule.find import blocks_in, find_path
from tilewright.target import Target
from tilewright.tir import te
from tilewright.tir.ir import For, ForKind, Func
from tilewright.tir.parser import parse

from ..codegen.machinery import assert_close, check
from .checking import arguments, expected, run, sketches_of

AVX512 = Target.parse("cpu -mcpu=skylake-avx512 -threads=1")


def windows(size: tuple[int, int] = (3, 45), width: int = 7, dtype: str = "float32") -> Func:
    """The largest of each window of rows that are read from their end."""
    (n, m), last = size, size[1] - 1
    x, r = te.placeholder(size, dtype, name="X"), te.reduce_axis(width, name="r")
    y = te.compute((n, m - width + 1), lambda i, j: te.max(x[i, last - (j + r)], axis=r), name="Y")
    return te.func([x, y], name="windows")


def filtered(width: int = 5, m: int = 83, step: int = 1) -> Func:
    """A filter of which each result reads elements before it, `step` apart: a convolution."""
    x, w = te.placeholder((2, m), name="X"), te.placeholder((width,), name="W")
    r, n = te.reduce_axis(width, name="r"), (m - 1) // step - width + 2
    y = te.compute(
        (2, n), lambda i, j: te.sum(x[i, m - 1 - (j + r) * step] * w[r], axis=r), name="Y"
    )
    return te.func([x, w, y], name="filtered")


def columns(n: int = 37, m: int = 21) -> Func:
    """Sums of columns, the last one first."""
    x, k = te.placeholder((n, m), name="X"), te.reduce_axis(n, name="k")
    y = te.compute((m,), lambda j: te.sum(x[k, m - 1 - j], axis=k), name="Y")
    return te.func([x, y], name="columns")


PROGRAMS: dict[str, Callable[[], Func]] = {
    "windows": windows,
    "windows of float64": lambda: windows(dtype="float64"),
    "windows of bfloat16": lambda: windows((3, 71), dtype="bfloat16"),
    "windows of int8": lambda: windows((2, 139), dtype="int8"),
    "a filter": filtered,
    "a filter over every second": lambda: filtered(step=2),
    "columns": columns,
}


@pytest.mark.parametrize("choose", [default_trace, model_trace])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_choice_without_trials_is_in_vectors(
    name: str, choose: Callable[[Func, Target], Any]
) -> None:
    func = PROGRAMS[name]()
    scheduled = choose(func, AVX512).apply(func).func
    found = [b for b in blocks_in(scheduled.body) if has_reduction(b)]
    assert found
    for block in found:
        around = [s for s in find_path(scheduled.body, block.label) or () if type(s) is For]
        assert around[-1].kind is ForKind.VECTOR
    assert "gather" not in compile_func(scheduled, AVX512).source("asm")


@pytest.mark.parametrize("name", PROGRAMS)
def test_all_sketches_compute_the_same(name: str) -> None:
    target, func = resolve("cpu -threads=1"), PROGRAMS[name]()
    wanted, rng = expected(func, 0), np.random.default_rng(0)
    for sketch in sketches_of(func, target):
        for row in Rowspace(sketch).sample(rng, 3):
            found = arguments(func, 0)
            run(sketch.trace.with_row(row.tolist()).apply(func).func, target, found)
            for p, x, y in zip(func.params, wanted, found, strict=True):
                assert_close(x, y, 1e-4, f"{p.name} by {sketch.name}")


def test_what_lies_backward_is_not_packed() -> None:
    (block,) = blocks_in(windows().body)
    (along,) = (v for v in vector_choices(block) if v.name == "vj")
    assert packed_for(block, along) == 0


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int8"])
@pytest.mark.parametrize("extent", [5, 16, 37])
def test_rows_written_from_their_end(extent: int, dtype: str) -> None:
    """Lanes beyond the row are masked, or left to shorter vectors."""
    func = parse(f"""
def f(X: T.Buffer((3, {extent}), "{dtype}"), Y: T.Buffer((3, {extent}), "{dtype}")):
    for i in range(3):
        for j in range({extent}):
            with T.block("Y"):
                vi = T.axis.spatial(3, i)
                vj = T.axis.spatial({extent}, j)
                Y[vi, {extent - 1} - vj] = X[vi, vj] + X[vi, vj]
""")
    sch = Schedule(func)
    _, j = sch.get_loops(sch.get_block("Y"))
    _, lanes = sch.split(j, factors=[None, 16])
    sch.vectorize(lanes)
    check(sch.func)
    assert "scatter" not in compile_func(sch.func, AVX512).source("asm")
