"""`compute_inline` and `reverse_compute_inline`."""

from __future__ import annotations

import pytest

from tilewright.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.tir import te
from tilewright.tir.ir import Func

from .conftest import Golden
from .programs import chain, matmul_relu, stencil


def test_inline(golden: Golden) -> None:
    golden("compute_inline/chain", chain(), lambda s: s.compute_inline(s.get_block("B")))


def test_inline_into_several_reads(golden: Golden) -> None:
    golden("compute_inline/stencil", stencil(), lambda s: s.compute_inline(s.get_block("B")))


def test_inline_into_a_reduction(golden: Golden) -> None:
    golden("compute_inline/reduction", scaled(), lambda s: s.compute_inline(s.get_block("B")))


def test_reverse_inline(golden: Golden) -> None:
    golden(
        "reverse_compute_inline/chain",
        chain(),
        lambda s: s.reverse_compute_inline(s.get_block("C")),
    )


def test_reverse_inline_of_a_transpose(golden: Golden) -> None:
    golden(
        "reverse_compute_inline/transpose",
        turned(),
        lambda s: s.reverse_compute_inline(s.get_block("C")),
    )


def test_inline_of_a_parameter() -> None:
    sch = Schedule(chain())
    with pytest.raises(ScheduleError, match="block C writes C, a parameter of the function"):
        sch.compute_inline(sch.get_block("C"))


def test_inline_of_a_reduction() -> None:
    sch = Schedule(matmul_relu())
    with pytest.raises(ScheduleError, match="block C must be spatial and store a single value"):
        sch.compute_inline(sch.get_block("C"))


def test_reverse_inline_into_a_reduction() -> None:
    sch = Schedule(matmul_relu())
    with pytest.raises(ScheduleError, match="block C is a reduction, which its consumer cannot"):
        sch.reverse_compute_inline(sch.get_block("D"))


def test_reverse_inline_of_a_reduction() -> None:
    sch = Schedule(scaled())
    with pytest.raises(ScheduleError, match="block S is a reduction"):
        sch.reverse_compute_inline(sch.get_block("S"))


def test_reverse_inline_at_other_places() -> None:
    sch = Schedule(stencil())
    with pytest.raises(ScheduleError, match="block C must read B at its plain iteration variables"):
        sch.reverse_compute_inline(sch.get_block("C"))


def test_reverse_inline_of_inputs_alone() -> None:
    sch = Schedule(chain())
    with pytest.raises(ScheduleError, match="block B must read the result of one block"):
        sch.reverse_compute_inline(sch.get_block("B"))


def test_reverse_inline_with_another_reader() -> None:
    a = te.placeholder((6,), "int32", name="A")
    b = te.compute((6,), lambda i: a[i] + 1, name="B")
    c = te.compute((6,), lambda i: b[i] * 2, name="C")
    d = te.compute((6,), lambda i: b[i] * 3, name="D")
    sch = Schedule(te.func([a, c, d], name="fork"))
    with pytest.raises(ScheduleError, match="B is read by other blocks too"):
        sch.reverse_compute_inline(sch.get_block("C"))


def scaled() -> Func:
    """The sums of the rows of A * 2."""
    a = te.placeholder((6, 4), "int32", name="A")
    b = te.compute((6, 4), lambda i, j: a[i, j] * 2, name="B")
    r = te.reduce_axis(4, name="r")
    s = te.compute((6,), lambda i: te.sum(b[i, r], axis=r), name="S")
    return te.func([a, s], name="scaled")


def turned() -> Func:
    """B = A + 1, then C the transpose of B * 2."""
    a = te.placeholder((6, 4), "int32", name="A")
    b = te.compute((6, 4), lambda i, j: a[i, j] + 1, name="B")
    c = te.compute((4, 6), lambda i, j: b[j, i] * 2, name="C")
    return te.func([a, c], name="turned")
