"""Random programs of several stages, with their inputs and what numpy says of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright import Func, dtypes, te
from tilewright.errors import IRError

from . import bounded
from .attempt import Attempt
from .bounded import Bounded
from .formulas import (
    Binary,
    Cast,
    Constant,
    Function,
    Guarded,
    Index,
    Load,
    Node,
    Reduce,
    Select,
    Source,
    grid_of,
    nodes_of,
    sources_of,
    spread,
)
from .guarded import Array

FLOATS = ("float32", "float32", "float64", "float16", "bfloat16")
WHOLE = ("int32", "int32", "int8", "uint8", "int16", "int64", "uint32")
EXTENTS = (1, 1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 31, 33)
MOST_POINTS = 12_000
Axes = list[tuple[str, int]]


@dataclass
class Program:
    """A program, the arguments of a call before its outputs, and the outputs."""

    func: Func
    inputs: list[Source | float]
    outputs: list[Bounded]


@dataclass
class Writer:
    """Makes a program, stage by stage."""

    attempt: Attempt
    sources: list[Source] = field(default_factory=list)
    inputs: list[Source] = field(default_factory=list)
    scalars: list[tuple[Any, float]] = field(default_factory=list)
    stages: list[Source] = field(default_factory=list)
    points: int = 1
    plain: bool = False
    """Whether reductions are left out, as in the branches of a choice."""
    counter: int = 0

    def program(self) -> Program:
        for _ in range(self.attempt.choice((1, 1, 2, 2, 3, 4))):
            self.stage()
        read = set().union(*(sources_of(s.reads) for s in self.stages))
        last = self.stages[-1].name
        kept = [
            s
            for s in self.stages
            if s.name == last or s.name not in read or self.attempt.chance(0.2)
        ]
        inputs: list[Source] = [s for s in self.inputs if s.name in read]
        nodes = [n for s in self.stages for node in s.reads for n in nodes_of(node)]
        scalars = self.scalars if any(isinstance(n, _Scalar) for n in nodes) else []
        while True:
            arguments = [s.tensor for s in inputs] + [v for v, _ in scalars]
            try:
                func = te.func([*arguments, *(s.tensor for s in kept)], name="program")
            except IRError as error:
                if "used by no computation" not in error.message:
                    raise
                gone = error.arguments[1]  # what it was read for is zero times something, say
                inputs = [s for s in inputs if s.name != gone]
                scalars = [] if gone == "alpha" else scalars
            else:
                numbers = [number for _, number in scalars]
                return Program(func, [*inputs, *numbers], [s.content for s in kept])

    def stage(self) -> None:
        """One more `te.compute`."""
        pick = self.attempt.pick
        rank = self.attempt.choice((0, 1, 1, 2, 2, 2, 3))
        axes = [(f"i{k}", self.extent()) for k in range(rank)]
        while math.prod(max(1, n) for _, n in axes) > MOST_POINTS:
            axes[pick(rank)] = (axes[0][0], 1) if rank == 1 else (axes[pick(rank)][0], 2)
            axes = [(f"i{k}", n) for k, (_, n) in enumerate(axes)]
        self.points = math.prod(max(1, n) for _, n in axes)
        if self.attempt.chance(0.12):
            self.arg_stage(axes)
            return
        dtype = self.attempt.choice(FLOATS if self.attempt.chance(0.7) else WHOLE)
        count = 2 if self.attempt.chance(0.12) else 1
        self.add(axes, [self.expression(dtype, axes, 3) for _ in range(count)])

    def extent(self) -> int:
        return 0 if self.attempt.chance(0.03) else self.attempt.choice(EXTENTS)

    def add(self, axes: Axes, nodes: list[Node]) -> None:
        names = tuple(self.name("t") for _ in nodes)
        shape = tuple(n for _, n in axes)
        order = [name for name, _ in axes]

        def formula(*indices: Any) -> Any:
            variables = dict(zip(order, indices, strict=True))
            values = tuple(n.te(variables) for n in nodes)
            return values if len(values) > 1 else values[0]

        grid, _ = grid_of(axes)
        made = te.compute(shape, _with_parameters(formula, order), name=names if len(nodes) > 1 else names[0])
        tensors = made if isinstance(made, tuple) else (made,)
        for name, tensor, node in zip(names, tensors, nodes, strict=True):
            self._keep(name, tensor, spread(node.value(grid), shape), tuple(nodes))

    def arg_stage(self, axes: Axes) -> None:
        """The largest or smallest of something that is known exactly, and where it is."""
        reduced = self.reduce_axes(least=1)
        value = self.exact(self.attempt.choice(("float32", "int32", "float64")), axes + reduced)
        name = self.attempt.choice(("argmax", "argmin"))
        names = (self.name("w"), self.name("v"))
        order = [n for n, _ in axes]

        def formula(*indices: Any) -> Any:
            made = [te.reduce_axis(extent, name=n) for n, extent in reduced]
            variables = dict(zip([*order, *(n for n, _ in reduced)], [*indices, *made], strict=True))
            return getattr(te, name)(value.te(variables), made)

        shape = tuple(n for _, n in axes)
        tensors = te.compute(shape, _with_parameters(formula, order), name=names)
        grid, whole = grid_of(axes + reduced)
        results = bounded.arg(name, spread(value.value(grid), whole), len(reduced))
        for n, tensor, content in zip(names, tensors, results, strict=True):
            self._keep(n, tensor, content, (value,))

    def _keep(self, name: str, tensor: Any, content: Bounded, reads: tuple[Node, ...]) -> None:
        source = Source(name, tensor, content, reads=reads)
        self.stages.append(source)
        self.sources.append(source)

    def reduce_axes(self, least: int = 0) -> Axes:
        axes: Axes = []
        for _ in range(self.attempt.choice((1, 1, 1, 2))):
            room = max(least, 1, MOST_POINTS // self.points)
            extent = min(max(least, self.attempt.choice((0, 1, 2, 3, 5, 7, 16, 33, 64, 100))), room)
            self.points *= max(1, extent)
            axes.append((self.name("r"), extent))
        return axes

    def name(self, letter: str) -> str:
        self.counter += 1
        return f"{letter}{self.counter}"

    # Expressions

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
                name = self.attempt.choice(("floor", "ceil", "trunc"))
                return Function(dtype, True, name, self.exact(dtype, axes))
            case 11:
                left, right = make(self.attempt.choice(FLOATS), axes, depth), make(dtype, axes, depth)
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
        name = self.attempt.choice(
            ("exp", "log", "sqrt", "rsqrt", "tanh", "erf", "sigmoid", "abs", "neg")
        )
        if name == "exp":
            a = Binary(dtype, False, "min", a, Constant(dtype, True, 3))
        if name in ("log", "rsqrt"):
            size = Function(dtype, False, "abs", a)
            a = Binary(dtype, False, "+", size, Constant(dtype, True, 1))
        if name == "sqrt":
            a = Function(dtype, False, "abs", a)
        return Function(dtype, a.exact and name in ("abs", "neg"), name, a)

    def reduction(self, dtype: str, axes: Axes, depth: int) -> Node:
        points = self.points
        name = self.attempt.choice(("sum", "sum", "sum", "max", "min", "prod"))
        reduced = self.reduce_axes()
        wide = self.attempt.choice(("float32", "float64") if dtypes.is_float(dtype) else ("int32", "int64"))
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

    # Leaves

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

    def scalar(self) -> Node:
        number = float(np.float32(self.attempt.rng.standard_normal()))
        if not self.scalars:
            self.scalars.append((te.scalar("float32", name="alpha"), number))
        variable, number = self.scalars[0]
        return _Scalar("float32", True, variable, number)

    def position(self, axes: Axes) -> Node:
        """An expression of the index variables."""
        node: Node = Constant("int64", True, self.attempt.pick(4))
        for name, _ in axes:
            if self.attempt.chance(0.6):
                factor = Constant("int64", True, self.attempt.choice((1, 1, 2, 3, -1)))
                term = Binary("int64", True, "*", Index("int64", True, name), factor)
                node = Binary("int64", True, "+", node, term)
        if self.attempt.chance(0.3):
            op = self.attempt.choice(("//", "%"))
            node = Binary("int64", True, op, node, Constant("int64", True, self.attempt.choice((2, 3, 5))))
        return node

    def exact(self, dtype: str, axes: Axes) -> Node:
        """A value that is known exactly: an element of an input."""
        return self.load(dtype, axes, inputs=True)

    def load(self, dtype: str, axes: Axes, *, inputs: bool = False) -> Node:
        """An element of an earlier stage or of an input, old or new."""
        old = [s for s in self.sources if s.content.dtype == dtype and (s.data is not None or not inputs)]
        if old and self.attempt.chance(0.6):
            source = self.attempt.choice(old)
            return self.read_old(source, axes)
        return self.read_new(dtype, axes)

    def read_old(self, source: Source, axes: Axes) -> Node:
        """An element at places that are kept in bounds."""
        exact = source.data is not None or source.content.error is None
        dtype = source.content.dtype
        if 0 in source.shape or self.attempt.chance(0.3):
            places = tuple(self.near(axes) for _ in source.shape)
            if places:
                return Guarded(dtype, exact, source, places)
        return Load(dtype, exact, source, tuple(self.within(n, axes) for n in source.shape))

    def near(self, axes: Axes) -> Node:
        """A place that may be out of bounds."""
        shift = Constant("int64", True, self.attempt.choice((-2, -1, 0, 1, 3)))
        if not axes or self.attempt.chance(0.1):
            return shift
        index: Node = Index("int64", True, self.attempt.choice(axes)[0])
        if self.attempt.chance(0.3):
            index = Binary("int64", True, "+", index, Index("int64", True, self.attempt.choice(axes)[0]))
        return Binary("int64", True, "+", index, shift)

    def within(self, extent: int, axes: Axes) -> Node:
        """A place from 0 to extent-1, for an extent that is not 0."""
        fitting = [name for name, n in axes if n <= extent]
        last = Constant("int64", True, extent - 1)
        zero = Constant("int64", True, 0)
        match self.attempt.pick(6):
            case 0 | 1 | 2 if fitting:
                return Index("int64", True, self.attempt.choice(fitting))
            case 3 if fitting:
                index = Index("int64", True, self.attempt.choice(fitting))
                return Binary("int64", True, "-", last, index)
            case 4:
                wrapped = Constant("int64", True, extent)
                return Binary("int64", True, "%", self.near(axes), wrapped)
            case 5:
                return Constant("int64", True, self.attempt.pick(extent))
            case _:
                above = Binary("int64", True, "max", self.near(axes), zero)
                return Binary("int64", True, "min", above, last)

    def read_new(self, dtype: str, axes: Axes) -> Node:
        """An element of a new input, whose shape is what its indices need."""
        rank = self.attempt.choice((1, 1, 2, 2, 3)) if axes else self.attempt.choice((0, 1))
        places: list[Node] = []
        shape: list[int] = []
        for _ in range(rank):
            place, extent = self.needed(axes)
            places.append(place)
            shape.append(extent + self.attempt.choice((0, 0, 0, 1)))
        if math.prod(shape) > 4 * MOST_POINTS:
            return Constant(dtype, True, 1)
        source = self.input(dtype, tuple(shape))
        return Load(dtype, True, source, tuple(places))

    def needed(self, axes: Axes) -> tuple[Node, int]:
        """A place and the extent that it needs."""
        if not axes:
            return Constant("int64", True, 0), 1
        name, extent = self.attempt.choice(axes)
        index = Index("int64", True, name)
        match self.attempt.pick(7):
            case 0:
                other, more = self.attempt.choice(axes)
                both = Binary("int64", True, "+", index, Index("int64", True, other))
                return both, max(0, extent + more - 1)
            case 1:
                step = self.attempt.choice((2, 3))
                return (
                    Binary("int64", True, "*", index, Constant("int64", True, step)),
                    max(0, (extent - 1) * step + 1),
                )
            case 2:
                by = self.attempt.choice((2, 3))
                return Binary("int64", True, "//", index, Constant("int64", True, by)), -(-extent // by)
            case 3 if extent:
                return self.gathered(axes)
            case _:
                return index, extent

    def gathered(self, axes: Axes) -> tuple[Node, int]:
        """A place that comes out of an input of indices."""
        name, extent = self.attempt.choice(axes)
        count = self.attempt.choice((1, 3, 10, 40))
        dtype = self.attempt.choice(("int32", "int64", "uint8"))
        source = self.input(dtype, (extent,), (0, count))
        return Load(dtype, True, source, (Index("int64", True, name),)), count

    def input(
        self, dtype: str, shape: tuple[int, ...], value_range: tuple[int, int] | None = None
    ) -> Source:
        """A new input, with its data and perhaps with strides of its own."""
        strides = None
        if shape and self.attempt.chance(0.25):
            strides = self.strides(shape)
        name = self.name("x")
        tensor = te.placeholder(shape, dtype, name=name, strides=strides, value_range=value_range)
        data = self.data(dtype, shape, value_range)
        source = Source(name, tensor, bounded.exactly(data), data, strides)
        self.inputs.append(source)
        self.sources.append(source)
        return source

    def strides(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Of dimensions in another order, with gaps."""
        steps = [0] * len(shape)
        step = self.attempt.choice((1, 1, 2))
        for k in self.attempt.rng.permutation(len(shape)):
            steps[k] = step
            step *= max(1, shape[k]) + self.attempt.choice((0, 0, 3))
        return tuple(steps)

    def data(
        self, dtype: str, shape: tuple[int, ...], value_range: tuple[int, int] | None
    ) -> Array:
        rng, facts = self.attempt.rng, dtypes.info(dtype)
        if value_range is not None:
            values: Array = rng.integers(*value_range, size=shape)
        elif facts.kind == "float":
            values = rng.standard_normal(shape) * 2
        elif facts.kind == "bool":
            values = rng.integers(0, 2, size=shape)
        else:
            values = rng.integers(-9 if facts.kind == "int" else 0, 10, size=shape)
        return np.asarray(values).astype(dtypes.to_numpy(dtype))


@dataclass(frozen=True)
class _Scalar(Node):
    variable: Any = None
    number: float = 0.0

    def te(self, names: Any) -> Any:
        return self.variable

    def value(self, grid: Any) -> Bounded:
        return bounded.exactly(np.array(self.number, np.float32))


def _with_parameters(formula: Any, names: list[str]) -> Any:
    """The formula as a function whose parameters have these names."""
    import inspect

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    formula.__signature__ = inspect.Signature([inspect.Parameter(n, kind) for n in names])
    return formula


def random_program(attempt: Attempt) -> Program:
    return Writer(attempt).program()
