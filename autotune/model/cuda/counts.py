"""Counts of what launches ask of the hardware, for rows of decisions.

For whole tiles they are those that the emulator counts (`codegen/cuda/emulate_memory.py`). Of
tiles that are partly outside of an array the share is taken that is inside.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import takewhile

import numpy as np

from ....base import dtypes
from ....codegen.passes.launches import THREAD_AXES
from ....target.cuda import SECTOR_BYTES, WARP
from ....tir.bounds import variables
from ....tir.ir import (
    Binary,
    Buffer,
    Call,
    Cast,
    Const,
    Dim,
    Expr,
    For,
    ForKind,
    Load,
    Op,
    Stmt,
    Var,
    as_dim,
    as_expr,
    product,
)
from ....tir.piecewise import linear
from ....tir.structure import conjuncts, key_of
from ....tir.visit import substitute, walk
from ...rules.access_patterns import EXPENSIVE
from ..profile import Ints, Profile
from .barriers import Barriers
from .launches import Access, Launch, Phase, is_one, launches_of
from .patterns import Pattern, PhasePatterns, straight_loops
from .spans import Dims, Floats, Shapes, at_zero, least, most, span


@dataclass
class Counts:
    """What a launch asks for, by all its blocks; numbers of each row.

    `requests`, `shuffles` and `warp_barriers` are by warps, `barriers` by blocks, and operations by
    threads: those on floats, and the expensive functions among them.
    """

    global_requests: Floats
    sectors_read: Floats
    sectors_written: Floats
    shared_requests: Floats
    wavefronts: Floats
    shuffles: Floats
    barriers: Floats
    warp_barriers: Floats
    operations: Floats
    expensive: Floats


@dataclass
class AccessCounts:
    """Of an access of memory in a block: how often its threads get to it, and how often they have
    to, where straight code keeps what it has loaded; the bytes that it touches in all. A sum that
    is `held` in a register meanwhile is loaded and stored once."""

    pattern: Pattern
    visits: Floats
    loads: Floats
    footprint: Floats
    held: bool


@dataclass
class PhaseCounts:
    """Of a phase in a block: its iterations, and those of straight code; what it accesses.

    `threads` run it, a `share` of the iterations. Straight code has so many `independent` chains of
    operations. Loops in which threads wait for others have `around` iterations. `operations` are
    those of an iteration, and the expensive functions among them; what is the same in all
    iterations is computed once.
    """

    phase: Phase
    threads: Floats
    visits: Floats
    straight: Floats
    independent: Floats
    share: Floats
    around: Floats
    operations: tuple[Floats, Floats]
    accesses: list[AccessCounts] = field(default_factory=list)


@dataclass
class LaunchCounts:
    """A launch: `blocks` of `threads`, the counts of all, those of each phase in a block, and the
    sizes of the arrays in global memory."""

    blocks: Floats
    threads: Floats
    shared_bytes: Floats
    counts: Counts
    phases: list[PhaseCounts]
    array_bytes: dict[Buffer, Floats]


def count(source: Profile, rows: Ints) -> list[LaunchCounts]:
    """The counts of each launch of a profile for rows (rows, variables)."""
    bounds = dict(source.bounds)
    dims = Dims(bounds)
    counters = [LaunchCounter(launch, bounds, dims) for launch in launches_of(source)]
    dims.evaluate(rows)
    return [counter(rows) for counter in counters]


class LaunchCounter:
    """The counts of a launch as a function of rows."""

    def __init__(self, launch: Launch, bounds: dict[Var, tuple[int, int]], dims: Dims) -> None:
        self.launch, self.dims = launch, dims
        self.shapes = Shapes(launch)
        self.phases = [_PhaseCounter(p, self.shapes, bounds, dims) for p in launch.phases]
        self.barriers = Barriers(launch)
        self.shared = {b: self.shapes.bytes(b) for b in self.shapes.shared()}
        self.arrays = {
            a.buffer: product(a.buffer.shape) * dtypes.nbytes(a.buffer.dtype)
            for phase in launch.phases
            for a in phase.in_memory()
            if a.scope == "global"
        }
        for dim in self.arrays.values():
            dims.need(dim)
        for dim in (*launch.extents.values(), *self.shared.values(), *self.barriers.extents()):
            dims.need(dim)

    def __call__(self, rows: Ints) -> LaunchCounts:
        """The counts for rows, whose dimensions are evaluated."""
        d = self.dims
        blocks = _product(d(n) for n in self.launch.blocks)
        x, y, z = map(d, self.launch.threads)
        threads = x * y * z
        warps = np.ceil(threads / WARP)
        counts = Counts(*([np.zeros(len(rows))] * len(Counts.__dataclass_fields__)))
        phases = [counter(rows) for counter in self.phases]
        shared = self._shared_bytes(phases, x, y * z)
        in_warp = np.where((x <= WARP) & ((y * z == 1) | self.barriers.apart_by_row), 1.0, 0.0)
        waits = self.barriers(d)
        counts.barriers = counts.barriers + waits * (1 - in_warp) * blocks
        counts.warp_barriers = counts.warp_barriers + waits * in_warp * warps * blocks
        for counter, phase in zip(self.phases, phases, strict=True):
            every = _product(d(n) for n in counter.blocks)
            for a in phase.accesses:
                _add(counts, a, every * phase.share)
            done = phase.visits * phase.threads * every * phase.share
            if counter.phase.collective:
                self._combine(counts, phase, x, threads, every)
            else:
                counts.operations = counts.operations + counter.operations * done
            counts.expensive = counts.expensive + counter.expensive * done
        zero = np.zeros(len(rows))
        sizes = {b: d(n) for b, n in self.arrays.items()}
        return LaunchCounts(blocks + zero, threads + zero, shared + zero, counts, phases, sizes)

    def _combine(
        self, counts: Counts, phase: PhaseCounts, x: Floats, threads: Floats, blocks: Floats
    ) -> None:
        """Add what the threads of rows do to combine what they hold in part."""
        times = phase.visits * blocks
        warps = np.ceil(threads / WARP)
        steps = np.ceil(np.log2(np.minimum(x, WARP)))
        several = np.where(x > WARP, np.ceil(x / WARP), 0.0)
        counts.shuffles = counts.shuffles + steps * warps * times
        combined = steps + np.maximum(several - 1, 0)
        counts.operations = counts.operations + combined * threads * times
        requests = np.where(several > 0, 1 + several, 0.0) * warps * times
        counts.shared_requests = counts.shared_requests + requests
        counts.wavefronts = counts.wavefronts + requests
        counts.barriers = counts.barriers + np.where(several > 0, times, 0.0)

    def _shared_bytes(self, phases: list[PhaseCounts], x: Floats, rows: Floats) -> Floats:
        """The shared memory of a block: what is live at once, where that is much."""
        sizes = {b: self.dims(n) for b, n in self.shared.items()}
        total: Floats = np.zeros(())
        for size in sizes.values():
            total = total + size
        for p in phases:
            if p.phase.collective:
                several = np.ceil(x / WARP) * rows * 4
                total = total + np.where(x > WARP, np.ceil(several / 16) * 16, 0.0)
        if len(sizes) < 2:
            return total
        tops = [statement_of(p) for p in self.launch.phases]
        order = {top: n for n, top in enumerate(dict.fromkeys(tops))}
        live = {b: [order[statement_of(p)] for p, _ in self.shapes.uses[b]] for b in sizes}
        peak: Floats = np.zeros(())
        for n in order.values():
            here = [size for b, size in sizes.items() if min(live[b]) <= n <= max(live[b])]
            peak = np.maximum(peak, sum(here, np.zeros(())))
        return np.where(total > PLENTY, np.minimum(peak, total), total)


PLENTY = 8 << 10
"""Bytes up to which shared buffers never have bytes in common, as in `passes/arena.py`."""


class _PhaseCounter:
    """The counts of a phase as a function of rows."""

    def __init__(
        self, phase: Phase, shapes: Shapes, bounds: dict[Var, tuple[int, int]], dims: Dims
    ) -> None:
        self.phase, self.dims = phase, dims
        self.patterns = PhasePatterns(phase, shapes, bounds)
        block = phase.visit.block
        self.blocks = [f.extent for axis, f in phase.axes.items() if axis.startswith("block")]
        self.operations, self.expensive = operations_of(block.body)
        reducing = phase.reducing
        straight = straight_loops(phase, shapes)
        self.shares = list(_shares(phase))
        self.guards = len(conjuncts(block.predicate))
        self._visits = _times(phase, reducing if phase.collective else ())
        self._straight = product([f.extent for f in straight])
        self._independent = product([f.extent for f in straight if f.var not in reducing])
        several = _of_several(phase, shapes.launch)
        steps = {
            f.var for f in (*phase.steps, phase.vector) if f is not None and not is_one(f.extent)
        }
        self._moving, self._fixed = computed_of(phase, steps - several)
        self._around = product([f.extent for f in phase.steps if f.var in several])
        self._accesses = []
        for a in self.patterns.accesses:
            out = reducing if a.first or phase.collective else set()
            again = {f.var for f in straight if f.var not in a.moving}
            held = _held(phase, a, shapes.launch)
            self._accesses.append(
                (
                    _times(phase, out),
                    _times(phase, out | again | held),
                    _footprint(a, phase, bounds.keys()),
                    bool(held),
                )
            )
        self._lanes: Dim = 1 if phase.vector is None else phase.vector.extent
        dimensions = (self._visits, self._straight, self._independent, self._lanes, self._around)
        for dim in (*self.blocks, *dimensions):
            dims.need(dim)
        for every, kept, footprint, _ in self._accesses:
            for dim in (every, kept, *footprint):
                dims.need(dim)
        for share in self.shares:
            for dim in share:
                dims.need(dim)

    def __call__(self, rows: Ints) -> PhaseCounts:
        d = self.dims
        share: Floats = np.ones(len(rows))
        whole = np.full(len(rows), self.guards == len(self.shares))
        for bound, top, outer in self.shares:
            # Where the threads reach beyond by themselves, those that do so are left out already.
            fits = d(top) - d(outer) < d(bound)
            whole &= fits
            reach = np.where(fits, d(top), d(outer)) + 1
            inside = np.minimum(d(bound) / np.maximum(reach, 1), 1.0)
            share = share * np.where(d(outer) > 0, inside, 1.0)
        patterns = self.patterns(rows, whole)
        accesses = []
        for pattern, (every, kept, spans, held) in zip(
            patterns.accesses, self._accesses, strict=True
        ):
            size = dtypes.nbytes(pattern.access.buffer.dtype)
            touched = _bytes([d(n) for n in spans], size)
            accesses.append(AccessCounts(pattern, d(every), d(kept), touched, held))
        visits = d(self._visits) * d(self._lanes)
        once = d(self._around) / np.maximum(visits, 1.0)
        operations, functions = (
            moving + fixed * once for moving, fixed in zip(self._moving, self._fixed, strict=True)
        )
        return PhaseCounts(
            self.phase,
            patterns.threads,
            visits,
            d(self._straight),
            d(self._independent),
            share,
            d(self._around),
            (operations, functions),
            accesses,
        )


def _add(counts: Counts, a: AccessCounts, blocks: Floats) -> None:
    access = a.pattern.access
    times = a.visits * blocks * access.times
    requests, transactions = a.pattern.requests * times, a.pattern.transactions * times
    if access.scope == "shared":
        counts.shared_requests = counts.shared_requests + requests
        counts.wavefronts = counts.wavefronts + transactions
        return
    counts.global_requests = counts.global_requests + requests
    if access.stores:
        counts.sectors_written = counts.sectors_written + transactions
    else:
        counts.sectors_read = counts.sectors_read + transactions


def _times(phase: Phase, out: Collection[Var]) -> Dim:
    """The iterations of the loops that a thread runs, but for those `out` of the count."""
    return product([f.extent for f in phase.steps if f.var not in out])


def _of_several(phase: Phase, launch: Launch) -> set[Var]:
    """The loops of a phase that others of its launch are in, too, which use shared memory: threads
    wait in them."""
    others = [
        p for p in launch.phases if p is not phase and any(a.scope == "shared" for a in p.accesses)
    ]
    return {f.var for p in others for f in p.steps}


def _held(phase: Phase, access: Access, launch: Launch) -> set[Var]:
    """The loops of a sum in memory during which the compiler holds it in a register.

    They are the innermost ones, which do not move it and in which no thread waits. Nothing else
    that the phase uses may be in the same shared memory, for all the compiler knows.
    """
    if not phase.visit.accumulates or phase.collective:
        return set()
    uses = [a for a in phase.accesses if a.buffer is access.buffer]
    others = [a for a in phase.in_memory() if a.buffer is not access.buffer]
    if not any(a.stores for a in uses) or any(a.scope == access.scope == "shared" for a in others):
        return set()
    around = _of_several(phase, launch)
    return {
        f.var
        for f in takewhile(
            lambda f: f.var not in access.moving and f.var not in around, reversed(phase.steps)
        )
    }


def _footprint(access: Access, phase: Phase, decisions: AbstractSet[Var]) -> tuple[Dim, ...]:
    """The elements that a block touches of an array along each of its dimensions."""
    blocks = [f for f in phase.loops if f.thread is not None and f.thread.startswith("block")]
    loops = {f.var: f.extent for f in phase.loops if f not in set(blocks)}
    extents = []
    for i, n in zip(access.indices, access.buffer.shape, strict=True):
        of_loops = variables(i) <= decisions | {f.var for f in phase.loops}
        reach = span(at_zero(i, blocks), loops) if of_loops else None
        extents.append(n if reach is None else least(most(reach[1] - reach[0] + 1, 1), n))
    return tuple(extents) or (1,)


def _shares(phase: Phase) -> Iterable[tuple[Dim, Dim, Dim]]:
    """Of the guards of a phase: the bound, the most that is compared, and the most of it that
    loops around the threads add, where the other guards hold.

    Which of several guards follow from the others depends on the decisions: those that do ask for
    nothing.
    """
    lanes = [f for f in phase.loops if f.kind is ForKind.VECTOR or f.thread in THREAD_AXES]
    loops = {f.var: f.extent for f in phase.loops}
    guards = [
        g
        for g in conjuncts(phase.visit.block.predicate)
        if type(g) is Binary and g.op is Op.LT and not variables(g.b) & loops.keys()
    ]
    last = {id(g): _last(g, phase.loops) for g in guards}
    for guard in guards:
        others = [last[id(g)] for g in guards if g is not guard]
        ends: dict[Var, Expr] = {v: e for found in others for v, e in found.items()}
        value = span(substitute(guard.a, ends), loops)
        outer = span(substitute(at_zero(guard.a, lanes), ends), loops)
        if value is not None and outer is not None:
            yield guard.b, value[1], outer[1]


def _last(guard: Binary, loops: Sequence[For]) -> dict[Var, Expr]:
    """The last iterations of loops for which a guard holds, where it counts these iterations.

    It does if they are known to begin at 0: of the part that is left of a loop, say, they begin
    where the decisions say.
    """
    counters = [f for f in loops if f.var in variables(guard.a)]
    counted = linear(guard.a, [f.var for f in counters])
    if counted is None or not _is_zero(counted.constant):
        return {}
    ends: dict[Var, Expr] = {}
    rest = as_dim(guard.b) - 1
    for f in counters:
        step = counted.coefficients[f.var]
        at = least(rest // step, f.extent - 1)
        ends[f.var], rest = as_expr(at), rest - at * step
    return ends


def _is_zero(expr: Expr) -> bool:
    return type(expr) is Const and expr.value == 0


def operations_of(body: Stmt) -> tuple[int, int]:
    """The operations on floats of an iteration, and the expensive functions among them."""
    operations = [n for n in map(_operation, walk(body)) if n is not None]
    return len(operations), sum(operations)


def computed_of(phase: Phase, loops: AbstractSet[Var]) -> tuple[tuple[int, int], tuple[int, int]]:
    """The same of what `loops` move, and of what is the same in all their iterations.

    The compiler computes equal expressions once.
    """
    block = phase.visit.block
    moving = {i.var for i in block.iters if variables(i.value) & loops} | loops
    written = {a.buffer for a in phase.accesses if a.stores}
    known: set[object] = set()
    moved, fixed = list[bool](), list[bool]()
    for n in walk(block.body):
        operation = _operation(n)
        if operation is None or (key := key_of(n)) in known:
            continue
        known.add(key)
        stays = variables(n).isdisjoint(moving) and not any(
            type(m) is Load and m.buffer in written for m in walk(n)
        )
        (fixed if stays else moved).append(operation)
    return (len(moved), sum(moved)), (len(fixed), sum(fixed))


def _operation(n: object) -> bool | None:
    """Whether an operation on floats is an expensive function; `None` for what is none."""
    match n:
        case Binary(a=a) if dtypes.is_float(a.dtype):
            return n.op is Op.DIV
        case Cast(dtype=dtype) if dtypes.is_float(dtype):
            return False
        case Call(fn=fn, dtype=dtype) if dtypes.is_float(dtype):
            return fn in EXPENSIVE
        case _:
            return None


def _product(numbers: Iterable[Floats]) -> Floats:
    result: Floats = np.ones(())
    for n in numbers:
        result = result * n
    return result


def _bytes(extents: Sequence[Floats], element_bytes: int) -> Floats:
    """The bytes of a part of an array, whose rows are whole sectors."""
    *outer, last = extents
    return _product(outer) * np.maximum(last * element_bytes, SECTOR_BYTES)


def statement_of(phase: Phase) -> object:
    """The statement of a thread's code that a phase is in, outermost."""
    return next((f.var for f in phase.loops if f.kind is not ForKind.THREAD), phase.visit.block)
