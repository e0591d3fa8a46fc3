"""Minima and maxima of floats: the code for them, and which operand they are."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import tilewright as tw
from tilewright.codegen.build import compile_func
from tilewright.codegen.cpu.generator import assembly
from tilewright.codegen.detect import resolve
from tilewright.schedule import Schedule
from tilewright.tir import te

from ..instructions import instructions


def largest(lanes: int, *, least: bool = False) -> Schedule:
    """The largest, or least, of 64 elements in each of so many columns, which are one vector."""
    x, k = te.placeholder((64, lanes), name="X"), te.reduce_axis(64, name="k")
    combine = te.min if least else te.max
    y = te.compute((lanes,), lambda j: combine(x[k, j], axis=k), name="Y")
    sch = Schedule(te.func([x, y], name="largest"))
    block = sch.get_block("Y")
    write = sch.cache_write(block, 0, "register")
    sch.vectorize(*sch.get_loops(write))
    column, step = sch.get_loops(block)
    sch.reorder(step, column)
    sch.vectorize(column)
    sch.decompose_reduction(block, step)
    return sch


@pytest.mark.parametrize("least", [False, True])
@pytest.mark.parametrize(("name", "lanes", "most"), [("x86-64-v4", 16, 2), ("x86-64-v3", 8, 3)])
def test_instructions_of_an_extremum(name: str, lanes: int, most: int, least: bool) -> None:
    """One that chooses, and one or two by which NaN stays: no comparison for the choice itself."""
    target = resolve(f"cpu -mcpu={name} -threads=1")
    code = assembly(compile_func(largest(lanes, least=least).func, target))
    used = Counter(i.split()[0] for i in instructions(code))
    steps = used["vminps" if least else "vmaxps"]
    assert steps > 0
    compared = sum(n for i, n in used.items() if i.startswith("vcmp"))
    blended = sum(n for i, n in used.items() if i.startswith(("vblendv", "kor", "vorps")))
    assert steps + compared + blended <= most * steps


@pytest.mark.parametrize("least", [False, True])
def test_an_extremum_is_nan_if_one_operand_is(least: bool) -> None:
    x = np.random.default_rng(0).random((64, 16), np.float32)
    x[0, 1] = x[63, 2] = x[7, 3] = x[8, 3] = np.nan
    x[5, 4], x[6, 5] = np.inf, -np.inf
    found = np.empty(16, np.float32)
    tw.build(largest(16, least=least), "cpu -threads=1")(x, found)
    np.testing.assert_array_equal(found, x.min(axis=0) if least else x.max(axis=0))
