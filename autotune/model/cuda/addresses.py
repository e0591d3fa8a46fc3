"""The addresses that the threads of a block access, as expressions over decisions."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ....tir.ir import Dim, Expr, Var, as_expr, const
from ....tir.visit import substitute
from ....tir.windows import variables
from .known_indices import known
from .launches import Access, Phase, is_one
from .spans import Shapes, least, place

LETTERS = "xyz"
ZERO = const(0)


class Addresses:
    """The addresses of a phase. `places` are variables for the place of a thread along each axis.

    Of a vector the first two lanes and the last one, which is -1, are needed: `ends`. Of indices
    that depend on data, what is `known` counts.
    """

    def __init__(self, phase: Phase, shapes: Shapes, decisions: Collection[Var]) -> None:
        self.phase, self.shapes = phase, shapes
        self.variables = {*decisions, *(f.var for f in phase.loops)}
        self.places = {f"threadIdx.{c}": Var(f"t{c}") for c in LETTERS}
        self.ends = (0,) if phase.vector is None else (0, 1, -1)
        self._offsets: dict[int, Expr] = {}
        self._of_threads: dict[int, list[Expr]] = {}
        self._moved: dict[int, list[Dim]] = {}

    def at(self, e: Expr, lane: int = 0) -> Expr:
        """An expression of a thread where the loops that it runs itself, and blocks, are at 0."""
        values: dict[Var, Expr] = {}
        for f in self.phase.loops:
            if f.thread in self.places:
                values[f.var] = self.places[f.thread]
            elif f is self.phase.vector and lane:
                values[f.var] = const(1) if lane == 1 else as_expr(f.extent - 1)
            else:
                values[f.var] = ZERO
        return substitute(e, values)

    def of_threads(self, a: Access) -> list[Expr]:
        """The elements that threads access, counted from the start of the buffer, by `ends`."""
        elements = self._of_threads.get(id(a))
        if elements is None:
            elements = [self.at(self._offset(a), lane) for lane in self.ends]
            self._of_threads[id(a)] = elements
        return elements

    def moved(self, a: Access) -> list[Dim]:
        """Of each loop that moves an access of the first thread: its extent, and by how many
        elements it does so in the second iteration, in one in the middle and in the last one."""
        steps = self._moved.get(id(a))
        if steps is None:
            steps = self._moved[id(a)] = self._steps(self._offset(a))
        return steps

    def _offset(self, a: Access) -> Expr:
        if id(a) not in self._offsets:
            strides = self.shapes.strides(a.buffer)
            indices = [known(i, self.variables) for i in a.indices]
            self._offsets[id(a)] = as_expr(place(a.buffer, indices, strides))
        return self._offsets[id(a)]

    def _steps(self, offset: Expr) -> list[Dim]:
        phase = self.phase
        lanes = {f.var for f in phase.loops if f is phase.vector or f.thread in self.places}
        first = substitute(offset, dict.fromkeys(lanes, ZERO))
        used = variables(first)
        loops = [f for f in phase.loops if f.var in used and not is_one(f.extent)]
        start = substitute(first, {f.var: ZERO for f in phase.loops})
        steps: list[Dim] = []
        for f in loops:
            others: Mapping[Var, Expr] = {g.var: ZERO for g in phase.loops if g.var is not f.var}
            alone, extent = substitute(first, others), as_expr(f.extent)
            steps.append(f.extent)
            for iteration in (const(1), extent // 2, extent - 1):
                there = substitute(alone, {f.var: iteration})
                steps.append((there - start) * as_expr(least(f.extent - 1, 1)))
        return steps
