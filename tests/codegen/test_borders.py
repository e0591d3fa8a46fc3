"""Stencils with the borders of numpy's `pad`: what they compute, and that rows stay vectors."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.base import dtypes
from tilewright.codegen.build import compile_func
from tilewright.codegen.detect import resolve
from tilewright.codegen.lower import lower
from tilewright.schedule import Schedule
from tilewright.tir import te
from tilewright.tir.ir import Expr, Func, Load, Ramp, Store
from tilewright.tir.visit import walk

from ..long import examples
from .borders import BORDERS, SPELLINGS, reach
from .machinery import SERIAL, Array, run, runnable

AVX512 = "cpu -mcpu=znver5 -threads=1"
AVX2, SSE4 = "cpu -mcpu=x86-64-v3 -threads=1", "cpu -mcpu=x86-64-v2 -threads=1"


class Stencil(NamedTuple):
    """A weighted sum of shifted elements of an array, with a border all around."""

    mode: str
    spelling: str
    shape: tuple[int, ...]
    shifts: tuple[tuple[int, ...], ...]
    dtype: str = "int32"

    def func(self) -> Func:
        border = BORDERS[self.mode][self.spelling]
        x = te.placeholder(self.shape, self.dtype, name="X")

        def element(*at: Expr) -> Expr:
            total: Expr = te.const(0, self.dtype)
            for weight, shift in enumerate(self.shifts, 1):
                places = [border(i + d, n) for i, d, n in zip(at, shift, self.shape, strict=True)]
                total = total + x[tuple(places)] * te.const(weight, self.dtype)
            return total

        return te.func([x, te.compute(self.shape, element, name="Y")], name="stencil")

    def __call__(self, x: Array) -> Array:
        widths = [max(abs(s[d]) for s in self.shifts) for d in range(len(self.shape))]
        padded = np.pad(x, [(w, w) for w in widths], mode=self.mode)  # type: ignore[call-overload]
        total = np.zeros_like(x)
        for weight, shift in enumerate(self.shifts, 1):
            window = tuple(
                slice(w + d, w + d + n) for w, d, n in zip(widths, shift, self.shape, strict=True)
            )
            total += padded[window] * x.dtype.type(weight)
        return total


def scheduled(func: Func, tiles: tuple[int, ...], fused: bool) -> Func:
    """Rows in vectors, whole or in tiles; if fused, no loop counts the tiles of a row alone."""
    schedule = Schedule(func)
    *rows, row = schedule.get_loops(schedule.get_block("Y"))
    if tiles:
        outer, *unrolled, row = schedule.split(row, factors=[None, *tiles])
        for loop in unrolled:
            schedule.unroll(loop)
        if fused and rows:
            schedule.fuse(rows[-1], outer)
    schedule.vectorize(row)
    return schedule.func


@st.composite
def stencils(draw: st.DrawFn) -> Stencil:
    mode, spelling = draw(st.sampled_from(SPELLINGS))
    rank = draw(st.integers(1, 3))
    sizes = st.integers(2 if spelling == "triangles" else 1, 4)
    last = st.one_of(sizes, st.integers(5, 150))
    shape = (*(draw(sizes) for _ in range(rank - 1)), draw(last))
    shifts = st.tuples(*(st.integers(-m, m) for m in (min(reach(mode, n), 5) for n in shape)))
    offsets = draw(st.lists(shifts, min_size=1, max_size=5))
    dtype = draw(st.sampled_from(["int8", "int16", "int32", "uint64"]))
    return Stencil(mode, spelling, shape, tuple(offsets), dtype)


@settings(max_examples=examples(60))
@given(
    stencil=stencils(),
    tiles=st.sampled_from([(), (4,), (8,), (16,), (24,), (2, 8), (4, 8), (2, 16)]),
    fused=st.booleans(),
    target=st.sampled_from([SERIAL, AVX2, SSE4]),
)
def test_stencils_are_those_of_numpy(
    stencil: Stencil, tiles: tuple[int, ...], fused: bool, target: str
) -> None:
    func = scheduled(stencil.func(), tiles, fused)
    compiled = runnable(func, compile_func(func, target))
    dtype = dtypes.to_numpy(stencil.dtype)
    x = np.random.default_rng(0).integers(0, 100, stencil.shape).astype(dtype)
    _, found = run(compiled, [x, np.zeros_like(x)])
    np.testing.assert_array_equal(found, stencil(x))


def _wide(*shape: int, mode: str, spelling: str) -> Stencil:
    """The neighbours along each dimension, up to two elements away."""
    units = np.eye(len(shape), dtype=int)
    shifts = [tuple((by * unit).tolist()) for unit in units for by in (-2, -1, 0, 1, 2)]
    return Stencil(mode, spelling, shape, tuple(shifts), "float32")


def _gathers(func: Func) -> int:
    """How many vectors are read whose lanes do not lie in a row."""
    loads = [n for n in walk(func.body) if type(n) is Load and dtypes.info(n.dtype).lanes > 1]
    assert loads
    return sum(type(n.indices[0]) is not Ramp for n in loads)


def _stores(func: Func) -> int:
    return sum(type(n) is Store for n in walk(func.body))


@pytest.mark.grid
@pytest.mark.parametrize("target", [AVX512, AVX2, SSE4])
@pytest.mark.parametrize("shape", [(203,), (37, 203), (9, 10, 203)])
@pytest.mark.parametrize(("mode", "spelling"), SPELLINGS)
def test_no_border_needs_gathers_or_more_code_than_another(
    mode: str, spelling: str, shape: tuple[int, ...], target: str
) -> None:
    """A row has at most three parts, however many dimensions and however its border is written."""
    for tiles in [(), (16,), (4, 8)]:
        funcs = [_wide(*shape, mode=m, spelling=s) for m, s in [(mode, spelling), SPELLINGS[0]]]
        found, clamped = (lower(scheduled(f.func(), tiles, False), resolve(target)) for f in funcs)
        assert _gathers(found) == 0
        assert _stores(found) <= _stores(clamped)
