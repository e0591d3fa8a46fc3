"""Loops over triangles run their own iterations alone."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.codegen.build import compile_func, to_module
from tilewright.codegen.cpu.llvm_stmt import part
from tilewright.codegen.lower import lower
from tilewright.codegen.passes.rewrite import loops, ranges_of
from tilewright.schedule import Schedule
from tilewright.target import CpuTarget
from tilewright.tir.evaluate import evaluate
from tilewright.tir.ir import Expr, For, Func, If, as_expr, const
from tilewright.tir.parser import parse
from tilewright.tir.visit import substitute, walk

N = 24
TARGET = CpuTarget.named("cascadelake", threads=1)


def program(ends: str, *, inner: str = "") -> Func:
    """A loop j in a loop i, and a sum over k in it where there is `inner`."""
    lines = ["for i in range(24):", f"    for j in {ends}:"]
    if inner:
        lines += [
            f"        for k in {inner}:",
            '            with T.block("C"):',
            '                vi, vk = T.axis.remap("SR", [i, k])',
            "                vj = T.axis.spatial(24, j)",
            "                with T.init():",
            "                    C[vi, vj] = 0.0",
            "                C[vi, vj] = C[vi, vj] + A[vi, vk] * A[vj, vk]",
        ]
    else:
        lines += ["        C[i, j] = A[i, j] * 2.0"]
    head = 'def f(A: T.Buffer((24, 24), "float32"), C: T.Buffer((24, 24), "float32")):\n'
    return parse(head + "".join(f"    {line}\n" for line in lines))


def visits(func: Func, name: str) -> int:
    """How often the loop `name` of the lowered program runs its body, by what is left of it."""
    lowered = lower(func, TARGET)
    (outer,) = [f for f in loops(lowered.body) if f.var.name == "i"]
    total = 0
    for loop in [f for f in loops(outer) if f.var.name == name]:
        some = part(loop, ranges_of(lowered.body))
        for i in range(extent(outer)):
            ends: list[Expr | int] = [0, loop.extent] if some is None else [some.begin, some.end]
            begin, end = (value(e, outer, i) for e in ends)
            total += max(0, end - begin)
    return total


def extent(loop: For) -> int:
    assert isinstance(loop.extent, int)
    return loop.extent


def value(e: Expr | int, loop: For, i: int) -> int:
    """The value of an expression in one iteration of the loop."""
    return int(evaluate(substitute(as_expr(e), {loop.var: const(i)}), {}))


@pytest.mark.parametrize(
    "ends",
    ["range(i)", "range(i + 1)", "range(i, 24)", "range(24 - i)", "range(i // 3)", "range(i - 9)"],
)
@pytest.mark.parametrize("inner", ["", "range(24)"])
def test_iterations_are_those_of_the_text(ends: str, inner: str) -> None:
    func = program(ends, inner=inner)
    wanted = sum(len(eval(ends, {"i": i})) for i in range(N))
    assert visits(func, "j") == wanted
    a = np.random.default_rng(0).standard_normal((N, N)).astype("float32")
    got = np.full((N, N), 7, "float32")
    to_module(compile_func(func, "cpu -threads=1"))(a, got)
    inside = np.array([[j in eval(ends, {"i": i}) for j in range(N)] for i in range(N)])
    wanted_values = np.where(inside, a @ a.T if inner else a * 2, 7)
    np.testing.assert_allclose(got, wanted_values, rtol=1e-4, atol=1e-4)


def test_a_condition_on_all_iterations_is_asked_once() -> None:
    lowered = lower(program("range(i)", inner="range(24)"), TARGET)
    (inner,) = [f for f in loops(lowered.body) if f.var.name == "k"]
    assert not any(type(n) is If for n in walk(inner.body))


def test_a_tail_is_no_triangle() -> None:
    """Tiles are cut where a guard fails: their code stays as it is."""
    func = program("range(24)")
    sch = Schedule(func)
    (label,) = sch.make_blocks()
    outer, inner = sch.split(sch.get_loops(label)[1], [None, 7])
    sch.reorder(inner, outer)
    lowered = lower(sch.func, TARGET)
    for loop in loops(lowered.body):
        assert part(loop, ranges_of(lowered.body)) is None
