"""compute_ahead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.tir import te
from tilewright.tir.equality import structural_equal
from tilewright.tir.ir import Expr, Func
from tilewright.tir.parser import parse
from tilewright.tir.verify import verify

from .conftest import Golden
from .machinery import check_compiled, check_meaning, check_replays


def product(value: Callable[[Expr], Any], dtype: str = "int32") -> Func:
    """Sums of `value(A[i, k]) * B[k, j]`."""
    a, b = te.placeholder((6, 5), dtype, name="A"), te.placeholder((5, 4), "int32", name="B")
    k = te.reduce_axis(5, name="k")
    c = te.compute((6, 4), lambda i, j: te.sum(value(a[i, k]) * b[k, j], axis=k), name="C")
    return te.func([a, b, c], name="product")


def test_an_activation(golden: Golden) -> None:
    func = product(lambda x: te.maximum(x, 0))
    sch = golden("compute_ahead/relu", func, lambda s: s.compute_ahead(s.get_block("C"), 0))
    check_compiled(func, sch.func)


def test_a_cast_is_computed_where_a_copy_is_packed(golden: Golden) -> None:
    func = product(lambda x: te.cast(x, "int32"), "int8")

    def script(sch: Schedule) -> None:
        block = sch.get_block("C")
        ahead = sch.compute_ahead(block, 0)
        sch.pack(block, 0, "ABa", [4])
        sch.compute_inline(ahead)

    check_compiled(func, golden("compute_ahead/packed", func, script).func)


def test_inlining_undoes_it() -> None:
    func = product(lambda x: te.select(x > 2, x * x, -x))
    sch = Schedule(func)
    sch.compute_inline(sch.compute_ahead(sch.get_block("C"), 0))
    assert structural_equal(sch.func, func)


def test_what_is_computed_before_and_read_twice() -> None:
    a = te.placeholder((8,), "int32", name="A")
    b = te.compute((8,), lambda i: a[i] + 1, name="B")
    c = te.compute((7,), lambda i: te.abs(b[i]) * te.abs(b[i + 1]) - a[i], name="C")
    func = te.func([a, c])
    sch = Schedule(func)
    sch.compute_ahead(sch.get_block("C"), 0)
    check_meaning(func, sch.func)
    check_replays(func, sch)


def test_an_init_reads_too() -> None:
    func = parse("""
@tw.script
def sums(A: T.Buffer((6, 5), "int32"), S: T.Buffer((6,), "int32")):
    for i, k in T.grid(6, 5):
        with T.block("S"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                S[vi] = T.abs(A[vi, 0])
            S[vi] = S[vi] + T.abs(A[vi, vk])
""")
    sch = Schedule(func)
    sch.compute_ahead(sch.get_block("S"), 0)
    assert "T.abs" not in str(sch.func).split('T.block("S")')[1]
    check_compiled(func, sch.func)


@pytest.mark.parametrize(
    "value",
    [
        lambda x, _: x,
        lambda x, y: te.abs(x) + y,
        lambda x, y: te.abs(x * y),
        lambda x, _: 7 // x,
    ],
)
def test_refusals(value: Callable[[Expr, Expr], Any]) -> None:
    """Elements as they are, in two forms, two in one, and what may divide by zero."""
    a = te.placeholder((8,), "int32", name="A")
    func = te.func([a, te.compute((7,), lambda i: value(a[i], a[i + 1]), name="C")])
    sch = Schedule(func)
    with pytest.raises(ScheduleError):
        sch.compute_ahead(sch.get_block("C"), 0)


def test_indices_keep_their_range() -> None:
    p = te.placeholder((6,), "int32", name="P", value_range=(0, 8))
    a = te.placeholder((8,), "int32", name="A")
    func = te.func([p, a, te.compute((6,), lambda i: a[te.cast(p[i], "int64")], name="C")])
    sch = Schedule(func)
    with pytest.raises(ScheduleError):
        sch.compute_ahead(sch.get_block("C"), 1)


def test_what_a_condition_never_lets_read_is_not_computed_ahead() -> None:
    """A side of a select that is not taken may read outside of the buffer."""
    func = parse("""
def main(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
    for i in range(8):
        with T.block("B"):
            v = T.axis.spatial(8, i)
            B[v] = T.select(T.bool(False) & True, A[v - 9], 0) + T.int32(v)
""")
    verify(func)
    sch = Schedule(func)
    with pytest.raises(ScheduleError):
        sch.compute_ahead(sch.get_block("B"), 0)


def test_divisors_are_not_computed_ahead() -> None:
    """They are known not to be zero; elements of a copy are not."""
    func = parse("""
def main(A: T.Buffer((8,), "int32"), D: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
    for i in range(8):
        with T.block("B"):
            v = T.axis.spatial(8, i)
            B[v] = A[v] // (D[v] % 3 + 1)
""")
    sch = Schedule(func)
    with pytest.raises(ScheduleError):
        sch.compute_ahead(sch.get_block("B"), 1)


def test_conditions_of_which_another_block_has_the_opposite() -> None:
    sch = Schedule(
        parse("""
@tw.script
def chosen(P: T.Buffer((4,), "int32"), B: T.Buffer((4,), "int32"), S: T.Buffer((4,), "int32")):
    for i in range(4):
        with T.block("low"):
            vi = T.axis.spatial(4, i)
            if T.abs(P[vi]) < 3:
                B[vi] = 1
        with T.block("high"):
            vi = T.axis.spatial(4, i)
            if T.abs(P[vi]) >= 3:
                B[vi] = 2
    for i in range(4):
        with T.block("S"):
            vi = T.axis.spatial(4, i)
            S[vi] = B[vi]
""")
    )
    with pytest.raises(ScheduleError):
        sch.compute_ahead(sch.get_block("low"), 0)
