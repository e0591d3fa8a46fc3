"""Random formulas over what there is to read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.base import dtypes

from .formulas import Binary, Cast, Constant, Function, Node, Reduce, Select
from .random_leaves import MOST_POINTS, Axes, Leaves

FLOATS = ("float32", "float32", "float64", "float16", "bfloat16")
WHOLE = ("int32", "int32", "int8", "uint8", "int16", "int64", "uint32")


@dataclass
class Formulas(Leaves):
    """Formulas of a dtype. `points` is the size of the domain, reductions included.

    `plain` says that reductions are left out, as in the branches of a choice.
    """

    points: int = 1
    plain: bool = False

    def expression(self, dtype: str, axes: Axes, depth: int) -> Node:
        """A formula of this dtype."""
        if depth == 0 or self.attempt.chance(0.15):
            return self.leaf(dtype, axes)
        if dtypes.is_float(dtype):
            return self.of_floats(dtype, axes, depth - 1)
        return self.of_whole(dtype, axes, depth - 1)

    def of_floats(self, dtype: str, axes: Axes, depth: int) -> Node:
        make = self.expression
        match self.attempt.pick(12):
            case 0 | 1 | 2:
                op = self.attempt.choice(("+", "-", "*", "min", "max"))
                return self.binary(op, make(dtype, axes, depth), make(dtype, axes, depth))
            case 3:
                size = Function(dtype, False, "abs", make(dtype, axes, depth))
                room = Binary(dtype, False, "+", size, Constant(dtype, True, 1))
                return self.binary("/", make(dtype, axes, depth), room)
            case 4 | 5:
                return self.function(dtype, make(dtype, axes, depth))
            case 6:
                return self.choice(dtype, axes, depth)
            case 7:
                other = self.attempt.choice(FLOATS)
                return self.cast(dtype, make(other, axes, depth))
            case 8 | 9 if not self.plain and self.points < MOST_POINTS // 2:
                return self.reduction(dtype, axes, depth)
            case 10:
                name = self.attempt.choice(("floor", "ceil", "trunc", "round"))
                return Function(dtype, True, name, self.exact(dtype, axes))
            case 11:
                left, right = (
                    make(self.attempt.choice(FLOATS), axes, depth),
                    make(dtype, axes, depth),
                )
                return self.mixed(dtype, left, right)
            case _:
                return self.cast(dtype, self.expression(self.attempt.choice(WHOLE), axes, depth))

    def of_whole(self, dtype: str, axes: Axes, depth: int) -> Node:
        make = self.expression
        match self.attempt.pick(12):
            case 0 | 1 | 2:
                op = self.attempt.choice(("+", "-", "*", "min", "max", "&", "|", "^"))
                return self.binary(op, make(dtype, axes, depth), make(dtype, axes, depth))
            case 3:
                return self.divided(dtype, axes, depth)
            case 4:
                op = self.attempt.choice(("//", "%"))
                by = Constant(dtype, True, self.attempt.choice((1, 2, 3, 7, 16)))
                return self.binary(op, make(dtype, axes, depth), by)
            case 5:
                op = self.attempt.choice(("<<", ">>"))
                by = Constant(dtype, True, self.attempt.pick(7))
                return self.binary(op, make(dtype, axes, depth), by)
            case 6:
                return self.choice(dtype, axes, depth)
            case 7:
                return self.cast(dtype, make(self.attempt.choice(WHOLE), axes, depth))
            case 8:
                return self.cast(dtype, self.exact(self.attempt.choice(FLOATS), axes))
            case 9 | 10 if not self.plain and self.points < MOST_POINTS // 2:
                return self.reduction(dtype, axes, depth)
            case 11:
                signed = dtype.startswith("int")
                return Function(dtype, True, "abs" if signed else "neg", make(dtype, axes, depth))
            case _:
                return self.cast(dtype, self.condition(axes))

    def binary(self, op: str, a: Node, b: Node) -> Node:
        exact = a.exact and b.exact and (not dtypes.is_float(a.dtype) or op in ("min", "max"))
        return Binary(a.dtype, exact, op, a, b)

    def mixed(self, dtype: str, a: Node, b: Node) -> Node:
        """A sum of two dtypes, where they have a common one."""
        try:
            common = str(np.promote_types(dtypes.to_numpy(a.dtype), dtypes.to_numpy(b.dtype)))
        except TypeError:
            return b
        if common not in dtypes.SCALARS:
            return b
        return self.cast(dtype, Binary(common, False, "+", a, b))

    def choice(self, dtype: str, axes: Axes, depth: int) -> Node:
        a, b = (self.branch(dtype, axes, depth) for _ in range(2))
        return Select(dtype, a.exact and b.exact, self.condition(axes), a, b)

    def branch(self, dtype: str, axes: Axes, depth: int) -> Node:
        """An expression without reductions."""
        before, self.plain = self.plain, True
        node = self.expression(dtype, axes, depth)
        self.plain = before
        return node

    def divided(self, dtype: str, axes: Axes, depth: int) -> Node:
        """A division that happens only where the divisor is not zero."""
        a, b = (self.branch(dtype, axes, depth) for _ in range(2))
        op = self.attempt.choice(("//", "%"))
        zero = Constant(dtype, True, 0)
        match self.attempt.pick(4):
            case 0:
                return self.binary(op, a, Binary(dtype, True, "max", b, Constant(dtype, True, 1)))
            case 1:
                where = Binary("bool", True, "!=", b, zero)
                return Select(dtype, True, where, self.binary(op, a, b), a)
            case 2:
                where = Binary("bool", True, "==", b, zero)
                return Select(dtype, True, where, a, self.binary(op, a, b))
            case _:
                where = Binary("bool", True, ">", b, zero)
                return Select(dtype, True, where, self.binary(op, a, b), zero)

    def function(self, dtype: str, a: Node) -> Node:
        functions = ["exp", "exp2", "log", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf", "sigmoid"]
        functions += ["expm1", "log1p", "atan", "sinh", "asinh", "acosh"]
        name = self.attempt.choice([*functions, "abs", "neg"])
        if name in ("exp", "exp2", "expm1", "sinh"):
            a = Binary(dtype, False, "min", a, Constant(dtype, True, 3))
        if name in ("log", "log1p", "rsqrt", "acosh"):
            size = Function(dtype, False, "abs", a)
            a = Binary(dtype, False, "+", size, Constant(dtype, True, 1))
        if name == "sqrt":
            a = Function(dtype, False, "abs", a)
        return Function(dtype, a.exact and name in ("abs", "neg"), name, a)

    def reduction(self, dtype: str, axes: Axes, depth: int) -> Node:
        points = self.points
        name = self.attempt.choice(("sum", "sum", "sum", "max", "min", "prod"))
        reduced = self.reduce_axes()
        wide = self.attempt.choice(
            ("float32", "float64") if dtypes.is_float(dtype) else ("int32", "int64")
        )
        if name == "prod" and dtypes.is_float(dtype):
            name = "sum"
        within = dtype if name in ("max", "min") else wide
        inner = self.expression(dtype, axes + reduced, min(depth, 1))
        self.points = points
        exact = not dtypes.is_float(within) or (name in ("max", "min") and inner.exact)
        return self.cast(dtype, Reduce(within, exact, name, inner, tuple(reduced)))

    def cast(self, dtype: str, a: Node) -> Node:
        if a.dtype == dtype:
            return a
        if not dtypes.is_float(dtype):
            assert a.exact
        return Cast(dtype, not dtypes.is_float(dtype), a)

    def condition(self, axes: Axes) -> Node:
        """A bool that is known exactly."""
        match self.attempt.pick(5):
            case 0:
                return self.load("bool", axes)
            case 1:
                op = self.attempt.choice(("&", "|", "^"))
                return Binary("bool", True, op, self.condition(axes), self.condition(axes))
            case 2:
                dtype = self.attempt.choice(("float32", "bfloat16", "int8", "int32"))
                op = self.attempt.choice(("<", "<=", ">", ">=", "==", "!="))
                return Binary("bool", True, op, self.exact(dtype, axes), self.exact(dtype, axes))
            case _:
                op = self.attempt.choice(("<", "<=", ">", ">=", "==", "!="))
                number = Constant("int64", True, self.attempt.choice((0, 1, 2, 5, 8)))
                return Binary("bool", True, op, self.position(axes), number)

    def leaf(self, dtype: str, axes: Axes) -> Node:
        match self.attempt.pick(10):
            case 0:
                return Constant(dtype, True, self.attempt.choice((0, 1, 2, 3)))
            case 1:
                return self.cast(dtype, self.position(axes))
            case 2 if dtype == "float32":
                return self.scalar()
            case 3 if dtypes.is_float(dtype):
                return self.cast(dtype, self.load("float8_e5m2", axes))
            case _:
                return self.load(dtype, axes)

    def reduce_axes(self, least: int = 0) -> Axes:
        axes: Axes = []
        for _ in range(self.attempt.choice((1, 1, 1, 2))):
            room = max(least, 1, MOST_POINTS // self.points)
            extent = min(max(least, self.attempt.choice((0, 1, 2, 3, 5, 7, 16, 33, 64, 100))), room)
            self.points *= max(1, extent)
            axes.append((self.name("r"), extent))
        return axes
