"""Symbolic schedules: the constraints that they collect decide which rows of decisions replay."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule, Trace
from tilewright.schedule.find import find_loop
from tilewright.schedule.require import Space, certain, collecting, imply, require
from tilewright.tir.ir import Const, Func, Label, Var, const
from tilewright.tir.visit import substitute

from ..refusals import refused
from .machinery import check_meaning
from .programs import elementwise, loops, matmul, rowsum


def holds(space: Space, row: Sequence[int]) -> bool:
    """Whether all constraints hold for a row of decisions."""
    values = {v: const(int(x)) for v, x in zip(space.bounds, row, strict=True)}
    results = [substitute(c.condition, values) for c in space.constraints]
    assert all(isinstance(r, Const) for r in results)
    return all(bool(r.value) for r in results if isinstance(r, Const))


def tiled_matmul(sch: Schedule) -> None:
    """Perfect tiles of all loops, fused and parallel outside, unrolled and vectorized inside."""
    block = sch.get_block("C")
    i, j, r = sch.get_loops(block)
    i0, i1, i2 = sch.split(i, factors=sch.sample_perfect_tile(i, 3, 4))
    j0, j1, j2 = sch.split(j, factors=sch.sample_perfect_tile(j, 3, 6))
    r0, r1 = sch.split(r, factors=sch.sample_perfect_tile(r, 2, 5))
    sch.reorder(i0, j0, i1, j1, r0, r1, i2, j2)
    sch.vectorize(j2)
    sch.unroll(i2)
    sch.parallel(sch.fuse(i0, j0))


def masked_matmul(sch: Schedule) -> None:
    """Tiles that need not divide, one size computed from another."""
    i, j, r = loops(sch, "C")
    width = sch.sample_categorical([2, 3, 5])
    i0, i1 = sch.split(i, factors=sch.sample_tile(i, 2, 5))
    j0, j1 = sch.split(j, factors=[None, width])
    r0, r1 = sch.split(r, factors=[None, width * 2])
    sch.reorder(i0, j0, r0, r1, i1, j1)
    sch.vectorize(j1)
    sch.parallel(sch.fuse(i0, j0))


def two_tails(sch: Schedule) -> None:
    """A nested split with tails at both levels."""
    i, _ = loops(sch, "B")
    outer, inner = sch.split(i, factors=sch.sample_tile(i, 2, 12))
    sch.split(inner, factors=sch.sample_tile(inner, 2, 4))
    sch.parallel(outer)


def bounded_unroll(sch: Schedule) -> None:
    """An unrolled loop whose length is a decision: the limit becomes a constraint."""
    i, j = loops(sch, "B")
    _, inner = sch.split(i, factors=[None, sch.sample_categorical([64, 128, 512])])
    sch.reorder(inner, j)
    sch.unroll(inner)
    sch.unroll(j)


def many_threads(sch: Schedule) -> None:
    """Parts that are far longer than the loop: the limit becomes a constraint."""
    i, _ = loops(sch, "B")
    threads, lanes = sch.sample_categorical([4, 64, 1024]), sch.sample_categorical([2, 8])
    sch.split(i, factors=[None, threads, lanes])


def picked_tail(sch: Schedule) -> None:
    """A peeled tail: only rows that leave one are legal."""
    _, r = loops(sch, "S")
    outer, _ = sch.split(r, factors=sch.sample_tile(r, 2, 12))
    sch.loop_partition(outer)


def tiled_tail(sch: Schedule) -> None:
    """A tile of the peeled tail: it is one of the loop's extent, which is a decision."""
    _, r = loops(sch, "S")
    outer, _ = sch.split(r, factors=[None, sch.sample_categorical([3, 4, 6])])
    _, (tail,) = sch.loop_partition(outer)
    inner = sch.get_loops(tail)[-1]
    sch.split(inner, factors=sch.sample_tile(inner, 2, 6))


def tail_of_two_blocks(sch: Schedule) -> None:
    """Two predicates: which of them fails first depends on the decisions."""
    _, r = loops(sch, "S")
    outer, inner = sch.split(r, factors=[None, sch.sample_categorical([3, 4])])
    factors = [None, sch.sample_categorical([1, 4, 16]), sch.sample_categorical([2, 3])]
    around, *_ = sch.split(inner, factors=factors)
    sch.compute_at(sch.cache_read(sch.get_block("S"), 0, "local"), around)
    sch.loop_partition(outer)


CASES: list[tuple[Callable[[Schedule], None], Func]] = [
    (tiled_matmul, matmul(8, 12, 10)),
    (masked_matmul, matmul(7, 11, 10)),
    (two_tails, elementwise(23, 2)),
    (bounded_unroll, elementwise(1024, 12)),
    (many_threads, elementwise(24, 2)),
    (picked_tail, rowsum(3, 10)),
    (tiled_tail, rowsum(3, 10)),
    (tail_of_two_blocks, rowsum(2, 4)),
]


@pytest.mark.parametrize(("script", "func"), CASES, ids=lambda c: getattr(c, "__name__", ""))
def test_constraints_decide_which_rows_replay(
    script: Callable[[Schedule], None], func: Func
) -> None:
    symbolic = Schedule(func, symbolic=True)
    script(symbolic)
    space = symbolic.space
    assert space is not None
    trace = symbolic.trace
    rows = list(itertools.islice(itertools.product(*space.values.values()), 4000))
    rng = np.random.default_rng(0)
    picked = [rows[k] for k in rng.permutation(len(rows))[:60]]
    accepted = 0
    for row in picked:
        if holds(space, row):
            concrete = trace.with_row(row).apply(func)
            if accepted < 4 and func.name != "elementwise":
                check_meaning(func, concrete.func)
            accepted += 1
        else:
            with pytest.raises(ScheduleError):
                trace.with_row(row).apply(func)
    assert accepted > 1


def test_a_symbolic_trace_is_the_concrete_one_with_open_decisions() -> None:
    func = matmul()
    concrete, symbolic = Schedule(func), Schedule(func, symbolic=True)
    tiled_matmul(concrete)
    tiled_matmul(symbolic)
    assert concrete.trace.opened() == symbolic.trace
    assert Trace.from_json(symbolic.trace.to_json()) == symbolic.trace
    again = symbolic.trace.apply(func, symbolic=True)
    assert again.trace == symbolic.trace
    assert len(again.space.constraints) == len(symbolic.space.constraints)  # type: ignore[union-attr]


def test_perfect_tiles_need_no_predicate() -> None:
    sch = Schedule(matmul(), symbolic=True)
    tiled_matmul(sch)
    assert "T.where" not in str(sch.func)


def test_a_factor_alone_leaves_the_outermost_to_be_inferred() -> None:
    sch = Schedule(elementwise(), symbolic=True)
    i, _ = loops(sch, "B")
    _, a, b = sch.sample_perfect_tile(i, 3)
    sch.split(i, factors=[None, a, b])
    assert "T.where" not in str(sch.func)


def test_decisions_take_values_of_their_set() -> None:
    sch = Schedule(elementwise(12, 7), symbolic=True)
    i, j = loops(sch, "B")
    sch.sample_perfect_tile(i, 3, 4)
    sch.sample_tile(j, 2, 64)
    sch.sample_categorical([5, 1, 3])
    assert sch.space is not None
    assert [list(v) for v in sch.space.values.values()] == [
        [1, 2, 3, 4],
        [1, 2, 3, 4, 6, 12],
        [1, 2, 3, 4, 5, 6, 7],
        [1, 3, 5],
    ]
    assert list(sch.space.bounds.values()) == [(1, 4), (1, 12), (1, 7), (1, 5)]


def test_a_refused_step_leaves_no_constraint_behind() -> None:
    sch = Schedule(matmul(), symbolic=True)
    i, _, r = loops(sch, "C")
    t = sch.sample_categorical([2, 3])
    assert sch.space is not None
    before = len(sch.space.constraints)
    with refused(ScheduleError, "0"):
        sch.split(i, factors=[t, 5, 0])
    with pytest.raises(ScheduleError) as caught:
        sch.tile((i, i), (t, t))
    assert "refused: step 3, sch.tile" in str(caught.value)
    assert len(sch.space.constraints) == before
    assert sch.get_loops(sch.get_block("C"))[0] is i
    assert r.name == "r"


def test_what_bounds_refute_is_refused_at_once() -> None:
    sch = Schedule(elementwise(16, 1), symbolic=True)
    i, _ = loops(sch, "B")
    t = sch.sample_categorical([2, 3])
    with pytest.raises(ScheduleError):
        sch.split(i, factors=[5, t])


def copied_rows(sch: Schedule, *decision: int) -> tuple[list[Var], Label]:
    """The loops over a part of a row that is copied, whose size is a remainder by a decision."""
    block = sch.get_block("B")
    row = sch.fuse(*sch.get_loops(block))
    count = sch.sample_categorical([2, 3], decision=decision)
    _, outer, _ = sch.split(row, factors=[None, 4, count])
    copy = sch.cache_read(block, 0, "local")
    sch.compute_at(copy, outer)
    return list(sch.get_loops(copy)), copy


def test_a_tile_is_not_sampled_of_what_decisions_may_shrink() -> None:
    """While it is open where a part of a row starts, that is all of the row."""
    func = elementwise(3, 8)
    extents = []
    for decision in (2, 3):
        sch = Schedule(func)
        parts, _ = copied_rows(sch, decision)
        extents.append(find_loop(sch.func, parts[-1]).extent)
        sch.sample_perfect_tile(parts[-1], 2)
    assert extents == [2, 8]
    sch = Schedule(func, symbolic=True)
    parts, copy = copied_rows(sch)
    assert find_loop(sch.func, parts[-1]).extent == 8
    for sample in (sch.sample_tile, sch.sample_perfect_tile, sch.sample_partitioned_tile):
        with pytest.raises(ScheduleError):
            sample(parts[-1], 2)
    with pytest.raises(ScheduleError):
        sch.split(parts[-1], factors=[None, 4], perfect=True)
    first, _ = sch.double_buffer(copy, parts[1])
    for label in (first, copy):
        _, inner = sch.split(sch.get_loops(label)[-1], factors=[None, 4])
        with pytest.raises(ScheduleError):
            sch.sample_tile(inner, 2)
    sch.sample_tile(loops(sch, "B")[-1], 2)


def test_a_tile_is_sampled_of_what_decisions_do_not_shrink() -> None:
    sch = Schedule(elementwise(3, 8), symbolic=True)
    block = sch.get_block("B")
    _, column = sch.get_loops(block)
    outer, _ = sch.split(column, factors=sch.sample_tile(column, 2, 4))
    copy = sch.cache_read(block, 0, "local")
    sch.compute_at(copy, outer)
    sch.sample_tile(sch.get_loops(copy)[-1], 2)
    assert sch.space is not None
    for row in itertools.product(*sch.space.values.values()):
        if holds(sch.space, row):
            sch.trace.with_row(row).apply(sch.original)


def test_a_copy_has_a_space_of_its_own() -> None:
    sch = Schedule(elementwise(), symbolic=True)
    i, _ = loops(sch, "B")
    t = sch.sample_categorical([2, 3])
    fork = sch.copy()
    fork.split(i, factors=[None, t], perfect=True)
    assert sch.space is not None
    assert fork.space is not None
    assert not sch.space.constraints
    assert len(fork.space.constraints) == 1


def test_a_condition_outside_of_any_space_must_be_decided() -> None:
    x = Var("x")
    with pytest.raises(ScheduleError, match="open"):
        require(x < 3, "open")
    assert not certain(x < 3)
    assert certain(x - x < 3)


def test_facts_are_believed() -> None:
    space = Space()
    x = space.declare_among("x", range(1, 10))
    with collecting(space):
        assert not certain(x % 3 == 0)
        imply(x % 3 == 0)
        assert certain(x % 3 == 0)
        require(x % 3 == 0, "known")
    assert not space.constraints


def test_decisions_of_a_symbolic_schedule_are_initial_values() -> None:
    sch = Schedule(elementwise(64, 12), symbolic=True)
    i, j = loops(sch, "B")
    factors = sch.sample_perfect_tile(i, 3, decision=[4, None])
    width = sch.sample_categorical([2, 3, 5], decision=[7])
    assert sch.space is not None
    middle, inner = factors[1:]
    assert isinstance(inner, Var)
    assert sch.space.initial == {inner: 4}
    assert list(sch.space.bounds) == [inner, middle, width]
    assert list(sch.trace.decisions.values()) == [(None, None), (None,)]
    fork = sch.copy()
    with pytest.raises(ScheduleError):
        fork.sample_perfect_tile(j, 2, decision=[3, 4, 4])
    more = fork.sample_perfect_tile(j, 2, decision=[3])[1]
    assert fork.space is not None
    assert fork.space.initial == {inner: 4, more: 3}
    assert sch.space.initial == {inner: 4}
