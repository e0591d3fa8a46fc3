"""Programs that overwrite their input are scheduled like those that write to another buffer."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tilewright.autotune.rules import fusion_groups
from tilewright.autotune.search.sketch import sketches
from tilewright.autotune.search.unmeasured import model_trace
from tilewright.codegen.detect import resolve
from tilewright.target import CpuTarget
from tilewright.tir import te
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse
from tilewright.tir.tensor import Tensor

from ..schedule.machinery import check_compiled
from .checking import some_rows

TARGET = CpuTarget.of(resolve("cpu -threads=2"))
Formula = Callable[[Tensor], Tensor]


def total(x: Tensor, n: int, value: Callable[..., te.Expr]) -> Tensor:
    """The sums of `value` over the last dimension of `n`, for each row of `x`."""
    r = te.reduce_axis(n, "r")
    rows = x.extents[:-1]
    return te.compute(rows, lambda *i: te.sum(value(*i[: len(rows)], r), axis=r), name="S",
                      axes=["i", "k"][: len(rows)])  # fmt: skip


def mean(x: Tensor) -> Tensor:
    s = total(x, x.extents[-1], lambda *i: x[i])
    return te.compute(x.extents, lambda i, j: x[i, j] - s[i] / 64.0, name="Y")


def softmax(x: Tensor) -> Tensor:
    r = te.reduce_axis(x.extents[-1], "r")
    top = te.compute(x.extents[:-1], lambda i: te.max(x[i, r], axis=r), name="M")
    s = total(x, x.extents[-1], lambda i, j: te.exp(x[i, j] - top[i]))
    return te.compute(x.extents, lambda i, j: te.exp(x[i, j] - top[i]) / s[i], name="Y")


def layer_norm(x: Tensor) -> Tensor:
    s = total(x, x.extents[-1], lambda *i: x[i])
    d = te.compute(x.extents, lambda i, j: x[i, j] - s[i] / 64.0, name="D")
    v = total(d, x.extents[-1], lambda i, j: d[i, j] * d[i, j])
    return te.compute(x.extents, lambda i, j: d[i, j] * te.rsqrt(v[i] + 1.0), name="Y")


def columns(x: Tensor) -> Tensor:
    r = te.reduce_axis(x.extents[0], "r")
    s = te.compute(x.extents[1:], lambda j: te.sum(x[r, j], axis=r), name="S")
    return te.compute(x.extents, lambda i, j: x[i, j] - s[j], name="Y")


def pointwise(x: Tensor) -> Tensor:
    t = te.compute(x.extents, lambda i, j: x[i, j] * 2.0, name="T")
    return te.compute(x.extents, lambda i, j: t[i, j] + 1.0, name="Y")


def others(x: Tensor) -> Tensor:
    """Each row from the sum of the one behind it: all sums come first."""
    n, m = x.extents
    s = total(x, m, lambda i, j: x[(i + 1) % n, j])
    return te.compute(x.extents, lambda i, j: x[i, j] - s[i], name="Y")


FORMULAS = [mean, softmax, layer_norm, columns, pointwise, others]


def both(formula: Formula, shape: tuple[int, int]) -> tuple[Func, Func]:
    """The program of a formula that writes to another buffer, and the one in place."""
    x = te.placeholder(shape, name="X")
    y = formula(x)
    name = formula.__name__
    return te.func([x, y], name=name), te.func([x], name=name, inplace={y: x})


@pytest.mark.parametrize("formula", FORMULAS)
def test_the_sketches_are_those_of_the_program_that_writes_elsewhere(formula: Formula) -> None:
    """But for the rows that fetch the next one ahead; those of `others` share no loops."""
    elsewhere, inplace = both(formula, (300, 640))
    found = [s.name for s in sketches(inplace, TARGET)]
    assert found
    if formula is others:
        assert len(fusion_groups(inplace, TARGET).groups) == 2
        assert "written" not in found
        return
    wanted = [s.name for s in sketches(elsewhere, TARGET) if "ahead" not in s.name]
    assert found == wanted


@pytest.mark.parametrize("formula", FORMULAS)
def test_candidates_compute_what_the_formula_does(formula: Formula) -> None:
    _, func = both(formula, (7, 70))
    rng = np.random.default_rng(0)
    for sketch in sketches(func, TARGET):
        for row in some_rows(sketch, rng, 2):
            scheduled = sketch.trace.with_row(tuple(row.tolist())).apply(func)
            check_compiled(func, scheduled.func)


STAGES = """
@tw.script
def stages(X: T.Buffer((9, 70), "float32")):
    T.inplace(X)
    S = T.alloc((9,), "float32")
    V = T.alloc((9,), "float32")
    for i in range(9):
        S[i] = 0.0
        V[i] = 0.0
        for j in range(70):
            S[i] = S[i] + X[{row}, j]
        for j in range(70):
            X[i, j] = X[i, j] - S[i] / 70.0
        for j in range(70):
            V[i] = V[i] + X[i, j] * X[i, j]
        for j in range(70):
            X[i, j] = X[i, j] * T.rsqrt(V[i] + 1.0)
"""


def test_two_updates_of_a_script_are_one_group_of_rows() -> None:
    func = parse(STAGES.replace("{row}", "i"))
    (group,) = fusion_groups(func, TARGET).groups
    assert [label.name for label in group.members] == ["S_1", "V_1", "X_1"]
    assert [s.name for s in sketches(func, TARGET)][1] == "rows"
    trace = model_trace(func, TARGET)
    assert [step.op for step in trace].count("vectorize") >= 4
    check_compiled(func, trace.apply(func).func)


def test_rows_of_what_was_overwritten_stay_as_they_are_written() -> None:
    func = parse(STAGES.replace("{row}", "T.maximum(i - 1, 0)"))
    assert fusion_groups(func, TARGET).kept
    check_compiled(func, model_trace(func, TARGET).apply(func).func)
