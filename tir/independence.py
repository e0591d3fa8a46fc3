"""Verify that no iteration of a parallel, vectorized or thread loop depends on another.

A buffer that is used only inside the loop, in whose iterations all that is read was stored in the
same one, is private to each iteration. In any other buffer that is stored to, different iterations
must touch different elements. This is shown by structure, where the windows of elements that
iterations touch are disjoint, or else exactly, by integer sets.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from functools import partial

from ..base.errors import VerifyError
from . import affine
from .dependence import Access, Conflict, conflict
from .digits import Digit, digit_of, telling
from .initialised import Initialised, conditions_of, elements, extent_of, telling_loops
from .ir import UNORDERED, Buffer, Expr, For, Func, IterKind, Range, Var
from .polynomial import Poly, add, constant, factors
from .survey import Survey, Touch
from .windows import Sweeper, variables


class Independence:
    """Answers for one surveyed program."""

    def __init__(self, func: Func, survey: Survey) -> None:
        self.func, self.survey = func, survey
        self.parameters = set(func.params)
        self.touches: dict[Buffer, list[Touch]] = {}
        for t in survey.touches:
            self.touches.setdefault(t.buffer, []).append(t)

    def check(self) -> None:
        """Raise `VerifyError` at the first loop that may carry a dependence."""
        for loop, place in self.survey.parallel:
            if loop.extent == 1:
                continue
            self._no_reduction(loop)
            found = self.shared(loop, place.loops)
            if found is not None:
                raise VerifyError(
                    "{0} loop {1}: its iterations are not shown to touch different elements "
                    "of {2}, which is stored to ({3})",
                    loop.kind.value, loop.var.name, found[0].name,
                    ", ".join(sorted({t.place.name for t in found[1]})),
                    example=partial(self.example, loop, place.loops, found[1]),
                    hint="make the loop serial, or give each iteration elements of its own",
                )  # fmt: skip

    def shared(self, loop: For, outer: Sequence[For]) -> tuple[Buffer, list[Touch]] | None:
        """A buffer with an element that different iterations of a loop may touch, and its accesses.

        At least one of the accesses stores to it. Loops around are at one iteration.
        """
        for buffer, touches in self.touches.items():
            inside = [t for t in touches if loop in t.place.around]
            internal = buffer not in self.parameters and len(inside) == len(touches)
            if not any(t.is_write for t in inside) or (internal and not self._kept(buffer, outer)):
                continue
            if not (self._apart(loop, outer, inside) or self._disjoint(loop, outer, inside)):
                return buffer, inside
        return None

    def _kept(self, buffer: Buffer, outer: Sequence[For]) -> bool:
        """Whether reads of a buffer may find what another iteration of the loops around stored.

        That all reads find stored elements is known.
        """
        loops = {f.var for f in outer if f.kind not in UNORDERED and f.extent != 1}
        return bool(loops) and not Initialised(self.func, self.survey, loops).holds(buffer)

    def _no_reduction(self, loop: For) -> None:
        for block, place in self.survey.blocks:
            if loop not in place.around:
                continue
            for i in block.iters:
                value = self.survey.resolved(i.value)
                if i.kind is IterKind.REDUCE and loop.var in variables(value):
                    raise VerifyError(
                        "{0} loop {1} drives the reduction over {2} of block {3}: its iterations "
                        "update the same elements",
                        loop.kind.value, loop.var.name, i.var.name, block.label.name,
                        hint="rfactor the reduction first, or choose a loop of spatial iterations",
                    )  # fmt: skip

    def _apart(self, loop: For, outer: Sequence[For], inside: Sequence[Touch]) -> bool:
        """Whether the digits of the loop that elements determine also determine the iteration."""
        fixed = {f.var for f in outer} | {loop.var}
        sweeper = Sweeper(self.survey.ranges, self.survey.ranges.keys() - fixed, ())
        told: list[Digit] = []
        for d in range(len(inside[0].indices)):
            told += self._told(sweeper, loop, inside, d)
            if told and telling(told, extent_of(loop.var, self.survey.ranges)):
                return True
        return False

    def _told(self, sweeper: Sweeper, loop: For, inside: Sequence[Touch], d: int) -> list[Digit]:
        """The digits that dimension `d` determines: those with steps larger than all below them."""
        if not any(loop.var in variables(self.survey.resolved(t.indices[d])) for t in inside):
            return []
        first: Poly | None = None
        low = high = 0
        for t in inside:
            window = sweeper.window(sweeper.poly(self.survey.resolved(t.indices[d])))
            if window is None:
                return []
            if first is None:
                first = window[0]
            below = constant(add(window[0], first, -1))
            above = constant(add(window[1], first, -1))
            if below is None or above is None:
                return []
            low, high = min(low, below), max(high, above)
        assert first is not None
        found: list[Digit] = []
        width = high - low
        for key, c in sorted(first.items(), key=lambda term: abs(term[1])):
            if not any(loop.var in variables(a) for a in factors(key)):
                continue
            digit = digit_of(sweeper, key) if isinstance(key, Expr) else None
            if digit is None or abs(c) <= width:
                return []
            found.append(digit)
            width += abs(c) * (digit.size - 1)
        return found

    def _disjoint(self, loop: For, outer: Sequence[For], inside: Sequence[Touch]) -> bool:
        maps = []
        outer = telling_loops(self.survey, inside, outer)
        for t in inside:
            touched = elements(self.survey, t, (*outer, loop))
            if touched is None:
                return False
            maps.append((t, touched))
        return not any(
            affine.overlap(m, n, len(outer))
            for i, (a, m) in enumerate(maps)
            for b, n in maps[i:]
            if a.is_write or b.is_write
        )

    def example(self, loop: For, outer: Sequence[For], inside: Sequence[Touch]) -> str | None:
        """Two iterations that touch one element, if that is certain."""
        fixed = {f.var: extent_of(f.var, self.survey.ranges) for f in outer}
        for a in inside:
            for b in inside:
                if not (a.is_write or b.is_write):
                    continue
                accesses = [self._access(t, fixed.keys() | {loop.var}) for t in (a, b)]
                own = {loop.var: extent_of(loop.var, self.survey.ranges)}
                found = conflict(accesses[0], accesses[1], fixed, own).example
                if found is not None:
                    return _text(found, a, b)
        return None

    def _access(self, t: Touch, fixed: Set[Var]) -> Access:
        indices = [self.survey.resolved(i) for i in t.indices]
        conditions = conditions_of(self.survey, t)
        used = {v for e in (*indices, *conditions) for v in variables(e)}
        moving = used & (self.survey.ranges.keys() - fixed)
        inner = {v: extent_of(v, self.survey.ranges) for v in sorted(moving, key=lambda v: v.name)}
        return Access([Range(i, 1) for i in indices], inner, conditions)


def _text(found: Conflict, a: Touch, b: Touch) -> str:
    where = f"at {found.outer}: " if found.outer.values else ""
    element = f"{a.buffer.name}[{', '.join(map(str, found.element))}]"
    first, second = ("writes" if t.is_write else "reads" for t in (a, b))
    return f"{where}iteration {found.first} {first} {element}, iteration {found.second} {second} it"
