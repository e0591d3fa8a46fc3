"""Registers of a thread: an estimate of what ptxas takes.

They are the elements that a thread holds while a phase runs, what the loads of straight code bring
meanwhile, and addresses. ptxas orders code as it likes: the estimate ranks candidates, and says
which of them spill.
"""

from __future__ import annotations

from collections import Counter
from itertools import takewhile
from typing import NamedTuple

import numpy as np

from ....base import dtypes
from ....tir.ir import Dim, Select, Var, product
from ....tir.visit import walk
from .launches import THREAD, Launch
from .patterns import straight_loops
from .spans import Dims, Floats, Shapes

BASE = 10.0
"""Registers of any kernel: its parameters, the numbers of block and thread, and temporaries."""
ADDRESS = 2.0
"""An address of global memory has 64 bits."""
FUNCTION = 6.0
"""Temporaries of an expensive function."""
MOST_LOADS = 64.0
"""Registers of loads of straight code, at most: ptxas brings no more of them forward."""
MOST_UNROLLED = 20.0
MOST_COPIED = 36.0
"""Registers of loads of iterations that nvcc unrolls by itself, at most: of sums, and of others."""
GUARDED = 3.0
MOST_GUARDED = 160.0
"""Registers of a load of a copy to shared memory that is guarded: the element, its address and the
conditions; and of all such loads of straight code, at most."""
WHOLLY = 32.0
"""Iterations of a loop that nvcc unrolls as a whole, at most."""
PARTLY = 16.0
"""Elements of a longer one that it loads together."""


class _Held(NamedTuple):
    """A buffer that threads hold from one phase to another, in registers of so many elements."""

    first: int
    last: int
    words: float
    elements: Dim


class _Loads(NamedTuple):
    """The elements that straight code of a phase loads, and the iterations nvcc may unroll."""

    words: float
    elements: Dim
    iterations: list[Dim]


class _Phase(NamedTuple):
    """What else a phase takes, how much nvcc brings together by itself, and its loads."""

    fixed: float
    most: float
    loads: list[_Loads]


class Registers:
    """The registers of a launch as a function of its evaluated dimensions."""

    def __init__(self, launch: Launch, shapes: Shapes, dims: Dims) -> None:
        self._dims = dims
        places = {id(p): n for n, p in enumerate(launch.phases)}
        self._held: list[_Held] = []
        for buffer in shapes.held():
            users = [places[id(p)] for p, _ in shapes.uses[buffer]]
            elements = shapes.elements(buffer)
            self._held.append(_Held(min(users), max(users), words(buffer.dtype), elements))
        self._phases: list[_Phase] = []
        waiting = _waiting(launch)
        for phase in launch.phases:
            straight = straight_loops(phase, shapes)
            memory = phase.in_memory()
            addresses = {(a.buffer, a.stores) for a in memory if a.scope == "global"}
            fixed = ADDRESS * len(addresses) + FUNCTION * bool(phase.visit.expensive)
            stored = {a.buffer for a in memory if a.stores}
            copies = any(a.stores and a.scope == "shared" for a in memory)
            body = phase.visit.block.body
            guarded = copies and any(type(n) is Select for n in walk(body))
            weight = GUARDED if guarded else 1.0
            loads = []
            for a in memory:
                moved = product([f.extent for f in straight if f.var in a.moving])
                if not a.stores and a.buffer not in stored:
                    inner = [f for f in reversed(phase.steps) if f not in straight]
                    again = [f.extent for f in takewhile(lambda f: f.var not in waiting, inner)]
                    loads.append(_Loads(words(a.buffer.dtype) * weight, moved, again))
            sums = any(a.stores and a.scope == THREAD for a in phase.accesses)
            most = MOST_UNROLLED if phase.visit.accumulates and sums else MOST_COPIED
            most = MOST_GUARDED if guarded else most
            self._phases.append(_Phase(fixed, most, loads))
        for held in self._held:
            dims.need(held.elements)
        for each in self._phases:
            for load in each.loads:
                dims.need(load.elements)
                for n in load.iterations:
                    dims.need(n)

    def __call__(self) -> Floats:
        """The registers of a thread, without the limit of the hardware."""
        most: Floats = np.zeros(())
        for n, phase in enumerate(self._phases):
            most = np.maximum(most, phase.fixed + self._live(n, phase))
        return most + BASE

    def _live(self, n: int, phase: _Phase) -> Floats:
        """Registers of what threads hold in a phase. What it reads last makes room for what it
        writes first."""
        d = self._dims
        resident, read, written = (np.zeros(()) for _ in range(3))
        for held in self._held:
            if held.first <= n <= held.last:
                size = held.words * d(held.elements)
                if held.first == n:
                    written = written + size
                elif held.last == n:
                    read = read + size
                else:
                    resident = resident + size
        brought, unrolled, longer = (np.zeros(()) for _ in range(3))
        for load in phase.loads:
            size = load.words * d(load.elements)
            brought = brought + size
            times: Floats = np.ones(())
            for extent in map(d, load.iterations):
                whole = times * extent <= WHOLLY
                part = np.where(whole | (times > 1), 0.0, PARTLY * load.words)
                longer = np.maximum(longer, part)
                times = np.where(whole, times * extent, times)
            unrolled = unrolled + size * times
        unrolled = np.maximum(unrolled, longer)
        room = np.maximum(MOST_LOADS - resident / 2, phase.most)
        brought = np.minimum(np.maximum(brought, np.minimum(unrolled, phase.most)), room)
        return resident + np.maximum(np.maximum(read, written), brought) + np.minimum(read, brought)


def _waiting(launch: Launch) -> set[Var]:
    """The loops around several phases that use shared memory: threads wait in them."""
    count = Counter(
        f.var
        for p in launch.phases
        if any(a.scope == "shared" for a in p.accesses)
        for f in p.steps
    )
    return {v for v, n in count.items() if n > 1}


def words(dtype: str) -> float:
    """Registers of an element; several that are narrower share one."""
    return dtypes.nbytes(dtype) / 4
