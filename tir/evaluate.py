"""Vectorized evaluation of expressions over columns of values.

The search evaluates hundreds of expressions over 10^4 to 10^5 rows of decisions. They are recorded
as one straight line of numpy operations in which equal subexpressions appear once. int64 arithmetic
wraps. A division is done in float64 where intervals show that this is exact, because numpy divides
integers ten times more slowly.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..base.errors import IRError, depth_errors
from .columns import (
    CONVERSIONS,
    DTYPES,
    HIGH,
    LOW,
    Array,
    Column,
    Number,
    Program,
    Tape,
    as_float,
    ends,
    maximum,
    minimum,
)
from .ir import (
    INDEX,
    NUMPY_OPERATORS,
    Binary,
    Call,
    Cast,
    Const,
    Dim,
    Expr,
    Op,
    Select,
    Var,
    as_expr,
)

Interval = tuple[int, int]
EXACT = 1 << 51
"""Quotients of integers up to this size are floored correctly in float64."""
ANY = (LOW, HIGH)
FLOAT = (-math.inf, math.inf)


def evaluate(expr: Dim, columns: Mapping[Var, Array | int]) -> Array:
    """The value of `expr` (int64, bool or float64) for each row of the columns.

    Columns are integers, or arrays of one length; the result is an array, of no dimension where all
    columns are integers. Raises `IRError` for loads, other dtypes, and variables without a column.
    """
    inputs = [np.asarray(c, dtype=np.int64) for c in columns.values()]
    rows = np.broadcast_shapes(*(c.shape for c in inputs))
    bounds = [(int(c.min()), int(c.max())) if c.size else ANY for c in inputs]
    program = Columns([expr], dict(zip(columns, bounds, strict=True)))
    count = math.prod(rows)
    found = program.of_columns([np.broadcast_to(c, (count,)) for c in inputs], count)
    return found[:, 0].astype(DTYPES[as_expr(expr).dtype]).reshape(rows)


class Expressions:
    """Expressions over variables as numbers on a tape, whose inputs are the variables.

    `bounds` has the inclusive range of each variable, in the order of the columns.
    """

    def __init__(self, tape: Tape, bounds: Mapping[Var, Interval]) -> None:
        self._inputs = {v: tape.input(low, high) for v, (low, high) in bounds.items()}
        self._known: dict[Expr, Number] = {}

    def __call__(self, expr: Dim) -> Number:
        """The values of an expression. Raises `IRError` where it is none of these variables."""
        return expr if isinstance(expr, int) else self._visit(expr)

    def _visit(self, e: Expr) -> Number:
        found = self._known.get(e)
        if found is None:
            self._known[e] = found = self._recorded(e)
        return found

    def _recorded(self, e: Expr) -> Number:
        if e.dtype not in DTYPES:
            raise IRError(
                "only {0} are evaluated over columns, found {1}", ", ".join(DTYPES), e.dtype
            )
        match e:
            case Var():
                if e not in self._inputs:
                    raise IRError("there is no column for variable {0}", e.name)
                if e.dtype != INDEX:
                    raise IRError("the column of {0} must be int64, found {1}", e.name, e.dtype)
                return self._inputs[e]
            case Const(value=value):
                return value
            case Binary(op=op):
                return _binary(op, self._visit(e.a), self._visit(e.b), e)
            case Call(fn=fn, args=args) if fn in _CALLS:
                return _applied(_CALLS[fn], tuple(map(self._visit, args)), e)
            case Cast(value=inner):
                return _cast(self._visit(inner), inner.dtype, e)
            case Select():
                return _select(self._visit(e.cond), self._visit(e.then), self._visit(e.other), e)
            case _:
                raise IRError("this is not evaluated over columns: {0}", e)


class Columns:
    """Expressions compiled to a function from a matrix (rows, variables) to a matrix (rows, exprs).

    The values of each variable are within its `bounds`, both inclusive. The result is int64, or
    float64 if one of the expressions is; conditions are 0 and 1. Each column of the result is
    contiguous in memory. `intervals` are the least and greatest value that each expression may
    have. Raises `IRError` for loads, other dtypes, variables not given, and deep nesting.
    """

    def __init__(self, exprs: Sequence[Dim], bounds: Mapping[Var, Interval]) -> None:
        tape = Tape()
        numbers = Expressions(tape, bounds)
        with depth_errors(IRError, "an expression", "evaluated over columns"):
            results = [numbers(e) for e in exprs]
        self.intervals = [ends(r) for r in results]
        self._program = Program(tape, results)
        tape.forget()
        self._count = len(exprs)
        floats = any(as_expr(e).dtype == "float64" for e in exprs)
        self._dtype = np.float64 if floats else np.int64

    def __call__(self, matrix: npt.NDArray[np.int64]) -> Array:
        return self.of_columns(np.ascontiguousarray(matrix.T, dtype=np.int64), len(matrix))

    def of_columns(self, inputs: Iterable[Array], rows: int) -> Array:
        """The results for columns of int64, of `rows` elements each."""
        result = np.empty((self._count, rows), self._dtype).T
        for part, columns in self._program.run(inputs, rows):
            for j, column in enumerate(columns):
                result[part, j] = column
        return result


def _rsqrt(a: Array, out: Array) -> None:
    np.divide(1.0, np.sqrt(a), out=out)


def _choice(_dtype: str) -> Callable[..., Any]:
    """A function of its own for each dtype, which the numbers 0 and 0.0 do not tell."""
    return lambda condition, then, other, out: np.copyto(out, np.where(condition, then, other))


_CHOICES = {dtype: _choice(dtype) for dtype in DTYPES}


def _saturate(a: Array, out: Array) -> None:
    inside = np.clip(np.nan_to_num(a, nan=0.0), -(2.0**63), 2.0**63 - 1024)
    np.copyto(out, np.where(a >= 2.0**63, np.int64(HIGH), inside.astype(np.int64)))


_CALLS: dict[str, Callable[..., Any]] = {
    "abs": np.abs,
    "neg": np.negative,
    "not": np.invert,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": _rsqrt,
    "tanh": np.tanh,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": np.rint,
    "pow": np.power,
}
_FUNCTIONS: dict[Op, Callable[..., Any]] = {
    **{op: getattr(np, name) for name, op in NUMPY_OPERATORS.items()},
    Op.MIN: np.minimum,
    Op.MAX: np.maximum,
}
_WITH_INTERVALS: dict[Op, Callable[[Number, Number], Number]] = {
    Op.ADD: operator.add,
    Op.SUB: operator.sub,
    Op.MUL: operator.mul,
    Op.MIN: minimum,
    Op.MAX: maximum,
}
"""Arithmetic of integers whose intervals are followed where one operand is a column."""


def _binary(op: Op, a: Number, b: Number, e: Expr) -> Number:
    tape = _tape_of(a, b)
    if e.dtype == INDEX and tape is not None:
        if op in _WITH_INTERVALS:
            return _WITH_INTERVALS[op](a, b)
        if op is Op.FLOORDIV or op is Op.MOD:
            return _divided(tape, op, a, b)
        if op is Op.AND and (ends(a)[0] >= 0 or ends(b)[0] >= 0):
            most = min(high for low, high in (ends(a), ends(b)) if low >= 0)
            return tape.record(np.bitwise_and, (a, b), INDEX, 0, most)
    return _applied(_FUNCTIONS[op], (a, b), e)


def _divided(tape: Tape, op: Op, a: Number, b: Number) -> Number:
    """A quotient, or what it leaves of `a`; by shifts and masks for a power of two."""
    (a0, a1), (b0, b1) = ends(a), ends(b)
    if not isinstance(b, Column) and b > 0 and int(b).bit_count() == 1:
        power = int(b).bit_length() - 1
        if op is Op.FLOORDIV:
            low, high = int(a0) >> power, int(a1) >> power
            return tape.record(np.right_shift, (a, power), INDEX, low, high)
        return tape.record(np.bitwise_and, (a, int(b) - 1), INDEX, 0, b - 1)
    first, last = (min(a0 // b0, a0 // b1), max(a1 // b0, a1 // b1)) if b0 > 0 else ANY
    if max(-a0, a1, -b0, b1) <= EXACT and (b0 > 0 or b1 < 0):
        floats = tape.record(np.divide, (as_float(a), as_float(b)), "float64", *FLOAT)
        whole = tape.record(np.floor, (floats,), "float64", *FLOAT)
        q = tape.record(CONVERSIONS[INDEX], (whole,), INDEX, first, last)
    else:
        q = tape.record(np.floor_divide, (a, b), INDEX, first, last)
    if op is Op.FLOORDIV:
        return q
    taken = q * b
    if _tape_of(a, taken) is None:
        return a - taken
    first, last = (0, b1 - 1) if b0 > 0 else ANY
    return tape.record(np.subtract, (a, taken), INDEX, first, last)


def _cast(a: Number, of: str, e: Expr) -> Number:
    if of == "float64" and e.dtype == INDEX:
        return _applied(_saturate, (a,), e)
    if not isinstance(a, Column):
        return DTYPES[e.dtype](a).item()  # type: ignore[no-any-return]
    if e.dtype == "float64":
        return as_float(a)
    low, high = _all_of("bool") if e.dtype == "bool" else ends(a)
    return a.tape.record(CONVERSIONS[e.dtype], (a,), e.dtype, int(low), int(high))


def _select(condition: Number, then: Number, other: Number, e: Expr) -> Number:
    if not isinstance(condition, Column):
        return then if condition else other
    (b0, b1), (c0, c1) = ends(then), ends(other)
    low, high = (min(b0, c0), max(b1, c1)) if e.dtype == INDEX else _all_of(e.dtype)
    return condition.tape.record(_CHOICES[e.dtype], (condition, then, other), e.dtype, low, high)


def _applied(function: Callable[..., Any], operands: tuple[Number, ...], e: Expr) -> Number:
    """A calculation of which no interval is followed, done at once where all operands are known."""
    tape = _tape_of(*operands)
    if tape is not None:
        return tape.record(function, operands, e.dtype, *_all_of(e.dtype))
    out: Array = np.empty((1,), DTYPES[e.dtype])
    with np.errstate(all="ignore"):
        function(*(np.full((1,), a) for a in operands), out=out)
    return out[0].item()  # type: ignore[no-any-return]


def _all_of(dtype: str) -> tuple[float, float]:
    return {"float64": FLOAT, "bool": (False, True)}.get(dtype, ANY)


def _tape_of(*numbers: Number) -> Tape | None:
    """The tape of the columns among the numbers; `None` where there are no columns."""
    for a in numbers:
        if isinstance(a, Column):
            return a.tape
    return None
