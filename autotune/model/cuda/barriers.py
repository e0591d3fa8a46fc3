"""How often threads of a block wait for each other, as `codegen/passes/barriers.py` lets them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ....codegen.passes.launches import THREAD_AXES
from ....tir.ir import Buffer, Dim
from ....tir.windows import variables
from .dims import Floats
from .launches import Launch, Phase


class Use(NamedTuple):
    """A phase with what it reads and writes of shared memory."""

    phase: Phase
    reads: frozenset[Buffer]
    writes: frozenset[Buffer]


class Place(NamedTuple):
    """A barrier in loops of the extents `around`, where the loop of extent `carried` repeats."""

    around: tuple[Dim, ...]
    carried: Dim


class Barriers:
    """The barriers of a launch.

    One stands before what uses shared memory that others have written since the last one, or writes
    what others have read. It is one of a warp where all threads of a row are in one, and each row
    has elements of its own (`apart_by_row`).
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
        pending: list[Use],
        carried: Dim,
    ) -> list[Use]:
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
            pending = self._visit(inner, depth + 1, inside, pending, carried)
            if len(self._places) > before:
                # The first phase of an iteration waits for the last ones of the iteration before.
                self._visit(inner[:1], depth + 1, inside, pending, loop.extent)
        return pending

    def _wait(
        self, use: Use, around: tuple[Dim, ...], pending: list[Use], carried: Dim
    ) -> list[Use]:
        if any(_conflict(before, use) for before in pending):
            self._places.append(Place(around, carried))
            pending = []
        return [*pending, use]


def _use(phase: Phase) -> Use:
    shared = [a for a in phase.accesses if a.scope == "shared"]
    return Use(
        phase,
        frozenset(a.buffer for a in shared if not a.stores),
        frozenset(a.buffer for a in shared if a.stores),
    )


def _conflict(a: Use, b: Use) -> bool:
    """Whether one of two phases writes shared memory that the other uses."""
    return a is not b and bool(a.writes & (b.reads | b.writes) or a.reads & b.writes)


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
