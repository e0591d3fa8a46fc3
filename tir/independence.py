"""Verify that no iteration of a parallel, vectorized or thread loop depends on another.

A buffer that is used only inside the loop, in whose iterations all that is read was stored in the
same one, is private to each iteration. In any other buffer that is stored to, different iterations
must touch different elements. This is shown by structure, where the windows of elements that
iterations touch are disjoint, or else exactly, by integer sets.

Verify that the spatial iterations of a block are independent of each other.

Two points of a block's domain that differ in a spatial iteration variable must touch different
elements of the buffers that it stores to, where its predicate lets them run. Steps reorder such
iterations freely, so they rely on it. Internal buffers are exempt where the block reads them, if at
all, at what it stores: stages of pipelines store to the same elements again for later iterations.
So are blocks whose predicate depends on loops that are not their variables; steps create those.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial

from ..base.errors import VerifyError
from . import affine
from .bounds import Sweeper, bound, variables
from .dependence import Access, Conflict, conflict
from .digits import Digit, digit_of, telling
from .initialised import Initialised, conditions_of, elements, extent_of, telling_loops
from .ir import (
    UNORDERED,
    Block,
    Buffer,
    Expr,
    For,
    ForKind,
    Func,
    Iter,
    IterKind,
    Range,
    Stmt,
    Store,
    Var,
)
from .polynomial import Poly, Ranges, add, constant, factors
from .regions import region_key
from .structure import conjunction, conjuncts
from .survey import Survey, Touch
from .visit import substitute


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


def check_promises(func: Func, survey: Survey) -> None:
    """Raise `VerifyError` if spatial iterations of a block may depend on each other."""
    parameters = {p for p in func.params if isinstance(p, Buffer)}
    for block, _ in survey.blocks:
        places = set(map(region_key, block.writes))
        elsewhere = {r.buffer for r in block.reads if region_key(r) not in places}
        stored = {r.buffer for r in block.writes} & (parameters | elsewhere)
        if stored and not _at_its_iteration(block):
            _check(block, stored, survey.ranges)


def _at_its_iteration(block: Block) -> bool:
    """Whether a block only stores at its spatial iteration variables, and reads there alone.

    This is cheap to see and decides nearly all blocks.
    """
    store = block.body
    if type(store) is not Store:
        return False
    places = {e for e in store.indices if type(e) is Var}
    return all(
        i.var in places for i in block.iters if i.kind is IterKind.SPATIAL and i.extent != 1
    ) and all(
        r.buffer is not store.buffer
        or all(x.extent == 1 and x.min is e for x, e in zip(r.ranges, store.indices, strict=True))
        for r in block.reads
    )


def _check(block: Block, stored: Set[Buffer], ranges: Ranges) -> None:
    """Ask it of loops that visit the domain, those for spatial variables outermost.

    An example is of iterations that run, if there is one: `ranges` are those of the loops.
    """
    spatial = [i for i in block.iters if i.kind is IterKind.SPATIAL]
    others = [i for i in block.iters if i.kind is not IterKind.SPATIAL]
    loops = {i.var: Var(i.var.name) for i in block.iters}
    iters = tuple(Iter(i.var, i.extent, i.kind, loops[i.var]) for i in block.iters)
    # What a predicate says of other loops than the block's variables is not known of its domain.
    bound = {i.value: loops[i.var] for i in block.iters if type(i.value) is Var}
    where = block.predicate
    if where is not None:
        if not variables(where) <= bound.keys():
            return
        where = substitute(where, bound)
    order = (*spatial, *others)

    def asked_where(predicate: Expr | None) -> Independence:
        nest: Stmt = replace(block, iters=iters, predicate=predicate)
        for i in reversed(order):
            kind = ForKind.PARALLEL if i.kind is IterKind.SPATIAL else ForKind.SERIAL
            nest = For(loops[i.var], i.extent, nest, kind)
        domain = Func("", tuple(sorted(stored, key=lambda b: b.name)), (), nest)
        return Independence(domain, Survey(domain))

    def example(loop: Var) -> str | None:
        running = conjunction([*conjuncts(where), *_visited(block, loops, ranges)])
        for predicate in (running, where):
            other = asked_where(predicate)
            (around,) = [(s, p.loops) for s, p in other.survey.parallel if s.var is loop]
            found = other.shared(*around)
            told = None if found is None else other.example(*around, found[1])
            if told is not None:
                return told
        return None

    asked = asked_where(where)
    for loop, place in asked.survey.parallel:
        found = asked.shared(loop, place.loops)
        if found is not None:
            raise VerifyError(
                "block {0}: its iterations for different {1}, which is spatial, are not shown to "
                "touch different elements of {2}, which is stored to",
                block.label.name, loop.var.name, found[0].name,
                example=partial(example, loop.var),
                hint="declare it by T.axis.reduce where the block sums up over it, by "
                "T.axis.opaque where its iterations have to run in order",
            )  # fmt: skip


def _visited(block: Block, loops: Mapping[Var, Var], ranges: Ranges) -> Iterator[Expr]:
    """Conditions on `loops` over the domain that hold where a binding takes its values."""
    for i in block.iters:
        low, high = bound(i.value, ranges)
        if isinstance(low, int) and low > 0:
            yield loops[i.var] >= low
        if isinstance(high, int) and isinstance(i.extent, int) and high < i.extent - 1:
            yield loops[i.var] <= high
