"""get_block, get_loops, get_producers, get_consumers."""

from __future__ import annotations

import pytest

from tilewright.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.tir import te
from tilewright.tir.ir import Func

from .conftest import Golden
from .programs import chain, elementwise, matmul


def diamond() -> Func:
    a = te.placeholder((6,), "int32", name="A")
    b = te.compute((6,), lambda i: a[i] + 1, name="B")
    c = te.compute((6,), lambda i: b[i] * 2, name="C")
    d = te.compute((6,), lambda i: b[i] * 3, name="D")
    e = te.compute((6,), lambda i: c[i] + d[i], name="E")
    return te.func([a, e], name="diamond")


def test_producers_and_consumers(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        e = sch.get_block("E")
        producers = sch.get_producers(e)
        assert [p.name for p in producers] == ["C", "D"]
        (b,) = sch.get_producers(producers[0])
        assert sch.get_consumers(b) == producers
        (loop,) = sch.get_loops(b)
        sch.annotate(loop, "found", 1)

    golden("query/diamond", diamond(), script)


def test_ends_have_no_neighbours() -> None:
    sch = Schedule(diamond())
    assert sch.get_producers(sch.get_block("B")) == ()
    assert sch.get_consumers(sch.get_block("E")) == ()


def test_a_reduction_is_not_its_own_producer() -> None:
    sch = Schedule(matmul())
    block = sch.get_block("C")
    assert sch.get_producers(block) == ()
    assert sch.get_consumers(block) == ()


def test_blocks_by_position_and_by_name_are_one() -> None:
    sch = Schedule(chain())
    assert sch.get_block(1) is sch.get_block("C")


def test_loops_come_outermost_first() -> None:
    sch = Schedule(matmul())
    assert [v.name for v in sch.get_loops(sch.get_block("C"))] == ["i", "j", "r"]


def test_an_unknown_block_is_refused_and_others_named() -> None:
    sch = Schedule(chain())
    with pytest.raises(ScheduleError, match="no block 'X'; there are B, C"):
        sch.get_block("X")
    with pytest.raises(ScheduleError, match="no block 2; the program as written has 2"):
        sch.get_block(2)
    with pytest.raises(ScheduleError, match="no block -1"):
        sch.get_block(-1)
    assert len(sch.trace) == 0


def test_a_name_that_several_blocks_have_is_refused() -> None:
    sch = Schedule(elementwise())
    block = sch.get_block("B")
    outer, _ = sch.split(sch.get_loops(block)[0], factors=[None, 5])
    sch.loop_partition(outer)
    assert sch.get_block("B") is block
    other = Schedule(twice())
    with pytest.raises(ScheduleError, match="2 blocks are called 'B'") as refusal:
        other.get_block("B")
    assert "give the position: 0, 1" in str(refusal.value)


def twice() -> Func:
    from tilewright.tir.parser import parse

    return parse("""
@tw.script
def twice(A: T.Buffer((8,), "int32"), C: T.Buffer((8,), "int32")):
    B = T.alloc((8,), "int32")
    for i in T.serial(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi]
    for i in T.serial(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            C[vi] = B[vi]
""")


def test_a_block_that_is_gone_is_refused() -> None:
    sch = Schedule(chain())
    sch.compute_inline(sch.get_block("B"))
    with pytest.raises(ScheduleError, match="no block 'B'"):
        sch.get_block("B")
    with pytest.raises(ScheduleError, match="there is no block B in the program") as refusal:
        sch.get_block(0)
    assert "block B ended with step 1, sch.compute_inline(b0)" in str(refusal.value)
