"""get_block, get_loops, get_producers, get_consumers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule, Trace
from tilewright.schedule.find import blocks_in
from tilewright.tir import te
from tilewright.tir.equality import structural_equal
from tilewright.tir.ir import Func
from tilewright.tir.language import script

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
    with pytest.raises(ScheduleError) as refusal:
        sch.get_block("X")
    assert refusal.value.found == "X"
    with pytest.raises(ScheduleError):
        sch.get_block(2)
    with pytest.raises(ScheduleError):
        sch.get_block(-1)
    assert len(sch.trace) == 0


def test_a_name_that_several_blocks_have_is_refused() -> None:
    sch = Schedule(elementwise())
    block = sch.get_block("B")
    outer, _ = sch.split(sch.get_loops(block)[0], factors=[None, 5])
    sch.loop_partition(outer)
    assert sch.get_block("B") is block
    other = Schedule(twice())
    named: Any = other
    for step in (other.get_block, named.get_loops):
        with pytest.raises(ScheduleError):
            step("B")
    assert len(other.trace) == 0


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
    with pytest.raises(ScheduleError) as refusal:
        sch.get_block("B")
    assert refusal.value.found == "B"
    with pytest.raises(ScheduleError) as refusal:
        sch.get_block(0)
    assert "block B ended with step 1, sch.compute_inline(b0)" in str(refusal.value)


def _by_name(sch: Any) -> None:
    (i,) = sch.get_loops("C")
    sch.parallel(i)
    copy = sch.cache_read("C", 0, "local")
    sch.set_scope(copy, 0, "global")
    sch.compute_inline("B")


def _by_handle(sch: Any) -> None:
    c = sch.get_block("C")
    (i,) = sch.get_loops(c)
    sch.parallel(i)
    copy = sch.cache_read(c, 0, "local")
    sch.set_scope(copy, 0, "global")
    sch.compute_inline(sch.get_block("B"))


def test_a_name_stands_for_the_block_and_leaves_the_same_trace() -> None:
    named, handled = Schedule(chain()), Schedule(chain())
    _by_name(named)
    _by_handle(handled)
    assert named.trace.to_json() == handled.trace.to_json()
    assert str(named) == str(handled)
    again = Trace.from_json(named.trace.to_json()).apply(chain())
    assert structural_equal(again.func, named.func)


def test_names_in_a_list_of_blocks() -> None:
    one, other = (Schedule(chain()) for _ in range(2))
    for sch, consumers in ((one, ["C"]), (other, [other.get_block("C")])):
        named: Any = sch
        named.cache_read("C", 0, "local", consumers=consumers)
    assert one.trace.to_json() == other.trace.to_json()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.compute_inline("D"), "there is no block 'D'; there are B, C"),
        (lambda s: s.compute_inline("C"), "block C writes C, a parameter"),
        (lambda s: s.cache_read("C", 5, "local"), "there is no index 5"),
        (lambda s: s.cache_read("C", 0, "local", consumers=["B", "D"]), "there is no block 'D'"),
    ],
)
def test_a_refused_step_with_a_name_changes_nothing(
    call: Callable[[Any], object], message: str
) -> None:
    sch = Schedule(chain())
    before = sch.func
    with pytest.raises(ScheduleError, match=message):
        call(sch)
    assert len(sch.trace) == 0
    assert len(sch.history) == 1
    assert sch.func is before
    _by_handle(sch)
    fresh = Schedule(chain())
    _by_handle(fresh)
    assert sch.trace.to_json() == fresh.trace.to_json()


def test_positions_of_blocks_of_one_name_are_those_of_the_program_as_written() -> None:
    func = script(
        """
def f(A: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32"), D: T.Buffer((4,), "float32")):
    Z = T.alloc((4,), "float32")
    for i in range(4):
        with T.block("Z"):
            v = T.axis.remap("S", [i])
            Z[v] = A[v] + 1.0
    for i in range(4):
        with T.block("B"):
            v = T.axis.remap("S", [i])
            C[v] = Z[v]
    for i in range(4):
        with T.block("B"):
            v = T.axis.remap("S", [i])
            D[v] = Z[v] * 2.0
"""
    )
    sch: Any = Schedule(func)
    sch.compute_inline("Z")
    with pytest.raises(ScheduleError):
        sch.get_loops("B")
    assert [v.name for v in sch.get_loops(sch.get_block(2))] == ["i"]


TWO_SUMS = """
def f(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8,), "float32"), D: T.Buffer((8,), "float32")):
    Z = T.alloc((8, 8), "float32")
    for i, j in T.grid(8, 8):
        with T.block("Z"):
            v, w = T.axis.remap("SS", [i, j])
            Z[v, w] = A[v, w] + 1.0
    for i, j in T.grid(8, 8):
        with T.block("S"):
            v, w = T.axis.remap("SR", [i, j])
            with T.init():
                C[v] = 0.0
            C[v] = C[v] + Z[v, w]
    for i, j in T.grid(8, 8):
        with T.block("S"):
            v, w = T.axis.remap("SR", [i, j])
            with T.init():
                D[v] = 0.0
            D[v] = D[v] + Z[v, w] * 2.0
"""


@pytest.mark.parametrize("inlined", [False, True])
@pytest.mark.parametrize("blocks", [(1,), (2,), (1, 2), (2, 1)])
@pytest.mark.parametrize(
    "change",
    [
        lambda sch, block: sch.rfactor(sch.get_loops(block)[1]),
        lambda sch, block: sch.cache_read(block, 0, "local"),
        lambda sch, block: sch.cache_write(block, 0, "local"),
        lambda sch, block: sch.decompose_reduction(block, sch.get_loops(block)[1]),
        lambda sch, block: sch.reorder(*reversed(sch.get_loops(block))),
    ],
    ids=["rfactor", "cache_read", "cache_write", "decompose_reduction", "reorder"],
)
def test_positions_hold_whatever_steps_made_of_the_program(
    change: Any, blocks: tuple[int, ...], inlined: bool
) -> None:
    sch: Any = Schedule(script(TWO_SUMS))
    if inlined:
        sch.compute_inline("Z")
    written = [sch.get_block(k) for k in (1, 2)]
    for k in blocks:
        change(sch, sch.get_block(k))
    with pytest.raises(ScheduleError):
        sch.get_block("S")
    assert [sch.get_block(k) for k in (1, 2)] == written
    named = [b.label for b in blocks_in(sch.func.body) if b.label.name == "S"]
    assert [b for b in written if b in named] == named
    assert all(sch.get_loops(b) for b in written)


def test_a_loop_is_told_apart_by_a_block_around_which_it_is() -> None:
    sch: Any = Schedule(script(TWO_SUMS))
    with pytest.raises(ScheduleError):
        sch.get_loop("i")
    assert sch.get_loop("i", block="Z").name == "i"
