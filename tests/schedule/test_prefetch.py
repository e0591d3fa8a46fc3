"""`prefetch`."""

from __future__ import annotations

import pytest

from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.tir import te
from tilewright.tir.ir import Func

from .conftest import Golden
from .machinery import check_compiled, check_meaning, check_replays
from .programs import chain, elementwise, loops, matmul


def test_next_row(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        block = sch.get_block("B")
        i, j = sch.get_loops(block)
        j0, j1 = sch.split(j, factors=[None, 16])
        sch.vectorize(j1)
        sch.prefetch(block, 0, j0, ahead_of=i, offset=2)

    sch = golden("prefetch/row", elementwise(16, 40, "float32"), script)
    check_compiled(sch.original, sch.func)


def test_a_whole_tile(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        block = sch.get_block("C")
        i, j, k = sch.get_loops(block)
        k0, k1 = sch.split(k, factors=[None, 4])
        sch.reorder(k0, i, j, k1)
        sch.prefetch(block, 1, k0)

    sch = golden("prefetch/tile", matmul(8, 40, 10), script)
    check_compiled(sch.original, sch.func)


def test_hints_follow_later_steps() -> None:
    sch = Schedule(elementwise(16, 40))
    block = sch.get_block("B")
    i, _ = sch.get_loops(block)
    hint = sch.prefetch(block, 0, i)
    outer, _ = sch.split(i, factors=[None, 5])
    sch.parallel(outer)
    *_, lines = sch.get_loops(hint)
    sch.unroll(lines)
    check_meaning(sch.original, sch.func)
    check_compiled(sch.original, sch.func)


def test_rows_with_strides() -> None:
    a = te.placeholder((4, 8), "float32", name="A", strides=(64, 8))
    b = te.compute((4, 8), lambda i, j: a[i, j] + 1.0, name="B")
    sch = Schedule(te.func([a, b], name="f"))
    hint = sch.prefetch(sch.get_block("B"), 0, loops(sch, "B")[0])
    assert "T.grid(1, 4)" in str(sch.func)  # two elements to a line of 64 bytes
    assert len(sch.get_loops(hint)) == 3


def test_symbolic_sizes() -> None:
    sch = Schedule(elementwise(16, 64), symbolic=True)
    block = sch.get_block("B")
    _, j = sch.get_loops(block)
    j0, _ = sch.split(j, factors=sch.sample_perfect_tile(j, 2, 32))
    sch.prefetch(block, 0, j0, offset=sch.sample_categorical((1, 2, 4)))
    again = Schedule(sch.original)
    for step in sch.trace:
        again.replay(step)
    check_meaning(again.original, again.func)


def test_indices_that_are_read_are_not_read_ahead() -> None:
    a = te.placeholder((4,), "int32", name="A")
    b = te.compute((8,), lambda i: a[i // 2], name="B")
    sch = Schedule(te.func([a, b], name="twice"))
    block = sch.get_block("B")
    sch.cache_index(block, "global")
    sch.prefetch(block, 0, *sch.get_loops(block))
    assert "T.prefetch(A[v0 * 16])" in str(sch.func)
    check_meaning(sch.original, sch.func)


@pytest.mark.parametrize("factor", [1, 2, 4])
def test_acceptance_does_not_depend_on_decisions(factor: int) -> None:
    """A decision may leave no iterations of the one of the fused loops that the read depends on."""

    sketch = Schedule(matmul(4, 6, 4), symbolic=True)
    block = sketch.get_block("C")
    _, j, k = sketch.get_loops(block)
    k0, _ = sketch.split(k, factors=[None, sketch.sample_categorical((1, 2, 4))])
    sketch.prefetch(block, 0, sketch.fuse(j, k0))
    assert sketch.space is not None
    assert not sketch.space.constraints
    sch = sketch.trace.with_row([factor]).apply(sketch.original)
    check_replays(sch.original, sch)
    check_meaning(sch.original, sch.func)


def test_not_in_the_loop() -> None:
    sch = Schedule(two_nests())
    with pytest.raises(ScheduleError):
        sch.prefetch(sch.get_block("B"), 0, loops(sch, "C")[0])


def test_ahead_of_a_loop_further_inside() -> None:
    sch = Schedule(elementwise())
    i, j = loops(sch, "B")
    with pytest.raises(ScheduleError):
        sch.prefetch(sch.get_block("B"), 0, i, ahead_of=j)


def test_no_such_input() -> None:
    sch = Schedule(elementwise())
    with pytest.raises(ScheduleError):
        sch.prefetch(sch.get_block("B"), 1, loops(sch, "B")[0])


def test_internal_buffer() -> None:
    sch = Schedule(chain())
    hint = sch.prefetch(sch.get_block("C"), 0, loops(sch, "C")[0])
    assert "T.prefetch(B[" in str(sch.func)
    assert hint.name == "B_prefetch"


def test_registers() -> None:
    sch = Schedule(chain())
    sch.set_scope(sch.get_block("B"), 0, "register")
    with pytest.raises(ScheduleError):
        sch.prefetch(sch.get_block("C"), 0, loops(sch, "C")[0])


@pytest.mark.parametrize(("offset", "words"), [(0, "expected at least 1"), (1 << 30, "at most")])
def test_offsets(offset: int, words: str) -> None:
    sch = Schedule(elementwise())
    with pytest.raises(ScheduleError, match=words):
        sch.prefetch(sch.get_block("B"), 0, loops(sch, "B")[0], offset=offset)


def test_vectorized_loop() -> None:
    sch = Schedule(elementwise())
    sch.vectorize(loops(sch, "B")[1])
    with pytest.raises(ScheduleError):
        sch.prefetch(sch.get_block("B"), 0, loops(sch, "B")[1])


def test_what_does_not_move() -> None:
    sch = Schedule(matmul())
    i, j, _ = loops(sch, "C")
    sch.prefetch(sch.get_block("C"), 1, j, ahead_of=i)
    check_meaning(sch.original, sch.func)


def test_too_much_at_once() -> None:
    sch = Schedule(elementwise(4, 1 << 20))
    with pytest.raises(ScheduleError):
        sch.prefetch(sch.get_block("B"), 0, loops(sch, "B")[0])


def two_nests() -> Func:
    """B = A + 1 and C = A * 2."""
    a = te.placeholder((6,), "int32", name="A")
    b = te.compute((6,), lambda i: a[i] + 1, name="B")
    c = te.compute((6,), lambda i: a[i] * 2, name="C")
    return te.func([a, b, c], name="two")
