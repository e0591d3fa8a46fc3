"""`cache_index`."""

from __future__ import annotations

import pytest

from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.tir import te
from tilewright.tir.ir import Func

from ..refusals import refused
from .conftest import Golden
from .machinery import check_compiled, check_meaning
from .programs import chain, elementwise, loops, stencil


def test_indices_of_a_resize(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        sch.cache_index(sch.get_block("B"), "global")

    sch = golden("cache_index/resize", resize(), script)
    check_compiled(sch.original, sch.func)


def test_those_that_occur_often(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        (index,) = sch.cache_index(sch.get_block("B"), "local", 1)
        sch.unroll(sch.get_loops(index)[0])

    golden("cache_index/often", blend(), script)


def test_padded_reads_stay() -> None:
    a = te.placeholder((8,), "int32", name="A")
    b = te.compute((9,), lambda i: te.select(i >= 1, a[i - 1], 0) + a[i * 7 // 8], name="B")
    sch = Schedule(te.func([a, b], name="padded"))
    assert len(sch.cache_index(sch.get_block("B"), "global")) == 1
    check_meaning(sch.original, sch.func)


def test_indices_in_indices() -> None:
    p = te.placeholder((8,), "int32", name="P", value_range=(0, 9))
    a = te.placeholder((10,), "int32", name="A")
    b = te.compute((4,), lambda i: a[p[i * 2] + 1] + a[p[i * 2]], name="B")
    sch = Schedule(te.func([p, a, b], name="gather"))
    sch.cache_index(sch.get_block("B"), "global", 1)
    check_meaning(sch.original, sch.func)


def test_nothing_to_compute() -> None:
    sch = Schedule(elementwise())
    with pytest.raises(ScheduleError):
        sch.cache_index(sch.get_block("B"), "global")
    sch = Schedule(stencil())
    with pytest.raises(ScheduleError):
        sch.cache_index(sch.get_block("C"), "global", 1)


def test_sources_in_the_same_nest_stay() -> None:
    sch = Schedule(stencil())
    sch.compute_at(sch.get_block("B"), loops(sch, "C")[0])
    with pytest.raises(ScheduleError):
        sch.cache_index(sch.get_block("C"), "global")


def test_thresholds_and_scopes() -> None:
    sch = Schedule(chain())
    with refused(ScheduleError, "-1"):
        sch.cache_index(sch.get_block("C"), "global", -1)
    with pytest.raises(ScheduleError) as refusal:
        sch.cache_index(sch.get_block("C"), "L1")
    assert refusal.value.found == "L1"


def test_too_many() -> None:
    n = 1 << 14
    a = te.placeholder((2 * n,), "int32", name="A")
    b = te.compute((n, n), lambda i, j: a[i + j], name="B")
    sch = Schedule(te.func([a, b], name="sums"))
    with pytest.raises(ScheduleError):
        sch.cache_index(sch.get_block("B"), "global")


def resize() -> Func:
    """B[i, j] = A[i * 3 // 7, j * 5 // 9]."""
    a = te.placeholder((3, 5), "int32", name="A")
    b = te.compute((7, 9), lambda i, j: a[i * 3 // 7, j * 5 // 9], name="B")
    return te.func([a, b], name="resize")


def blend() -> Func:
    """B[i] = A[i // 2] * A[i // 2] + A[i % 4]."""
    a = te.placeholder((4,), "int32", name="A")
    b = te.compute((8,), lambda i: a[i // 2] * a[i // 2] + a[i % 4], name="B")
    return te.func([a, b], name="blend")
