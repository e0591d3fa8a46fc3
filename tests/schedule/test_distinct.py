"""Iterations that structure tells to touch different elements do so: every element is counted."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.schedule.distinct import distinct
from tilewright.tir.bounds import variables
from tilewright.tir.dependence import Access
from tilewright.tir.evaluate import evaluate
from tilewright.tir.ir import Expr, For, Range, Seq, Var, as_expr

from ..long import examples

M, J, K, L = (Var(name) for name in "mjkl")
EXTENTS = st.integers(1, 5)
SCALES = st.sampled_from([-12, -7, -4, -3, -1, 0, 1, 2, 4, 5, 16])


@st.composite
def sums(draw: st.DrawFn) -> Expr:
    """A sum of loops, of which some count down, perhaps by its quotient or remainder."""
    whole = as_expr(draw(st.integers(0, 9)))
    for v in (M, J, K, L):
        whole = whole + v * draw(SCALES)
    digits = draw(st.sampled_from(["whole", "whole", "quotient", "remainder"]))
    return {"whole": whole, "quotient": whole // 4, "remainder": whole % 4}[digits]


@st.composite
def cases(draw: st.DrawFn) -> tuple[Access, dict[Var, int]]:
    extents = {v: draw(EXTENTS) for v in (M, J, K, L)}
    guards = [K * draw(st.integers(1, 4)) + L < draw(st.integers(1, 9))] * draw(st.integers(0, 1))
    ranges = st.lists(st.builds(Range, sums(), st.integers(1, 2)), min_size=1, max_size=2)
    return Access(tuple(draw(ranges)), {K: extents[K], L: extents[L]}, guards), extents


@settings(max_examples=examples(500))
@given(cases())
def test_what_is_told_apart_is_apart(case: tuple[Access, dict[Var, int]]) -> None:
    access, extents = case
    loops = [For(v, extents[v], Seq(())) for v in (M, J)]
    if distinct([access], loops, {v: (0, extents[v] - 1) for v in (M, J)}):
        seen: dict[tuple[int, ...], tuple[int, ...]] = {}
        points = list(product(*(range(n) for n in extents.values())))
        values = dict(zip(extents, np.array(points).T, strict=True))
        guarded = [evaluate(g, values).tolist() for g in access.guards]
        lows = [evaluate(r.min, values).tolist() for r in access.ranges]
        ends = [evaluate(r.min + r.extent, values).tolist() for r in access.ranges]
        for n, point in enumerate(points):
            if all(holds[n] for holds in guarded):
                boxes = [range(low[n], end[n]) for low, end in zip(lows, ends, strict=True)]
                for element in product(*boxes):
                    assert seen.setdefault(element, point[:2]) == point[:2]


@pytest.mark.parametrize(
    ("index", "apart"),
    [
        (99 - M, True),
        (99 - M * 10 - J, True),
        (90 - M * 10 + J, True),
        (90 - M * 9 + J, False),
        (M * 4 - K, True),
        (M * 4 - K * 2, False),
        (90 - M * 7 - K + L, True),
        (90 - M * 6 - K + L, False),
    ],
)
def test_loops_that_count_down(index: Expr, apart: bool) -> None:
    inner = {v: 4 for v in (K, L) if v in variables(index)}
    loops = [For(v, 10, Seq(())) for v in (M, J) if v in variables(index)]
    access = Access((Range(index, 1),), inner)
    assert distinct([access], loops, {s.var: (0, 9) for s in loops}) is apart
