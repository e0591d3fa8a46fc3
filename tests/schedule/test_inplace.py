"""Programs that overwrite their input: blocks that read it stay ahead of the ones that write it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.tir import te
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse
from tilewright.tir.verify import verify

from .machinery import check_compiled, check_meaning, check_replays
from .programs import loops

ROWS = """
@tw.script
def rows(X: T.Buffer((6, 8), "float32")):
    T.inplace(X)
    S = T.alloc((6,), "float32")
    for i, r in T.grid(6, 8):
        with T.block("S"):
            vi, vr = T.axis.remap("SR", [i, r])
            with T.init():
                S[vi] = 0.0
            S[vi] = S[vi] + X[{read}]
    for i, j in T.grid(6, 8):
        with T.block("X"):
            vi, vj = T.axis.remap("SS", [i, j])
            X[vi, vj] = X[vi, vj] - S[vi]
"""


def rows(read: str = "vi, vr") -> Func:
    """X = X - S, where S are sums of the rows of X at `read`."""
    return parse(ROWS.replace("{read}", read))


def planes() -> Func:
    """X = X - S in place, where S are sums over the last dimension of three."""
    x = te.placeholder((2, 3, 8), name="X")
    r = te.reduce_axis(8, "r")
    s = te.compute((2, 3), lambda b, i: te.sum(x[b, i, r], axis=r), name="S")
    y = te.compute((2, 3, 8), lambda b, i, j: x[b, i, j] - s[b, i], name="X")
    return te.func([x], name="planes", inplace={y: x})


def columns() -> Func:
    """X = X - S in place, where S are sums of the columns, with a loop over columns outside."""
    text = ROWS.replace("{read}", "vr, vi").replace("T.grid(6, 8)", "T.grid(8, 6)")
    text = text.replace("T.alloc((6,)", "T.alloc((8,)").replace("X[vi, vj]", "X[vj, vi]")
    return parse(text)


def sums_at(sch: Schedule, depth: int = 0) -> None:
    sch.compute_at(sch.get_block("S"), loops(sch, "X")[depth])


def updates_at(sch: Schedule, depth: int = 0) -> None:
    sch.reverse_compute_at(sch.get_block("X"), loops(sch, "S")[depth])


def one_nest(sch: Schedule) -> None:
    sch.merge(loops(sch, "S")[0], loops(sch, "X")[0])


def moved(func: Func, step: Callable[[Schedule], object]) -> Func:
    """`func` after `step`, which keeps what it computes, also where the first loop is parallel."""
    sch = Schedule(func)
    step(sch)
    check_replays(func, sch)
    sch.parallel(loops(sch, "X")[0])
    verify(sch.func)
    check_meaning(func, sch.func)
    check_compiled(func, sch.func)
    symbolic = Schedule(func, symbolic=True)
    step(symbolic)
    symbolic.parallel(loops(symbolic, "X")[0])
    return sch.func


@pytest.mark.parametrize("make", [rows, planes, columns])
def test_sums_move_to_the_rows_that_are_overwritten(make: Callable[[], Func]) -> None:
    func = make()
    for depth in range(len(func.params[0].shape) - 1):  # type: ignore[union-attr]
        moved(func, partial(sums_at, depth=depth))


def test_sums_move_to_fused_rows() -> None:
    def step(sch: Schedule) -> None:
        top = sch.fuse(*loops(sch, "X")[:2])
        sch.compute_at(sch.get_block("S"), top)

    moved(planes(), step)


@pytest.mark.parametrize("make", [rows, columns])
def test_what_overwrites_moves_to_the_rows_of_the_sums(make: Callable[[], Func]) -> None:
    moved(make(), updates_at)


@pytest.mark.parametrize("read", ["(vi + 5) % 6, vr", "vr % 6, vr", "5 - vi, vr", "0, vr"])
@pytest.mark.parametrize("symbolic", [False, True])
def test_sums_of_rows_overwritten_before_do_not_move(read: str, symbolic: bool) -> None:
    func = rows(read)
    for step in (sums_at, updates_at, one_nest):
        with pytest.raises(ScheduleError):
            step(Schedule(func, symbolic=symbolic))
    with pytest.raises(ScheduleError) as info:
        sums_at(Schedule(func))
    assert "of block X writes X[" in str(info.value)


@pytest.mark.parametrize("step", ["compute_at", "reverse_compute_at"])
def test_sums_of_later_rows_move_to_loops_that_stay_in_order(step: str) -> None:
    func = rows("T.minimum(vi + 1, 5), vr")
    sch = Schedule(func)
    block, at = ("S", "X") if step == "compute_at" else ("X", "S")
    getattr(sch, step)(sch.get_block(block), loops(sch, at)[0])
    check_meaning(func, sch.func)
    with pytest.raises(ScheduleError):
        sch.parallel(loops(sch, "X")[0])
    sch = Schedule(func)
    sch.parallel(loops(sch, at)[0])
    with pytest.raises(ScheduleError):
        getattr(sch, step)(sch.get_block(block), loops(sch, at)[0])


def test_sums_do_not_move_into_the_row_that_is_overwritten() -> None:
    for step in (sums_at, updates_at):
        with pytest.raises(ScheduleError):
            step(Schedule(rows()), depth=1)


def test_a_reader_between_stays_ahead_of_what_overwrites() -> None:
    """Z reads all of X, so that nothing of it may be overwritten in a loop before."""
    text = str(rows()).replace("def rows(", 'def rows(Z: T.Buffer((6, 8), "float32"), ')
    nest = """
    for i, j in T.grid(6, 8):
        with T.block("Z"):
            vi, vj = T.axis.remap("SS", [i, j])
            Z[vi, vj] = X[vi, vj] * 2.0
"""
    start = text.rindex("    for ")
    sch = Schedule(parse(text[:start] + nest + text[start:]))
    with pytest.raises(ScheduleError):
        updates_at(sch)
    moved(sch.original, sums_at)


OVERLAP = """
@tw.script
def overlap(X: T.Buffer((9,), "float32"), A: T.Buffer((9,), "float32")):
    T.inplace(X)
    B = T.alloc((9,), "float32")
    for i in range(9):
        with T.block("B"):
            vi = T.axis.spatial(9, i)
            B[vi] = X[vi] + 1.0
    for i in range({count}):
        with T.block("X"):
            vi = T.axis.spatial({count}, i)
            X[vi] = {value}
"""


def test_rows_that_are_computed_again_are_read_before_they_are_overwritten() -> None:
    """B[0] is computed in each iteration; X[0] is overwritten in the first."""
    func = parse(OVERLAP.replace("{count}", "9").replace("{value}", "B[vi] + B[0]"))
    sch = Schedule(func)
    with pytest.raises(ScheduleError):
        sch.compute_at(sch.get_block("B"), loops(sch, "X")[0])


def test_an_update_in_place_is_not_repeated() -> None:
    """Iterations of the loops over B overlap, and each would update X again."""
    text = OVERLAP.replace("{count}", "9").replace("{value}", "X[vi] * B[vi]")
    first = "for i, a in T.grid(8, 2):"
    text = text.replace("for i in range(9):", first, 1).replace("9, i)", "9, i + a)", 1)
    sch = Schedule(parse(text.replace("X[vi] + 1.0", "A[vi] + 1.0")))
    with pytest.raises(ScheduleError):
        sch.reverse_compute_at(sch.get_block("X"), loops(sch, "B")[0])


PART = """
def main(A: T.Buffer((17,), "float32"), X: T.Buffer((17,), "float32")):
    T.inplace(X)
    for i in range({count}):
        with T.block("X"):
            vi = T.axis.spatial({extent}, {at})
            T.where(i < 16)
            X[vi] = A[vi] + X[vi]
"""


@pytest.mark.parametrize(
    ("count", "extent", "at", "whole"),
    [
        ("8", "17", "i + 5", False),
        ("8", "17", "i", False),
        ("8", "17", "i * 2", False),
        ("8", "8", "i", True),
        ("17", "17", "i", True),
        ("17", "17", "16 - i", True),
    ],
)
@pytest.mark.parametrize("value", ["A[vi] + X[vi]", "A[vi] * 2.0"])
def test_loops_over_a_part_of_a_domain_are_not_made_loops_over_all_of_it(
    count: str, extent: str, at: str, whole: bool, value: str
) -> None:
    """A predicate moves along, and goes on leaving out what it does."""
    text = PART.format(count=count, extent=extent, at=at).replace("A[vi] + X[vi]", value)
    sch = Schedule(parse(text))
    block = sch.get_block("X")
    copy = sch.cache_read(block, 0, "global")
    if whole:
        sch.reverse_compute_at(block, *loops(sch, copy.name))
        verify(sch.func)
        check_meaning(sch.original, sch.func)
    else:
        with pytest.raises(ScheduleError):
            sch.reverse_compute_at(block, *loops(sch, copy.name))


def test_a_part_that_was_cut_off_is_not_made_the_whole() -> None:
    func = parse(PART.format(count="17", extent="17", at="i").replace("T.where(i < 16)", ""))
    sch = Schedule(func)
    block = sch.get_block("X")
    copy = sch.cache_read(block, 0, "global")
    (loop,) = loops(sch, "X")
    _, (tail,) = sch.loop_partition(loop, at=8)
    for part in (block, tail):
        with pytest.raises(ScheduleError):
            sch.reverse_compute_at(part, *loops(sch, copy.name))


@pytest.mark.parametrize("step", ["compute_inline", "reverse_compute_inline"])
def test_a_temporary_of_what_is_overwritten_is_inlined(step: str) -> None:
    func = parse(OVERLAP.replace("{count}", "9").replace("{value}", "B[vi] * A[vi]"))
    block = "B" if step == "compute_inline" else "X"
    sch = Schedule(func)
    getattr(sch, step)(sch.get_block(block))
    verify(sch.func)
    check_meaning(func, sch.func)
    check_compiled(func, sch.func)
    left = "X" if step == "compute_inline" else "B"
    sch.vectorize(loops(sch, left)[0])
    check_compiled(func, sch.func)


@pytest.mark.parametrize("value", ["B[8 - vi]", "B[vi] + B[0]", "B[(vi + 1) % 9]", "B[0]"])
def test_a_temporary_of_what_other_iterations_overwrite_is_not_inlined(value: str) -> None:
    func = parse(OVERLAP.replace("{count}", "9").replace("{value}", value))
    for symbolic in (False, True):
        sch = Schedule(func, symbolic=symbolic)
        with pytest.raises(ScheduleError):
            sch.compute_inline(sch.get_block("B"))


def test_a_temporary_is_not_inlined_behind_the_store() -> None:
    text = OVERLAP.replace("{count}", "9").replace("{value}", "A[vi]\n            Y[vi] = B[vi]")
    sch = Schedule(parse(text.replace("overlap(", 'overlap(Y: T.Buffer((9,), "float32"), ')))
    with pytest.raises(ScheduleError):
        sch.compute_inline(sch.get_block("B"))


def test_a_temporary_is_not_inlined_where_iterations_overlap() -> None:
    text = OVERLAP.replace("{count}", "9").replace("{value}", "B[vi] * A[vi]")
    head, tail = text.split('    for i in range(9):\n        with T.block("X"):')
    nest = '    for i, a in T.grid(8, 2):\n        with T.block("X"):'
    sch = Schedule(parse(head + nest + tail.replace("spatial(9, i)", "spatial(9, i + a)")))
    with pytest.raises(ScheduleError):
        sch.compute_inline(sch.get_block("B"))


TWICE = """
@tw.script
def twice(X: T.Buffer((6, 8), "float32"), Z: T.Buffer((6, 8), "float32")):
    T.inplace(X)
    for i, j in T.grid(6, 8):
        with T.block("Z"):
            vi, vj = T.axis.remap("SS", [i, j])
            Z[vi, vj] = X[5 - vi, vj]
    for i, j in T.grid({count}, 8):
        with T.block("X1"):
            vi = T.axis.spatial({count}, i)
            vj = T.axis.spatial(8, j)
            X[vi, vj] = {value}
    for i, j in T.grid(6, 8):
        with T.block("X2"):
            vi, vj = T.axis.remap("SS", [i, j])
            X[vi, vj] = X[vi, vj] * Z[vi, vj]
"""


@pytest.mark.parametrize("value", ["X[vi, vj] + 1.0", "Z[vi, vj] * Z[0, vj]"])
def test_the_second_of_two_updates_gets_its_values_from_a_buffer(value: str) -> None:
    func = parse(TWICE.replace("{count}", "6").replace("{value}", value))
    sch = Schedule(func)
    sch.distinguish_updates(sch.get_block("X2"), 0)
    verify(sch.func)
    assert [b.name for b in sch.func.allocs] == ["X_before"]
    check_meaning(func, sch.func)
    sch.compute_at(sch.get_block("X1"), loops(sch, "X2")[0])
    check_meaning(func, sch.func)
    check_compiled(func, sch.func)


@pytest.mark.parametrize(
    ("count", "value", "message"),
    [
        ("5", "X[vi, vj] + 1.0", "cannot be shown that all of X has values"),
        ("6", "Z[vi, vj]\n            Z[vi, vj] = X[vi, vj]", "overwrites X, which block X1"),
    ],
)
def test_updates_whose_values_are_of_two_times(count: str, value: str, message: str) -> None:
    sch = Schedule(parse(TWICE.replace("{count}", count).replace("{value}", value)))
    with pytest.raises(ScheduleError, match=message):
        sch.distinguish_updates(sch.get_block("X2"), 0)


def test_a_copy_of_what_is_overwritten_later() -> None:
    func = rows("5 - vi, vr")
    sch = Schedule(func)
    sch.cache_read(sch.get_block("S"), 0, "global")
    check_meaning(func, sch.func)


def test_a_copy_for_a_reader_behind_what_overwrites() -> None:
    text = """
    for i in range(9):
        with T.block("C"):
            vi = T.axis.spatial(9, i)
            A[vi] = X[vi]
"""
    sch = Schedule(parse(OVERLAP.replace("{count}", "9").replace("{value}", "B[8 - vi]") + text))
    sch.cache_read(sch.get_block("B"), 0, "global")
    check_meaning(sch.original, sch.func)
    sch = Schedule(sch.original)
    with pytest.raises(ScheduleError):
        sch.cache_read(sch.get_block("B"), 0, "global", [sch.get_block("C")])
