"""A loop around several blocks whose temporaries have no axis of it: each has a round's value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse
from tilewright.tir.verify import verify

from .machinery import check_meaning
from .random_cases import MOVES, Tally, apply_random_steps
from .random_rounds import a_program_of_rounds

Step = Callable[[Any], object]

HEAD = """
@tw.script
def f(A: T.Buffer((3, 4), "int32"), Z: T.Buffer((3, 4), "int32")):
    P = T.alloc((4,), "int32")
    Q = T.alloc((4,), "int32")
    Y = T.alloc((3, 4), "int32")
    S = T.alloc((3, 4), "int32")
    for a, j, k in T.grid(3, 4, 4):
        with T.block("S"):
            va, vj, vk = T.axis.remap("SSR", [a, j, k])
            with T.init():
                S[va, vj] = 0
            S[va, vj] = S[va, vj] + A[va, vk]
    for b in range(3):
        for j in range(4):
            with T.block("P"):
                vb, vj = T.axis.remap("SS", [b, j])
                P[vj] = {p}
        for j in range(4):
            with T.block("Q"):
                vj = T.axis.spatial(4, j)
                Q[vj] = {q}
        for j in range(4):
            with T.block("Y"):
                vb, vj = T.axis.remap("SS", [b, j])
                Y[vb, vj] = {y}
    for b, j in T.grid(3, 4):
        with T.block("Z"):
            vb, vj = T.axis.remap("SS", [b, j])
            Z[vb, vj] = {z}
"""


def program(
    p: str = "A[vb, vj] * 2", q: str = "P[vj] + 1", y: str = "Q[vj] * 3", z: str = "Y[vb, vj] - 1"
) -> Func:
    func = parse(HEAD.format(p=p, q=q, y=y, z=z))
    verify(func)
    return func


def loop(sch: Any, block: str, level: int = 0) -> Any:
    return sch.get_loops(block)[level]


def merged(step: Step) -> Step:
    """The step after the sums have been put into the loop of the rounds."""

    def both(sch: Any) -> None:
        sch.merge(loop(sch, "S"), loop(sch, "P"))
        step(sch)

    return both


def copied(block: str, step: Step) -> Step:
    """The step after what `block` reads has been copied, in the round and without an axis of it."""

    def both(sch: Any) -> None:
        sch.cache_read(block, 0, "global")
        step(sch)

    return both


DIRECT = program(y="P[vj] * 3")
LAST = program(z="Y[vb, vj] + Q[vj]")
ADDED = program(z="S[vb, vj] + Q[vj]")
SUMMED = program(p="S[vb, vj] + A[vb, vj]")
REFUSED: dict[str, tuple[Func, Step]] = {
    "compute_at, inner": (program(), lambda s: s.compute_at("Y", loop(s, "Z", 1))),
    "compute_at, outer": (program(), lambda s: s.compute_at("Y", loop(s, "Z"))),
    "compute_inline": (program(), lambda s: s.compute_inline("Y")),
    "compute_at of a copy": (DIRECT, copied("Y", lambda s: s.compute_at("Y", loop(s, "Z", 1)))),
    "compute_inline of a copy": (DIRECT, copied("Y", lambda s: s.compute_inline("Y"))),
    "two copies": (DIRECT, copied("Y", copied("Y", lambda s: s.compute_inline("Y")))),
    "reader of the last, outer": (LAST, lambda s: s.reverse_compute_at("Z", loop(s, "Y"))),
    "reader of the last, inner": (LAST, lambda s: s.reverse_compute_at("Z", loop(s, "Y", 1))),
    "reader of the last, inlined": (LAST, lambda s: s.reverse_compute_inline("Z")),
    "epilogue": (ADDED, merged(lambda s: s.fuse_reduction_epilogue("S", "Z"))),
    "after the sums": (ADDED, merged(lambda s: s.reverse_compute_at("Z", loop(s, "S")))),
    "all rows first": (program(), copied("P", lambda s: s.reverse_compute_inline("P"))),
    "all sums first": (SUMMED, lambda s: s.fuse_reduction_epilogue("S", "P")),
}
KEPT: dict[str, tuple[Func, Step]] = {
    "compute_at in the round": (program(), lambda s: s.compute_at("Q", loop(s, "Y", 1))),
    "compute_inline in the round": (program(), lambda s: s.compute_inline("Q")),
    "its only reader": (program(), lambda s: s.reverse_compute_inline("Z")),
    "a copy in the round": (
        program(),
        copied("P", lambda s: (s.compute_at("A_global", loop(s, "P")),
                               s.reverse_compute_inline("P"))),
    ),
    "sums in the round": (SUMMED, merged(lambda s: s.fuse_reduction_epilogue("S", "P"))),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_reads_or_stores_the_value_of_a_round_stays_in_it(name: str) -> None:
    func, step = REFUSED[name]
    with pytest.raises(ScheduleError):
        step(Schedule(func))


@pytest.mark.parametrize("name", KEPT)
def test_what_finds_the_same_value_may_move(name: str) -> None:
    func, step = KEPT[name]
    sch: Any = Schedule(func)
    step(sch)
    verify(sch.func)
    check_meaning(func, sch.func)


ROWS_AGAIN = """
@tw.script
def f(A: T.Buffer((3, 4), "int32"), Y: T.Buffer((3, 4), "int32")):
    P = T.alloc((4,), "int32")
    W = T.alloc((3, 4), "int32")
    for b in range(3):
        for a, j in T.grid({rows}, 4):
            with T.block("W"):
                va = T.axis.spatial(3, {row})
                vj = T.axis.spatial(4, j)
                W[va, vj] = A[va, vj] + 1
        for j in range(4):
            with T.block("P"):
                vb, vj = T.axis.remap("SS", [b, j])
                P[vj] = W[vb, vj] * 2
        for j in range(4):
            with T.block("Y"):
                vb, vj = T.axis.remap("SS", [b, j])
                Y[vb, vj] = P[vj] * 3
"""


@pytest.mark.parametrize(("rows", "row"), [(3, "a"), (1, "b")])
def test_a_round_stores_what_it_did_before(rows: int, row: str) -> None:
    func = parse(ROWS_AGAIN.format(rows=rows, row=row))
    sch: Any = Schedule(func)
    if rows > 1:
        with pytest.raises(ScheduleError):
            sch.reverse_compute_inline("P")
        return
    sch.reverse_compute_inline("P")
    check_meaning(func, sch.func)


WINDOW = """
@tw.script
def f(A: T.Buffer((6,), "int32"), C: T.Buffer((6,), "int32")):
    P = T.alloc((1,), "int32")
    Q = T.alloc((1,), "int32")
    B = T.alloc((8,), "int32")
    for i in range(6):
        with T.block("P"):
            vi = T.axis.spatial(6, i)
            P[0] = A[{at}] * 2
        with T.block("Q"):
            Q[0] = P[0] + 1
        for a in range(3):
            with T.block("B"):
                vx = T.axis.spatial(8, i + a)
                B[vx] = {read}[0] * T.int32(vx)
        with T.block("C"):
            vi = T.axis.spatial(6, i)
            C[vi] = B[vi] + B[vi + 1] + B[vi + 2] * 5
"""


@pytest.mark.parametrize("read", ["P", "Q", "A"])
def test_a_window_keeps_only_what_later_rounds_compute_too(read: str) -> None:
    func = parse(WINDOW.format(at="vi", read=read))
    verify(func)
    sch: Any = Schedule(func)
    if read == "A":
        sch.rolling_buffer("B", 0)
        check_meaning(func, sch.func)
        return
    with pytest.raises(ScheduleError):
        sch.rolling_buffer("B", 0)


STEADY = """
@tw.script
def f(A: T.Buffer((4,), "int32"), Y: T.Buffer((3, 4), "int32"), Z: T.Buffer((3, 4), "int32")):
    P = T.alloc((4,), "int32")
    Q = T.alloc((4,), "int32")
    for b in range(3):
        for j in range(4):
            with T.block("zero"):
                vj = T.axis.spatial(4, j)
                P[vj] = 0
        for j, k in T.grid(4, 4):
            with T.block("P"):
                vj, vk = T.axis.remap("SR", [j, k])
                P[vj] = P[vj] + A[vk]
        for j in range(4):
            with T.block("Q"):
                vj = T.axis.spatial(4, j)
                Q[vj] = P[vj] + 1
        for j in range(4):
            with T.block("Y"):
                vb, vj = T.axis.remap("SS", [b, j])
                Y[vb, vj] = 1
    for b, j in T.grid(3, 4):
        with T.block("Z"):
            vb, vj = T.axis.remap("SS", [b, j])
            Z[vb, vj] = Y[vb, vj] + Q[vj]
"""


def test_what_each_round_makes_alike_is_read_anywhere() -> None:
    func = parse(STEADY)
    verify(func)
    sch: Any = Schedule(func)
    sch.reverse_compute_at("Z", loop(sch, "Y"))
    check_meaning(func, sch.func)


HANDED_ON = """
@tw.script
def f(P: T.Buffer((4,), "int32"), Y: T.Buffer((3, 4), "int32"), Z: T.Buffer((3, 4), "int32")):
    T.inplace(P)
    Q = T.alloc((4,), "int32")
    for b in range(3):
        for j in range(4):
            with T.block("Q"):
                vj = T.axis.spatial(4, j)
                Q[vj] = P[vj] + 1
        for j in range(4):
            with T.block("P"):
                vj = T.axis.spatial(4, j)
                P[vj] = Q[vj] * 2
        for j in range(4):
            with T.block("Y"):
                vb, vj = T.axis.remap("SS", [b, j])
                Y[vb, vj] = 1
    for b, j in T.grid(3, 4):
        with T.block("Z"):
            vb, vj = T.axis.remap("SS", [b, j])
            Z[vb, vj] = Y[vb, vj] + Q[vj]
"""


def test_what_a_round_hands_to_the_next_is_not_the_same_in_both() -> None:
    func = parse(HANDED_ON)
    verify(func)
    sch: Any = Schedule(func)
    with pytest.raises(ScheduleError):
        sch.reverse_compute_at("Z", loop(sch, "Y"))


@pytest.mark.parametrize("seed", range(40))
def test_random_moves_keep_the_value_of_a_round(seed: int) -> None:
    rng = np.random.default_rng(seed)

    def pick(n: int) -> int:
        return int(rng.integers(n))

    sch = Schedule(a_program_of_rounds(pick), seed=seed)
    sch, _ = apply_random_steps(sch, pick, 12, Tally(), MOVES)
    check_meaning(sch.original, sch.func)
