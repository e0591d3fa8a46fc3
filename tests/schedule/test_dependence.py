"""Integer sets decide where structure does not; refusals show two iterations that clash."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule, legality
from tilewright.schedule.loop_dependence import Finding
from tilewright.tir.parser import parse
from tilewright.tir.verify import verify

from .machinery import check_compiled, check_meaning, check_replays
from .programs import loops

PAIR = """
@tw.script
def pair(A: T.Buffer((32,), "int32"), B: T.Buffer(({size},), "int32"), C: T.Buffer((16,), "int32")):
    T.inplace(B, C)
    for i in T.serial(16):
        with T.block("P"):
            v = T.axis.spatial(16, i)
            {first}
        with T.block("Q"):
            v = T.axis.spatial(16, i)
            {second}
"""


def pair(first: str, second: str, size: int = 64) -> Schedule:
    return Schedule(parse(PAIR.format(first=first, second=second, size=size)))


def parallel(sch: Schedule) -> None:
    sch.parallel(loops(sch, "P")[0])


def vectorize(sch: Schedule) -> None:
    sch.vectorize(loops(sch, "P")[0])


def fission(sch: Schedule) -> None:
    sch.fission(loops(sch, "P")[0])


ACCEPTED = [
    # odd and even elements
    (parallel, "B[v * 2] = A[v]", "B[63 - v * 2] = A[v + 1]"),
    (vectorize, "B[v * 2] = A[v]", "B[63 - v * 2] = A[v + 1]"),
    # the lower and the upper half
    (parallel, "B[v] = A[v]", "C[v] = B[63 - v]"),
    (vectorize, "B[v] = A[v]", "C[v] = B[63 - v]"),
    (parallel, "B[v % 4 * 8 + v // 4] = A[v]", "C[v] = B[v % 4 * 8 + v // 4 + 4]"),
    # what is read is never written later
    (fission, "B[v % 4 * 8 + v // 4] = A[v]", "C[v] = B[v % 4 * 8 + v // 4 + 4]"),
    (fission, "B[v % 4 * 4 + v // 4] = A[v]", "C[v] = B[v // 2 % 2 * 4 + v // 4]"),
]


@pytest.mark.parametrize(("act", "first", "second"), ACCEPTED)
def test_what_structure_does_not_decide(
    act: Callable[[Schedule], None],
    first: str,
    second: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sch = pair(first, second)
    act(sch)
    verify(sch.func)
    check_replays(sch.original, sch)
    check_meaning(sch.original, sch.func)
    check_compiled(sch.original, sch.func)
    monkeypatch.setattr(legality, "conflicts", lambda *_: Finding(False))
    monkeypatch.setattr("tilewright.schedule.loop_dependence.conflicts", lambda *_: Finding(False))
    with pytest.raises(ScheduleError):
        act(pair(first, second))


REFUSED = [
    (
        parallel, "B[v + 1] = A[v]", "C[v] = B[v]",
        "iteration i=0 of block P writes B[1], iteration i=1 of block Q reads it",
    ),
    (
        vectorize, "B[v * 3] = A[v]", "B[v * 2 + 11] = A[v + 1]",
        "iteration i=13 of block P writes B[39], iteration i=14 of block Q writes it",
    ),
    (
        parallel, "B[v // 4] = A[v]", "C[v] = A[v]",
        "iteration i=0 writes B[0], iteration i=1 writes it",
    ),
    (
        parallel, "B[v] = B[20 - v] + A[v]", "C[v] = A[v]",
        "iteration i=5 writes B[5], iteration i=15 reads it",
    ),
    (
        parallel, "B[v] = A[v]", "C[v] = B[A[v] & 15]",
        "iteration i=0 of block P writes B[0], iteration i=1 of block Q may read it",
    ),
    (
        fission, "B[v] = A[v]", "C[v] = B[v + 3]",
        "iteration i=0 of block Q reads B[3], iteration i=3 of block P writes it",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("act", "first", "second", "example"), REFUSED)
def test_a_refusal_shows_two_iterations(
    act: Callable[[Schedule], None], first: str, second: str, example: str
) -> None:
    sch = pair(first, second)
    with pytest.raises(ScheduleError) as refusal:
        act(sch)
    assert f"\n  example: {example}\n" in str(refusal.value)


NOT_AFFINE = [
    (parallel, "B[v * v % 64] = A[v]", "C[v] = A[v]"),
    (fission, "B[v * v % 64] = A[v]", "C[v] = B[v]"),
]


@pytest.mark.parametrize(("act", "first", "second"), NOT_AFFINE)
def test_what_is_not_affine_stays_refused(
    act: Callable[[Schedule], None], first: str, second: str
) -> None:
    sch = pair(first, second)
    with pytest.raises(ScheduleError) as refusal:
        act(sch)
    assert "example:" not in str(refusal.value)


def test_the_example_is_looked_for_when_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.tir.affine import Solutions

    def fail(_self: object) -> None:
        raise AssertionError("looked for")

    monkeypatch.setattr(Solutions, "first", fail)
    with pytest.raises(ScheduleError) as refusal:
        parallel(pair("B[v + 1] = A[v]", "C[v] = B[v]"))
    with pytest.raises(AssertionError, match="looked for"):
        str(refusal.value)


NEST = """
@tw.script
def nest(A: T.Buffer((8, 8), "int32"), B: T.Buffer((9, 10), "int32"), C: T.Buffer((8, 8), "int32")):
    T.inplace(B)
    for i, j in T.grid(8, 8):
        with T.block("P"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi + 1, vj + {ahead}] = A[vi, vj]
        with T.block("Q"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj + 1]
"""


@pytest.mark.parametrize("ahead", [1, 2])
def test_loops_change_places_where_no_value_is_overtaken(ahead: int) -> None:
    sch = Schedule(parse(NEST.format(ahead=ahead)))
    i, j = loops(sch, "P")
    sch.reorder(j, i)
    verify(sch.func)
    check_meaning(sch.original, sch.func)
    check_compiled(sch.original, sch.func)


def test_loops_keep_their_places_where_a_value_is_overtaken() -> None:
    sch = Schedule(parse(NEST.format(ahead=0)))
    i, j = loops(sch, "P")
    with pytest.raises(ScheduleError) as refusal:
        sch.reorder(j, i)
    example = "i=0, j=1 of block P writes B[1, 1], iteration i=1, j=0 of block Q reads it"
    assert example in str(refusal.value)


def test_a_reduction_with_overlapping_visits_shows_them() -> None:
    text = """
@tw.script
def twice(A: T.Buffer((6, 4), "int32"), S: T.Buffer((6,), "int32")):
    for i, j, r in T.grid(3, 3, 4):
        with T.block("S"):
            v = T.axis.spatial(6, i + j)
            k = T.axis.reduce(4, r)
            with T.init():
                S[v] = 0
            S[v] = S[v] + A[v, k]
"""
    sch = Schedule(parse(text))
    i, _, r = loops(sch, "S")
    with pytest.raises(ScheduleError) as refusal:
        sch.reorder(r, i)
    assert "iteration r=0, j=0, i=1 visits S[1, 0], iteration r=0, j=1, i=0 visits it" in str(
        refusal.value
    )


GATHERED = """
@tw.script
def gathered(A: T.Buffer((16,), "int32"), C: T.Buffer((4, 4), "int32")):
    B = T.alloc((4, 4), "int32")
    D = T.alloc((16,), "int32")
    for i in T.serial(4):
        for j in T.serial(4):
            with T.block("D"):
                v = T.axis.spatial(16, j * 4 + i)
                D[v] = A[v] * 2
        for j in T.serial(4):
            with T.block("P"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vj]
    for i, j in T.grid(4, 4):
        with T.block("Q"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj] + D[(vj * 4 + vi + {ahead}) % 16]
"""


def test_what_is_read_is_found_exactly() -> None:
    """The elements of D that an iteration writes are no box: they lie four apart."""
    sch = Schedule(parse(GATHERED.format(ahead=8)))
    i, _ = loops(sch, "P")
    sch.reverse_compute_at(sch.get_block("Q"), i)
    verify(sch.func)
    check_meaning(sch.original, sch.func)
    check_compiled(sch.original, sch.func)


def test_what_is_not_there_yet_is_shown() -> None:
    sch = Schedule(parse(GATHERED.format(ahead=9)))
    i, _ = loops(sch, "P")
    with pytest.raises(ScheduleError) as refusal:
        sch.reverse_compute_at(sch.get_block("Q"), i)
    assert "example: iteration i=0 reads D[1], which is not written by then" in str(refusal.value)
