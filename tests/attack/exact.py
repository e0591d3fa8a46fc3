"""Random programs of operations that round once, on special values, against numpy bit for bit.

Strided, gathered, guarded and broadcast inputs hold NaN, infinities, zeros of both signs, denormals
and limits. Without contraction every schedule computes what numpy does, for any processor. Which of
two zeros an extremum is, is left open by reductions.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from tilewright import Func, te
from tilewright.base import dtypes
from tilewright.base.errors import IRError, TilewrightError
from tilewright.codegen.build import compile_func, to_module
from tilewright.tir import array_arithmetic
from tilewright.tir.verify import verify

from ..guard_pages import Array
from .attempt import Attack, Attempt, Broken
from .programs import WAYS, runs_on_processors, targets

FLOATS = ("float32", "float64", "float16", "bfloat16")
WHOLE = ("int32", "int8", "uint8", "int64", "uint16", "uint32", "int16", "uint64")
ROWS, COLUMNS = (5, 8, 17, 33), (1, 3, 16, 24, 37)
COMPARISONS = (operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge)
UNARY: dict[str, Callable[[Array], Any]] = {
    "abs": np.abs, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.rint,
    "sqrt": np.sqrt, "sign": np.sign, "square": np.square,
}  # fmt: skip
LEAVES = ("plain", "plain", "strided", "gathered", "guarded", "broadcast", "constant")
RESULTS = ("plain", "plain", "max", "min", "argmax", "argmin", "sum")


@dataclass(frozen=True)
class Term:
    """The elements of a matrix, as an expression of their indices and as numpy has them."""

    dtype: str
    at: Callable[[Any, Any], Any]
    value: Array


@dataclass
class Writer:
    attempt: Attempt
    rows: int
    columns: int
    inputs: list[tuple[Any, Array]] = field(default_factory=list)

    def input(self, data: Array, **options: Any) -> Any:
        dtype = dtypes.from_numpy(data.dtype)
        tensor = te.placeholder(data.shape, dtype, name=f"x{len(self.inputs)}", **options)
        self.inputs.append((tensor, data))
        return tensor

    def data(self, dtype: str, *shape: int) -> Array:
        rng, number = self.attempt.rng, dtypes.to_numpy(dtype)
        if dtype in WHOLE:
            low, high = dtypes.int_limits(dtype)
            small = rng.integers(max(low, -9), 9, shape)
            limits = rng.choice(np.array([low, low + 1, 0, high - 1, high], number), shape)
            return np.where(rng.random(shape) < 0.7, small.astype(number), limits)
        facts: Any = ml_dtypes.finfo(number)  # type: ignore[no-untyped-call]
        sizes = [0, 1, 2.5, float(facts.tiny), 3 * float(facts.smallest_subnormal)]
        sizes += [float(facts.max), np.inf, np.nan]
        special = rng.choice(
            np.array([s * x for x in sizes for s in (1, -1)]).astype(number), shape
        )
        plain = (rng.standard_normal(shape) * 3).astype(number)
        return np.where(rng.random(shape) < 0.5, special, plain).astype(number)

    def leaf(self, dtype: str) -> Term:
        rows, columns = self.rows, self.columns
        match self.attempt.choice(LEAVES):
            case "constant":
                number = self.attempt.choice((0, 1, 2, 3))
                value = np.full((rows, columns), number).astype(dtypes.to_numpy(dtype))
                return Term(dtype, lambda i, j: te.const(number, dtype), value)
            case "broadcast":
                data = self.data(dtype, columns)
                row = self.input(data)
                return Term(dtype, lambda i, j: row[j], np.broadcast_to(data, (rows, columns)))
            case "gathered":
                count = self.attempt.choice((1, 4, 9))
                table = self.data(dtype, count, columns)
                places = self.attempt.rng.integers(0, count, rows).astype(np.int32)
                source, index = self.input(table), self.input(places, value_range=(0, count))
                return Term(dtype, lambda i, j: source[index[i], j], table[places])
            case "strided":
                data = np.asfortranarray(self.data(dtype, rows, columns))
                turned = self.input(data, strides=(1, rows))
                return Term(dtype, lambda i, j: turned[i, j], data)
            case "guarded":
                data, by = self.data(dtype, rows, columns), self.attempt.choice((-2, -1, 1, 2))
                source = self.input(data)
                inside = [0 <= j + by < columns for j in range(columns)]
                shifted = np.where(inside, np.roll(data, -by, 1), np.zeros_like(data))

                def guarded(i: Any, j: Any) -> Any:
                    here = (j + by >= 0) & (j + by < columns)
                    return te.select(here, source[i, j + by], te.const(0, dtype))

                return Term(dtype, guarded, shifted)
            case _:
                data = self.data(dtype, rows, columns)
                source = self.input(data)
                return Term(dtype, lambda i, j: source[i, j], data)

    def term(self, dtype: str, depth: int) -> Term:
        if depth == 0:
            return self.leaf(dtype)
        a = self.term(dtype, depth - 1)
        match self.attempt.pick(8):
            case 0 | 1:
                b = self.term(dtype, depth - 1)
                op = self.attempt.choice((operator.add, operator.sub, operator.mul))
                return self.applied(op, op, a, b)
            case 2:
                b = self.term(dtype, depth - 1)
                if self.attempt.chance(0.5):
                    return self.applied(te.maximum, array_arithmetic._maximum, a, b)
                return self.applied(te.minimum, array_arithmetic._minimum, a, b)
            case 3 | 4:
                kind = self.attempt.choice(FLOATS + WHOLE)
                c, d = self.term(kind, min(1, depth - 1)), self.term(kind, min(1, depth - 1))
                b, op = self.term(dtype, depth - 1), self.attempt.choice(COMPARISONS)
                value = np.where(op(computed(c.value), computed(d.value)), a.value, b.value)
                return Term(
                    dtype,
                    lambda i, j: te.select(op(c.at(i, j), d.at(i, j)), a.at(i, j), b.at(i, j)),
                    value,
                )
            case 5:
                kind = self.attempt.choice(FLOATS if dtype in FLOATS else WHOLE)
                c = self.term(kind, depth - 1)
                value = array_arithmetic.cast(kind, dtype)(c.value) if kind != dtype else c.value
                return Term(dtype, lambda i, j: te.cast(c.at(i, j), dtype), value)
            case 6 if dtype in FLOATS:
                b = self.term(dtype, depth - 1)
                op = self.attempt.choice((operator.truediv, operator.floordiv, operator.mod))
                return self.applied(op, op, a, b)
            case 6:
                op, by = self.attempt.choice((operator.floordiv, operator.mod)), 3
                return self.applied(lambda x: op(x, by), lambda x: op(x, x.dtype.type(by)), a)
            case _:
                name = self.attempt.choice(tuple(UNARY) if dtype in FLOATS else ("square",))
                return self.applied(getattr(te, name), UNARY[name], a)

    def applied(self, fn: Callable[..., Any], numpy: Callable[..., Any], *terms: Term) -> Term:
        dtype = terms[0].dtype
        value = np.asarray(numpy(*(computed(t.value) for t in terms)))
        rounded = value.astype(dtypes.to_numpy(dtype))
        return Term(dtype, lambda i, j: fn(*(t.at(i, j) for t in terms)), rounded)

    def result(self, name: str) -> list[tuple[Any, Array]]:
        """Tensors that are computed, and their contents."""
        of_floats = self.attempt.chance(0.6)
        dtype = self.attempt.choice(FLOATS if of_floats else WHOLE)
        term, kind = self.term(dtype, 3), self.attempt.choice(RESULTS)
        if kind == "plain" or (kind == "sum" and of_floats):
            return [(te.compute((self.rows, self.columns), term.at, name=name), term.value)]

        def reduced(i: Any) -> Any:
            r = te.reduce_axis(self.columns, name="r")
            return getattr(te, kind)(term.at(i, r), axis=r)

        comparable = computed(term.value)
        if kind == "sum":
            narrow = dtypes.info(dtype).bits < 32
            total = term.value.astype(np.int32) if narrow else term.value
            return [(te.compute((self.rows,), reduced, name=name), total.sum(1, total.dtype))]
        if kind in ("max", "min"):
            best = getattr(np, kind)(comparable, axis=1).astype(term.value.dtype)
            return [(te.compute((self.rows,), reduced, name=name), best)]
        place = getattr(np, kind)(comparable, axis=1)
        best = np.take_along_axis(term.value, place[:, None], 1)[:, 0]
        where, value = te.compute((self.rows,), reduced, name=(name, f"{name}_value"))
        return [(where, place), (value, best)]


def computed(x: Array) -> Array:
    """What arithmetic is done on: float32 for floats that are narrower."""
    return x.astype(np.float32) if dtypes.from_numpy(x.dtype) in FLOATS[2:] else x


def prepare(folder: Path) -> Attack:
    return attack


def attack(attempt: Attempt) -> str:
    writer = Writer(attempt, attempt.choice(ROWS), attempt.choice(COLUMNS))
    with np.errstate(all="ignore"):
        results = [r for k in range(attempt.choice((1, 1, 2, 3))) for r in writer.result(f"y{k}")]
    inputs, func = _program(writer, [tensor for tensor, _ in results])
    attempt.note(f"{func!r:.1900}")
    verify(func)
    offset = attempt.pick(3)
    for k, (how, schedule) in enumerate(WAYS.items()):
        target = targets()[(k + offset) % len(targets())].with_threads(attempt.choice((1, 2)))
        attempt.note(f"{how} for {target}")
        try:
            scheduled = schedule(func, target, attempt)
            if not runs_on_processors(scheduled):
                continue
            module = to_module(compile_func(scheduled, target, strict_fp=True))
        except TilewrightError as error:
            raise Broken(f"{how} for {target}: {type(error).__name__}: {error}") from error
        found = [np.full_like(wanted, 77, order="C") for _, wanted in results]
        module(*inputs, *found)
        for (tensor, wanted), x in zip(results, found, strict=True):
            _require_same(x, wanted, f"{how} for {target}: {tensor.name}")
    return "right"


def _program(writer: Writer, outputs: list[Any]) -> tuple[list[Array], Func]:
    """The program, of those inputs that it uses."""
    inputs = list(writer.inputs)
    while True:
        try:
            func = te.func([*(t for t, _ in inputs), *outputs], name="exact")
        except IRError as error:
            if "used by no computation" not in error.message:
                raise
            inputs = [pair for pair in inputs if pair[0].name != error.arguments[1]]
        else:
            return [data for _, data in inputs], func


def _require_same(found: Array, wanted: Array, what: str) -> None:
    same = found == wanted
    if dtypes.is_float(dtypes.from_numpy(found.dtype)):
        a, b = found.astype(np.float64), wanted.astype(np.float64)
        signs = (np.signbit(a) == np.signbit(b)) | ((b == 0) & (wanted.ndim == 1))
        same = (same & signs) | (np.isnan(a) & np.isnan(b))
    if not same.all():
        at = tuple(int(n[0]) for n in np.nonzero(~same))
        raise Broken(f"{what} at {at} is {found[at]!r}, of numpy {wanted[at]!r}")
