"""Vectorized evaluation of expressions over columns of values.

The search evaluates hundreds of expressions over 10^4 to 10^5 rows of decisions. They are compiled
to one straight line of numpy operations in which equal subexpressions appear once, and run on
slices of rows that stay in the cache. int64 arithmetic wraps. A division is done in float64 where
intervals show that this is exact, because numpy divides integers ten times more slowly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import IRError
from .ir import INDEX, Binary, Call, Cast, Const, Dim, Expr, Op, Select, Var, as_expr

Array = npt.NDArray[Any]
Interval = tuple[int, int]

ROWS = 8192
"""Rows of a slice: a column of them takes 64 KiB."""
EXACT = 1 << 51
"""Quotients of integers up to this size are floored correctly in float64."""
LOW, HIGH = -(1 << 63), (1 << 63) - 1
ANY = (LOW, HIGH)
DTYPES = {INDEX: np.int64, "bool": np.bool_, "float64": np.float64}


class Step(NamedTuple):
    """One operation. `args` are positions of earlier steps; `value` is of constants and inputs."""

    op: str
    args: tuple[int, ...]
    dtype: str
    value: Any = None


def evaluate(expr: Dim, columns: Mapping[Var, Array | int]) -> Array:
    """The value of `expr` (int64, bool or float64) for each row of the columns.

    Columns are integers, or arrays of one length; the result is an array, of no dimension where all
    columns are integers. Raises `IRError` for loads, other dtypes, and variables without a column.
    """
    program = _Program([expr], list(columns))
    inputs = [np.asarray(c, dtype=np.int64) for c in columns.values()]
    rows = np.broadcast_shapes(*(c.shape for c in inputs))
    if 0 in rows:
        return np.empty(rows, DTYPES[program.steps[program.results[0]].dtype])
    intervals = [(int(c.min()), int(c.max())) for c in inputs]
    (result,) = program.run(program.functions(intervals), inputs)
    return np.broadcast_to(result, rows)


class Columns:
    """Expressions over the columns of a matrix; the result of `compile_columns`."""

    def __init__(self, exprs: Sequence[Dim], variables: Sequence[Var]) -> None:
        self._program = _Program(exprs, variables)
        dtypes = {self._program.steps[r].dtype for r in self._program.results}
        self._dtype = np.float64 if "float64" in dtypes else np.int64

    def __call__(self, matrix: npt.NDArray[np.int64]) -> Array:
        program, rows = self._program, len(matrix)
        result = np.empty((len(program.results), rows), self._dtype).T
        if rows == 0:
            return result
        inputs = np.ascontiguousarray(matrix.T, dtype=np.int64)  # what follows takes columns
        lows, highs = inputs.min(axis=1).tolist(), inputs.max(axis=1).tolist()
        functions = program.functions(list(zip(lows, highs, strict=True)))
        for start in range(0, rows, ROWS):
            part = slice(start, start + ROWS)
            for j, column in enumerate(program.run(functions, list(inputs[:, part]))):
                result[part, j] = column
        return result

    def intervals(self, inputs: Sequence[Interval]) -> list[Interval]:
        """The interval of each int64 expression, for variables in the given intervals.

        `ANY` if it is not known.
        """
        known = self._program.intervals(inputs)
        return [known[r] for r in self._program.results]


def compile_columns(exprs: Sequence[Dim], variables: Sequence[Var]) -> Columns:
    """Compile expressions to a function from a matrix (rows, variables) to a matrix (rows, exprs).

    The result is int64, or float64 if one of the expressions is; conditions are 0 and 1. Each
    column of the result is contiguous in memory. Raises `IRError` for loads, other dtypes, and
    variables that are not given.
    """
    return Columns(exprs, variables)


class _Program:
    """Expressions as steps in order, each structure once."""

    def __init__(self, exprs: Sequence[Dim], variables: Sequence[Var]) -> None:
        self.steps: list[Step] = []
        self._slots: dict[Step, int] = {}
        self._done: dict[Expr, int] = {}
        self._inputs = {v: i for i, v in enumerate(variables)}
        self.results = [self._visit(as_expr(e)) for e in exprs]
        self._dead = self._last_uses()

    def intervals(self, inputs: Sequence[Interval]) -> list[Interval]:
        """Where the value of each step lies when the inputs lie in the intervals given."""
        known: list[Interval] = []
        for step in self.steps:
            if step.op == "input":
                known.append(inputs[step.value])
            elif step.op == "const":
                known.append((step.value, step.value) if step.dtype == INDEX else ANY)
            else:
                known.append(_interval(step, [known[a] for a in step.args]))
        return known

    def functions(self, inputs: Sequence[Interval]) -> list[Callable[..., Any] | None]:
        """What computes each step for such inputs; `None` for given values."""
        known = self.intervals(inputs)
        return [
            None
            if step.op in ("input", "const")
            else _function(step, [known[a] for a in step.args])
            for step in self.steps
        ]

    def run(
        self, functions: Sequence[Callable[..., Any] | None], inputs: Sequence[Array]
    ) -> list[Array]:
        """The values of the expressions for some rows of inputs."""
        values: list[Any] = [None] * len(self.steps)
        with np.errstate(all="ignore"):
            for i, (step, function) in enumerate(zip(self.steps, functions, strict=True)):
                if function is not None:
                    values[i] = function(*[values[a] for a in step.args])
                elif step.op == "input":
                    values[i] = inputs[step.value]
                else:
                    values[i] = DTYPES[step.dtype](step.value)
                for a in self._dead[i]:
                    values[a] = None
        return [np.asarray(values[r]) for r in self.results]

    def _last_uses(self) -> list[list[int]]:
        dead: list[list[int]] = [[] for _ in self.steps]
        seen = set(self.results)
        for i in range(len(self.steps) - 1, -1, -1):
            for a in self.steps[i].args:
                if a not in seen:
                    seen.add(a)
                    dead[i].append(a)
        return dead

    def _slot(self, op: str, args: tuple[int, ...], dtype: str, value: Any = None) -> int:
        if op in _COMMUTATIVE:
            args = tuple(sorted(args))
        step = Step(op, args, dtype, value)
        slot = self._slots.get(step)
        if slot is None:
            self._slots[step] = slot = len(self.steps)
            self.steps.append(step)
        return slot

    def _visit(self, e: Expr) -> int:
        slot = self._done.get(e)
        if slot is None:
            self._done[e] = slot = self._compile(e)
        return slot

    def _compile(self, e: Expr) -> int:
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
                return self._slot("input", (), INDEX, self._inputs[e])
            case Const(value=value):
                return self._slot("const", (), e.dtype, value)
            case Binary(op=op):
                a, b = self._visit(e.a), self._visit(e.b)
                if e.dtype == INDEX and op in (Op.FLOORDIV, Op.MOD):
                    return self._division(op, a, b)
                return self._slot(op.value, (a, b), e.dtype)
            case Call(fn=fn, args=args) if fn in _CALLS:
                return self._slot(fn, tuple(map(self._visit, args)), e.dtype)
            case Cast(value=inner):
                if inner.dtype == "float64" and e.dtype == INDEX:
                    return self._slot("saturate", (self._visit(inner),), e.dtype)
                return self._slot("cast", (self._visit(inner),), e.dtype)
            case Select():
                sides = (self._visit(e.cond), self._visit(e.then), self._visit(e.other))
                return self._slot("select", sides, e.dtype)
            case _:
                raise IRError("this is not evaluated over columns: {0}", e)

    def _division(self, op: Op, a: int, b: int) -> int:
        divisor = self.steps[b]
        if divisor.op == "const" and divisor.value > 0 and divisor.value.bit_count() == 1:
            power = divisor.value.bit_length() - 1
            if op is Op.FLOORDIV:
                return self._slot(">>", (a, self._slot("const", (), INDEX, power)), INDEX)
            return self._slot("&", (a, self._slot("const", (), INDEX, divisor.value - 1)), INDEX)
        wide = (self._slot("cast", (x,), "float64") for x in (a, b))
        q = self._slot("//", (a, b, *wide), INDEX)
        return q if op is Op.FLOORDIV else self._slot("%", (a, b, q), INDEX)


_COMMUTATIVE = frozenset({"+", "*", "min", "max", "&", "|", "^", "==", "!="})
_CALLS: dict[str, Callable[..., Any]] = {
    "abs": np.abs,
    "neg": np.negative,
    "not": np.invert,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "tanh": np.tanh,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "pow": np.power,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **_CALLS,
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "min": np.minimum,
    "max": np.maximum,
    "&": np.bitwise_and,
    "|": np.bitwise_or,
    "^": np.bitwise_xor,
    "<<": np.left_shift,
    ">>": np.right_shift,
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "select": np.where,
}


def _function(step: Step, ends: list[Interval]) -> Callable[..., Any]:
    op = step.op
    if step.dtype == INDEX:
        if op == "//":
            (a0, a1), (b0, b1) = ends[:2]
            small = max(-a0, a1, -b0, b1) <= EXACT and (b0 > 0 or b1 < 0)
            return _divide_floats if small else _divide_integers
        if op == "%":
            return lambda a, b, q: a - q * b
        if op == "saturate":
            return _saturated
    elif step.dtype == "float64" and op in ("//", "%"):
        return np.floor_divide if op == "//" else np.mod
    if op == "cast":
        dtype = DTYPES[step.dtype]
        return lambda a: np.asarray(a).astype(dtype)
    return _FUNCTIONS[op]


def _divide_floats(_a: Array, _b: Array, wide_a: Array, wide_b: Array) -> Array:
    quotient: Array = np.floor(np.divide(wide_a, wide_b)).astype(np.int64)
    return quotient


def _divide_integers(a: Array, b: Array, _wide_a: Array, _wide_b: Array) -> Array:
    quotient: Array = np.floor_divide(a, b)
    return quotient


def _saturated(a: Array) -> Array:
    inside = np.clip(np.nan_to_num(a, nan=0.0), -(2.0**63), 2.0**63 - 1024)
    return np.where(a >= 2.0**63, np.int64(HIGH), inside.astype(np.int64))


def _interval(step: Step, ends: list[Interval]) -> Interval:
    """The interval of an int64 step; `ANY` if it is not known."""
    if step.dtype != INDEX or not ends:
        return ANY
    (a0, a1), (b0, b1) = ends[0], ends[1] if len(ends) > 1 else (0, 0)
    match step.op:
        case "+":
            low, high = a0 + b0, a1 + b1
        case "-":
            low, high = a0 - b1, a1 - b0
        case "*":
            corners = (a0 * b0, a0 * b1, a1 * b0, a1 * b1)
            low, high = min(corners), max(corners)
        case "min":
            low, high = min(a0, b0), min(a1, b1)
        case "max":
            low, high = max(a0, b0), max(a1, b1)
        case "//" if b0 > 0:
            low, high = min(a0 // b0, a0 // b1), max(a1 // b0, a1 // b1)
        case "%" if b0 > 0:
            low, high = 0, b1 - 1
        case ">>" if b0 == b1:
            low, high = a0 >> b0, a1 >> b0
        case "&" if b0 >= 0 or a0 >= 0:
            low, high = 0, min(x for x, least in ((a1, a0), (b1, b0)) if least >= 0)
        case "neg":
            low, high = -a1, -a0
        case "abs":
            low, high = 0, max(abs(a0), abs(a1))
        case "select":
            (b0, b1), (c0, c1) = ends[1:]
            low, high = min(b0, c0), max(b1, c1)
        case _:
            return ANY
    return (low, high) if low >= LOW and high <= HIGH else ANY
