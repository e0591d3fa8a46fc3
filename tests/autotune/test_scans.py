"""Scans: rows run side by side, and every candidate computes what numpy does step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright.autotune.rules.fusion_groups import fusion_groups
from tilewright.autotune.rules.rule import GroupKind
from tilewright.autotune.search.sketch import sketches
from tilewright.building.build import build
from tilewright.codegen.detect import resolve
from tilewright.schedule import Schedule
from tilewright.tir.ir import Buffer, For, ForKind, Func, integers
from tilewright.tir.parser import parse
from tilewright.tir.visit import walk

from .checking import some_rows

Array = np.ndarray[Any, Any]
Step = Callable[[list[Array], list[Array], int], None]
"""Computes a step, at an index of the last dimension, of the outputs from the inputs."""


def _running(ufunc: np.ufunc) -> Step:
    def step(x: list[Array], y: list[Array], t: int) -> None:
        y[0][..., t] = ufunc(y[0][..., t - 1], x[0][..., t]) if t else x[0][..., t]

    return step


def _first_order(x: list[Array], y: list[Array], t: int) -> None:
    y[0][..., t] = x[0][..., t] + (y[0][..., t - 1] / 2 if t else 0)


def _second_order(x: list[Array], y: list[Array], t: int) -> None:
    old = y[0][..., t - 1] / 2 - y[0][..., t - 2] / 4 if t > 1 else 0
    y[0][..., t] = x[0][..., t] + old


def _backwards(x: list[Array], y: list[Array], t: int) -> None:
    _first_order([x[0][..., ::-1]], [y[0][..., ::-1]], t)


def _gated(x: list[Array], y: list[Array], t: int) -> None:
    gate = 1 / (1 + np.exp(-x[0][..., t]))
    y[0][..., t] = x[1][..., t] + (gate * y[0][..., t - 1] if t else 0)


def _cell(x: list[Array], y: list[Array], t: int) -> None:
    c, h = (y[0][..., t - 1], y[1][..., t - 1]) if t else (0, 0)
    y[0][..., t] = x[0][..., t] * c + x[1][..., t] * h + 1
    y[1][..., t] = np.tanh(y[0][..., t])


CASES: dict[str, tuple[Step, int, int, str]] = {
    "sum": (_running(np.add), 1, 1, """
    for i in range(N):
        Y0[i, 0] = X0[i, 0]
        for t in range(1, M):
            Y0[i, t] = Y0[i, t - 1] + X0[i, t]
"""),
    "product": (_running(np.multiply), 1, 1, """
    for i in range(N):
        Y0[i, 0] = X0[i, 0]
    for i in range(N):
        for t in range(M - 1):
            Y0[i, t + 1] = Y0[i, t] * X0[i, t + 1]
"""),
    "maximum": (_running(np.maximum), 1, 1, """
    for i in range(N):
        for t in range(M):
            if t == 0:
                Y0[i, t] = X0[i, t]
            else:
                Y0[i, t] = T.maximum(Y0[i, t - 1], X0[i, t])
"""),
    "first order": (_first_order, 1, 1, """
    for i in range(N):
        for t in range(M):
            Y0[i, t] = T.select(t > 0, Y0[i, t - 1], 0.0) / 2.0 + X0[i, t]
"""),
    "second order": (_second_order, 1, 1, """
    for i in range(N):
        Y0[i, 0] = X0[i, 0]
        Y0[i, 1] = X0[i, 1]
        for t in range(2, M):
            Y0[i, t] = X0[i, t] + (Y0[i, t - 1] / 2.0 - Y0[i, t - 2] / 4.0)
"""),
    "backwards": (_backwards, 1, 1, """
    for i in range(N):
        for t in range(M):
            Y0[i, M - 1 - t] = X0[i, M - 1 - t] + T.select(t > 0, Y0[i, M - t] / 2.0, 0.0)
"""),
    "gated": (_gated, 2, 1, """
    for i in range(N):
        for t in range(M):
            Y0[i, t] = X1[i, t] + T.select(t > 0, T.sigmoid(X0[i, t]) * Y0[i, t - 1], 0.0)
"""),
    "cell": (_cell, 2, 2, """
    for i in range(N):
        Y0[i, 0] = 1.0
        Y1[i, 0] = T.tanh(Y0[i, 0])
        for t in range(1, M):
            Y0[i, t] = X0[i, t] * Y0[i, t - 1] + X1[i, t] * Y1[i, t - 1] + 1.0
            Y1[i, t] = T.tanh(Y0[i, t])
"""),
}  # fmt: skip
"""The step, the numbers of inputs and outputs, and a program over N rows of M steps."""


def program(name: str, n: int, m: int, *, time_first: bool = False) -> Func:
    _, inputs, outputs, body = CASES[name]
    shape = f"({m}, {n})" if time_first else f"({n}, {m})"
    names = [*(f"X{k}" for k in range(inputs)), *(f"Y{k}" for k in range(outputs))]
    declared = ", ".join(f'{x}: T.Buffer({shape}, "float32")' for x in names)
    for old, new in (("M - 1 - t", str(m - 1) + " - t"), ("M - t", f"{m} - t"),
                     ("M - 1", str(m - 1)), ("range(1, M)", f"range(1, {m})"),
                     ("range(2, M)", f"range(2, {m})"), ("range(M)", f"range({m})"),
                     ("range(N)", f"range({n})")):  # fmt: skip
        body = body.replace(old, new)
    if time_first:
        for index in ("0", "1", "t - 1", "t - 2", "t + 1", "t", f"{m - 1} - t", f"{m} - t"):
            body = body.replace(f"[i, {index}]", f"[{index}, i]")
    return parse(f"@tw.script\ndef f({declared}):{body}")


def check(func: Func, after: Func, name: str, *, time_first: bool, target: str) -> None:
    step, inputs, outputs, _ = CASES[name]
    rng = np.random.default_rng(0)
    (shape,) = {integers(p.shape) for p in func.params if isinstance(p, Buffer)}
    x = [rng.uniform(-1, 1, shape).astype(np.float32) for _ in range(inputs)]
    y = [np.zeros(shape, np.float32) for _ in range(outputs)]
    found = [np.full(shape, 7, np.float32) for _ in range(outputs)]
    rows = [a.T if time_first else a for a in (*x, *y)]
    for t in range(rows[0].shape[1]):
        step(rows[:inputs], rows[inputs:], t)
    build(Schedule(after), target)(*x, *found)
    for a, b in zip(y, found, strict=True):
        np.testing.assert_allclose(b, a, rtol=2e-5, atol=2e-5)


@pytest.mark.part(3)
@pytest.mark.parametrize("time_first", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("name", CASES)
def test_candidates_of_scans(name: str, time_first: bool) -> None:
    rng = np.random.default_rng(0)
    for n, m in ((32, 24), (13, 9)):
        func = program(name, n, m, time_first=time_first)
        check(func, func, name, time_first=time_first, target="cpu -threads=1")
        made = sketches(func, resolve("cpu -threads=2"))
        assert any("ordered" in s.name for s in made)
        for sketch in made:
            for row in some_rows(sketch, rng, 2).tolist():
                after = sketch.trace.with_row(row).apply(func).func
                check(func, after, name, time_first=time_first, target="cpu -threads=2")


@pytest.mark.parametrize(("name", "form"), [("sum", "rows"), ("cell", "gathered")])
def test_rows_run_at_once_around_their_steps(name: str, form: str) -> None:
    func = program(name, 64, 50)
    (sketch,) = [
        s for s in sketches(func, resolve("cpu -threads=2")) if f"ordered_{form}" in s.name
    ]
    (row,) = some_rows(sketch, np.random.default_rng(0), 1).tolist()
    nest = sketch.trace.with_row(row).apply(func).func.body
    (steps,) = [s for s in walk(nest) if type(s) is For and s.var.name == "t"]
    assert any(s.kind is ForKind.PARALLEL for s in walk(nest) if type(s) is For)
    inside = {s.kind for s in walk(steps.body) if type(s) is For}
    assert inside & {ForKind.UNROLL, ForKind.VECTOR}


def test_there_are_more_candidates_than_a_few() -> None:
    made = sketches(program("sum", 256, 512), resolve("cpu -threads=1"))
    assert sum(len(some_rows(s, np.random.default_rng(0), 99)) for s in made) > 5


def test_coupled_blocks_are_one_group() -> None:
    fusion = fusion_groups(program("cell", 64, 50), "cpu -threads=1")
    (group,) = [g for g in fusion.groups if g.kind is GroupKind.ORDERED]
    assert len(group.members) == 2
    assert fusion.kept == ()


def test_a_first_element_that_an_if_sets_apart() -> None:
    """The program is canonicalised first: its blocks are others than those that were written."""
    func = parse("""
@tw.script
def first(X: T.Buffer((16, 40), "float32"), Y: T.Buffer((16, 40), "float32")):
    for i, t in T.grid(16, 40):
        with T.block("Y"):
            vi = T.axis.spatial(16, i)
            vt = T.axis.opaque(40, t)
            if vt > 0:
                Y[vi, vt] = Y[vi, vt - 1] * 0.5 + X[vi, vt]
            else:
                Y[vi, vt] = X[vi, vt]
""")
    made = sketches(func, resolve("cpu -threads=1"))
    assert any("ordered" in s.name for s in made)
    x = np.random.default_rng(0).standard_normal((16, 40)).astype("float32")
    want = x.copy()
    for t in range(1, 40):
        want[:, t] += want[:, t - 1] * np.float32(0.5)
    for sketch in made:
        (row,) = some_rows(sketch, np.random.default_rng(0), 1).tolist()
        y = np.empty_like(x)
        build(sketch.trace.with_row(row).apply(func), "cpu -threads=1")(x, y)
        np.testing.assert_allclose(y, want, rtol=1e-5)
