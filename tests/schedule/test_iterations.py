"""reorder_block_iter_var and transform_block_layout, and the index maps that they invert."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.base.errors import ScheduleError
from tilewright.schedule import Schedule
from tilewright.schedule.digit_sums import bijection, solve
from tilewright.schedule.index_map import IndexMap
from tilewright.tir.equality import structural_equal
from tilewright.tir.evaluate import evaluate
from tilewright.tir.ir import Expr, Func, Var
from tilewright.tir.parser import parse

from ..refusals import refused
from .conftest import Golden
from .machinery import check_compiled, check_meaning, check_replays
from .programs import chain, diagonal, elementwise, loops, matmul, matmul_relu, rowsum


def test_order_of_iteration_variables(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        c, d = sch.get_block("C"), sch.get_block("D")
        sch.reorder_block_iter_var(c, [1, 2, 0])
        sch.compute_at(c, sch.get_loops(d)[0])

    golden("reorder_block_iter_var/compute_at", matmul_relu(), script)


def test_fused_iterations(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        (axis,) = sch.transform_block_layout(sch.get_block("B"), lambda i, j: i * 12 + j)
        sch.parallel(axis)

    golden("transform_block_layout/fused", elementwise(), script)


def test_split_and_permuted_iterations(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        *_, inner = sch.transform_block_layout(
            sch.get_block("C"), lambda i, j, r: (j // 4, i, r // 5, j % 4, r % 5)
        )
        sch.unroll(inner)

    golden("transform_block_layout/matmul", matmul(), script)


def test_fused_and_split_in_two_steps(golden: Golden) -> None:
    def script(sch: Schedule) -> None:
        d = sch.get_block("D")
        sch.transform_block_layout(d, lambda i, j: (0, i * 12 + j))
        _, outer, inner = sch.transform_block_layout(d, lambda u, v: (u, v // 8, v % 8))
        sch.parallel(outer)
        sch.vectorize(inner)

    golden("transform_block_layout/two_steps", matmul_relu(), script)


def test_a_sampled_factor_in_the_map() -> None:
    sch = Schedule(elementwise())
    t = sch.sample_categorical([4])
    sch.transform_block_layout(sch.get_block("B"), lambda i, j: (i // t, j, i % t))
    check_meaning(sch.original, sch.func)
    (step,) = sch.trace.decisions
    other = sch.trace.with_decisions({step: [4]}).apply(sch.original)
    assert len(loops(other, "B")) == 3


def test_a_reduction_in_other_loops_when_compiled() -> None:
    sch = Schedule(rowsum())
    sch.transform_block_layout(sch.get_block("S"), lambda i, r: (r % 3, i, r // 3))
    check_meaning(sch.original, sch.func)
    check_compiled(sch.original, sch.func)


@pytest.mark.parametrize("order", [[0, 0], [0], [0, 1, 2], [1, 2], [-1, 0]])
def test_orders_are_permutations(order: list[int]) -> None:
    sch = Schedule(elementwise())
    with pytest.raises(ScheduleError):
        sch.reorder_block_iter_var(sch.get_block("B"), order)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda i: i, "the map takes 1 indices, block B has 2"),
        (lambda i, j: (i,), "the map has j 0 times in its results"),
        (lambda i, j: (i, j, j), "the map has j 2 times in its results"),
        (lambda i, j: (i + 1, j), "is not a sum of indices"),
        (lambda i, j: (15 - i, j), "is not a sum of indices"),
        (lambda i, j: (i, j * i), "is not a sum of indices"),
        (lambda i, j: i * 13 + j, r"i \* 13 \+ j leaves out values: i has the factor 13, "),
        (lambda i, j: i * 8 + j, "i has the factor 8, expected 12"),
        (lambda i, j: (i // 5, i % 5, j), "i // 5 cuts i, of 16 values at steps of 1, where 5"),
        (lambda i, j: (i // 8, i % 8 // 4, i % 4 % 3, j), "cuts i"),
        (lambda i, j: (i // 4, i % 4 // 2, j), "the map has i % 2 0 times in its results"),
        (lambda i, j: (i, j // 6, j // 4, j % 6), "j // 4 cuts j, of 6 values at steps of 1"),
        (lambda i, j: ((i + j) // 16, i, j), r"the remainder of .* is more than one index"),
    ],
)
def test_maps_are_one_to_one(function: Callable[..., Any], message: str) -> None:
    sch = Schedule(elementwise())
    with pytest.raises(ScheduleError, match=message):
        sch.transform_block_layout(sch.get_block("B"), function)


def test_kinds_are_not_mixed() -> None:
    sch = Schedule(rowsum())
    with pytest.raises(ScheduleError):
        sch.transform_block_layout(sch.get_block("S"), lambda i, r: i * 12 + r)


def swap(i: Var, j: Var) -> tuple[Expr, ...]:
    return j, i


def test_loops_are_those_of_the_block_alone() -> None:
    sch = Schedule(elementwise())
    b = sch.get_block("B")
    i, j = sch.get_loops(b)
    sch.parallel(i)
    with pytest.raises(ScheduleError):
        sch.transform_block_layout(b, swap)
    sch = Schedule(elementwise())
    b = sch.get_block("B")
    i, j = sch.get_loops(b)
    sch.annotate(j, "key", 1)
    with pytest.raises(ScheduleError):
        sch.transform_block_layout(b, swap)
    sch = Schedule(elementwise())
    b = sch.get_block("B")
    i, j = sch.get_loops(b)
    sch.split(j, factors=[None, 5])
    with refused(ScheduleError, "B", "j_0 * 5 + j_1 < 12"):
        sch.transform_block_layout(b, swap)
    sch = Schedule(diagonal())
    with pytest.raises(ScheduleError):
        sch.transform_block_layout(sch.get_block("B"), swap)
    sch = Schedule(chain())
    sch.compute_at(sch.get_block("B"), loops(sch, "C")[0])
    with refused(ScheduleError, "i", "C"):
        sch.transform_block_layout(sch.get_block("C"), lambda i: (i // 4, i % 4))


@pytest.mark.parametrize("func", [elementwise(), matmul(16, 16, 16)])
def test_loops_that_were_split_and_fused_become_plain_ones(func: Func) -> None:
    sch = Schedule(func)
    b = sch.get_block(0)
    plain = sch.copy()
    i, j, *rest = sch.get_loops(b)
    _, inner = sch.split(i, factors=[None, 4])
    sch.fuse(inner, j)
    sch.reorder(*sch.get_loops(b)[::-1])
    sch.add_unit_loop(b)
    swapped: Callable[..., Any] = (lambda i, j, k: (j, i, k)) if rest else swap
    for s in (sch, plain):
        s.transform_block_layout(b, swapped)
    assert structural_equal(sch.func, plain.func)
    check_replays(sch.original, sch)


def test_loops_of_open_sizes_stay() -> None:
    sch = Schedule(elementwise(), symbolic=True)
    b = sch.get_block("B")
    sch.split(sch.get_loops(b)[0], factors=[None, sch.sample_categorical([2, 4])], perfect=True)
    with pytest.raises(ScheduleError):
        sch.transform_block_layout(b, swap)


def test_domains_are_visited_once_from_zero_on() -> None:
    text = """@tw.script
def f(A: T.Buffer((4,), "int32")):
    for i in range(4):
        with T.block("A"):
            vi = T.axis.{kind}({extent}, i)
            A[vi] = 1
"""
    sch = Schedule(parse(text.format(kind="spatial", extent=3)))
    with pytest.raises(ScheduleError):
        sch.transform_block_layout(sch.get_block("A"), lambda i: (i,))
    sch = Schedule(parse(text.format(kind="opaque", extent=4)))
    with pytest.raises(ScheduleError):
        sch.transform_block_layout(sch.get_block("A"), lambda i: (i,))
    sch = Schedule(elementwise(0, 4))
    with pytest.raises(ScheduleError):
        sch.transform_block_layout(sch.get_block("B"), swap)


def test_extents_are_numbers() -> None:
    sch = Schedule(matmul(), symbolic=True)
    packed = sch.pack(sch.get_block("C"), 1, "BAb", [sch.sample_categorical([2, 4])])
    with pytest.raises(ScheduleError):
        sch.transform_block_layout(packed, lambda i, j, k: (j, i, k))
    sch.transform_block_layout(sch.get_block("C"), lambda i, j, r: (j, i, r))


def test_loops_of_open_extents_around_a_block() -> None:
    """Whether such a loop runs once decides if it is one of the block's."""
    func = parse("""
@tw.script
def f(A: T.Buffer((5, 6), "float32"), B: T.Buffer((5, 6), "float32")):
    for i, j, u in T.grid(5, 6, 1):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj]
""")
    sch = Schedule(func)
    block = sch.get_block("B")
    sch.split(sch.get_loops(block)[2], factors=sch.sample_perfect_tile(sch.get_loops(block)[2], 3))
    sch.transform_block_layout(block, lambda i, j: (j, i))
    check_replays(func, sch)
    with pytest.raises(ScheduleError) as refusal:
        sch.trace.apply(func, symbolic=True)
    assert refusal.value.__cause__ is None


def test_loops_do_not_nest_without_end() -> None:
    sch = Schedule(elementwise())
    with pytest.raises(ScheduleError):
        sch.transform_block_layout(sch.get_block("B"), lambda i, j: (i, j) + (0,) * 69)


@given(st.data())
def test_inverses_are_exact(data: st.DataObject) -> None:
    digits = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    v = Var("v")
    places = [math.prod(digits[k + 1 :]) for k in range(len(digits))]
    total = math.prod(digits)
    parts = [v // p % n for p, n in zip(places, digits, strict=True)]
    order = data.draw(st.permutations(range(len(digits))))
    cut = data.draw(st.integers(0, len(digits)))
    outputs = []
    for group in (order[:cut], order[cut:]):
        value: Expr = v * 0
        for k in group:
            value = value * digits[k] + parts[k]
        outputs.append(value)
    new = bijection(IndexMap((v,), tuple(outputs)), {v: total})
    assert math.prod(new.extents) == total
    w = (Var("a"), Var("b"))
    column = {v: np.arange(total)}
    images = {
        x: np.broadcast_to(evaluate(e, column), total) for x, e in zip(w, outputs, strict=True)
    }
    back = evaluate(solve(outputs, {v: total}, w).values[v], images)
    np.testing.assert_array_equal(np.broadcast_to(back, total), column[v])


def test_digits_that_become_iterations_are_simplified() -> None:
    func = parse("""
@tw.script
def repeated(A: T.Buffer((6, 2), "float32"), B: T.Buffer((12,), "float32")):
    for i in range(12):
        with T.block("B"):
            vi = T.axis.spatial(12, i)
            B[vi] = A[vi // 2, vi % 2] + 1.0
""")
    sch = Schedule(func)
    block = sch.get_block("B")
    sch.transform_block_layout(block, lambda i: (i // 2, i % 2))
    assert "B[vi_0 * 2 + vi_1] = A[vi_0, vi_1] + 1.0" in str(sch.func)
    check_meaning(func, sch.func)
    check_replays(func, sch)


def test_indices_in_values_and_in_indices_are_simplified() -> None:
    # Both are int64, as indices are.
    func = parse("""
@tw.script
def looked_up(A: T.Buffer((24,), "int64"), P: T.Buffer((12,), "int64", value_range=(0, 2)),
              B: T.Buffer((12,), "int64")):
    for i, j in T.grid(3, 4):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi * 4 + vj] = A[P[vi * 4 + vj] * 12 + vi * 4 + vj] * 2 + P[vi * 4 + vj]
""")
    sch = Schedule(func)
    sch.transform_block_layout(sch.get_block("B"), lambda i, j: (i * 4 + j,))
    assert "B[vi_j] = A[P[vi_j] * 12 + vi_j] * 2 + P[vi_j]" in str(sch.func)
    check_meaning(func, sch.func)
    check_replays(func, sch)


def test_digits_that_become_dimensions_are_simplified() -> None:
    func = parse("""
@tw.script
def copied(A: T.Buffer((6, 2), "float32"), C: T.Buffer((12,), "float32")):
    B = T.alloc((12,), "float32")
    for i, j in T.grid(6, 2):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi * 2 + vj] = A[vi, vj]
    for i in range(12):
        with T.block("C"):
            vi = T.axis.spatial(12, i)
            C[vi] = B[vi]
""")
    sch = Schedule(func)
    sch.transform_layout(sch.get_block("B"), ("write", 0), lambda i: (i // 2, i % 2))
    assert "B[v0, v1] = A[v0, v1]" in str(sch.func).replace("vi", "v0").replace("vj", "v1")
    check_meaning(func, sch.func)
    check_replays(func, sch)
