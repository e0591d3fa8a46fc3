"""Spatial iterations that use elements of an internal buffer again keep their order and place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright.base.errors import ScheduleError
from tilewright.codegen.build import compile_func, to_module
from tilewright.schedule import Schedule
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse
from tilewright.tir.verify import verify

from .machinery import check_meaning

SCRATCH = """
@tw.script
def f(A: T.Buffer((12,), "int32"), D: T.Buffer((12,), "int32")):
    C = T.alloc((1,), "int32")
    B = T.alloc((12,), "int32")
    for i in range(12):
        with T.block("W"):
            vi = T.axis.spatial(12, i)
            C[0] = A[vi] * 2
        for k in range(3):
            with T.block("P"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = 0
                B[vi] = B[vi] + C[0] * A[vk]
    for j in range(12):
        with T.block("R"):
            vj = T.axis.spatial(12, j)
            D[vj] = B[vj] + 1
"""
READER = """
@tw.script
def f(A: T.Buffer((12,), "int32"), D: T.Buffer((12,), "int32")):
    C = T.alloc(({size},), "int32")
    B = T.alloc((12,), "int32")
    for i in range(12):
        with T.block("W"):
            vi = T.axis.spatial(12, i)
            C[{place}] = A[vi] * 2
        with T.block("P"):
            vi = T.axis.spatial(12, i)
            B[vi] = C[{place}] + 1
    for j in range(12):
        with T.block("R"):
            vj = T.axis.spatial(12, j)
            D[vj] = B[vj] + 1
"""
SUMS = """
@tw.script
def f(A: T.Buffer((12, 4), "int32"), D: T.Buffer((2,), "int32")):
    C = T.alloc((2,), "int32")
    for i, k in T.grid(12, 4):
        with T.block("W"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                C[vi % 2] = 0
            C[vi % 2] = C[vi % 2] + A[vi, vk]
    for j in range(2):
        with T.block("R"):
            vj = T.axis.spatial(2, j)
            D[vj] = C[vj]
"""
SCAN = """
@tw.script
def f(A: T.Buffer((12,), "int32"), D: T.Buffer((1,), "int32")):
    C = T.alloc((13,), "int32")
    for j in range(13):
        with T.block("Z"):
            vj = T.axis.spatial(13, j)
            C[vj] = 1
    for i in range(12):
        with T.block("W"):
            vi = T.axis.{kind}(12, i)
            {body}
    with T.block("R"):
        D[0] = C[0]
"""


def _kept(func: Func, step: Callable[[Any], object]) -> None:
    sch: Any = Schedule(func)
    step(sch)
    verify(sch.func)
    check_meaning(func, sch.func)


@pytest.mark.parametrize(("size", "place"), [(1, "0"), (2, "vi % 2")])
@pytest.mark.parametrize("move", ["compute_inline", "compute_at"])
def test_a_reader_of_what_is_stored_again_stays_where_it_is(
    size: int, place: str, move: str
) -> None:
    sch: Any = Schedule(parse(READER.format(size=size, place=place)))
    verify(sch.func)
    with pytest.raises(ScheduleError):
        if move == "compute_inline":
            sch.compute_inline("P")
        else:
            sch.compute_at("P", sch.get_loops("R")[0])


def test_a_reader_of_an_element_of_its_own_may_move() -> None:
    func = parse(READER.format(size=12, place="vi"))
    _kept(func, lambda s: s.compute_inline("P"))


def test_what_is_stored_again_is_not_computed_in_an_inner_loop() -> None:
    sch: Any = Schedule(parse(SCRATCH))
    verify(sch.func)
    with pytest.raises(ScheduleError):
        sch.compute_at("W", sch.get_loops("P")[1])


def test_a_copy_within_the_iteration_is_allowed() -> None:
    func = parse(READER.format(size=1, place="0"))
    _kept(func, lambda s: s.cache_read("P", 0, "global"))


SUM_STEPS: dict[str, Callable[[Any], object]] = {
    "reorder": lambda s: s.reorder(*reversed(s.get_loops("W"))),
    "decompose_reduction": lambda s: s.decompose_reduction("W", s.get_loops("W")[0]),
}


@pytest.mark.parametrize("step", SUM_STEPS)
def test_sums_into_the_same_elements_are_not_mixed(step: str) -> None:
    func = parse(SUMS)
    verify(func)
    with pytest.raises(ScheduleError):
        SUM_STEPS[step](Schedule(func))


def test_the_init_within_an_iteration_may_be_taken_out() -> None:
    _kept(parse(SUMS), lambda s: s.decompose_reduction("W", s.get_loops("W")[1]))


@pytest.mark.parametrize("body", ["C[0] = C[0] * 3 + A[vi]", "C[vi], C[vi + 1]"])
def test_a_scan_over_an_internal_buffer_keeps_its_order(body: str) -> None:
    if body == "C[vi], C[vi + 1]":
        lines = ("C[vi] = C[vi] * 3 + A[vi]", "C[vi + 1] = C[vi + 1] + A[vi]")
        body = "\n            ".join(lines)
    sch: Any = Schedule(parse(SCAN.format(kind="spatial", body=body)))
    outer, inner = sch.split(sch.get_loops("W")[0], [None, 3])
    with pytest.raises(ScheduleError):
        sch.reorder(inner, outer)


MOVES = """
@tw.script
def f(X: T.Buffer((8,), "int64"), Z: T.Buffer((8,), "int64"), O: T.Buffer((8,), "int64")):
    {head}
    {fill}
    for i in range(8):
        with T.block("s"):
            v = T.axis.spatial(8, i)
            S[v] = X[v] * 2
    for j in range(8):
        with T.block("{first}"):
            v = T.axis.{first_kind}(8, j)
            {first_body}
        with T.block("{second}"):
            v = T.axis.{second_kind}(8, j)
            {second_body}
    {tail}
"""
FILL = """for l in range(8):
        with T.block("y"):
            v = T.axis.spatial(8, l)
            {y}[v] = X[v] * 5"""
EMPTY = """
    for l in range(8):
        with T.block("Z"):
            v = T.axis.spatial(8, l)
            Z[v] = 0"""
STATES = {
    "in place": (["T.inplace(Z)"], ""),
    "internal": (['Y = T.alloc((8,), "int64")'], FILL.format(y="Y") + EMPTY),
    "parameter": ([], FILL.format(y="Z")),
}
TAIL = """for l in range(8):
        with T.block("c"):
            v = T.axis.spatial(8, l)
            O[v] = A[v] * 2"""


def _moves(state: str, read: str, kind: str, *, before: bool, tail: bool = False) -> Func:
    """A block `a` that reads a state at `read`, before or behind `z`, which updates it."""
    place = "Y" if state == "internal" else "Z"
    out = "A" if tail else "O"
    blocks = [
        ("a", "spatial", f"{out}[v] = {place}[{read}] + S[v]"),
        ("z", kind, f"{place}[v] = {place}[v] * 2 - 3"),
    ]
    (n, k, b), (m, q, c) = blocks if before else reversed(blocks)
    head, fill = STATES[state]
    head = [*head, *(f'{n} = T.alloc((8,), "int64")' for n in ("SA" if tail else "S"))]
    parts: dict[str, str] = {"head": "\n    ".join(head), "fill": fill}
    parts |= {"first": n, "first_kind": k, "first_body": b}
    parts |= {"second": m, "second_kind": q, "second_body": c}
    return parse(MOVES.format(tail=TAIL if tail else "", **parts))


def _wanted(state: str, read: str, x: Any, z: Any, *, before: bool, tail: bool) -> Any:
    z = z.copy() if state == "in place" else x * 5
    found = np.zeros(8, np.int64)
    for v in range(8):
        at = {"v": v, "v - 1": max(v - 1, 0), "v + 1": min(v + 1, 7), "0": 0, "7 - v": 7 - v}[read]
        if not before:
            z[v] = z[v] * 2 - 3
        found[v] = z[at] + x[v] * 2
        if before:
            z[v] = z[v] * 2 - 3
    return found * 2 if tail else found


READS = {
    "v": "v",
    "v - 1": "T.maximum(v - 1, 0)",
    "v + 1": "T.minimum(v + 1, 7)",
    "0": "0",
    "7 - v": "7 - v",
}
LEAVING: dict[str, Callable[[Any], object]] = {
    "reverse_compute_at": lambda s: s.reverse_compute_at("a", s.get_loops("s")[0]),
    "reverse_compute_inline": lambda s: s.reverse_compute_inline("a"),
    "compute_at": lambda s: s.compute_at("a", s.get_loops("c")[0]),
    "compute_inline": lambda s: s.compute_inline("a"),
    "fission": lambda s: s.fission(s.get_loops("a")[0]),
}
RIGHT = {  # before the update and behind it: who may leave the loop
    True: {
        "reverse_compute_at": {"v", "v + 1"},
        "reverse_compute_inline": {"v", "v + 1"},
        "fission": {"v", "v + 1"},
    },
    False: {
        "compute_at": {"v", "v - 1", "0"},
        "compute_inline": {"v", "v - 1", "0"},
        "fission": {"v", "v - 1", "0"},
    },
}


@pytest.mark.part(8)
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("kind", ["spatial", "opaque"])
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("move", LEAVING)
def test_a_reader_leaves_the_loop_of_an_update_in_order(
    state: str, kind: str, before: bool, move: str
) -> None:
    tail = move in ("compute_at", "compute_inline")
    x, z = np.arange(8) + 10, np.arange(8) ** 2
    for read, text in READS.items():
        sch: Any = Schedule(_moves(state, text, kind, before=before, tail=tail))
        wanted = _wanted(state, read, x, z, before=before, tail=tail)
        one = state != "internal" or move != "reverse_compute_inline"  # internal buffer to be left
        if one and read in RIGHT[before].get(move, ()):
            LEAVING[move](sch)
        else:
            with pytest.raises(ScheduleError):
                LEAVING[move](sch)
        found = np.zeros(8, np.int64)
        to_module(compile_func(sch.func, "cpu -threads=1"))(x.copy(), z.copy(), found)
        assert found.tolist() == wanted.tolist(), read


STEPS = """
@tw.script
def f(X: T.Buffer((8,), "int64"), Z: T.Buffer((8,), "int64"), O: T.Buffer((8,), "int64")):
    T.inplace(Z)
    S = T.alloc((8,), "int64")
    for t in range(8):
        with T.block("w"):
            v = T.axis.opaque(8, t)
            Z[0] = Z[0] + X[v]
        for i in range(1):
            with T.block("a"):
                v, u = T.axis.remap("SS", [t, i])
                S[v] = Z[u]
        for j in range(1):
            with T.block("c"):
                v, u = T.axis.remap("SS", [t, j])
                O[v] = S[{read}]
"""
WITHIN: dict[str, Callable[[Any], object]] = {
    "compute_at": lambda s: s.compute_at("a", s.get_loops("c")[1]),
    "compute_inline": lambda s: s.compute_inline("a"),
}


@pytest.mark.parametrize("move", WITHIN)
@pytest.mark.parametrize("read", ["v", "T.maximum(v - 1, 0)", "0"])
def test_what_an_earlier_step_read_is_not_computed_in_a_later_one(move: str, read: str) -> None:
    func = parse(STEPS.format(read=read))
    verify(func)
    if read == "v":
        _kept(func, WITHIN[move])
    else:
        with pytest.raises(ScheduleError):
            WITHIN[move](Schedule(func))


ROWS = """
@tw.script
def f(X: T.Buffer((8, 4), "int64"), O: T.Buffer((8, 4), "int64")):
    S = T.alloc((4,), "int64")
    for t in range(8):
        for i in range(4):
            with T.block("p"):
                v = T.axis.opaque(8, t)
                u = T.axis.spatial(4, i)
                S[u] = X[v, u] * 3
        for j in range(4):
            with T.block("r"):
                v, u = T.axis.remap("SS", [t, j])
                O[v, u] = S[u] + 1
"""


def test_a_reader_of_what_each_step_stores_again_runs_in_its_own_step() -> None:
    sch: Any = Schedule(parse(ROWS))
    with pytest.raises(ScheduleError):
        sch.reverse_compute_at("r", sch.get_loops("p")[1])


PAIRS = """
@tw.script
def f(X: T.Buffer((8,), "int64"), Z: T.Buffer((9,), "int64"), O: T.Buffer((8,), "int64")):
    S = T.alloc((8,), "int64")
    for i in range(8):
        with T.block("w"):
            v = T.axis.spatial(8, i)
            Z[v + 1] = X[v] * 5
        with T.block("x"):
            v = T.axis.spatial(8, i)
            Z[v{shift}] = X[v] * 7
        with T.block("s"):
            v = T.axis.spatial(8, i)
            S[v] = X[v] + 1
    for j in range(8):
        with T.block("a"):
            v = T.axis.spatial(8, j)
            O[v] = S[v] + Z[v + 1]
"""


@pytest.mark.parametrize("shift", ["", " + 1"])
def test_a_reader_does_not_enter_the_loop_in_which_two_blocks_store_an_element(shift: str) -> None:
    func = parse(PAIRS.format(shift=shift))
    verify(func)
    if shift:
        _kept(func, lambda s: s.reverse_compute_at("a", s.get_loops("s")[0]))
        return
    sch: Any = Schedule(func)
    with pytest.raises(ScheduleError):
        sch.reverse_compute_at("a", sch.get_loops("s")[0])
