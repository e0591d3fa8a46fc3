"""Indices that name a loop whose iterations do not change them, such as `min(j + 12, 11)`."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.codegen.build import compile_func
from tilewright.codegen.generator import Pass
from tilewright.codegen.passes.unroll import unroll
from tilewright.codegen.passes.vectorize import vectorize
from tilewright.tir.interpreter import interpret
from tilewright.tir.ir import For
from tilewright.tir.parser import parse
from tilewright.tir.visit import with_func_body
from tilewright.tir.wellformed import check_structure

from ..hosts import runs
from ..wellformed import checked
from .machinery import check


def clamped(columns: int, width: int, shift: int) -> tw.Schedule:
    """Rows that repeat the last column, in vectors of 4 and copies of 2 of them."""
    a = te.placeholder((3, columns), "float32", name="A")
    b = te.compute((3, width), lambda i, j: a[i, te.minimum(j + shift, columns - 1)], name="B")
    schedule = tw.Schedule(te.func([a, b]))
    _, j = schedule.get_loops(schedule.get_block("B"))
    _, copies, lanes = schedule.split(j, factors=[None, 2, 4])
    schedule.vectorize(lanes)
    schedule.unroll(copies)
    return schedule


@pytest.mark.parametrize("processor", ["x86-64-v2", "x86-64-v3", "cascadelake", "neoverse-n1"])
@pytest.mark.parametrize(("columns", "width"), [(12, 15), (13, 13), (20, 23), (29, 32)])
def test_columns_behind_the_last_one(columns: int, width: int, processor: str) -> None:
    target = f"cpu -mcpu={processor} -threads=1"
    func = clamped(columns, width, 2).func
    if runs(target):
        check(func, target=target, rtol=0.0)
    else:
        assert compile_func(func, target).image


@pytest.mark.parametrize("kind", ["unrolled", "vectorized"])
def test_no_copy_names_the_loop(kind: str) -> None:
    func = parse(f"""
def f(A: T.Buffer((12,), "float32"), B: T.Buffer((8,), "float32")):
    for j in T.{kind}(8):
        B[j] = A[T.minimum(j + 12, 11)]
""")
    lowered = unroll(func) if kind == "unrolled" else vectorize(func, 128, None)
    check_structure(lowered)
    a, b = np.arange(12, dtype="float32"), np.zeros(8, "float32")
    interpret(lowered, a, b)
    assert (b == 11).all()


def test_a_pass_that_breaks_a_program_is_named() -> None:
    func = parse("""
def f(B: T.Buffer((8,), "int64")):
    for j in range(8):
        B[j] = j
""")
    assert isinstance(func.body, For)
    inside = with_func_body(func, func.body.body)
    broken = Pass("lose_loops", lambda _: inside, "Loses the loops.")
    with pytest.raises(AssertionError, match="after the pass lose_loops: .*variable j is not"):
        checked(broken).run(func)
