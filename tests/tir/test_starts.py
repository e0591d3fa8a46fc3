"""Conditions on reductions with an init: those that leave out terms, and those that are refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from textwrap import indent
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.base.errors import ScheduleError, VerifyError
from tilewright.schedule import Schedule
from tilewright.tir.interpreter import interpret
from tilewright.tir.ir import Func
from tilewright.tir.parser import parse
from tilewright.tir.printer import func_text
from tilewright.tir.verify import verify

from ..differences import first_difference

ROWS, TERMS = 6, 8
ROW, TERM = np.indices((ROWS, TERMS))
RNG = np.random.default_rng(3)
A = RNG.standard_normal((ROWS, TERMS)).astype("float32")
M = RNG.integers(0, 2, (ROWS, TERMS)).astype("int32")
SUM = "B[vi] = B[vi] + A[vi, vk]"


def program(where: str, body: str = SUM, *, loops: str = "i, k", init: str = "B[vi] = 0") -> Func:
    """A block of row i and term k under a condition; `loops` may have other loops."""
    extents = ", ".join({"i": str(ROWS), "k": str(TERMS)}.get(v, "4") for v in loops.split(", "))
    term = "k0 * 2 + k1" if "k0" in loops else "k"
    return parse(f"""
def f(A: T.Buffer(({ROWS}, {TERMS}), "float32"), M: T.Buffer(({ROWS}, {TERMS}), "int32"),
      n: T.int64, B: T.Buffer(({ROWS},), "float32")):
    for {loops} in T.grid({extents.replace("4, 4", "4, 2")}):
        with T.block("B"):
            vi = T.axis.spatial({ROWS}, i)
            vk = T.axis.reduce({TERMS}, {term})
            T.where({where})
            with T.init():
                {init}
{indent(body, " " * 12)}
""")


def result(run: Callable[..., Any], n: int = 3) -> np.ndarray:
    """Twice into one array, whose first content must not matter."""
    out = np.full(ROWS, 77, "float32")
    for _ in range(2):
        run(A, M, n, out)
    return out


TERMS_LEFT_OUT = {
    "k >= 5": TERM >= 5,
    "k < i": TERM < ROW,
    "k >= i": TERM >= ROW,
    "k == i": TERM == ROW,
    "k % 3 == 1": TERM % 3 == 1,
    "M[i, k] != 0": M != 0,
    "M[i, 7 - k] != 0": M[:, ::-1] != 0,
    "A[i, k] > 0.0": A > 0,
    "k >= n": TERM >= 3,
    "(k >= 2) & (M[i, k] == 1)": (TERM >= 2) & (M == 1),
    "(k == 5) | (M[i, k] == 1)": (TERM == 5) | (M == 1),
    "i + k < 7": ROW + TERM < 7,
    "k < 6": TERM < 6,
}


@pytest.mark.parametrize("where", TERMS_LEFT_OUT)
@pytest.mark.parametrize("loops", ["i, k", "k, i", "i, k0, k1"])
def test_a_condition_on_terms_keeps_the_init(where: str, loops: str) -> None:
    func = program(where.replace("k", "(k0 * 2 + k1)") if "k0" in loops else where, loops=loops)
    verify(func)
    expected = np.where(TERMS_LEFT_OUT[where], A, 0).sum(1)
    np.testing.assert_allclose(result(lambda *a: interpret(func, *a)), expected, rtol=1e-5)
    np.testing.assert_allclose(result(tw.build(func, "cpu -threads=1")), expected, rtol=1e-5)
    again = parse(func_text(func))
    assert first_difference(again, func) is None


@pytest.mark.parametrize("where", [*TERMS_LEFT_OUT, "i >= 2", "M[i, 3] != 0"])
@pytest.mark.parametrize("loops", ["i, k", "i, k0, k1"])
def test_a_condition_may_be_on_iteration_variables(where: str, loops: str) -> None:
    on_loops = where.replace("k", "(k0 * 2 + k1)") if "k0" in loops else where
    on_iterations = re.sub(r"\b([ik])\b", r"v\1", where)
    func = program(on_iterations, loops=loops)
    verify(func)
    assert first_difference(func, program(on_loops, loops=loops)) is None


@pytest.mark.parametrize("where", TERMS_LEFT_OUT)
def test_steps_keep_the_terms(where: str) -> None:
    func = program(where)
    expected = np.where(TERMS_LEFT_OUT[where], A, 0).sum(1)
    for script in (decomposed, split, reordered, cached):
        sch = Schedule(func)
        script(sch)
        verify(sch.func)
        for run in (lambda *a, f=sch.func: interpret(f, *a), tw.build(sch, "cpu -threads=1")):
            np.testing.assert_allclose(result(run), expected, rtol=1e-5)


def decomposed(sch: Schedule) -> None:
    sch.decompose_reduction(sch.get_block("B"), sch.get_loops(sch.get_block("B"))[1])


def split(sch: Schedule) -> None:
    i, k = sch.get_loops(sch.get_block("B"))
    outer, inner = sch.split(k, [None, 3])
    sch.reorder(outer, i, inner)


def reordered(sch: Schedule) -> None:
    i, k = sch.get_loops(sch.get_block("B"))
    sch.reorder(k, i)
    sch.vectorize(i)


def cached(sch: Schedule) -> None:
    sch.cache_write(sch.get_block("B"), 0, "global")
    sch.parallel(sch.get_loops(sch.get_block("B"))[0])


@pytest.mark.parametrize("where", ["i >= 2", "M[i, 3] != 0", "i < n"])
def test_a_condition_on_elements_leaves_them_as_they_are(where: str) -> None:
    func = program(where)
    verify(func)
    rows = {"i >= 2": ROW[:, 0] >= 2, "M[i, 3] != 0": M[:, 3] != 0, "i < n": ROW[:, 0] < 3}[where]
    expected = np.where(rows, A.sum(1), 77)
    np.testing.assert_allclose(result(lambda *a: interpret(func, *a)), expected, rtol=1e-5)
    np.testing.assert_allclose(result(tw.build(func, "cpu -threads=1")), expected, rtol=1e-5)


def test_a_condition_on_elements_is_one_after_their_loops_are_fused() -> None:
    func = program("i < 4")
    sch = Schedule(func)
    fused = sch.fuse(*sch.get_loops(sch.get_block("B")))
    verify(sch.func)
    sch.split(fused, [None, 5])
    verify(sch.func)
    assert first_difference(parse(func_text(sch.func)), sch.func) is None
    expected = np.where(ROW[:, 0] < 4, A.sum(1), 77)
    np.testing.assert_allclose(result(lambda *a: interpret(sch.func, *a)), expected, rtol=1e-5)


def test_a_digit_that_no_iteration_tells_keeps_the_first_terms() -> None:
    """Of five iterations for each element and term one runs: fusing them excludes no init."""
    sch = Schedule(program("k < 8"))
    i, k = sch.get_loops(sch.get_block("B"))
    unit = sch.add_unit_loop(i)
    _, more = sch.split(unit, factors=[None, 5], perfect=False)
    sch.fuse(more, i, k)
    verify(sch.func)
    expected = A.sum(1)
    np.testing.assert_allclose(result(tw.build(sch, "cpu -threads=1")), expected, rtol=1e-5)


def test_elements_and_terms_are_told_apart() -> None:
    func = program("(i >= 2) & (k >= i)")
    verify(func)
    expected = np.where(ROW[:, 0] >= 2, np.where(TERM >= ROW, A, 0).sum(1), 77)
    np.testing.assert_allclose(result(tw.build(func, "cpu -threads=1")), expected, rtol=1e-5)


def test_declared_reads_get_those_of_the_condition() -> None:
    text = func_text(program("M[i, k] != 0")).replace(
        "with T.init():", "T.reads(A[vi, vk], B[vi])\n            with T.init():"
    )
    declared = text.replace("if M[vi, vk] != 0:\n                B", "B").replace(
        "with T.init", "T.where(M[i, k] != 0)\n            with T.init"
    )
    assert "T.where" in declared
    verify(parse(declared))


def refused(func: Func) -> str:
    with pytest.raises(VerifyError) as error:
        verify(func)
    assert error.value.arguments[0] == "B"
    assert "in the body of the block" in str(error.value.hint)
    return str(error.value.arguments[2]())


def test_a_condition_that_no_iteration_variable_tells_is_refused() -> None:
    assert refused(program("k1 >= 1", loops="i, k0, k1")) == "k1 >= 1"


@pytest.mark.parametrize("condition", ["k >= 5", "k < i", "M[i, k] != 0", "M[i, 0] != 0"])
def test_a_condition_around_the_block_is_like_one_in_it(condition: str) -> None:
    func = parse(f"""
def f(A: T.Buffer((6, 8), "float32"), M: T.Buffer((6, 8), "int32"), n: T.int64,
      B: T.Buffer((6,), "float32")):
    for i, k in T.grid(6, 8):
        if {condition}:
            with T.block("B"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = 0
                B[vi] = B[vi] + A[vi, vk]
""")
    verify(func)
    rows = M[:, 0] != 0 if "0]" in condition else np.full(ROWS, True)
    terms = TERMS_LEFT_OUT.get(condition, np.full(A.shape, True))
    expected = np.where(rows, np.where(terms, A, 0).sum(1), 77)
    for run in (lambda *a: interpret(func, *a), tw.build(func, "cpu -threads=1")):
        np.testing.assert_allclose(result(run), expected, rtol=1e-5)


@pytest.mark.parametrize("where", ["T.where(G[0] > 2)", "if G[0] > 2:"])
def test_a_condition_on_elements_that_the_reduction_changes_is_refused(where: str) -> None:
    guard, around = (where, "if G[0] < 100:") if "where" in where else ("T.where(True)", where)
    func = parse(f"""
def f(A: T.Buffer((6, 8), "float32"), G: T.Buffer((1,), "int32"), B: T.Buffer((6,), "float32")):
    T.inplace(G)
    for k in range(8):
        with T.block("G"):
            vk = T.axis.opaque(8, k)
            G[0] = G[0] + 1
        for i in range(6):
            {around}
                with T.block("B"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    {guard}
                    with T.init():
                        B[vi] = 0
                    B[vi] = B[vi] + A[vi, vk]
""")
    with pytest.raises(VerifyError):
        verify(func)


def test_a_loop_that_may_have_no_iteration_leaves_out_terms() -> None:
    func = parse("""
def f(A: T.Buffer((6, 8), "float32"), M: T.Buffer((6, 8), "int32"), n: T.int64,
      B: T.Buffer((6,), "float32")):
    for i in range(6):
        for k in range(i):
            with T.block("B"):
                vi = T.axis.spatial(6, i)
                vk = T.axis.reduce(8, k)
                with T.init():
                    B[vi] = 0
                B[vi] = B[vi] + A[vi, vk]
""")
    verify(func)
    expected = np.where(TERM < ROW, A, 0).sum(1)
    for run in (lambda *a: interpret(func, *a), tw.build(func, "cpu -threads=1")):
        np.testing.assert_allclose(result(run), expected, rtol=1e-5)


def test_an_init_under_a_condition_of_its_own_is_refused() -> None:
    """In machine code the sums of other rows would start from what was there."""
    with pytest.raises(VerifyError):
        verify(program("k < 6", init="if vi > 3:\n                    B[vi] = 0"))


def test_an_index_that_is_reduced_under_a_condition_is_in_its_range() -> None:
    """Of an internal buffer nobody checks the values at run time."""
    func = parse("""
def f(M: T.Buffer((5, 8), "int32"), X: T.Buffer((4,), "float32"), Y: T.Buffer((5,), "float32")):
    at = T.alloc((5,), "int32", value_range=(0, 4))
    for i, k in T.grid(5, 8):
        with T.block("at"):
            vi, vk = T.axis.remap("SR", [i, k])
            T.where(M[i, k] > 1)
            with T.init():
                at[vi] = 0
            at[vi] = T.maximum(at[vi], T.minimum(T.maximum(M[vi, vk], 0), 3))
    for i in range(5):
        with T.block("Y"):
            vi = T.axis.spatial(5, i)
            Y[vi] = X[at[vi]]
""")
    verify(func)
    module = tw.build(func, "cpu -threads=1")
    m = RNG.integers(-3, 6, (5, 8)).astype("int32")
    m[2] = 0
    x, y = np.arange(4, dtype="float32"), np.zeros(5, "float32")
    module(m, x, y)
    np.testing.assert_array_equal(y, x[np.where(m > 1, np.clip(m, 0, 3), 0).max(1)])


def test_an_init_that_was_stored_before_may_be_merged_only_where_it_runs() -> None:
    func = parse("""
def f(A: T.Buffer((6, 8), "float32"), B: T.Buffer((6,), "float32")):
    for i in range(6):
        with T.block("Z"):
            vi = T.axis.spatial(6, i)
            B[vi] = 0
    for i, k in T.grid(6, 8):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            T.where(k >= 5)
            B[vi] = B[vi] + A[vi, vk]
""")
    verify(func)
    sch = Schedule(func)
    with pytest.raises(ScheduleError):
        sch.merge_reduction(sch.get_block("Z"), sch.get_block("B"))


COPIED = """
def f(A: T.Buffer((6, 8), "float32"), M: T.Buffer((6, 8), "int32"), B: T.Buffer((6,), "float32")):
    C = T.alloc(({shape}), "int32")
    D = T.alloc((6, 8), "int32")
    for i, k in T.grid(6, 8):
        for j in range(8):
            with T.block("D"):
                vi, vj, vk = T.axis.remap("SSO", [i, j, k])
                D[vi, vj] = {original}
        for j in range(8):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSO", [i, j, k])
                C[{element}] = {value}
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                if C[{read}] > 0:
                    B[vi] = 0
            if C[{read}] > 0:
                B[vi] = B[vi] + A[vi, vk]
"""


@pytest.mark.parametrize(
    ("shape", "element", "value", "read", "original", "holds"),
    [
        ("6, 8", "vi, vj", "M[vi, vj] * 2", "vi, 1", "0", True),
        ("8, ", "vj", "M[0, vj]", "1", "0", True),
        ("6, 8", "vi, vj", "D[vi, vj]", "vi, 1", "M[vi, vj]", True),
        ("6, 8", "vi, vj", "D[vi, vj]", "vi, 1", "M[vi, vj] - T.int32(vk)", False),
        ("6, 8", "vi, vj", "M[vi, vk]", "vi, 1", "0", False),
        ("6, 8", "vi, vj", "M[vi, vj] + T.int32(vk)", "vi, 1", "0", False),
        ("6, 8", "vi, vj", "M[vi, vj] * 2", "vi, vk", "0", False),
        ("6, 8", "vi, (vj + vk) % 8", "M[vi, vj]", "vi, 1", "0", False),
    ],
)
def test_a_condition_on_copies_stays_while_they_are_copied_again(
    shape: str, element: str, value: str, read: str, original: str, *, holds: bool
) -> None:
    parts = {"shape": shape, "element": element, "value": value, "read": read}
    func = parse(COPIED.format(**parts, original=original))
    if not holds:
        with pytest.raises(VerifyError, match="reads B"):
            verify(func)
        return
    verify(func)
    start = np.full(6, -1, "float32")
    interpret(func, A, M, found := start.copy())
    asked = M[:, 1] if "vi" in read else np.full(6, M[0, 1])
    np.testing.assert_allclose(found, np.where(asked > 0, A.sum(1), start), rtol=1e-5)


TWO_BLOCKS = """
def f(A: T.Buffer((6, 8), "float32"), M: T.Buffer((6, 8), "int32"), B: T.Buffer((6, 8), "float32")):
    {inplace}
    for i, j in T.grid(6, 8):
        with T.block("Z"):
            vi, vj = T.axis.remap("SS", [i, j])
            if {stored}:
                B[vi, vj] = 0
    for i, j in T.grid(6, 8):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            if {read}:
                B[vi, vj] = B[{element}] + A[vi, vj]
"""


@pytest.mark.parametrize(
    ("stored", "read", "element", "holds"),
    [
        ("M[vi, vj] > 0", "M[vi, vj] > 0", "vi, vj", True),
        ("M[vi, 3] > 0", "(M[vi, 3] > 0) & (vj < 4)", "vi, vj", True),
        ("M[vi, vj] > 0", "M[vi, vj] > -1", "vi, vj", False),
        ("M[vi, vj] > 0", "M[vj % 6, vi] > 0", "vi, vj", False),
        ("M[vi, 3] > 0", "M[vi, 3] > 0", "0, vj", False),
        ("(M[vi, vj] > 0) & (vj < 4)", "M[vi, vj] > 0", "vi, vj", False),
    ],
)
def test_elements_are_read_under_the_conditions_under_which_they_are_stored(
    stored: str, read: str, element: str, *, holds: bool
) -> None:
    func = parse(TWO_BLOCKS.format(stored=stored, read=read, element=element, inplace=""))
    if not holds:
        with pytest.raises(VerifyError, match="not shown to be stored"):
            verify(func)
        return
    verify(func)


def test_conditions_on_data_that_change_tell_nothing_of_an_element() -> None:
    text = TWO_BLOCKS.format(
        stored="M[vi, vj] > 0", read="M[vi, vj] > 0", element="vi, vj", inplace="T.inplace(M)"
    )
    verify(parse(text.replace("T.inplace(M)", "")))
    raised = text.replace('block("B")', 'block("M")', 1).replace(
        """            if M[vi, vj] > 0:
                B[vi, vj] = B[vi, vj] + A[vi, vj]
""",
        "            M[vi, vj] = 1\n",
    )
    changed = raised + text[text.rindex("    for i, j") :]
    with pytest.raises(VerifyError):
        verify(parse(changed))


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("step", ["decompose_reduction", "loop_partition", "fuse"])
def test_steps_keep_reductions_that_start_under_a_condition(step: str, *, copied: bool) -> None:
    func = program(
        "True",
        f"if M[vi, 3] > 0:\n    {SUM}",
        init="if M[vi, 3] > 0:\n                    B[vi] = 0",
    )
    sch: Any = Schedule(func)
    i, k = sch.get_loops("B")
    if step == "decompose_reduction":
        sch.decompose_reduction("B", i)
    elif step == "loop_partition":
        sch.loop_partition(k, at=3)
    else:
        sch.fuse(i, k)
    if copied:
        block = "B_tail" if step == "loop_partition" else "B"
        sch.cache_read(block, "M", "local")
    verify(sch.func)
    expected = np.where(M[:, 3] > 0, A.sum(1), -1)
    found = np.full(ROWS, -1, "float32")
    interpret(sch.func, A, M, 3, found)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_condition_that_never_holds_is_the_same_for_all_terms() -> None:
    sch = Schedule(program("k > k"))
    _, k = sch.get_loops(sch.get_block("B"))
    sch.split(k, factors=[None, 5])
    verify(sch.func)
