"""Formulas that can be written in `te` and evaluated by numpy, each without the other.

A node has a dtype, `te()` gives its expression, and `value(grid)` its `Bounded` values at all
points of a grid: the index variables as arrays that broadcast to the shape of the domain.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright import te
from tilewright.base import dtypes

from ..guard_pages import Array
from . import bounded
from .bounded import Bounded

Grid = Mapping[str, Array]
Names = Mapping[str, Any]
"""The variables of `te` by name."""


@dataclass(frozen=True)
class Node:
    """Base of the nodes. `exact`: its values are known without an error."""

    dtype: str
    exact: bool = True

    def te(self, names: Names) -> Any:
        raise NotImplementedError

    def value(self, grid: Grid) -> Bounded:
        raise NotImplementedError


@dataclass(frozen=True)
class Index(Node):
    """An index variable."""

    name: str = ""

    def te(self, names: Names) -> Any:
        return names[self.name]

    def value(self, grid: Grid) -> Bounded:
        return Bounded("int64", grid[self.name])


@dataclass(frozen=True)
class Constant(Node):
    number: float = 0

    def te(self, names: Names) -> Any:
        return te.const(self.number, self.dtype)

    def value(self, grid: Grid) -> Bounded:
        return bounded.exactly(np.array(self.number).astype(dtypes.to_numpy(self.dtype)))


@dataclass(frozen=True)
class Scalar(Node):
    """A number that is passed at each call."""

    variable: Any = None
    number: float = 0.0

    def te(self, names: Names) -> Any:
        return self.variable

    def value(self, grid: Grid) -> Bounded:
        return bounded.exactly(np.array(self.number, np.float32))


@dataclass(eq=False)
class Source:
    """A tensor to read: an input with its data, or the result of an earlier stage."""

    name: str
    tensor: Any
    content: Bounded
    data: Array | None = None
    strides: tuple[int, ...] | None = None
    reads: tuple[Node, ...] = ()
    """The expressions that a stage computes."""

    @property
    def shape(self) -> tuple[int, ...]:
        shape: tuple[int, ...] = self.content.value.shape
        return shape


@dataclass(frozen=True)
class Load(Node):
    """An element, all indices in bounds."""

    source: Source | None = None
    indices: tuple[Node, ...] = ()

    def te(self, names: Names) -> Any:
        assert self.source is not None
        return self.source.tensor[tuple(i.te(names) for i in self.indices)]

    def value(self, grid: Grid) -> Bounded:
        assert self.source is not None
        places = [i.value(grid).value.astype(np.int64) for i in self.indices]
        return _taken(self.source.content, places)


def _taken(content: Bounded, places: Sequence[Array]) -> Bounded:
    for place, extent in zip(places, content.value.shape, strict=True):
        assert place.size == 0 or (place.min() >= 0 and place.max() < extent), "out of bounds"
    at = tuple(np.broadcast_arrays(*places)) if places else ()
    error = None if content.error is None else np.asarray(content.error[at])
    return Bounded(content.dtype, np.asarray(content.value[at]), error)


@dataclass(frozen=True)
class Guarded(Node):
    """An element where the indices are in bounds, and 0 elsewhere."""

    source: Source | None = None
    indices: tuple[Node, ...] = ()

    def te(self, names: Names) -> Any:
        assert self.source is not None
        places = [i.te(names) for i in self.indices]
        inside: Any = None
        for place, extent in zip(places, self.source.shape, strict=True):
            here = (place >= 0) & (place < extent)
            inside = here if inside is None else inside & here
        return te.select(inside, self.source.tensor[tuple(places)], te.const(0, self.dtype))

    def value(self, grid: Grid) -> Bounded:
        assert self.source is not None
        content = self.source.content
        places = [i.value(grid).value.astype(np.int64) for i in self.indices]
        inside = np.array(True)
        for place, extent in zip(places, content.value.shape, strict=True):
            inside = inside & (place >= 0) & (place < extent)
        zero = Bounded(content.dtype, np.zeros_like(content.value, shape=inside.shape))
        if content.error is not None:
            zero = Bounded(content.dtype, zero.value, np.zeros(inside.shape))
        if content.value.size == 0:
            return zero
        limits = zip(places, content.value.shape, strict=True)
        there = _taken(content, [np.clip(p, 0, n - 1) for p, n in limits])
        return bounded.select(Bounded("bool", inside), there, zero)


@dataclass(frozen=True)
class Binary(Node):
    op: str = "+"
    a: Node | None = None
    b: Node | None = None

    def te(self, names: Names) -> Any:
        assert self.a is not None
        assert self.b is not None
        x, y = self.a.te(names), self.b.te(names)
        return _OPERATORS[self.op](x, y)

    def value(self, grid: Grid) -> Bounded:
        assert self.a is not None
        assert self.b is not None
        common = str(np.promote_types(*(dtypes.to_numpy(n.dtype) for n in (self.a, self.b))))
        if self.op == "/" and not dtypes.is_float(common):
            common = "float64"
        x, y = bounded.cast(common, self.a.value(grid)), bounded.cast(common, self.b.value(grid))
        return bounded.binary(self.op, x, y)


@dataclass(frozen=True)
class Function(Node):
    name: str = "abs"
    a: Node | None = None

    def te(self, names: Names) -> Any:
        assert self.a is not None
        x = self.a.te(names)
        return -x if self.name == "neg" else getattr(te, self.name)(x)

    def value(self, grid: Grid) -> Bounded:
        assert self.a is not None
        return bounded.function(self.name, self.a.value(grid))


@dataclass(frozen=True)
class Cast(Node):
    a: Node | None = None

    def te(self, names: Names) -> Any:
        assert self.a is not None
        return te.cast(self.a.te(names), self.dtype)

    def value(self, grid: Grid) -> Bounded:
        assert self.a is not None
        return bounded.cast(self.dtype, self.a.value(grid))


@dataclass(frozen=True)
class Select(Node):
    condition: Node | None = None
    a: Node | None = None
    b: Node | None = None

    def te(self, names: Names) -> Any:
        assert self.condition is not None
        assert self.a is not None
        assert self.b is not None
        return te.select(self.condition.te(names), self.a.te(names), self.b.te(names))

    def value(self, grid: Grid) -> Bounded:
        assert self.condition is not None
        assert self.a is not None
        assert self.b is not None
        return bounded.select(self.condition.value(grid), self.a.value(grid), self.b.value(grid))


@dataclass(frozen=True)
class Reduce(Node):
    """`name` of `a` over axes of their own; `dtype` is that in which is added."""

    name: str = "sum"
    a: Node | None = None
    axes: tuple[tuple[str, int], ...] = ()

    def te(self, names: Names) -> Any:
        assert self.a is not None
        axes = {n: te.reduce_axis(extent, name=n) for n, extent in self.axes}
        inner = self.a.te({**names, **axes})
        if self.name in ("sum", "prod"):
            return getattr(te, self.name)(inner, tuple(axes.values()), dtype=self.dtype)
        return getattr(te, self.name)(inner, tuple(axes.values()))

    def value(self, grid: Grid) -> Bounded:
        assert self.a is not None
        inner, shape = extended(grid, self.axes)
        values = spread(bounded.cast(self.dtype, self.a.value(inner)), shape)
        return bounded.reduce(self.name, values, len(self.axes))


def nodes_of(node: Node) -> Iterator[Node]:
    """A node and all below it."""
    yield node
    for value in vars(node).values():
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, Node):
                yield from nodes_of(part)


def sources_of(nodes: Sequence[Node]) -> set[str]:
    """The names of what is read."""
    every = [n for node in nodes for n in nodes_of(node)]
    return {n.source.name for n in every if isinstance(n, (Load, Guarded)) and n.source}


def grid_of(axes: Sequence[tuple[str, int]]) -> tuple[dict[str, Array], tuple[int, ...]]:
    """The index variables over a domain, and its shape."""
    shape = tuple(n for _, n in axes)
    grid = {}
    for k, (name, extent) in enumerate(axes):
        steps = np.arange(extent, dtype=np.int64)
        grid[name] = steps.reshape(tuple(extent if i == k else 1 for i in range(len(axes))))
    return grid, shape


def extended(
    grid: Grid, axes: Sequence[tuple[str, int]]
) -> tuple[dict[str, Array], tuple[int, ...]]:
    """A grid with further dimensions at its end."""
    outer = np.broadcast_shapes(*(g.shape for g in grid.values())) if grid else ()
    more, tail = grid_of(axes)
    grown = {name: g.reshape(g.shape + (1,) * len(axes)) for name, g in grid.items()}
    return {**grown, **more}, outer + tail


def spread(a: Bounded, shape: tuple[int, ...]) -> Bounded:
    """The values at each point of a domain."""
    error = None if a.error is None else np.broadcast_to(a.error, shape)
    return Bounded(a.dtype, np.broadcast_to(a.value, shape), error)


_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "min": te.minimum,
    "max": te.maximum,
}
