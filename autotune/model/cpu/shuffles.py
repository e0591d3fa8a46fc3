"""Shuffles that bring the lanes of a vector together from the registers that they are in."""

from __future__ import annotations

from collections.abc import Sequence

from ....codegen.passes.registers import SCOPE, Home, shuffles
from ....tir.ir import Buffer, Dim, ForKind
from ..profile import StridedAccess, Visit


def shuffles_of(visits: Sequence[Visit]) -> list[float]:
    """For each visit those of one vector of what it reads across vectors in registers."""
    held: dict[Buffer, tuple[Visit, StridedAccess]] = {}
    for v in visits:
        for a in v.accesses:
            if a.stores and a.buffer.scope == SCOPE:
                held.setdefault(a.buffer, (v, a))
    reads = [[a for a in v.accesses if not a.stores and a.buffer in held] for v in visits]
    return [
        sum(_shuffles(v, a, *held[a.buffer]) for a in accesses)
        for v, accesses in zip(visits, reads, strict=True)
    ]


def _shuffles(reader: Visit, load: StridedAccess, writer: Visit, store: StridedAccess) -> float:
    """Those of the first vector of a load, which the others are like."""
    wanted, stored, row = _lanes(reader, load), _lanes(writer, store), store.sizes[-1]
    lanes = len(stored)
    if lanes < 2 or stored != tuple(range(lanes)) or not isinstance(row, int) or len(wanted) < 2:
        return 0.0
    home: Home = {}
    for element in wanted:
        lane = element % row % lanes
        first = element - lane
        home[element] = range(first, first + lanes), lane
    return shuffles(wanted, home, load.buffer.dtype)


def _lanes(visit: Visit, access: StridedAccess) -> tuple[int, ...]:
    """The offsets of the lanes of a vector, the first of an access; none if they are not known."""
    along = {n for n, kind in enumerate(visit.kinds) if kind is ForKind.VECTOR}
    moving = {t.loop for terms in access.terms for t in terms} & along
    if len(moving) != 1:
        return ()
    (loop,) = moving
    lanes = visit.extents[loop]
    if not isinstance(lanes, int):
        return ()
    offsets = [0] * lanes
    size: Dim = 1
    for extent, terms in zip(reversed(access.sizes), reversed(access.terms), strict=True):
        for t in terms:
            if t.loop == loop:
                match t.step, t.values, t.period, size:
                    case int(step), int(values), int(period), int(row):
                        offsets = [
                            offset + lane // period % values * step * row
                            for lane, offset in enumerate(offsets)
                        ]
                    case _:
                        return ()
        size = size * extent
    return tuple(offsets)
