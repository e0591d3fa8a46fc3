"""Loops of opaque iterations: moved, run at once and fused where exact dependences allow it."""

from __future__ import annotations

from contextlib import suppress
from itertools import permutations

import numpy as np
import pytest

from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse

from .machinery import check_compiled, check_meaning
from .programs import loops

STATEMENTS = {
    "rows": "Y[i, t] = Y[i, t - 1] * 2 + X[i, t]",
    "columns": "Y[i, t] = Y[i - 1, t] * 2 + X[i, t]",
    "rows of second order": "Y[i, t] = Y[i, t - 1] * 2 - Y[i, t - 2] + X[i, t]",
    "rows backwards": "Y[i, 10 - t] = Y[i, 11 - t] * 2 + X[i, t]",
    "diagonal": "Y[i, t] = Y[i - 1, t - 1] * 2 + X[i, t]",
    "other diagonal": "Y[i, t] = Y[i - 1, t + 1] * 2 + X[i, t]",
    "wavefront": "Y[i, t] = Y[i - 1, t] * 2 + Y[i, t - 1]",
    "skewed wavefront": "Y[i, t] = Y[i - 1, t + 1] * 2 + Y[i, t - 1]",
    "neighbours in place": "Y[i, t] = Y[i, t - 1] * 2 + Y[i - 1, t] + Y[i + 1, t]",
    "the last one counts": "Y[i + t, 0] = X[i, t]",
    "at places of data": "Y[i, P[t]] = X[i, t]",
}
INTERCHANGED = {
    "rows", "columns", "rows of second order", "rows backwards", "diagonal", "wavefront",
    "neighbours in place", "at places of data",
}  # fmt: skip
AT_ONCE = {
    "rows": "i", "columns": "t", "rows of second order": "i", "rows backwards": "i",
    "diagonal": "t", "other diagonal": "t", "the last one counts": "t", "at places of data": "i",
}  # fmt: skip
"""The loop whose iterations are independent where it stands."""


def program(statement: str, extents: tuple[int, int] = (6, 7)) -> Func:
    return parse(f"""
@tw.script
def f(
    X: T.Buffer((16, 16), "int32"),
    P: T.Buffer((16,), "int32", value_range=(0, 16)),
    Y: T.Buffer((16, 16), "int32"),
):
    T.inplace(Y)
    for i in range(2, {extents[0] + 2}):
        for t in range(2, {extents[1] + 2}):
            {statement}
""")


def scheduled(statement: str) -> Schedule:
    sch = Schedule(program(statement))
    sch.make_blocks()
    return sch


@pytest.mark.parametrize("name", STATEMENTS)
def test_interchange(name: str) -> None:
    sch = scheduled(STATEMENTS[name])
    i, t = loops(sch, "Y")
    if name in INTERCHANGED:
        sch.reorder(t, i)
        check_meaning(sch.original, sch.func)
        check_compiled(sch.original, sch.func)
    else:
        with pytest.raises(ScheduleError) as refusal:
            sch.reorder(t, i)
        assert refusal.value.as_data()["example"]


@pytest.mark.parametrize("step", ["parallel", "vectorize"])
@pytest.mark.parametrize("name", STATEMENTS)
def test_at_once(name: str, step: str) -> None:
    for place, letter in enumerate("it"):
        sch = scheduled(STATEMENTS[name])
        loop = loops(sch, "Y")[place]
        if letter == AT_ONCE.get(name):
            if step == "vectorize" and letter == "i":
                sch.reorder(loops(sch, "Y")[1], loop)
            getattr(sch, step)(loop)
            check_meaning(sch.original, sch.func)
            check_compiled(sch.original, sch.func)
        else:
            with pytest.raises(ScheduleError):
                getattr(sch, step)(loop)


def test_a_diagonal_runs_at_once_inside_of_time() -> None:
    sch = scheduled(STATEMENTS["diagonal"])
    i, t = loops(sch, "Y")
    sch.reorder(t, i)
    sch.vectorize(i)
    check_meaning(sch.original, sch.func)


def test_tiles_of_rows_and_time() -> None:
    sch = scheduled(STATEMENTS["rows"])
    i, t = loops(sch, "Y")
    rows, lane = sch.split(i, factors=[None, 4])
    tiles, step = sch.split(t, factors=[None, 3])
    sch.reorder(rows, tiles, step, lane)
    sch.vectorize(lane)
    sch.parallel(rows)
    check_meaning(sch.original, sch.func)
    check_compiled(sch.original, sch.func)


def test_fused_rows_and_time_stay_in_order() -> None:
    sch = scheduled(STATEMENTS["rows"])
    fused = sch.fuse(*loops(sch, "Y"))
    outer, inner = sch.split(fused, factors=[None, 7])
    check_meaning(sch.original, sch.func)
    with pytest.raises(ScheduleError):
        sch.parallel(inner)
    sch.parallel(outer)  # a row each
    check_meaning(sch.original, sch.func)


def test_rows_interchange_at_open_sizes() -> None:
    sch = Schedule(program(STATEMENTS["rows"], (8, 8)), symbolic=True)
    sch.make_blocks()
    i, t = loops(sch, "Y")
    rows, lane = sch.split(i, factors=[None, sch.sample_categorical([2, 4])])
    sch.reorder(rows, t, lane)
    sch.vectorize(lane)
    sch.parallel(rows)
    with pytest.raises(ScheduleError):
        sch.parallel(t)


def test_a_value_of_each_row_is_its_own() -> None:
    sch = Schedule(
        parse("""
@tw.script
def f(X: T.Buffer((6, 9), "int32"), Y: T.Buffer((6, 9), "int32")):
    C = T.alloc((1,), "int32")
    for i in range(6):
        C[0] = 0
        for t in range(9):
            C[0] = C[0] * 2 + X[i, t]
            Y[i, t] = C[0]
""")
    )
    sch.make_blocks()
    sch.parallel(sch.get_loops(sch.get_block("Y"))[0])
    check_meaning(sch.original, sch.func)
    check_compiled(sch.original, sch.func)


COUPLED = """
@tw.script
def cell(
    F: T.Buffer((8, 12), "int32"),
    C: T.Buffer((8, 13), "int32"),
    H: T.Buffer((8, 13), "int32"),
):
    T.inplace(C, H)
    for i in range(8):
        for t in range(12):
            C[i, t + 1] = F[i, t] * C[i, t] + H[i, t]
            H[i, t + 1] = C[i, t + 1] * {value}
"""


def test_coupled_blocks_interchange() -> None:
    sch = Schedule(parse(COUPLED.format(value="2")))
    sch.make_blocks()
    i, t = loops(sch, "C")
    rows, lane = sch.split(i, factors=[None, 4])
    sch.reorder(rows, t, lane)
    sch.vectorize(lane)
    sch.parallel(rows)
    check_meaning(sch.original, sch.func)
    check_compiled(sch.original, sch.func)


def test_coupled_blocks_that_read_other_rows_do_not() -> None:
    sch = Schedule(parse(COUPLED.format(value="H[(i + 1) % 8, t]")))
    sch.make_blocks()
    i, t = loops(sch, "C")
    with pytest.raises(ScheduleError):
        sch.reorder(t, i)


NEIGHBOURING = """
@tw.script
def f(X: T.Buffer((6, 8), "int32"), Y: T.Buffer((6, 8), "int32"), Z: T.Buffer((6, 8), "int32")):
    A = T.alloc((6, 8), "int32")
    for i, t in T.grid(6, 8):
        A[i, t] = X[i, t] * 3
    for i, t in T.grid(6, 8):
        Y[i, t] = T.select(t > 0, Y[i, t - 1], 1) * 2 + A[i, t]
    for i, t in T.grid(6, 8):
        Z[i, t] = Y[i, t] - X[i, t]
"""


def test_what_is_around_a_scan_moves_into_its_loops() -> None:
    sch = Schedule(parse(NEIGHBOURING))
    sch.make_blocks()
    i, t = loops(sch, "Y")
    sch.compute_at(sch.get_block("A"), t)
    sch.reverse_compute_at(sch.get_block("Z"), t)
    check_meaning(sch.original, sch.func)
    sch.parallel(i)
    check_meaning(sch.original, sch.func)
    check_compiled(sch.original, sch.func)


@pytest.mark.part(5)
@pytest.mark.parametrize("seed", range(30))
def test_random_steps_keep_the_meaning(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b, c, d = rng.integers(-2, 3, 4)
    sch = scheduled(f"Y[i, t] = Y[i + {a}, t + {b}] * 2 + Y[i + {c}, t + {d}]")
    i, t = loops(sch, "Y")
    nest = [*sch.split(i, factors=[None, 2]), *sch.split(t, factors=[None, 3])]
    orders = list(permutations(nest))
    for number in rng.choice(len(orders), 8):
        order = orders[number]
        trial = sch.copy()
        try:
            trial.reorder(*order)
        except ScheduleError:
            trial = sch.copy()
        check_meaning(trial.original, trial.func)
        for step in (trial.parallel, trial.vectorize):
            with suppress(ScheduleError):
                step(trial.get_loops(trial.get_block("Y"))[rng.integers(4)])
        check_meaning(trial.original, trial.func)
