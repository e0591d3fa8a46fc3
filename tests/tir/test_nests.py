"""Conditions, bindings and varying extents around blocks become parts of the blocks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.base.errors import ParseError, VerifyError
from tilewright.schedule.find import blocks_in
from tilewright.tir.equality import structural_equal
from tilewright.tir.interpreter import interpret
from tilewright.tir.ir import Block, Func, If
from tilewright.tir.parser import parse
from tilewright.tir.printer import func_text
from tilewright.tir.verify import verify

N = 12
HEAD = """@tw.script
def f(
    A: T.Buffer((12, 12), "float32"),
    B: T.Buffer((12,), "float32"),
    K: T.Buffer((12,), "int64", value_range=(0, 12)),
    C: T.Buffer((12, 12), "float32"),
    n: T.int64,
):
    T.inplace(C)
"""
BLOCK = """
with T.block("C"):
    vi = T.axis.spatial(12, i)
    vj = T.axis.spatial(12, j)
    C[vi, vj] = A[vi, vj] * 2.0
"""


def indented(text: str, depth: int) -> str:
    return "".join("    " * depth + line + "\n" for line in text.strip("\n").splitlines())


def program(*headers: str, inside: str = BLOCK) -> Func:
    """A program of statements in each other, the last of which is around `inside`."""
    lines = "".join(indented(line, d + 1) for d, line in enumerate(headers))
    return parse(HEAD + lines + indented(inside, len(headers) + 1))


def arrays() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    a, c = (rng.standard_normal((N, N)).astype("float32") for _ in range(2))
    b = rng.standard_normal(N).astype("float32")
    return {"A": a, "B": b, "K": rng.integers(0, N, N), "C": c, "n": 5}


def check(func: Func, *headers: str) -> None:
    """`func` stores what Python's loops with these headers would."""
    verify(func)
    assert structural_equal(parse(func_text(func)), func)
    wanted = arrays()
    python = "".join(" " * d + line + "\n" for d, line in enumerate(headers))
    python = python.replace("T.parallel", "range").replace("T.minimum", "min")
    exec(f"{python}{' ' * len(headers)}C[i, j] = A[i, j] * 2", wanted)
    runs: list[Callable[..., Any]] = [partial(interpret, func), tw.build(func)]
    for run in runs:
        values = arrays()
        run(*values.values())
        np.testing.assert_array_equal(values["C"], wanted["C"])


TRIANGLES = [
    "range(i)", "range(i + 1)", "range(i, 12)", "range(i + 1, 12)", "range(11, i, -1)",
    "range(i, 12, 3)", "range(i // 2)", "range(12 - i)", "range(T.minimum(i * 2, 12))",
    "range(i - 6)", "range(i, i + 1)",
]  # fmt: skip


@pytest.mark.parametrize("ends", TRIANGLES)
@pytest.mark.parametrize("inside", [BLOCK, "C[i, j] = A[i, j] * 2.0"])
def test_loops_that_others_end(ends: str, inside: str) -> None:
    headers = ("for i in range(12):", f"for j in {ends}:")
    func = program(*headers, inside=inside)
    check(func, *headers)
    loop = func.body.body  # type: ignore[attr-defined]
    assert isinstance(loop.extent, int)


def test_ends_of_three_loops() -> None:
    headers = ("for k in range(3):", "for i in range(k * 4, k * 4 + 4):", "for j in range(i):")
    check(program(*headers), *headers)


def test_a_binding_ends_a_loop() -> None:
    inside = "m = i // 2\nfor j in range(m):\n" + indented(BLOCK, 1)
    func = program("for i in T.parallel(12):", inside=inside)
    check(func, "for i in range(12):", "for j in range(i // 2):")


@pytest.mark.parametrize("extent", ["n", "i + n", "K[0]", "K[i]", "T.minimum(K[i], 3)"])
@pytest.mark.parametrize("form", ["for j in range({}):", "for j in range(i, {}):"])
def test_extents_of_no_known_size_are_refused(extent: str, form: str) -> None:
    with pytest.raises(ParseError) as caught:
        program("for i in range(12):", form.format(extent))
    assert caught.value.data["line"] == 11


@pytest.mark.parametrize("axis", ["T.axis.spatial(i + 1, j)", "T.axis.spatial(12, j)"])
def test_axes_over_a_triangle(axis: str) -> None:
    headers = ("for i in range(12):", "for j in range(i + 1):")
    check(program(*headers, inside=BLOCK.replace("T.axis.spatial(12, j)", axis)), *headers)


CONDITIONS = [
    ("for i in range(12):", "if B[11 - i] < 0:", "for j in range(12):"),
    ("for i in range(12):", "for j in range(12):", "if (B[i] < 0) & (i > 3) & (A[j, i] > 0):"),
    ("for i in range(12):", "if i > 0:", "if B[i - 1] < 0:", "for j in range(12):"),
    ("for i in range(12):", "if K[i] > 2:", "for j in range(i):", "if A[K[j], i] > 0:"),
    ("for i in range(12):", "if i > 0:", "for j in range(12):", "if j % i == 0:"),
    ("for i in range(12):", "if i < n:", "for j in range(12):"),
]


@pytest.mark.parametrize("headers", CONDITIONS)
def test_conditions_around_a_block(headers: tuple[str, ...]) -> None:
    func = program(*headers)
    check(func, *headers)
    (block,) = blocks_in(func.body)
    read = {r.buffer.name for r in block.reads}
    assert read == {name for name in "ABK" if name == "A" or f"{name}[" in "".join(headers)}


def test_where_may_read_memory() -> None:
    where = BLOCK.replace("    C[", "    T.where((B[j] < 0) & (i < 7))\n    C[")
    headers = ("for i in range(12):", "for j in range(12):")
    check(program(*headers, inside=where), *headers, "if B[j] < 0 and i < 7:")


def test_declared_regions_get_those_of_conditions() -> None:
    declared = "    T.reads(A[vi, vj], K[vi])\n    T.writes(C[vi, vj])\n    C["
    func = program(
        "for i in range(12):", "for j in range(12):", "if B[j] < 0:",
        inside=BLOCK.replace("    C[", declared),
    )  # fmt: skip
    (block,) = blocks_in(func.body)
    assert [r.buffer.name for r in block.reads] == ["B", "A", "K"]


SPLIT = """
with T.block("C"):
    vi = T.axis.spatial(12, a * 4 + b)
    vj = T.axis.spatial(12, j)
    C[vi, vj] = A[vi, vj] * 2.0
"""


def test_conditions_on_parts_of_iterations() -> None:
    loops = ("for a in range(3):", "for b in range(4):", "for j in range(12):")
    func = program(*loops, "if B[11 - a * 4 - b] < 0:", inside=SPLIT)
    check(func, *loops, "i = a * 4 + b\n   if B[11 - i] < 0:")
    with pytest.raises(ParseError):
        program(*loops, "if B[a] < 0:", inside=SPLIT)


def test_a_loop_that_no_iteration_depends_on() -> None:
    """The block runs in the order of that loop, as before."""
    once = 'with T.block("C"):\n    C[0, 0] = A[0, 0] + C[0, 0] * 2.0'
    func = program("for i in range(12):", "if B[i] < 0:", inside=once)
    verify(func)
    values = arrays()
    start, below = values["C"][0, 0], int((values["B"] < 0).sum())
    interpret(func, *values.values())
    for _ in range(below):
        start = values["A"][0, 0] + start * np.float32(2)
    assert values["C"][0, 0] == start


def test_branches() -> None:
    """The blocks of both; a statement between them stays a conditional one."""
    text = """
for i in range(12):
    for j in range(12):
        if B[i] < 0:
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = 1.0
        else:
            C[i, j] = 3.0
            with T.block("D"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = C[vi, vj] * A[vi, vj]
"""
    func = parse(HEAD + indented(text, 1))
    verify(func)
    values = arrays()
    wanted = np.where(values["B"][:, None] < 0, np.float32(1), np.float32(3) * values["A"])
    tw.build(func)(*values.values())
    np.testing.assert_array_equal(values["C"], wanted)


CHANGED = """
with T.block("C"):
    vi = T.axis.spatial(12, i)
    C[vi, 0] = -C[vi, 0]
"""


def test_a_condition_on_what_is_stored_under_it() -> None:
    """One visit asks once; several would ask again what the first has changed."""
    func = program("for i in range(12):", "if C[i, 0] < 0:", inside=CHANGED)
    verify(func)
    values = arrays()
    wanted = np.abs(values["C"][:, 0])
    tw.build(func)(*values.values())
    np.testing.assert_array_equal(values["C"][:, 0], wanted)
    again = CHANGED + CHANGED.replace('"C"', '"D"')
    for inside in (again, "for j in range(2):\n" + indented(CHANGED, 1)):
        with pytest.raises(ParseError):
            program("for i in range(12):", "if C[i, 0] < 0:", inside=inside)


def test_a_binding_that_reads_memory() -> None:
    taken = "x = B[i]\nif x < 0:\n" + indented(BLOCK, 1)
    headers = ("for i in range(12):", "for j in range(12):")
    check(program(*headers, inside=taken), *headers, "if B[i] < 0:")
    with pytest.raises(ParseError):
        program(*headers, inside=taken.replace("B[i]", "C[i, j]"))
    at = "x = K[i]\n" + BLOCK.replace("(12, j)", "(12, x)")
    with pytest.raises(VerifyError):
        verify(program(*headers, inside=at))


def test_a_condition_on_what_a_variable_was_bound_to() -> None:
    """It is asked of the value, also where the memory that this was read from is stored to."""
    turned = "x = C[i, 0]\nC[i, 0] = C[i, 1]\nif x < 0:\n    C[i, 1] = x"
    func = program("for i in range(12):", inside=turned)
    assert structural_equal(parse(func_text(func)), func)
    before = arrays()["C"]
    wanted = np.where(before[:, 0] < 0, before[:, 0], before[:, 1])
    for run in (partial(interpret, func), tw.build(func)):
        values = arrays()
        run(*values.values())
        np.testing.assert_array_equal(values["C"][:, 0], before[:, 1])
        np.testing.assert_array_equal(values["C"][:, 1], wanted)


SUM = """
with T.block("C"):
    vi = T.axis.spatial(12, i)
    vk = T.axis.reduce(12, k)
    with T.init():
        C[vi, 0] = 0.0
    C[vi, 0] = C[vi, 0] + A[vi, vk]
"""


def test_a_condition_on_terms_leaves_out_terms() -> None:
    """One on elements leaves out elements, and their inits."""
    loops = ("for i in range(12):", "for k in range(12):")
    values = arrays()
    terms = np.where(values["B"] < 0, values["A"], 0).sum(1)
    func = program(*loops, "if B[k] < 0:", inside=SUM)
    verify(func)
    tw.build(func)(*values.values())
    np.testing.assert_allclose(values["C"][:, 0], terms, rtol=1e-5)

    values = arrays()
    elements = np.where(values["B"] < 0, values["A"].sum(1), values["C"][:, 0])
    func = program("for i in range(12):", "if B[i] < 0:", "for k in range(12):", inside=SUM)
    verify(func)
    tw.build(func)(*values.values())
    np.testing.assert_allclose(values["C"][:, 0], elements, rtol=1e-5)


def test_blocks_in_blocks() -> None:
    """The inner one knows the iteration variables of the outer one as its loops."""
    outer = """
with T.block("outer"):
    vi = T.axis.spatial(12, i)
    for j in range(vi):
        if B[vi] < 0:
            with T.block("C"):
                vii = T.axis.spatial(12, vi)
                vj = T.axis.spatial(12, j)
                C[vii, vj] = A[vii, vj] * 2.0
"""
    func = program("for i in range(12):", inside=outer)
    check(func, "for i in range(12):", "for j in range(i):", "if B[i] < 0:")
    (block,) = blocks_in(func.body)
    assert {r.buffer.name for r in block.reads} == {"A", "B"}
    inner = block.body.body  # type: ignore[attr-defined]
    assert isinstance(inner, Block)
    assert isinstance(inner.body, If)
