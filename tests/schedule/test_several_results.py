"""Reductions of several results at once: their ties, their NaN, and what is not one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tilewright.codegen.build import compile_func, to_module
from tilewright.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.schedule.find import find_loop
from tilewright.tir import te
from tilewright.tir.interpreter import interpret
from tilewright.tir.ir import Expr, Func
from tilewright.tir.parser import parse
from tilewright.tir.verify import verify

from .conftest import Golden
from .machinery import check_compiled, check_meaning, check_replays
from .programs import loops

Combine = Callable[..., tuple[Expr, Expr]]
ROWS, COLUMNS = 24, 12


def arg(
    combiner: Combine = te.argmax,
    dtype: str = "float32",
    rows: int = ROWS,
    columns: int = COLUMNS,
) -> Func:
    """Places and values of the best of each row of A."""
    a = te.placeholder((rows, columns), dtype, name="A")
    r = te.reduce_axis(columns, name="r")
    m, v = te.compute((rows,), lambda i: combiner(a[i, r], axis=r), name=("M", "V"))
    return te.func([a, m, v], name="best")


def outer(sch: Schedule) -> None:
    _, r = loops(sch, "M")
    sch.rfactor(sch.split(r, factors=[None, 4])[0], 0)


def inner(sch: Schedule) -> None:
    _, r = loops(sch, "M")
    sch.rfactor(sch.split(r, factors=[None, 4])[1], -1)


def guarded(sch: Schedule) -> None:
    _, r = loops(sch, "M")
    sch.rfactor(sch.split(r, factors=[None, 5])[1], 0)


def whole(sch: Schedule) -> None:
    sch.rfactor(loops(sch, "M")[1], 1)


def tree(sch: Schedule) -> None:
    sch.split_reduction(loops(sch, "M")[1], 6, tree=True)


def lanes(sch: Schedule) -> None:
    _, r = loops(sch, "M")
    partial = sch.rfactor(sch.split(r, factors=[None, 4])[1], 1)
    *_, step, lane = sch.get_loops(partial)
    sch.reorder(step, lane)
    sch.decompose_reduction(partial, step)
    sch.vectorize(lane)


STEPS: list[Callable[[Schedule], None]] = [outer, inner, guarded, whole, tree, lanes]


def few_values(dtype: str) -> np.ndarray:
    """Rows with many equal elements, zeros of both signs, infinities and NaN, or limits."""
    rng = np.random.default_rng(0)
    choices: list[float] = [0, 1, 2]
    if dtype.startswith("float"):
        choices += [-0.0, np.inf, -np.inf, np.nan]
    else:
        choices += [np.iinfo(dtype).min, np.iinfo(dtype).max]
    found = np.array(choices, dtype=dtype)[rng.integers(len(choices), size=(ROWS, COLUMNS))]
    found[0], found[1], found[2, :5] = choices[-1], choices[-2], choices[-1]
    return found


@pytest.mark.parametrize("script", STEPS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "uint8"])
@pytest.mark.parametrize("combiner", [te.argmax, te.argmin])
def test_ties_and_nan(combiner: Combine, dtype: str, script: Callable[[Schedule], None]) -> None:
    sch = Schedule(arg(combiner, dtype))
    script(sch)
    verify(sch.func)
    a = few_values(dtype)
    m, v = np.zeros(ROWS, "int64"), np.zeros(ROWS, dtype)
    interpret(sch.original, a, m, v)
    numpys = np.argmax(a, axis=1) if combiner is te.argmax else np.argmin(a, axis=1)
    np.testing.assert_array_equal(m, numpys)
    module = to_module(compile_func(sch.func, "cpu -threads=1"))
    for compiled in (False, True):
        places, values = np.zeros(ROWS, "int64"), np.zeros(ROWS, dtype)
        if compiled:
            module(a, places, values)
        else:
            interpret(sch.func, a, places, values)
        np.testing.assert_array_equal(places, m)
        np.testing.assert_array_equal(values, v)
        np.testing.assert_array_equal(np.signbit(values), np.signbit(v))


def test_best_of_each_part(golden: Golden) -> None:
    golden("rfactor/argmax", arg(rows=4, columns=8), outer)


def test_the_best_of_all() -> None:
    a = te.placeholder((6, 8), "int32", name="A")
    q, r = te.reduce_axis(6, name="q"), te.reduce_axis(8, name="r")
    m, v = te.compute((), lambda: te.argmin(a[q, r], axis=(q, r)), name=("M", "V"))
    sch = Schedule(te.func([a, m, v], name="least"))
    fused = sch.fuse(*loops(sch, "M"))
    sch.rfactor(sch.split(fused, factors=[5, None])[0], 0)
    check_meaning(sch.original, sch.func)
    check_compiled(sch.original, sch.func)


def several() -> Func:
    """Sums, largest elements and where they are, in one block, with a term that both share."""
    return parse("""
@tw.script
def several(
    A: T.Buffer((6, 8), "int32"), B: T.Buffer((6, 8), "int32"),
    S: T.Buffer((6,), "int32"), P: T.Buffer((6,), "int32"), V: T.Buffer((6,), "int32"),
):
    for i, r in T.grid(6, 8):
        with T.block("S"):
            vi, vr = T.axis.remap("SR", [i, r])
            with T.init():
                S[vi] = 0
                P[vi] = 2147483647
                V[vi] = -2147483648
            term = A[vi, vr] * B[vi, vr]
            twice = term + term
            p = P[vi]
            v = V[vi]
            S[vi] = S[vi] + twice
            V[vi] = T.select((v > term) | (v == term) & (p < T.int32(vr)), v, term)
            P[vi] = T.select((v > term) | (v == term) & (p < T.int32(vr)), p, T.int32(vr))
""")


def test_different_reductions_in_one_block(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        _, r = loops(sch, "S")
        sch.rfactor(sch.split(r, factors=[None, 2])[0], 1)

    sch = golden("rfactor/several", several(), script)
    check_compiled(sch.original, sch.func)


def body(*lines: str) -> Func:
    """A block with these lines as its update."""
    update = "\n".join(f"            {line}" for line in lines)
    return parse(f"""
@tw.script
def several(A: T.Buffer((6, 8), "int32"), P: T.Buffer((6,), "int32"), V: T.Buffer((6,), "int32")):
    for i, r in T.grid(6, 8):
        with T.block("M"):
            vi, vr = T.axis.remap("SR", [i, r])
            with T.init():
                P[vi] = 2147483647
                V[vi] = -2147483648
{update}
""")


LEFT = "(V[vi] > A[vi, vr]) | (V[vi] == A[vi, vr]) & (P[vi] < T.int32(vr))"


def test_the_old_values_may_be_read_in_the_update() -> None:
    func = body(
        f"p = T.select({LEFT}, P[vi], T.int32(vr))",
        f"v = T.select({LEFT}, V[vi], A[vi, vr])",
        "P[vi] = p",
        "V[vi] = v",
    )
    sch = Schedule(func)
    sch.rfactor(loops(sch, "M")[1], 0)
    check_meaning(func, sch.func)
    check_replays(func, sch)


@pytest.mark.parametrize(
    "lines",
    [
        [f"P[vi] = T.select({LEFT}, P[vi], T.int32(vr))",  # V's update sees the new P
         f"V[vi] = T.select({LEFT}, V[vi], A[vi, vr])"],
        [f"v = T.select({LEFT}, V[vi], A[vi, vr])", "V[vi] = v",
         "p = T.select((V[vi] > A[vi, vr]) | (P[vi] < T.int32(vr)), P[vi], T.int32(vr))",
         "P[vi] = p"],
        [f"p = T.select({LEFT.replace('<', '<=')}, P[vi], T.int32(vr))",
         f"v = T.select({LEFT.replace('<', '<=')}, V[vi], A[vi, vr])", "P[vi] = p", "V[vi] = v"],
        ["P[vi] = P[vi] + 1", "V[vi] = V[vi] + P[vi]"],
        ["p = P[vi] + 1", "q = p + 1", "P[vi] = q", "V[vi] = V[vi] + 1"],
        ["P[vi] = P[vi] + 1", "P[vi] = P[vi] + 1", "V[vi] = V[vi] + 1"],
        ["if A[vi, vr] > 0:", "    P[vi] = P[vi] + 1", "V[vi] = V[vi] + 1"],
        ["P[vi] = P[vi] + V[vi]", "V[vi] = V[vi] + 1"],
    ],
)  # fmt: skip
def test_what_is_no_reduction(lines: list[str]) -> None:
    sch = Schedule(body(*lines))
    with pytest.raises(ScheduleError, match="block M must be a reduction by sum, prod"):
        sch.rfactor(loops(sch, "M")[1], 0)


def test_results_of_different_ranks() -> None:
    func = parse("""
@tw.script
def ranks(A: T.Buffer((6, 8), "int32"), P: T.Buffer((6, 1), "int32"), V: T.Buffer((6,), "int32")):
    for i, r in T.grid(6, 8):
        with T.block("M"):
            vi, vr = T.axis.remap("SR", [i, r])
            with T.init():
                P[vi, 0] = 0
                V[vi] = 0
            P[vi, 0] = P[vi, 0] + A[vi, vr]
            V[vi] = V[vi] + 1
""")
    sch = Schedule(func)
    with pytest.raises(ScheduleError, match="M are of different ranks: P of 2, V of 1"):
        sch.rfactor(loops(sch, "M")[1], 0)


@pytest.mark.parametrize("index", [0, 1])
def test_each_result_can_be_reindexed(index: int) -> None:
    sch = Schedule(arg())
    sch.reindex(sch.get_block("M"), ("write", index))
    check_meaning(sch.original, sch.func)
    sch = Schedule(arg())
    sch.reindex_cache_write(sch.get_block("M"), index, "local", lambda i, r: (i % 4, i // 4))
    check_meaning(sch.original, sch.func)
    check_replays(sch.original, sch)
    check_compiled(sch.original, sch.func)


def test_both_results_are_computed_where_an_element_of_each_is_read() -> None:
    """Regression: what the two buffers need was taken for different, and all rows were computed."""
    a = te.placeholder((ROWS, COLUMNS), name="A")
    r = te.reduce_axis(COLUMNS, name="r")
    m, v = te.compute((ROWS,), lambda i: te.argmax(a[i, r], axis=r), name=("M", "V"))
    b = te.compute((ROWS,), lambda i: v[i] * te.cast(m[i], "float32"), name="B")
    func = te.func([a, b], name="weighted")
    sch = Schedule(func)
    (i,) = loops(sch, "B")
    outer, _ = sch.split(i, factors=[None, 4])
    sch.compute_at(sch.get_block("M"), outer)
    extents = [find_loop(sch.func, s).extent for s in loops(sch, "M")]
    assert extents == [ROWS // 4, 4, COLUMNS]
    check_meaning(func, sch.func)


def test_all_points_are_computed_where_one_result_is_read_by_another_index() -> None:
    """Regression: the rows were those that M needs, while all elements of V were copied."""
    a = te.placeholder((ROWS, COLUMNS), name="A")
    r = te.reduce_axis(COLUMNS, name="r")
    m, v = te.compute((ROWS,), lambda i: te.argmax(a[i, r], axis=r), name=("M", "V"))
    b = te.compute((ROWS,), lambda i: v[i] * te.cast(m[i], "float32"), name="B")
    sch = Schedule(te.func([a, b], name="weighted"))
    (i,) = loops(sch, "B")
    best = sch.get_block("M")
    sch.transform_layout(best, ("write", 1), lambda i: (ROWS - 1 - i,))
    sch.compute_at(sch.cache_write(best, 1, "global"), i)
    sch.compute_at(best, i)
    verify(sch.func)
    check_meaning(sch.original, sch.func)
