"""Random programs of several stages, with their inputs and what numpy says of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from tilewright import Func, te
from tilewright.base.errors import IRError

from . import bounded
from .attempt import Attempt
from .bounded import Bounded
from .formulas import Node, Scalar, Source, grid_of, nodes_of, sources_of, spread
from .random_leaves import MOST_POINTS, Axes
from .random_nodes import FLOATS, WHOLE, Formulas

EXTENTS = (1, 1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 31, 33)


@dataclass
class Program:
    """A program, the arguments of a call before its outputs, and the outputs."""

    func: Func
    inputs: list[Source | float]
    outputs: list[Bounded]


@dataclass
class Writer(Formulas):
    """Makes a program, stage by stage."""

    stages: list[Source] = field(default_factory=list)

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
        scalars = self.scalars if any(isinstance(n, Scalar) for n in nodes) else []
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
            k = pick(rank)
            axes[k] = (axes[k][0], 2)
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
            return tuple(n.te(variables) for n in nodes)

        grid, _ = grid_of(axes)
        tensors = te.compute(shape, formula, name=names)
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
            variables = dict(
                zip([*order, *(n for n, _ in reduced)], [*indices, *made], strict=True)
            )
            return getattr(te, name)(value.te(variables), made)

        shape = tuple(n for _, n in axes)
        tensors = te.compute(shape, formula, name=names)
        grid, whole = grid_of(axes + reduced)
        results = bounded.arg(name, spread(value.value(grid), whole), len(reduced))
        for n, tensor, content in zip(names, tensors, results, strict=True):
            self._keep(n, tensor, content, (value,))

    def _keep(self, name: str, tensor: Any, content: Bounded, reads: tuple[Node, ...]) -> None:
        source = Source(name, tensor, content, reads=reads)
        self.stages.append(source)
        self.sources.append(source)


def random_program(attempt: Attempt) -> Program:
    return Writer(attempt).program()
