"""Exact dependences agree with looking at all iterations, and show one that is there."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.base.errors import VerifyError
from tilewright.tir.dependence import Access, Point, before, beyond, conflict
from tilewright.tir.ir import Binary, Buffer, Const, Expr, Op, Range, Var, binary, const, integers
from tilewright.tir.parser import parse
from tilewright.tir.verify import verify

N = Var("n")
K, L, J = Var("k"), Var("i"), Var("j")
U, W = Var("u"), Var("w")
OUTER, LOOPS = {K: 2}, {L: 4, J: 3}


@st.composite
def indices(draw: st.DrawFn, inner: Var) -> Expr:
    """Sums of loops with small steps, and quotients and remainders of them."""
    total: Expr = const(draw(st.integers(-2, 6)))
    for v in (K, L, J, inner):
        total = total + v * draw(st.sampled_from([0, 0, 1, 1, 2, 3, -1]))
    match draw(st.integers(0, 5)):
        case 0:
            return total // draw(st.integers(2, 4))
        case 1:
            return total % draw(st.integers(2, 5))
        case _:
            return total


@st.composite
def accesses(draw: st.DrawFn, inner: Var) -> Access:
    extents = st.sampled_from([1, 1, 1, 2, 3])
    ranges = [Range(draw(indices(inner)), draw(extents)) for _ in range(draw(st.integers(1, 2)))]
    guards = []
    if draw(st.booleans()):
        op = draw(st.sampled_from([Op.LT, Op.GE, Op.EQ, Op.NE]))
        guards.append(binary(op, draw(indices(inner)), draw(indices(inner))))
    return Access(ranges, {inner: draw(st.integers(0, 3))}, guards)


OPERATORS = {
    Op.ADD: operator.add, Op.SUB: operator.sub, Op.MUL: operator.mul, Op.MOD: operator.mod,
    Op.FLOORDIV: operator.floordiv, Op.LT: operator.lt, Op.GE: operator.ge, Op.EQ: operator.eq,
    Op.NE: operator.ne,
}  # fmt: skip


def evaluate(e: Expr, point: Mapping[Var, int]) -> int:
    match e:
        case Var():
            return point[e]
        case Const(value=value):
            return int(value)
        case Binary(op=op, a=a, b=b):
            return int(OPERATORS[op](evaluate(a, point), evaluate(b, point)))
        case _:
            raise AssertionError(e)


def touched(a: Access, fixed: Mapping[Var, int]) -> set[tuple[int, ...]]:
    """The elements that an access touches at one point of the loops, by looking."""
    found: set[tuple[int, ...]] = set()
    for values in product(*map(range, integers(a.inner.values()))):
        point = {**fixed, **dict(zip(a.inner, values, strict=True))}
        if all(evaluate(g, point) for g in a.guards):
            starts = [evaluate(r.min, point) for r in a.ranges]
            sides = [range(s, s + int(r.extent)) for s, r in zip(starts, a.ranges, strict=True)]  # type: ignore[arg-type]
            found.update(product(*sides))
    return found


def points(extents: Mapping[Var, int]) -> Iterator[dict[Var, int]]:
    for values in product(*(range(n) for n in extents.values())):
        yield dict(zip(extents, values, strict=True))


def as_dict(point: Point) -> dict[str, int]:
    return dict(point.values)


@given(accesses(U), accesses(W), st.booleans())
def test_conflicts_are_those_that_there_are(a: Access, b: Access, turned: bool) -> None:
    both = min(len(a.ranges), len(b.ranges))
    a, b = (Access(x.ranges[:both], x.inner, x.guards) for x in (a, b))

    def order(x: Sequence[Expr], y: Sequence[Expr]) -> Expr:
        """In this order outside in, and overtaken inside out."""
        return binary(Op.AND, before(x, y), before([y[1], y[0]], [x[1], x[0]]))

    def counts(x: dict[Var, int], y: dict[Var, int]) -> bool:
        p, q = (x[L], x[J]), (y[L], y[J])
        return p < q and (not turned or q[::-1] < p[::-1])

    there = {
        (k, tuple(x.values()), tuple(y.values()), e)
        for k in range(2)
        for x in points(LOOPS)
        for y in points(LOOPS)
        if counts(x, y)
        for e in touched(a, {K: k, **x}) & touched(b, {K: k, **y})
    }
    found = conflict(a, b, OUTER, LOOPS, order if turned else before)
    assert found.apart is not bool(there)
    assert found.clash is bool(there)
    if not there:
        assert found.example is None
        return
    example = found.example
    assert example is not None
    x, y = (tuple(as_dict(p)[v.name] for v in LOOPS) for p in (example.first, example.second))
    outer = as_dict(example.outer).get("k")
    matching = {t for t in there if t[1:] == (x, y, example.element) and outer in (None, t[0])}
    assert matching


@given(accesses(U), accesses(W))
def test_what_is_beyond_is_what_there_is(read: Access, write: Access) -> None:
    read, write = (Access([Range(a.ranges[0].min, 1)], a.inner, a.guards) for a in (read, write))
    shape = (8,)
    there = [
        (tuple(x.values()), e)
        for x in points({**OUTER, **LOOPS})
        for e in touched(read, x) - touched(write, x)
        if 0 <= e[0] < 8
    ]
    found = beyond(read, [write], shape, {**OUTER, **LOOPS})
    assert found.apart is not bool(there)
    if there:
        assert found.example is not None
        at = tuple(as_dict(found.example.first).values())
        assert (at, found.example.element) in there


def test_the_first_conflict_is_shown() -> None:
    write, read = Access([Range(L + 1, 1)], {}), Access([Range(L + 0, 1)], {})
    example = conflict(write, read, {}, {L: 10}).example
    assert example is not None
    assert (str(example.first), str(example.second), example.element) == ("i=0", "i=1", (1,))
    assert conflict(read, write, {}, {L: 10}).apart


def test_parameters_may_be_anything() -> None:
    access = Access([Range(L * 2 + N, 1)], {})
    other = Access([Range(L * 2 + N + 1, 1)], {})
    assert conflict(access, other, {}, {L: 8}).apart
    assert conflict(access, Access([Range(L * 2, 1)], {}), {}, {L: 8}).clash


@pytest.mark.parametrize("index", [L * J, L // N, Buffer("X", (8,), "int64")[L]])
def test_what_is_not_affine_is_not_decided(index: Expr) -> None:
    found = conflict(Access([Range(index, 1)], {}), Access([Range(index, 1)], {}), {}, LOOPS)
    assert not found.apart
    assert not found.clash
    assert found.example is None


def test_what_is_not_affine_elsewhere_does_not_matter() -> None:
    access = Access([Range(L * J, 1), Range(L * 3 + J, 1)], {}, [L * L < J])
    assert conflict(access, access, {}, LOOPS).apart


def test_loops_without_iterations_have_no_conflicts() -> None:
    access = Access([Range(const(0), 1)], {})
    assert conflict(access, access, {}, {L: 0}).apart
    assert conflict(access, access, {}, {L: 1}).apart
    assert conflict(access, access, {}, {L: 2}).clash


CARRIED = """
@tw.script
def carried(A: T.Buffer((4, 8), "int32"), B: T.Buffer((4, 9), "int32")):
    for i in T.serial(4):
        for j in T.parallel(8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                {body}
"""


@pytest.mark.parametrize(
    ("body", "example"),
    [
        ("B[vi, vj // 2] = A[vi, vj]", "at i=0: iteration j=0 writes B[0, 0], iteration j=1"),
        ("B[vi, 1] = A[vi, vj]", "at i=0: iteration j=0 writes B[0, 1], iteration j=1 writes it"),
    ],
)
def test_the_verifier_shows_two_iterations(body: str, example: str) -> None:
    with pytest.raises(VerifyError) as refusal:
        verify(parse(CARRIED.format(body=body)))
    assert f"example: {example}" in str(refusal.value)


def test_the_verifier_shows_nothing_that_is_not_certain() -> None:
    with pytest.raises(VerifyError) as refusal:
        verify(parse(CARRIED.format(body="B[vi, vj * vj % 9] = A[vi, vj]")))
    assert "example" not in str(refusal.value)
