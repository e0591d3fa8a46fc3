"""The launches of a profile: their phases, and where what these access lies.

What lowering does with a program is repeated here as far as counts depend on it: which launch a
block is in, which threads run it, and what threads hold after `codegen/passes/collectives.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ....codegen.passes.launches import AXES, THREAD_AXES
from ....codegen.passes.owned import THREAD_SCOPES
from ....schedule.block_queries import region_buffers
from ....tir.bounds import variables
from ....tir.ir import Buffer, Dim, Expr, For, ForKind, Load, Store, Var
from ....tir.structure import key_of
from ....tir.visit import substitute, walk
from ..profile import Profile, Visit

THREAD = "thread"
"""The scope of what a thread holds."""
ROW = "threadIdx.x"
"""The axis along which threads combine what they hold in part."""


@dataclass(frozen=True)
class Access:
    """A buffer access by a phase, `times` of them at each iteration.

    `indices` are of the phase's loops. One that is `first` is at the first iteration of the loops
    that reduce. `scope` is `global`, `shared` or `thread`.
    """

    buffer: Buffer
    stores: bool
    indices: tuple[Expr, ...]
    scope: str
    times: int = 1
    first: bool = False

    @cached_property
    def moving(self) -> frozenset[Var]:
        """The variables in the indices."""
        return frozenset(v for i in self.indices for v in variables(i))


@dataclass(frozen=True)
class Phase:
    """A block in the loops of its visit, and what it accesses.

    The threads of a row run it as a `collective`: they combine what each of them holds. What it
    loads `ahead` from global memory is on its way while another phase runs.
    """

    visit: Visit
    accesses: tuple[Access, ...]
    collective: bool = False
    replicated: bool = False
    ahead: bool = False

    @cached_property
    def loops(self) -> tuple[For, ...]:
        """Those around the block, and those in it."""
        return (*self.visit.loops, *(n for n in walk(self.visit.block.body) if type(n) is For))

    @property
    def axes(self) -> dict[str, For]:
        """The loops over axes of the device."""
        return {f.thread: f for f in self.loops if f.thread is not None}

    @property
    def steps(self) -> list[For]:
        """The loops that a thread runs itself, from outside, vectors left out."""
        return [f for f in self.loops if f.kind not in (ForKind.THREAD, ForKind.VECTOR)]

    @property
    def vector(self) -> For | None:
        return next((f for f in self.loops if f.kind is ForKind.VECTOR), None)

    @property
    def reducing(self) -> set[Var]:
        """The variables of loops that reduce."""
        visit = self.visit
        return {f.var for f, r in zip(self.loops, visit.reduces, strict=False) if r}

    def in_memory(self) -> list[Access]:
        return [a for a in self.accesses if a.scope != THREAD]


@dataclass(frozen=True)
class Launch:
    """Phases in order, and the extents of the axes."""

    phases: tuple[Phase, ...]
    extents: Mapping[str, Dim]

    @property
    def threads(self) -> tuple[Dim, Dim, Dim]:
        """The extents in x, y and z."""
        x, y, z = (self.extents[f"threadIdx.{axis}"] for axis in "xyz")
        return x, y, z

    @property
    def blocks(self) -> list[Dim]:
        return [n for axis, n in self.extents.items() if axis not in THREAD_AXES]


def is_one(n: Dim) -> bool:
    """Whether a dimension is known to be 1."""
    return isinstance(n, int) and n == 1


def launches_of(source: Profile) -> list[Launch]:
    """The launches of a profile, in order: what is in one outermost loop."""
    nests = source.nests.values()
    params = _outside(source.visits)
    users = Counter(b for visits in nests for b in {b for v in visits for b in _used(v)})
    return [_launch(visits, params, users) for visits in nests]


def _outside(visits: Sequence[Visit]) -> set[Buffer]:
    """The buffers that are not written before they are read: parameters."""
    written = {b for v in visits for b in region_buffers(v.block.writes)}
    return {b for v in visits for b in _used(v)} - written


def _used(visit: Visit) -> set[Buffer]:
    return region_buffers((*visit.block.reads, *visit.block.writes))


def _launch(visits: Sequence[Visit], inputs: set[Buffer], users: Mapping[Buffer, int]) -> Launch:
    extents: dict[str, Dim] = dict.fromkeys(AXES, 1)
    for visit in visits:
        extents |= {f.thread: f.extent for f in visit.loops if f.thread is not None}
    phases = [Phase(v, _accesses(v)) for v in visits]
    if not is_one(extents[ROW]):
        phases = _collected(phases, inputs, users)
    phases = [replace(p, ahead=_loads_ahead(n, phases)) for n, p in enumerate(phases)]
    return Launch(tuple(phases), extents)


def _loads_ahead(n: int, phases: Sequence[Phase]) -> bool:
    """Whether a phase loads from global memory what threads hold while one from shared memory runs.

    That one stands before what uses it first.
    """
    held = {a.buffer for a in phases[n].accesses if a.stores and a.scope == THREAD}
    if not held or not any(a.scope == "global" for a in phases[n].accesses):
        return False
    for p in phases[n + 1 :]:
        loads = [a for a in p.accesses if not a.stores]
        if any(a.buffer in held for a in loads):
            return False
        if any(a.scope == "shared" for a in loads):
            return True
    return False


def _accesses(visit: Visit) -> tuple[Access, ...]:
    """The accesses of a block, equal ones once, and those of its init."""
    block = visit.block
    values = {i.var: i.value for i in block.iters}
    accesses: dict[object, Access] = {}
    for n in walk(block.body):
        if not isinstance(n, Load | Store):
            continue
        key = (type(n), n.buffer, *map(key_of, n.indices))
        known = accesses.get(key)
        if known is None:
            indices = tuple(substitute(i, values) for i in n.indices)
            accesses[key] = Access(n.buffer, type(n) is Store, indices, _scope(n.buffer))
        else:
            accesses[key] = replace(known, times=known.times + 1)
    if block.init is not None:
        for n in walk(block.init):
            if type(n) is Store:
                indices = tuple(substitute(i, values) for i in n.indices)
                accesses[n] = Access(n.buffer, True, indices, _scope(n.buffer), first=True)
    return tuple(accesses.values())


def _scope(buffer: Buffer) -> str:
    return THREAD if buffer.scope in THREAD_SCOPES else buffer.scope


def _collected(
    phases: Sequence[Phase], inputs: set[Buffer], users: Mapping[Buffer, int]
) -> list[Phase]:
    """The phases of rows whose threads combine what they hold in part."""
    held: set[Buffer] = set()
    collectives: set[int] = set()
    for n, phase in enumerate(phases):
        parts = _parts(phase, phases[:n])
        if parts is not None and users[parts] == 1:
            collectives.add(n)
            held.add(parts)
    if not collectives:
        return list(phases)
    replicated: set[int] = set()
    for n, phase in enumerate(phases):
        if ROW in phase.axes:
            continue
        (written,) = region_buffers(phase.visit.block.writes) or (None,)
        reads = {a.buffer for a in phase.accesses if not a.stores}
        known = all(b in held or b in inputs or b.scope in THREAD_SCOPES for b in reads - {written})
        if known and written is not None and users[written] == 1 and _is_internal(written, phases):
            held.add(written)
            replicated.add(n)
    return [
        replace(
            p,
            accesses=tuple(replace(a, scope=THREAD) if a.buffer in held else a for a in p.accesses),
            collective=n in collectives,
            replicated=n in replicated,
        )
        for n, p in enumerate(phases)
    ]


def _is_internal(buffer: Buffer, phases: Sequence[Phase]) -> bool:
    """Whether a launch reads what it writes there: it is no output."""
    return buffer.scope != "global" or any(
        a.buffer is buffer and not a.stores and buffer not in region_buffers(p.visit.block.writes)
        for p in phases
        for a in p.accesses
    )


def _parts(phase: Phase, before: Sequence[Phase]) -> Buffer | None:
    """What the threads of a row hold in part, where the phase combines it by one thread."""
    reduced = phase.reducing
    if ROW in phase.axes or len(reduced) != 1 or not phase.visit.accumulates:
        return None
    written = region_buffers(phase.visit.block.writes)
    reads = [a for a in phase.accesses if not a.stores and a.buffer not in written]
    if len(reads) != 1 or reads[0].buffer.scope in THREAD_SCOPES:
        return None
    (read,), (var,) = reads, reduced
    places = [i for i in read.indices if var in variables(i)]
    makers = [p for p in before if read.buffer in region_buffers(p.visit.block.writes)]
    if len(places) != 1 or places[0] is not var or not makers:
        return None
    return read.buffer if all(ROW in p.axes for p in makers) else None
