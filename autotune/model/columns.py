"""Arithmetic on numbers of many candidates: recorded once, then run for as many as are asked about.

What is known when it is recorded costs nothing later: arithmetic on plain floats, what has been
recorded before, and sides of a minimum or a comparison that the ranges of its operands decide. None
of it changes a result by a bit.

Conditions are the numbers 0 and 1: their product is "and", their maximum "or".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Number: TypeAlias = "Column | float"
"""A number of each candidate, or one that is the same for all."""
Function = Callable[..., Any]
"""Of two arrays, which writes to the array `out`. One that needs one has it given twice."""
ROWS = 4096
"""Rows of a slice: a column of them takes 32 KiB."""


class Tape:
    """What was recorded, each calculation once."""

    def __init__(self) -> None:
        self.inputs: list[Column] = []
        self.known: dict[tuple[Function, Number, Number], Column] = {}

    def input(self, low: float, high: float) -> Number:
        """The next column of the matrix that `Program.run` is given."""
        column = Column(self, low, high)
        self.inputs.append(column)
        return low if low == high else column

    def forget(self) -> None:
        """Let go of all columns, when programs are made of them: they hold the tape."""
        self.inputs.clear()
        self.known.clear()


class Column:
    """A number of each candidate between `low` and `high`, equal to another only if it is it."""

    __slots__ = ("high", "low", "tape")

    def __init__(self, tape: Tape, low: float, high: float) -> None:
        self.tape, self.low, self.high = tape, low, high

    def __add__(self, other: Number) -> Number:
        if isinstance(other, Column):
            low, high = self.low + other.low, self.high + other.high
        elif other == 0:
            return self
        else:
            low, high = self.low + other, self.high + other
        return _recorded(np.add, self, other, low, high)

    __radd__ = __add__

    def __sub__(self, other: Number) -> Number:
        if isinstance(other, Column):
            low, high = self.low - other.high, self.high - other.low
        elif other == 0:
            return self
        else:
            low, high = self.low - other, self.high - other
        return _recorded(np.subtract, self, other, low, high)

    def __rsub__(self, other: float) -> Number:
        return _recorded(np.subtract, other, self, other - self.high, other - self.low)

    def __mul__(self, other: Number) -> Number:
        if isinstance(other, Column):
            a, b = other.low, other.high
        elif other == 1:
            return self
        elif other == 0:
            return 0.0
        else:
            a = b = other
        if a >= 0 and self.low >= 0:
            return _recorded(np.multiply, self, other, a * self.low, b * self.high)
        ends = (a * self.low, a * self.high, b * self.low, b * self.high)
        return _recorded(np.multiply, self, other, min(ends), max(ends))

    __rmul__ = __mul__

    def __truediv__(self, other: Number) -> Number:
        """A quotient; the divisor is positive."""
        return self if not isinstance(other, Column) and other == 1 else _quotient(self, other)

    def __rtruediv__(self, other: float) -> Number:
        return _quotient(other, self)

    def __gt__(self, other: Number) -> Number:
        return _greater(self, other)

    def __lt__(self, other: Number) -> Number:
        return _greater(other, self)

    def __ge__(self, other: Number) -> Number:
        return 1.0 - _greater(other, self)

    def __le__(self, other: Number) -> Number:
        return 1.0 - _greater(self, other)


def ends(a: Number) -> tuple[float, float]:
    """The least and the greatest value that a number may have."""
    return (a.low, a.high) if isinstance(a, Column) else (a, a)


def maximum(a: Number, b: Number) -> Number:
    (a0, a1), (b0, b1) = ends(a), ends(b)
    if a0 >= b1:
        return a
    if b0 >= a1:
        return b
    return _recorded(np.maximum, a, b, max(a0, b0), max(a1, b1))


def minimum(a: Number, b: Number) -> Number:
    (a0, a1), (b0, b1) = ends(a), ends(b)
    if a1 <= b0:
        return a
    if b1 <= a0:
        return b
    return _recorded(np.minimum, a, b, min(a0, b0), min(a1, b1))


def where(condition: Number, then: Number, other: Number) -> Number:
    """One of two finite numbers. Arithmetic is faster than numpy's selections, which jump."""
    if not isinstance(condition, Column):
        return then if condition else other
    if then is other:
        return then
    result = condition * then + (1.0 - condition) * other
    if isinstance(result, Column):
        (a0, a1), (b0, b1) = ends(then), ends(other)
        result.low = max(result.low, min(a0, b0))
        result.high = min(result.high, max(a1, b1))
    return result


def equal(a: Number, b: Number) -> Number:
    return (1.0 - _greater(a, b)) * (1.0 - _greater(b, a))


def ceil(a: Number) -> Number:
    if isinstance(a, Column):
        return _recorded(_ceil, a, a, float(np.ceil(a.low)), float(np.ceil(a.high)))
    return float(math.ceil(a))


def floor(a: Number) -> Number:
    if isinstance(a, Column):
        return _recorded(_floor, a, a, float(np.floor(a.low)), float(np.floor(a.high)))
    return float(math.floor(a))


def absolute(a: Number) -> Number:
    if not isinstance(a, Column):
        return abs(a)
    if a.low >= 0:
        return a
    return _recorded(_absolute, a, a, max(0.0, -a.high), max(-a.low, a.high))


def common_divisor(a: Number, b: int) -> Number:
    """The greatest common divisor of a positive whole number and `b`."""
    if isinstance(a, Column):
        return _recorded(_gcd, a, b, 1.0, float(b))
    return float(math.gcd(int(a), b))


def _quotient(a: Number, b: Number) -> Number:
    (a0, a1), (b0, b1) = ends(a), ends(b)
    if b0 <= 0:
        return _recorded(np.divide, a, b, -math.inf, math.inf)
    return _recorded(np.divide, a, b, a0 / (b1 if a0 >= 0 else b0), a1 / (b0 if a1 >= 0 else b1))


def _greater(a: Number, b: Number) -> Number:
    (a0, a1), (b0, b1) = ends(a), ends(b)
    if a0 > b1:
        return 1.0
    if a1 <= b0:
        return 0.0
    return _recorded(_compare, a, b, 0.0, 1.0)


def _compare(a: Floats, b: Floats, out: Floats) -> None:
    np.copyto(out, np.greater(a, b))


def _ceil(a: Floats, _: Floats, out: Floats) -> None:
    np.ceil(a, out=out)


def _floor(a: Floats, _: Floats, out: Floats) -> None:
    np.floor(a, out=out)


def _absolute(a: Floats, _: Floats, out: Floats) -> None:
    np.absolute(a, out=out)


def _gcd(a: Floats, b: Floats, out: Floats) -> None:
    np.copyto(out, np.gcd(a.astype(np.int64), b.astype(np.int64)))


_COMMUTE = frozenset({np.add, np.multiply, np.maximum, np.minimum})


def _recorded(function: Function, a: Number, b: Number, low: float, high: float) -> Number:
    """A calculation, which is recorded where it is not yet."""
    if low == high:
        return low
    column = a if isinstance(a, Column) else b
    assert isinstance(column, Column), "of plain numbers the ends are known"
    tape, known = column.tape, column.tape.known
    found = known.get((function, a, b))
    if found is None and function in _COMMUTE:
        found = known.get((function, b, a))
    if found is None:
        if not low <= high:  # infinity less infinity
            low, high = -math.inf, math.inf
        found = known[function, a, b] = Column(tape, low, high)
    return found


_SLOW_WITH_SCALARS = frozenset({np.maximum, np.minimum})
"""What numpy does one by one where an operand is the same for all."""


class Program:
    """What computes some numbers from the columns of a matrix.

    A calculation takes the place of what nobody needs any more: there are few enough places for
    slices of all of them to stay in a cache. Constants have places counted from the end.
    """

    def __init__(self, tape: Tape, results: Sequence[Number]) -> None:
        needed: set[Number] = {*tape.inputs, *results}
        steps = []
        for key, column in reversed(tape.known.items()):
            if column in needed:
                _, a, b = key
                gone = []
                if a not in needed:
                    needed.add(a)
                    gone.append(a)
                if b not in needed:
                    needed.add(b)
                    gone.append(b)
                steps.append((key, column, gone))
        places: dict[Number, int] = {column: n for n, column in enumerate(tape.inputs)}
        constants: dict[tuple[float, bool], int] = {}

        def place(a: Number, whole: bool = False) -> int:
            found = places.get(a)
            if found is None:
                assert not isinstance(a, Column), "it is calculated before it is used"
                found = constants.setdefault((float(a), whole), -1 - len(constants))
            return found

        self._inputs = self._count = len(places)
        self._steps: list[tuple[Function, int, int, int]] = []
        free: list[int] = []
        for (function, a, b), column, gone in reversed(steps):
            whole = function in _SLOW_WITH_SCALARS
            operands = place(a, whole), place(b, whole)
            free += [places[a] for a in gone if a in places]
            if free:
                own = free.pop()
            else:
                own = self._count
                self._count += 1
            places[column] = own
            self._steps.append((function, *operands, own))
        self._results = [place(r) for r in results]
        self._constants = list(constants)[::-1]

    def run(self, matrix: npt.NDArray[Any]) -> Iterator[tuple[slice, list[Floats]]]:
        """The results for slices of the rows, to be used before the next slice is asked for.

        Results that are the same for all rows are arrays of no dimension.
        """
        size = min(ROWS, len(matrix))
        work = np.empty((self._count, size))
        constants = [np.full(size if whole else (), value) for value, whole in self._constants]
        for start in range(0, len(matrix), ROWS):
            part = slice(start, min(start + ROWS, len(matrix)))
            rows = part.stop - part.start
            work[: self._inputs, :rows] = matrix[part].T
            values = [*work[:, :rows], *(c[:rows] if c.ndim else c for c in constants)]
            for function, a, b, place in self._steps:
                function(values[a], values[b], out=values[place])
            yield part, [values[r] for r in self._results]
