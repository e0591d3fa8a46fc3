"""`compute_at` computes only the rows that clamped windows reach."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tilewright.schedule import Schedule
from tilewright.schedule.find import path_to
from tilewright.tir import te
from tilewright.tir.ir import For, Func

from .conftest import Golden
from .machinery import check_compiled, check_meaning
from .programs import loops


def clamped(reach: Sequence[int], n: int = 21, m: int = 13) -> Func:
    """Sums over rows `reach` of what is computed first, with clamped borders."""
    x = te.placeholder((n, m), name="X")
    b = te.compute((n, m), lambda i, j: x[i, te.minimum(j + 1, m - 1)] * 2.0, name="B")

    def total(i: te.Expr, j: te.Expr) -> te.Expr:
        rows = [te.minimum(te.maximum(i + d, 0), n - 1) for d in reach]
        terms = [b[row, te.maximum(j - 1, 0)] for row in rows]
        return sum(terms[1:], terms[0])

    return te.func([x, te.compute((n, m), total, name="C")], name="clamped")


def in_tiles_of(rows: int, func: Func) -> Schedule:
    sch = Schedule(func)
    outer, _ = sch.split(loops(sch, "C")[0], factors=[None, rows])
    sch.compute_at(sch.get_block("B"), outer)
    return sch


def rows_of(sch: Schedule) -> int:
    """The rows of B that one tile computes."""
    extents = [s.extent for s in path_to(sch.func, sch.get_block("B")) if type(s) is For]
    assert isinstance(extents[-2], int)
    return extents[-2]


def test_a_tile_has_the_rows_that_its_windows_reach(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        outer, _ = sch.split(loops(sch, "C")[0], factors=[None, 4])
        sch.compute_at(sch.get_block("B"), outer)

    sch = golden("compute_at/clamped", clamped((-1, 0, 1)), script)
    assert rows_of(sch) == 6
    check_compiled(sch.original, sch.func)


@pytest.mark.parametrize("reach", [(-1, 1), (-3, 0), (0, 2), (-2, -1, 0, 1, 2)])
@pytest.mark.parametrize("rows", [1, 2, 5, 8, 21])
def test_tiles_of_all_sizes(reach: Sequence[int], rows: int) -> None:
    sch = in_tiles_of(rows, clamped(reach))
    assert rows_of(sch) in (rows + max(reach) - min(reach), 21)
    check_meaning(sch.original, sch.func)
    check_compiled(sch.original, sch.func)


@pytest.mark.parametrize("reach", [(-3,), (3,), (-9, -7), (40, 50)])
def test_windows_that_lie_outside_of_tiles_at_the_border(reach: Sequence[int]) -> None:
    """The rows that such a tile reaches do not have the one that all of them are clamped to."""
    sch = in_tiles_of(2, clamped(reach))
    check_meaning(sch.original, sch.func)
    check_compiled(sch.original, sch.func)


def test_with_open_sizes_the_same_tiles_come_out() -> None:
    func = clamped((-1, 0, 1))
    sch = Schedule(func, symbolic=True)
    rows = sch.sample_categorical([1, 4, 7])
    outer, _ = sch.split(loops(sch, "C")[0], factors=[None, rows])
    sch.compute_at(sch.get_block("B"), outer)
    for choice in (1, 4, 7):
        again = sch.trace.with_row([choice]).apply(func)
        assert rows_of(again) == choice + 2
        check_meaning(func, again.func)


def test_what_is_longer_in_some_iterations_than_in_others_is_taken_whole() -> None:
    x = te.placeholder((16,), name="X")
    b = te.compute((16,), lambda i: x[i] * 2.0, name="B")
    r = te.reduce_axis(4, name="r")
    c = te.compute((4,), lambda i: te.sum(b[te.minimum(i * r, 9)], axis=r), name="C")
    sch = Schedule(te.func([x, c], name="triangle"))
    block = sch.get_block("B")
    sch.compute_at(block, loops(sch, "C")[0])
    extents = [s.extent for s in path_to(sch.func, block) if type(s) is For]
    assert extents == [4, 16]
    sch.split(loops(sch, "B")[-1], factors=[None, 3])
    check_compiled(sch.original, sch.func)
