"""Recorded arithmetic is what numpy says, row by row and bit by bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright.tir import columns
from tilewright.tir.columns import (
    Column,
    Number,
    Program,
    Tape,
    absolute,
    as_float,
    ceil,
    common_divisor,
    ends,
    equal,
    floor,
    maximum,
    minimum,
    square_root,
    where,
)

UNARY: dict[str, tuple[Callable[[Any], Number], Callable[[Any], Any]]] = {
    "absolute": (absolute, np.abs),
    "ceil": (lambda a: ceil(a / 7.0), lambda a: np.ceil(a / 7.0)),
    "floor": (lambda a: floor(a / 4.0), lambda a: np.floor(a / 4.0)),
    "from": (lambda a: 2.0 - a, lambda a: 2.0 - a),
    "divisor": (
        lambda a: common_divisor(floor(maximum(minimum(a, 999.0), 1.0)), 96),
        lambda a: np.gcd(np.floor(np.clip(a, 1, 999)).astype(np.int64), 96),
    ),
    "root": (lambda a: square_root(absolute(a)), lambda a: np.sqrt(np.abs(a))),
    "part": (lambda a: 3.0 / maximum(a, 1.0), lambda a: 3.0 / np.maximum(a, 1.0)),
}
BINARY: dict[str, tuple[Callable[[Any, Any], Number], Callable[[Any, Any], Any]]] = {
    "add": (lambda a, b: a + b, np.add),
    "subtract": (lambda a, b: a - b, np.subtract),
    "multiply": (lambda a, b: a * b, np.multiply),
    "divide": (lambda a, b: a / (absolute(b) + 1.0), lambda a, b: a / (np.abs(b) + 1.0)),
    "maximum": (maximum, np.maximum),
    "minimum": (minimum, np.minimum),
    "more": (lambda a, b: a > b, lambda a, b: (a > b) * 1.0),
    "less": (lambda a, b: a < b, lambda a, b: (a < b) * 1.0),
    "at least": (lambda a, b: a >= b, lambda a, b: (a >= b) * 1.0),
    "at most": (lambda a, b: a <= b, lambda a, b: (a <= b) * 1.0),
    "equal": (equal, lambda a, b: (a == b) * 1.0),
    "where": (lambda a, b: where(a > b, a, b + 1.0), lambda a, b: np.where(a > b, a, b + 1.0)),
}
RANGES = ((1, 1), (0, 3), (-5, 5), (1, 64), (32, 64))
CONSTANTS = (0.0, 1.0, -2.0, 64.0)


def inputs(rng: np.random.Generator, rows: int) -> tuple[Tape, list[Number], np.ndarray]:
    tape = Tape()
    made = [as_float(tape.input(low, high)) for low, high in RANGES]
    matrix = np.stack([rng.integers(low, high + 1, rows) for low, high in RANGES], axis=1)
    return tape, made, matrix


@pytest.mark.parametrize("seed", range(40))
def test_what_is_recorded_is_what_numpy_says(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "ROWS", 16)
    rng = np.random.default_rng(seed)
    tape, made, matrix = inputs(rng, 50)
    numbers: list[Number] = [*made, *CONSTANTS]
    expected = [*matrix.T.astype(np.float64), *np.array(CONSTANTS)]
    for _ in range(60):
        i, j = (int(n) for n in rng.integers(len(numbers), size=2))
        name = str(rng.choice([*UNARY, *BINARY]))
        if name in UNARY:
            number, value = UNARY[name][0](numbers[i]), UNARY[name][1](expected[i])
        else:
            number = BINARY[name][0](numbers[i], numbers[j])
            value = BINARY[name][1](expected[i], expected[j])
        if np.abs(value).max() < 1e6:
            numbers.append(number)
            expected.append(value)
    wanted = rng.permutation(len(numbers))[:30]
    ran = 0
    for part, found in Program(tape, [numbers[n] for n in wanted]).run(matrix.T, len(matrix)):
        for n, column in zip(wanted, found, strict=True):
            low, high = ends(numbers[n])
            whole = np.broadcast_to(expected[n], len(matrix))[part]
            np.testing.assert_array_equal(np.broadcast_to(column, whole.shape), whole)
            assert ((low <= whole) & (whole <= high)).all()
            ran += 1
    assert ran == 4 * len(wanted)


def test_what_is_known_is_not_recorded() -> None:
    tape = Tape()
    a, b = as_float(tape.input(1, 8)), as_float(tape.input(8, 9))
    known = len(tape.known)
    assert as_float(tape.input(3, 3)) == 3.0
    assert a * 1.0 is a
    assert a + 0.0 is a
    assert a * 0.0 == 0.0
    assert maximum(a, 1.0) is a
    assert minimum(a, b) is a
    assert (a > b) == 0.0
    assert (b >= a) == 1.0
    assert where(b > 0, a, b) is a
    assert len(tape.known) == known


def test_what_is_recorded_is_recorded_once() -> None:
    tape = Tape()
    a, b = as_float(tape.input(1, 8)), as_float(tape.input(2, 9))
    known = len(tape.known)
    assert isinstance(a + b, Column)
    assert a + b is b + a
    assert a - b is not b - a
    assert len(tape.known) == known + 3


def test_only_what_is_asked_for_is_computed() -> None:
    tape = Tape()
    a = as_float(tape.input(0, 8))
    results = [a + 1.0, 7.0, a]
    program = Program(tape, results)
    more = Program(tape, [*results, absolute(a - 4.0)])
    assert len(more._steps) > len(program._steps)
    ((part, found),) = program.run(np.array([[3, 5]]), 2)
    assert part == slice(0, 2)
    assert [np.broadcast_to(f, 2).tolist() for f in found] == [[4, 6], [7, 7], [3, 5]]


def test_no_rows_have_no_slices() -> None:
    tape = Tape()
    program = Program(tape, [as_float(tape.input(0, 1))])
    assert list(program.run([np.empty(0, np.int64)], 0)) == []
