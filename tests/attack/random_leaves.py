"""Random inputs of programs, and the elements of them that formulas read."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright import te
from tilewright.base import dtypes

from ..guard_pages import Array
from . import bounded
from .attempt import Attempt
from .formulas import Binary, Constant, Guarded, Index, Load, Node, Scalar, Source

MOST_POINTS = 12_000
"""The largest domain of a stage."""
Axes = list[tuple[str, int]]


@dataclass
class Leaves:
    """The leaves of formulas: elements of inputs and of earlier stages, positions, numbers."""

    attempt: Attempt
    sources: list[Source] = field(default_factory=list)
    inputs: list[Source] = field(default_factory=list)
    scalars: list[tuple[Any, float]] = field(default_factory=list)
    counter: int = 0

    def name(self, letter: str) -> str:
        self.counter += 1
        return f"{letter}{self.counter}"

    def scalar(self) -> Node:
        number = float(np.float32(self.attempt.rng.standard_normal()))
        if not self.scalars:
            self.scalars.append((te.scalar("float32", name="alpha"), number))
        variable, number = self.scalars[0]
        return Scalar("float32", True, variable, number)

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
            node = Binary(
                "int64", True, op, node, Constant("int64", True, self.attempt.choice((2, 3, 5)))
            )
        return node

    def exact(self, dtype: str, axes: Axes) -> Node:
        """A value that is known exactly: an element of an input."""
        return self.load(dtype, axes, inputs=True)

    def load(self, dtype: str, axes: Axes, *, inputs: bool = False) -> Node:
        """An element of an earlier stage or of an input, old or new."""
        old = [
            s
            for s in self.sources
            if s.content.dtype == dtype and (s.data is not None or not inputs)
        ]
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
            index = Binary(
                "int64", True, "+", index, Index("int64", True, self.attempt.choice(axes)[0])
            )
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
                return Binary("int64", True, "//", index, Constant("int64", True, by)), -(
                    -extent // by
                )
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
