"""distinguish_reads."""

from __future__ import annotations

import pytest

from tilewright.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.tir import te
from tilewright.tir.equality import structural_equal
from tilewright.tir.ir import Func
from tilewright.tir.verify import verify

from .conftest import Golden
from .machinery import check_compiled, check_meaning
from .programs import matmul


def gram(n: int = 6, m: int = 5) -> Func:
    """C = A.T @ A."""
    a = te.placeholder((n, m), "int32", name="A")
    k = te.reduce_axis(n, name="k")
    c = te.compute((m, m), lambda i, j: te.sum(a[k, i] * a[k, j], axis=k), name="C")
    return te.func([a, c], name="gram")


def test_two_places(golden: Golden) -> None:
    sch = golden("distinguish_reads/gram", gram(), lambda s: s.distinguish_reads(s.get_block(0), 0))
    check_compiled(gram(), sch.func)


def test_each_place_gets_one_copy() -> None:
    a = te.placeholder((8,), "int32", name="A")
    b = te.compute((6,), lambda i: a[i] * a[i + 1] + a[i + 2] * a[i + 1], name="B")
    func = te.func([a, b])
    sch = Schedule(func)
    copies = sch.distinguish_reads(sch.get_block("B"), 0)
    assert [c.name for c in copies] == ["A_copy", "A_copy_1"]
    check_meaning(func, sch.func)


def test_copies_have_variables_of_their_own() -> None:
    a = te.placeholder((4, 5), "int32", name="A")
    b = te.compute((4, 5), lambda i, j: a[i, j] * 2, name="B")
    c = te.compute((2, 5), lambda i, j: b[i, j] * b[i + 1, j] + b[i + 2, j], name="C")
    func = te.func([a, c])
    sch = Schedule(func)
    sch.transform_layout(sch.get_block("B"), ("write", 0), lambda i, j: (i * 5 + j,))
    sch.distinguish_reads(sch.get_block("C"), 0)
    verify(sch.func)
    check_meaning(func, sch.func)


def test_inlining_undoes_it() -> None:
    sch = Schedule(gram())
    for copy in sch.distinguish_reads(sch.get_block("C"), 0):
        sch.compute_inline(copy)
    assert structural_equal(sch.func, gram())


def test_what_is_computed_before_is_copied() -> None:
    a = te.placeholder((6, 5), "int32", name="A")
    e = te.compute((6, 5), lambda i, j: a[i, j] * 2, name="E")
    k = te.reduce_axis(6, name="k")
    c = te.compute((5, 5), lambda i, j: te.sum(e[k, i] * e[k, j], axis=k), name="C")
    func = te.func([a, c])
    sch = Schedule(func)
    sch.distinguish_reads(sch.get_block("C"), 0)
    check_meaning(func, sch.func)


def test_refusals() -> None:
    sch = Schedule(matmul())
    with pytest.raises(ScheduleError, match="block C reads A at one place alone"):
        sch.distinguish_reads(sch.get_block("C"), 0)
    with pytest.raises(ScheduleError, match="there is no index 2"):
        sch.distinguish_reads(sch.get_block("C"), 2)


def test_what_is_written_in_the_same_nest() -> None:
    a = te.placeholder((8,), "int32", name="A")
    b = te.compute((8,), lambda i: a[i] * 2, name="B")
    func = te.func([a, te.compute((7,), lambda i: b[i] + b[i + 1], name="C")])
    sch = Schedule(func)
    sch.compute_at(sch.get_block("B"), sch.get_loops(sch.get_block("C"))[0])
    with pytest.raises(ScheduleError, match="B is written by block B in the same loop nest"):
        sch.distinguish_reads(sch.get_block("C"), 0)
