"""Random quotients and remainders that a condition keeps from a divisor of zero, and their values.

`python -m tests.codegen.guarded 0 8` compiles and runs the programs of those seeds, in a process of
its own: a division that should not have been made ends it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tilewright.autotune.search.unmeasured import default_trace, model_trace
from tilewright.base import dtypes
from tilewright.base.errors import TargetError, VerifyError
from tilewright.codegen.build import compile_func, to_module
from tilewright.codegen.detect import check_runnable, resolve
from tilewright.schedule import Schedule
from tilewright.schedule.find import blocks_in
from tilewright.tir import te
from tilewright.tir.interpreter import interpret
from tilewright.tir.ir import Binary, Call, Cast, Const, Expr, Func, Load, Op, Select, Var
from tilewright.tir.verify import verify

Array = Any
EXTENT = 21
PER_PROGRAM = 12
DTYPES = ("int8", "uint8", "int16", "int32", "uint32", "int64", "uint64")
TARGETS = ("cpu -threads=1", "cpu -mcpu=x86-64 -threads=1", "cpu -mcpu=x86-64-v3 -threads=1")


class Quotients:
    """Draws expressions of one dtype at `i`: of elements, of one element for all, of a scalar."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.dtype = self.pick(DTYPES)
        self.x, self.y = (te.placeholder((EXTENT,), self.dtype, name=n) for n in "xy")
        self.z = te.placeholder((1,), self.dtype, name="z")
        self.n = te.scalar(self.dtype, name="n")

    def pick(self, items: Sequence[Any]) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def number(self) -> int:
        low, high = dtypes.int_limits(self.dtype)
        return int(self.pick([v for v in (-3, -1, 0, 1, 2, 5, high) if low <= v <= high]))

    def leaf(self, i: Expr) -> Any:
        return self.pick((self.x[i], self.y[i], self.y[i], self.z[0], self.n))

    def value(self, i: Expr, depth: int) -> Any:
        if depth == 0:
            return self.leaf(i)
        a = self.value(i, depth - 1)
        b = (
            self.value(i, depth - 1)
            if self.rng.random() < 0.5
            else te.const(self.number(), self.dtype)
        )
        return self.pick(
            (
                lambda: a + b,
                lambda: a - b,
                lambda: te.maximum(a, b),
                lambda: te.minimum(a, b),
                lambda: te.abs(a),
                lambda: a % 7 + 1,
                lambda: a | 1,
                lambda: te.select(self.condition(i, 0), a, b),
            )
        )()

    def condition(self, i: Expr, depth: int) -> Any:
        if depth:
            a, b = self.condition(i, depth - 1), self.condition(i, depth - 1)
            return self.pick((lambda: a & b, lambda: a | b, lambda: ~a))()
        a, b = self.leaf(i), self.pick((self.leaf(i), te.const(self.number(), self.dtype)))
        compare: Callable[..., Any] = self.pick(
            (
                lambda: a != b,
                lambda: a == b,
                lambda: a < b,
                lambda: a >= b,
                lambda: i < int(self.rng.integers(EXTENT)),
            )
        )
        return compare()

    def guard(self, i: Expr, divisor: Any) -> Any:
        """A condition that tells something of `divisor`; it need not keep it from zero."""
        zero = te.const(0, self.dtype)
        told: Any = self.pick(
            (
                lambda: divisor != zero,
                lambda: divisor > zero,
                lambda: divisor >= 1,
                lambda: zero < divisor,
                lambda: ~(divisor == zero),
                lambda: (divisor < zero) | (divisor > zero),
                lambda: te.abs(divisor) > 1,
                lambda: divisor % 3 != 0,
            )
        )()
        other = self.condition(i, 0)
        return self.pick((lambda: told, lambda: told & other, lambda: ~(~told | other)))()

    def quotient(self, i: Expr) -> Any:
        top, divisor = self.value(i, 1), self.value(i, int(self.rng.integers(3)))
        kind = self.rng.random()
        guard = self.guard(i, divisor) if kind < 0.8 else self.condition(i, 1)
        found = top // divisor if self.rng.random() < 0.5 else top % divisor
        if self.rng.random() < 0.3:
            found = te.select(found > 2, found, top)
        if self.rng.random() < 0.3:
            found = te.select(self.condition(i, 0), found, self.leaf(i))
        if kind < 0.25:
            return te.select(~guard, self.leaf(i), found)
        return te.select(guard, found, self.leaf(i))


def drawn(seed: int) -> tuple[Func, list[Expr], int]:
    """A program, what its outputs are elements of, and how many expressions were refused."""
    draw = Quotients(seed)
    outputs: list[Any] = []
    refused = 0
    while len(outputs) < PER_PROGRAM:
        output = te.compute((EXTENT,), draw.quotient, name=f"q{len(outputs)}")
        try:
            verify(program(draw, [output]))
        except VerifyError:
            refused += 1
        else:
            outputs.append(output)
    return program(draw, outputs), [o.stage.results[0] for o in outputs], refused


def program(draw: Quotients, outputs: list[Any]) -> Func:
    used = {t.name for o in outputs for t in (*o.stage.inputs, *o.stage.scalars)}
    inputs = [p for p in (draw.x, draw.y, draw.z, draw.n) if p.name in used]
    return te.func([*inputs, *outputs], name="quotients")


def arguments(func: Func, seed: int, zeros: bool) -> dict[str, Any]:
    """Inputs near zero and at the limits; with `zeros` what all elements share is zero."""
    rng = np.random.default_rng(seed)
    values: dict[str, Any] = {}
    for p in func.params:
        low, high = dtypes.int_limits(p.dtype)
        few = [v for v in (low, low + 1, -7, -1, 0, 0, 0, 1, 2, 3, 7, high) if low <= v <= high]
        number = dtypes.to_numpy(p.dtype).type
        if isinstance(p, Var):
            values[p.name] = number(0 if zeros else few[int(rng.integers(len(few)))])
        elif p.shape == (1,):
            values[p.name] = np.array([0 if zeros else few[int(rng.integers(len(few)))]], number)
        else:
            values[p.name] = np.array(few, number)[rng.integers(len(few), size=EXTENT)]
    return values


def by_numpy(e: Expr, values: dict[str, Any]) -> Any:
    """The values of `e` at all places, both sides of each choice computed."""
    match e:
        case Const():
            return np.asarray(e.value, dtypes.to_numpy(e.dtype))
        case Load():
            index = by_numpy(e.indices[0], values)
            return values[e.buffer.name][index]
        case Var():
            return values[e.name] if e.name in values else np.arange(EXTENT)
        case Cast():
            return np.asarray(by_numpy(e.value, values)).astype(dtypes.to_numpy(e.dtype))
        case Select():
            return np.where(*(by_numpy(c, values) for c in (e.cond, e.then, e.other)))
        case Call():
            function: Any = {"abs": np.abs, "not": np.invert, "neg": np.negative}[e.fn]
            return function(by_numpy(e.args[0], values))
        case Binary():
            return _NUMPY[e.op](by_numpy(e.a, values), by_numpy(e.b, values))
        case _:
            raise AssertionError(type(e))


_NUMPY: dict[Op, Any] = {
    Op.ADD: np.add, Op.SUB: np.subtract, Op.FLOORDIV: np.floor_divide, Op.MOD: np.remainder,
    Op.MIN: np.minimum, Op.MAX: np.maximum, Op.AND: np.bitwise_and, Op.OR: np.bitwise_or,
    Op.EQ: np.equal, Op.NE: np.not_equal, Op.LT: np.less, Op.LE: np.less_equal, Op.GT: np.greater,
    Op.GE: np.greater_equal,
}  # fmt: skip


def schedules(func: Func, seed: int) -> Iterator[tuple[Func, str]]:
    """`func` in order, in vectors, and in one other way; with targets."""
    target = TARGETS[0]
    yield func, target
    wide = TARGETS[seed % len(TARGETS)]
    yield in_vectors(func, None), wide if runs_here(wide) else target
    other = seed % 4
    if other < 2:
        yield in_vectors(func, (8, 6)[other]), target
    else:
        trace = (default_trace, model_trace)[other - 2](func, resolve(target))
        yield trace.apply(func).func, target


def runs_here(target: str) -> bool:
    try:
        check_runnable(resolve(target))
    except TargetError:
        return False
    return True


def in_vectors(func: Func, width: int | None) -> Func:
    """Each loop vectorized, or the inner one of two."""
    sch = Schedule(func)
    for block in list(blocks_in(func.body)):
        (loop,) = sch.get_loops(sch.get_block(block.label.name))
        if width is not None:
            _, loop = sch.split(loop, [None, width], perfect=False)
        sch.vectorize(loop)
    return sch.func


def check(seed: int) -> int:
    """Require that compiled code, the interpreter and numpy agree. Returns the number refused."""
    func, expressions, refused = drawn(seed)
    cases = []
    for zeros in (False, True):
        values = arguments(func, seed, zeros)
        with np.errstate(all="ignore"):
            expected = [np.broadcast_to(by_numpy(e, values), EXTENT) for e in expressions]
        cases.append((list(values.values()), expected))
        found = _copies(cases[-1][0])
        interpret(func, *found)
        _compare(found, expected, f"seed {seed}, interpreted")
    for number, (scheduled, target) in enumerate(schedules(func, seed)):
        module = to_module(compile_func(scheduled, target))
        for given, expected in cases:
            found = _copies(given)
            module(*found)
            _compare(found, expected, f"seed {seed}, schedule {number}, {target}")
    return refused


def _copies(given: list[Any]) -> list[Any]:
    return [a.copy() for a in given]


def _compare(found: list[Any], expected: list[Any], what: str) -> None:
    for n, (x, y) in enumerate(zip(found[-len(expected) :], expected, strict=True)):
        np.testing.assert_array_equal(x, y, err_msg=f"{what}, output {n}")


if __name__ == "__main__":
    first, end = map(int, sys.argv[1:])
    total = 0
    for seed in range(first, end):
        print(f"seed {seed}", flush=True)
        total += check(seed)
    print(f"{(end - first) * PER_PROGRAM} computed, {total} refused")
