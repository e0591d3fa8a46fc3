"""Parts of addresses that depend on decisions alone, and rows of numbers that are equal."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.autotune.model.cuda import addresses
from tilewright.autotune.model.cuda.addresses import DecidedParts, distinct_rows
from tilewright.tir.bounds import variables
from tilewright.tir.evaluate import evaluate
from tilewright.tir.ir import Expr, Var, const, select

A, B, T = Var("a"), Var("b"), Var("t")
EXPRS: list[Expr] = [
    T * A * B * 32 + A * 4,
    (T * A + A * B + T) // (A * B),
    A + B,
    (T + 3) % (B * 2) * A,
    select((T < A * B) & (A < 3), T // A, A - B * T),
    T + const(0),
]


def test_expressions_mean_the_same_over_their_parts() -> None:
    rng = np.random.default_rng(0)
    columns = {A: rng.integers(1, 9, 64), B: rng.integers(1, 9, 64), T: rng.integers(0, 99, 64)}
    parts = DecidedParts({T})
    for e in EXPRS:
        found = parts(e)
        assert isinstance(found, Expr)
        assert not variables(found) & {A, B}
        values = {v: evaluate(p, columns) for v, p in zip(parts.names, parts.exprs, strict=True)}
        np.testing.assert_array_equal(
            evaluate(found, {**values, T: columns[T]}), evaluate(e, columns)
        )


def test_parts_are_as_large_as_they_can_be_and_equal_ones_are_one() -> None:
    parts = DecidedParts({T})
    parts(T * A * B * 32 + A * 4 + B)
    assert len(parts.exprs) == 2
    parts(T % (A * B * 32))
    assert len(parts.exprs) == 2
    assert parts(7) == 7


@pytest.mark.parametrize("factor", [addresses._HASH, 0])
def test_distinct_rows(factor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where all rows have one key."""
    monkeypatch.setattr(addresses, "_HASH", factor)
    rows = np.random.default_rng(0).integers(-2, 2, (200, 3))
    first, place = distinct_rows(rows)
    np.testing.assert_array_equal(rows[first][place], rows)
    assert len(first) == len(np.unique(rows, axis=0))
