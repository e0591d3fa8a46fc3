"""Arithmetic on whole columns of values: recorded once, then run for as many rows as are asked.

What is known when it is recorded costs nothing later: arithmetic on plain numbers, what has been
recorded before, and sides of a minimum or a comparison that the ranges of its operands decide. None
of it changes a result by a bit, as far as columns of floats are finite and hold no negative zero;
`Tape.record` assumes neither.

Columns are of float64, int64 (which wraps around) or bool. Conditions in arithmetic of floats are
the numbers 0 and 1: their product is "and", their maximum "or".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Number: TypeAlias = "Column | float"
"""A number of each row, or one that is the same for all."""
Function = Callable[..., Any]
"""Of arrays, which writes to the array `out`; that may be one of them."""
ROWS = 4096
"""Rows of a slice: a column of them takes 32 KiB."""
Key: TypeAlias = "tuple[Function, tuple[Number, ...], *tuple[tuple[int, ...], ...]]"
"""A function, its operands, and where one of them is zero, which of them are negative zeros."""
LOW, HIGH = -(1 << 63), (1 << 63) - 1
DTYPES: dict[str, type] = {"int64": np.int64, "bool": np.bool_, "float64": np.float64}


class Tape:
    """A record of calculations, each of them once."""

    def __init__(self) -> None:
        self.inputs: list[Column] = []
        self.known: dict[Key, Column] = {}

    def input(self, low: int, high: int) -> Number:
        """The next of the columns of integers that `Program.run` is given."""
        column = Column(self, low, high, "int64")
        self.inputs.append(column)
        return low if low == high else column

    def forget(self) -> None:
        """Let go of all columns, when programs are made of them: they hold the tape."""
        self.inputs.clear()
        self.known.clear()

    def record(
        self, function: Function, operands: tuple[Number, ...], dtype: str, low: float, high: float
    ) -> Number:
        """A calculation, recorded where it is not yet; it gives nothing but `dtype`.

        Its results are between `low` and `high` where integers do not wrap around.
        """
        if dtype == "int64" and (low < LOW or high > HIGH):
            low, high = LOW, HIGH
        if low == high:
            return low
        key = _key(function, operands)
        found = self.known.get(key)
        if found is None and function in _COMMUTE:
            found = self.known.get(_key(function, operands[::-1]))
        if found is None:
            if not low <= high:  # infinity less infinity
                low, high = -math.inf, math.inf
            found = self.known[key] = Column(self, low, high, dtype)
        return found


def _key(function: Function, operands: tuple[Number, ...]) -> Key:
    if all(operands):
        return function, operands
    zeros = [n for n, a in enumerate(operands) if not a and _is_negative_zero(a)]
    return function, operands, tuple(zeros)


def _is_negative_zero(a: Number) -> bool:
    return not a and math.copysign(1.0, a) < 0  # type: ignore[arg-type]


class Column:
    """A number of each row between `low` and `high`, equal to another only if it is it."""

    __slots__ = ("dtype", "high", "low", "tape")

    def __init__(self, tape: Tape, low: float, high: float, dtype: str = "float64") -> None:
        self.tape, self.low, self.high, self.dtype = tape, low, high, dtype

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
            return other
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
    return _whole(np.ceil, a)


def floor(a: Number) -> Number:
    return _whole(np.floor, a)


def _whole(function: Function, a: Number) -> Number:
    if isinstance(a, Column):
        low, high = float(function(a.low)), float(function(a.high))
        return a.tape.record(function, (a,), "float64", low, high)
    return float(function(a))


def absolute(a: Number) -> Number:
    if not isinstance(a, Column):
        return abs(a)
    if a.low >= 0:
        return a
    return a.tape.record(np.absolute, (a,), a.dtype, max(0, -a.high), max(-a.low, a.high))


def square_root(a: Number) -> Number:
    """The root of a number that is not negative."""
    if not isinstance(a, Column):
        return math.sqrt(a)
    return a.tape.record(np.sqrt, (a,), "float64", math.sqrt(a.low), math.sqrt(a.high))


def common_divisor(a: Number, b: int) -> Number:
    """The greatest common divisor of a positive whole number and `b`."""
    if isinstance(a, Column):
        return a.tape.record(_gcd, (a, b), "float64", 1.0, float(b))
    return float(math.gcd(int(a), b))


def as_float(a: Number) -> Number:
    """An integer as a float."""
    if not isinstance(a, Column):
        return float(a)
    return a.tape.record(CONVERSIONS["float64"], (a,), "float64", float(a.low), float(a.high))


def calculated(function: Function, operands: tuple[Number, ...], low: float, high: float) -> Number:
    """A calculation on floats between `low` and `high`, which are equal where no column is among
    the operands.

    A function of several steps takes one step of a program. It does without a place of its own for
    what it has in between, and is one of `of_arrays` where a step of it is.
    """
    if low == high:
        return low
    tape = next(a.tape for a in operands if isinstance(a, Column))
    return tape.record(function, operands, "float64", low, high)


def of_arrays(function: Function) -> Function:
    """Mark a function that is slow with operands that are the same for all rows: it is given arrays
    of such numbers."""
    _OF_ARRAYS.add(function)
    return function


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


def _conversion(_dtype: str) -> Function:
    """A function of its own for each dtype: a calculation is known by its function."""
    return lambda a, out: np.copyto(out, a, casting="unsafe")


_OF_ARRAYS: set[Function] = {np.maximum, np.minimum}
"""What numpy computes one by one where an operand is the same for all, and what marks itself."""

CONVERSIONS = {dtype: _conversion(dtype) for dtype in DTYPES}


def _gcd(a: Floats, b: Floats, out: Floats) -> None:
    np.copyto(out, np.gcd(a.astype(np.int64), b.astype(np.int64)))


_COMMUTE = frozenset({np.add, np.multiply, np.maximum, np.minimum})


def _recorded(function: Function, a: Number, b: Number, low: float, high: float) -> Number:
    """A calculation on two numbers, one of which at least is a column, in their dtype."""
    if low == high:
        return low
    column = a if type(a) is Column else b
    assert type(column) is Column, "of plain numbers the ends are known"
    # Calculations on float64 are recorded here, without the rest of `Tape.record`.
    key, known = (function, (a, b)), column.tape.known
    found = known.get(key)
    if found is None and function in _COMMUTE:
        found = known.get((function, (b, a)))
    if found is None:
        if not (a and b) or column.dtype != "float64" or not low <= high:
            return column.tape.record(function, (a, b), column.dtype, low, high)
        found = known[key] = Column(column.tape, low, high)
    return found


class Program:
    """A program that computes some numbers from the columns of a matrix.

    A calculation takes the place of what nobody needs any more: there are few enough places for
    slices of all of them to stay in a cache. Constants have places counted from the end.
    """

    def __init__(self, tape: Tape, results: Sequence[Number]) -> None:
        needed = {r for r in results if type(r) is Column}
        steps = []
        for (function, operands, *_), column in reversed(tape.known.items()):
            if column in needed:
                gone = []
                for a in operands:
                    if type(a) is Column and a not in needed:
                        needed.add(a)
                        gone.append(a)
                steps.append((function, operands, column, gone))
        places: dict[Number, int] = {column: n for n, column in enumerate(tape.inputs)}
        constants: dict[tuple[float, bool, str, bool], int] = {}

        def constant(a: Number, dtype: str, whole: bool = False) -> int:
            assert not isinstance(a, Column), "it is calculated before it is used"
            key = (a, _is_negative_zero(a), dtype, whole)
            return constants.setdefault(key, -1 - len(constants))

        self._inputs = inputs = len(places)
        self._dtypes: list[str] = []
        self._steps: list[tuple[Function, tuple[int, ...], int]] = []
        free: dict[str, list[int]] = {dtype: [] for dtype in DTYPES}
        for function, operands, column, gone in reversed(steps):
            dtype = column.dtype
            # Numbers are of the dtype of the column they meet, or of the result if it chooses.
            kind = dtype if len(operands) == 3 else _dtype_of(*operands)
            taken = tuple([
                places[a]
                if type(a) is Column
                else constant(a, kind, function in _OF_ARRAYS)
                for a in operands
            ])  # fmt: skip
            for a in gone:
                if places[a] >= inputs:
                    free[a.dtype].append(places[a])
            if free[dtype]:
                own = free[dtype].pop()
            else:
                own = inputs + len(self._dtypes)
                self._dtypes.append(dtype)
            places[column] = own
            self._steps.append((function, taken, own))
        self._results = [
            places[r] if type(r) is Column else constant(r, _dtype_of(r)) for r in results
        ]
        self._constants = list(constants)[::-1]

    def run(self, inputs: Iterable[Array], count: int) -> Iterator[tuple[slice, list[Array]]]:
        """The results for slices of the rows, to be used before the next slice is asked for.

        `inputs` are columns of `count` rows. Results that are the same for all rows are arrays of
        no dimension.
        """
        size, given = min(ROWS, count), list(inputs)
        # One piece of memory: columns allocated one by one may lie so that each step takes twice.
        memory = np.empty((len(self._dtypes), size))
        work: list[Array] = [
            m.view(DTYPES[dtype])[:size] for m, dtype in zip(memory, self._dtypes, strict=True)
        ]
        constants: list[Array] = [
            np.full(size if whole else (), value, DTYPES[dtype])
            for value, _, dtype, whole in self._constants
        ]
        for start in range(0, count, ROWS):
            part = slice(start, min(start + ROWS, count))
            rows = part.stop - part.start
            known = (c[:rows] if c.ndim else c for c in (*work, *constants))
            values = [*(c[part] for c in given), *known]
            with np.errstate(all="ignore"):
                for function, operands, place in self._steps:
                    if len(operands) == 2:  # most are, and a list of them takes time
                        a, b = operands
                        function(values[a], values[b], out=values[place])
                    else:
                        function(*[values[a] for a in operands], out=values[place])
            yield part, [values[r] for r in self._results]


def _dtype_of(*numbers: Number) -> str:
    for a in numbers:
        if type(a) is Column:
            return a.dtype
    return {bool: "bool", int: "int64"}.get(type(numbers[0]), "float64")
