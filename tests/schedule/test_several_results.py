"""Reductions of several results at once: their ties, their NaN, and what is not one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright.base.errors import ScheduleError, VerifyError
from tilewright.codegen.build import compile_func, to_module
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


@pytest.mark.grid
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
        ["p = T.select(V[vi] >= A[vi, vr], P[vi], T.int32(vr))",  # of equal values, another place
         "v = T.select(V[vi] > A[vi, vr], V[vi], A[vi, vr])", "P[vi] = p", "V[vi] = v"],
        ["p = T.select(P[vi] >= A[vi, vr], P[vi], T.int32(vr))",  # P is no value, but the place
         "v = T.select(P[vi] >= A[vi, vr], V[vi], A[vi, vr])", "P[vi] = p", "V[vi] = v"],
        ["p = T.select((V[vi] >= A[vi, vr]) | (A[vi, vr] < 3), P[vi], T.int32(vr))",
         "v = T.select((V[vi] >= A[vi, vr]) | (A[vi, vr] < 3), V[vi], A[vi, vr])",
         "P[vi] = p", "V[vi] = v"],
        ["p = T.select(V[vi] == A[vi, vr], P[vi], T.int32(vr))",
         "v = T.select(V[vi] == A[vi, vr], V[vi], A[vi, vr])", "P[vi] = p", "V[vi] = v"],
        ["P[vi] = P[vi] + 1", "V[vi] = V[vi] + P[vi]"],
        ["p = P[vi] + 1", "q = p + 1", "P[vi] = q", "V[vi] = V[vi] + 1"],
        ["P[vi] = P[vi] + 1", "P[vi] = P[vi] + 1", "V[vi] = V[vi] + 1"],
        ["if A[vi, vr] > 0:", "    P[vi] = P[vi] + 1", "V[vi] = V[vi] + 1"],
        ["P[vi] = P[vi] + V[vi]", "V[vi] = V[vi] + 1"],
    ],
)  # fmt: skip
def test_what_is_no_reduction(lines: list[str]) -> None:
    sch = Schedule(body(*lines))
    with pytest.raises(ScheduleError):
        sch.rfactor(loops(sch, "M")[1], 0)


FORMS = [
    ("{v} >= {a}", True),
    ("{v} > {a}", True),
    ("{a} <= {v}", True),
    ("{a} > {v}", False),
    ("{v} <= {a}", False),
    ("~({a} > {v})", True),
    ("({v} > {a}) | ({v} == {a}) & ({p} < {k})", True),
    ("({v} > {a}) | ({v} == {a}) & ({p} <= {k})", True),
    ("({a} > {v}) | ({a} == {v}) & ({p} < {k})", False),
    ("({v} >= {a}) & (({v} != {a}) | ({k} < {p}))", True),
]
"""Conditions on an old value v, a new one a, and their keys p and k; whether these keep the old."""


def compared(form: str, keeps: bool, dtype: str, key: str, *, largest: bool = True) -> Func:
    """The largest or the smallest of the rows of A, and its key, chosen as `form` says."""
    if not largest:
        form = form.replace("{v}", "{x}").replace("{a}", "{v}").replace("{x}", "{a}")
        form = form.replace("{v} == {a}", "{a} == {v}")
    condition = form.format(v="V[vi]", a="A[vi, vr]", p="P[vi]", k=key)
    sides = {b: (f"{b}[vi]", e) if keeps else (e, f"{b}[vi]")
             for b, e in (("P", key), ("V", "A[vi, vr]"))}  # fmt: skip
    return parse(f"""
@tw.script
def compared(
    A: T.Buffer((8, 12), "{dtype}"), K: T.Buffer((8, 12), "int32"),
    P: T.Buffer((8,), "int32"), V: T.Buffer((8,), "{dtype}"),
):
    for i, r in T.grid(8, 12):
        with T.block("M"):
            vi, vr = T.axis.remap("SR", [i, r])
            with T.init():
                P[vi] = -7
                V[vi] = {-2 if largest else 2}
            p = T.select({condition}, {", ".join(sides["P"])})
            v = T.select({condition}, {", ".join(sides["V"])})
            P[vi] = p
            V[vi] = v
""")


@pytest.mark.grid
@pytest.mark.parametrize("script", [outer, guarded])
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize(("dtype", "key"), [("float32", "T.int32(vr)"), ("int32", "K[vi, vr]")])
@pytest.mark.parametrize(("form", "keeps"), FORMS)
def test_equal_values_are_chosen_as_comparisons_choose_them(
    form: str,
    keeps: bool,
    dtype: str,
    key: str,
    largest: bool,
    script: Callable[[Schedule], None],
) -> None:
    """Few values, and many equal to the first value: the order of visits decides, or the key."""
    func = compared(form, keeps, dtype, key, largest=largest)
    verify(func)
    sch = Schedule(func)
    script(sch)
    verify(sch.func)
    check_replays(func, sch)
    rng = np.random.default_rng(0)
    a = rng.integers(-2, 3, size=(8, 12)).astype(dtype)
    a[0], a[1] = -2, 2
    if dtype == "float32" and not keeps:  # comparisons do not choose NaN
        a[rng.integers(3, size=a.shape) == 0] = np.nan
    k = rng.integers(-9, 9, size=(8, 12)).astype("int32")
    module = to_module(compile_func(sch.func, "cpu -threads=1"))
    results = []
    runs: tuple[Callable[..., object], ...] = (
        lambda *x: interpret(func, *x),
        lambda *x: interpret(sch.func, *x),
        lambda *x: interpret(sch.func, *x, order="shuffled", seed=1),
        module,
    )
    for run in runs:
        p, v = np.zeros(8, "int32"), np.zeros(8, dtype)
        run(a, k, p, v)
        results.append((p, v))
    for p, v in results[1:]:
        np.testing.assert_array_equal(p, results[0][0])
        np.testing.assert_array_equal(v, results[0][1])


def test_steps_keep_the_order_that_decides_among_equal_values() -> None:
    func = compared("{v} >= {a}", True, "int32", "K[vi, vr]")
    verify(func)
    sch = Schedule(func)
    i, r = loops(sch, "M")
    outer, inner = sch.split(r, factors=[None, 5])
    sch.parallel(i)
    sch.unroll(inner)
    sch.decompose_reduction(sch.get_block("M"), outer)
    verify(sch.func)
    check_meaning(func, sch.func)
    check_compiled(func, sch.func)


@pytest.mark.parametrize(
    "step",
    [
        lambda s, i, outer, inner: s.reorder(inner, outer),
        lambda s, i, outer, inner: s.transform_block_layout(
            s.get_block("M"), lambda i, r: (i, r % 4, r // 4)
        ),
    ],
    ids=["reorder", "transform_block_layout"],
)
def test_steps_that_change_the_order_are_refused_where_it_decides(step: Callable[..., Any]) -> None:
    func = compared("{v} >= {a}", True, "int32", "K[vi, vr]")
    sch = Schedule(func)
    i, r = loops(sch, "M")
    outer, inner = sch.split(r, factors=[None, 4])
    with pytest.raises(ScheduleError, match="decides among equal values"):
        step(sch, i, outer, inner)
    # Numbers of visits, or keys, decide in any order.
    by_key = "({v} > {a}) | ({v} == {a}) & ({p} < {k})"
    for other in (func, compared(by_key, True, "int32", "T.int32(vr)")):
        sch = Schedule(other)
        partial = "M"
        i, r = loops(sch, "M")
        outer, inner = sch.split(r, factors=[None, 4])
        if other is func:
            sch.rfactor(sch.split(outer, factors=[None, 2])[0], 0)
            partial = "M_rf"
        *_, outer, inner = sch.get_loops(sch.get_block(partial))
        sch.reorder(inner, outer)
        verify(sch.func)
        check_meaning(other, sch.func)


def test_loops_of_a_reduction_whose_order_decides_run_in_order() -> None:
    text = str(compared("{v} >= {a}", True, "int32", "K[vi, vr]"))
    for value in ("11 - r", "r % 4 * 3 + r // 4"):
        with pytest.raises(VerifyError):
            indent = " " * 12
            axes = f"vi = T.axis.spatial(8, i)\n{indent}vr = T.axis.reduce(12, {value})"
            verify(parse(text.replace('vi, vr = T.axis.remap("SR", [i, r])', axes)))


def test_numbers_of_visits_decide_among_equal_values(golden: Golden) -> None:
    func = compared("{v} >= {a}", True, "int32", "K[vi, vr]")
    golden("rfactor/compared", func, inner)


def test_several_values_go_with_the_best_one() -> None:
    """A largest element with its row and its column, and its value alone."""
    func = parse("""
@tw.script
def largest(
    A: T.Buffer((6, 8), "int32"), R: T.Buffer((), "int32"), C: T.Buffer((), "int64"),
    V: T.Buffer((), "int32"), W: T.Buffer((), "int32"),
):
    for i, j in T.grid(6, 8):
        with T.block("M"):
            vi, vj = T.axis.remap("RR", [i, j])
            with T.init():
                R[()] = 0
                C[()] = 0
                V[()] = -2147483648
                W[()] = 5
            r = T.select(V[()] >= A[vi, vj], R[()], T.int32(vi))
            c = T.select(A[vi, vj] > V[()], vj, C[()])
            v = T.select(V[()] >= A[vi, vj], V[()], A[vi, vj])
            w = T.select(W[()] < A[vi, vj], W[()], A[vi, vj])
            R[()] = r
            C[()] = c
            V[()] = v
            W[()] = w
""")
    for position in (0, 1):
        sch = Schedule(func)
        sch.rfactor(loops(sch, "M")[position], 0)
        verify(sch.func)
        check_meaning(func, sch.func)
        check_replays(func, sch)
        check_compiled(func, sch.func)


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
    with pytest.raises(ScheduleError):
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
