"""Digits of variables: what they are, take and tell is what counting says."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.base.errors import VerifyError
from tilewright.tir.digits import Digit, digit_of, free, telling
from tilewright.tir.interpreter import interpret
from tilewright.tir.ir import Expr, Var
from tilewright.tir.parser import parse
from tilewright.tir.simplify import Simplifier
from tilewright.tir.verify import verify

V = Var("v")
SIZES = st.integers(1, 6)


@given(st.integers(1, 40), st.lists(st.tuples(SIZES, SIZES), max_size=3))
def test_what_digits_take_and_tell(extent: int, parts: list[tuple[int, int]]) -> None:
    digits = [Digit(V, low, min(size, (extent - 1) // low + 1)) for low, size in parts]
    rows = [tuple(v // low % size for low, size in parts) for v in range(extent)]
    if free(digits, extent):
        assert set(rows) == set(product(*(range(d.size) for d in digits)))
    if telling(digits, extent):
        assert len(set(rows)) == extent


@pytest.mark.parametrize("sizes", [(2, 3, 4), (4, 1, 8), (5,), (1, 1)])
def test_digits_of_fused_loops_take_and_tell_all(sizes: tuple[int, ...]) -> None:
    digits, low = [], 1
    for size in reversed(sizes):
        digits.append(Digit(V, low, size))
        low *= size
    assert free(digits, low)
    assert telling(digits, low)
    if max(sizes) > 1:
        assert not telling([d for d in digits if d.size != max(sizes)], low)
        assert not free([*digits, Digit(V, 1, low)], low)


@pytest.mark.parametrize(
    ("e", "low", "size"),
    [
        (V, 1, 24),
        (V // 4, 4, 6),
        (V % 4, 1, 4),
        (V // 2 % 3, 2, 3),
        (V % 12 // 4, 4, 3),
        (V % 12 % 4, 1, 4),
    ],
)
def test_indices_as_digits(e: Expr, low: int, size: int) -> None:
    s = Simplifier({V: (0, 23)})
    ((atom, c),) = s.poly(e).items()
    assert c == 1
    assert isinstance(atom, Expr)
    assert digit_of(s, atom) == Digit(V, low, size)


@pytest.mark.parametrize("e", [V * V, (V + 3) // 4, (V * 2) % 5, V // Var("n"), V % 10 // 4])
def test_what_is_no_digit(e: Expr) -> None:
    s = Simplifier({V: (0, 23)})
    for atom in s.poly(e):
        assert not isinstance(atom, Expr) or digit_of(s, atom) is None
    assert digit_of(s, Var("unknown")) is None


FUSED = """
@tw.script
def fused(A: T.Buffer((4, 6), "int32"), C: T.Buffer((4, 6), "int32")):
    B = T.alloc((4, 6), "int32")
    for f in T.parallel(24):
        with T.block("B"):
            i = T.axis.spatial(4, {i})
            j = T.axis.spatial(6, {j})
            B[i, j] = A[i, j] * 2
    for i, j in T.grid(4, 6):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj]
"""


@pytest.mark.parametrize(("i", "j"), [("f // 6", "f % 6"), ("f % 4", "f // 4")])
def test_fused_loops_are_verified_without_integer_sets(
    i: str, j: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tilewright.tir import affine

    def fail(*_: object) -> None:
        raise AssertionError("asked")

    monkeypatch.setattr(affine, "_bounded", fail)
    verify(parse(FUSED.format(i=i, j=j)))


@pytest.mark.parametrize(
    ("i", "j", "says"),
    [("f // 6", "f % 3", "not shown to be stored"), ("f % 4", "f % 6", "not shown to be stored")],
)
def test_loops_that_leave_elements_out_are_found(i: str, j: str, says: str) -> None:
    with pytest.raises(VerifyError, match=says):
        verify(parse(FUSED.format(i=i, j=j)))


MEET = """
@tw.script
def meet(C: T.Buffer((4, 6), "int32")):
    for f in T.{kind}(24):
        with T.block("C"):
            i = T.axis.spatial(4, f // 8)
            j = T.axis.spatial(6, f // 4)
            C[i, j] = 1
"""


def test_iterations_that_meet_are_found() -> None:
    verify(parse(MEET.format(kind="serial")))
    with pytest.raises(VerifyError):
        verify(parse(MEET.format(kind="parallel")))


SUM = """
@tw.script
def total(A: T.Buffer((4, 6), "int32"), M: T.Buffer((4,), "int32"), B: T.Buffer((4,), "int32")):
    for w, v in T.grid({loops}):
        with T.block("B"):
            i = T.axis.spatial(4, {i})
            k = T.axis.reduce(6, {k})
            with T.init():
                if M[i] > 0:
                    B[i] = 0
            if M[i] > 0:
                B[i] = B[i] + A[i, k]
"""


@pytest.mark.parametrize(
    ("loops", "i", "k"),
    [
        ("1, 24", "v // 6", "v % 6"),
        ("1, 24", "v // 3 % 4", "v // 12 * 3 + v % 3"),
        ("4, 6", "w", "v % 3 * 2 + v // 3"),
    ],
)
def test_a_reduction_over_digits_starts_where_they_are_zero(loops: str, i: str, k: str) -> None:
    func = parse(SUM.format(loops=loops, i=i, k=k))
    verify(func)
    a = np.arange(24, dtype="int32").reshape(4, 6)
    m, b = np.array([1, 0, 2, 3], "int32"), np.full(4, -1, "int32")
    interpret(func, a, m, b)
    np.testing.assert_array_equal(b, np.where(m > 0, a.sum(1), -1))


def test_digits_that_overlap_start_no_reduction() -> None:
    # Its domain is covered one to one; at w = 0, v = 3 it adds to B[1], which is not started yet.
    with pytest.raises(VerifyError):
        verify(parse(SUM.format(loops="2, 12", i="(v // 3 + w) % 4", k="v % 6")))
