"""How often threads of a block wait for each other, as `codegen/passes/barriers.py` lets them."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import NamedTuple

import numpy as np

from ....codegen.passes.launches import THREAD_AXES
from ....tir.bounds import variables
from ....tir.ir import Binary, Buffer, Const, Dim, Expr, Op, Var
from ....tir.simplify import Simplifier
from .launches import Launch, Phase
from .spans import Floats


class Use(NamedTuple):
    """A phase with what it reads and writes of shared memory."""

    phase: Phase
    reads: frozenset[Buffer]
    writes: frozenset[Buffer]


class Place(NamedTuple):
    """A barrier in loops of the extents `around`, where the loop of extent `carried` repeats."""

    around: tuple[Dim, ...]
    carried: Dim


class _Pending(NamedTuple):
    """A use since the last barrier, and the loops of whose current iteration it is."""

    use: Use
    loops: frozenset[Var]


class Barriers:
    """The barriers of a launch.

    One stands before what uses shared memory that others have written since the last one, or writes
    what others have read. Versions of a buffer, by which an iteration of a loop writes for the next
    one, are apart. It is one of a warp where all threads of a row are in one, and each row has
    elements of its own (`apart_by_row`).
    """

    def __init__(self, launch: Launch) -> None:
        self._places: list[Place] = []
        uses = list(map(_use, launch.phases))
        shared = {b for u in uses for b in u.reads | u.writes}
        self.apart_by_row = bool(shared) and all(_of_rows(b, launch) for b in shared)
        self._visit([u for u in uses if u.reads | u.writes], 0, (), [], 2)

    def extents(self) -> list[Dim]:
        """The dimensions that the number depends on."""
        return [n for place in self._places for n in (*place.around, place.carried)]

    def __call__(self, value: Callable[[Dim], Floats]) -> Floats:
        """How often a block waits, by the values of these dimensions."""
        total: Floats = np.zeros(())
        for place in self._places:
            once: Floats = np.ones(())
            for n in place.around:
                once = once * value(n)
            total = total + once * np.where(value(place.carried) > 1, 1.0, 0.0)
        return total

    def _visit(
        self,
        uses: Sequence[Use],
        depth: int,
        around: tuple[Dim, ...],
        pending: list[_Pending],
        carried: Dim,
    ) -> list[_Pending]:
        """Place barriers in phases that have loops down to a depth in common.

        Returns the uses that come after the last one.
        """
        n = 0
        while n < len(uses):
            steps = uses[n].phase.steps
            if len(steps) <= depth:
                pending = self._wait(uses[n], around, pending, carried)
                n += 1
                continue
            loop = steps[depth]
            inner = [uses[n]]
            while n + len(inner) < len(uses):
                other = uses[n + len(inner)].phase.steps
                if len(other) <= depth or other[depth].var is not loop.var:
                    break
                inner.append(uses[n + len(inner)])
            n += len(inner)
            if not any(_conflict(a, b) for a in inner for b in inner):
                for use in inner:
                    pending = self._wait(use, around, pending, carried)
                continue
            inside = (*around, loop.extent)
            before = len(self._places)
            waiting = self._visit(inner[:1], depth + 1, inside, pending, carried)
            at_first = len(self._places) > before
            pending = self._visit(inner[1:], depth + 1, inside, waiting, carried)
            pending = [_Pending(p.use, p.loops - {loop.var}) for p in pending]
            if len(self._places) > before and not at_first:
                # The first phase of an iteration waits for the last ones of the iteration before.
                self._visit(inner[:1], depth + 1, inside, pending, loop.extent)
        return pending

    def _wait(
        self, use: Use, around: tuple[Dim, ...], pending: list[_Pending], carried: Dim
    ) -> list[_Pending]:
        if any(_conflict(before.use, use, before.loops) for before in pending):
            self._places.append(Place(around, carried))
            pending = []
        return [*pending, _Pending(use, frozenset(f.var for f in use.phase.steps))]


def _use(phase: Phase) -> Use:
    shared = [a for a in phase.accesses if a.scope == "shared"]
    return Use(
        phase,
        frozenset(a.buffer for a in shared if not a.stores),
        frozenset(a.buffer for a in shared if a.stores),
    )


def _conflict(a: Use, b: Use, loops: Set[Var] = frozenset()) -> bool:
    """Whether one of two phases writes shared memory that the other uses.

    Both are in the same iteration of `loops`.
    """
    if a is b:
        return False
    common = a.writes & (b.reads | b.writes) | a.reads & b.writes
    return any(not _other_version(buffer, a.phase, b.phase, loops) for buffer in common)


def _other_version(buffer: Buffer, a: Phase, b: Phase, loops: Set[Var]) -> bool:
    """Whether phases use different versions of a buffer in the same iteration of `loops`."""
    return all(
        any(
            _differ(i, j, size, loops)
            for i, j, size in zip(x.indices, y.indices, buffer.shape, strict=True)
        )
        for x in a.accesses
        for y in b.accesses
        if x.buffer is buffer and y.buffer is buffer
    )


def _differ(i: Expr, j: Expr, size: Dim, loops: Set[Var]) -> bool:
    """Whether indices of a dimension by these loops alone are known to differ.

    Indices are below the size. Modulo it, they are what they are remainders of: where a loop turns
    out to have few iterations, one of them is known to be no remainder, and the other may not be.
    """
    if not isinstance(size, int) or not variables(i) | variables(j) <= loops:
        return False
    distance = Simplifier({})(_dividend(i, size) - _dividend(j, size))
    return type(distance) is Const and int(distance.value) % size != 0


def _dividend(index: Expr, size: int) -> Expr:
    """What an index is the remainder of for a divisor; else the index itself."""
    if type(index) is Binary and index.op is Op.MOD and type(index.b) is Const:
        return index.a if index.b.value == size else index
    return index


def _of_rows(buffer: Buffer, launch: Launch) -> bool:
    """Whether each place along threadIdx.y has elements of a buffer of its own."""
    dims = set(range(len(buffer.shape)))
    for p in launch.phases:
        threads = {f.var for axis, f in p.axes.items() if axis in THREAD_AXES}
        row = p.axes.get("threadIdx.y")
        for a in p.accesses:
            if a.buffer is buffer:
                dims &= {
                    d
                    for d, i in enumerate(a.indices)
                    if row is not None and variables(i) & threads == {row.var}
                }
    return bool(dims)
