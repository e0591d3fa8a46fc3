"""`cache_inplace`."""

from __future__ import annotations

import pytest

from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.tir import te
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse

from ..refusals import refused
from .conftest import Golden
from .machinery import check_compiled
from .programs import chain, loops, matmul


def test_in_place(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        block = sch.get_block("Y")
        first, last = sch.cache_inplace(block, 0, "local")
        sch.merge(*(sch.get_loops(b)[0] for b in (first, block, last)))

    sch = golden("cache_inplace/parameter", increment(), script)
    check_compiled(sch.original, sch.func)


def test_an_update_after_its_init(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        block = sch.get_block("C")
        sch.decompose_reduction(block, sch.get_loops(block)[0])
        sch.cache_inplace(block, 0, "global")

    golden("cache_inplace/reduction", matmul(), script)


def test_no_update() -> None:
    sch = Schedule(chain())
    with pytest.raises(ScheduleError):
        sch.cache_inplace(sch.get_block("B"), 0, "global")


def test_with_its_init() -> None:
    sch = Schedule(matmul())
    with pytest.raises(ScheduleError, match="starts from its init, and needs no earlier contents"):
        sch.cache_inplace(sch.get_block("C"), 0, "global")


def test_init_in_the_same_nest() -> None:
    sch = Schedule(matmul())
    sch.decompose_reduction(sch.get_block("C"), loops(sch, "C")[2])
    with refused(ScheduleError, "C", "C_init"):
        sch.cache_inplace(sch.get_block("C"), 0, "global")


@pytest.mark.parametrize("size", [8, 4])
def test_what_has_no_values_yet(size: int) -> None:
    sch = Schedule(half_filled(size))
    if size == 8:
        sch.cache_inplace(sch.get_block("B"), 0, "global")
        return
    with pytest.raises(ScheduleError):
        sch.cache_inplace(sch.get_block("B"), 0, "global")


def test_unknown_scope() -> None:
    sch = Schedule(increment())
    with pytest.raises(ScheduleError):
        sch.cache_inplace(sch.get_block("Y"), 0, "L1")


def increment() -> Func:
    """X = X * 2 + 1."""
    x = te.placeholder((4, 6), "int32", name="X")
    y = te.compute((4, 6), lambda i, j: x[i, j] * 2 + 1, name="Y")
    return te.func([x], name="inc", inplace={y: x})


def half_filled(size: int) -> Func:
    """C = 1 up to `size`, then C = C + 1 in the first four elements."""
    return parse(
        f"""
@tw.script
def f(C: T.Buffer((8,), "int32")):
    for i in range({size}):
        with T.block("A"):
            vi = T.axis.spatial({size}, i)
            C[vi] = 1
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            C[vi] = C[vi] + 1
"""
    )
