"""Buffers in several versions, one for each loop iteration in flight."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace as _replace
from functools import partial
from typing import NamedTuple

from ..tir.bounds import bound, prove
from ..tir.ir import (
    Block,
    Buffer,
    Dim,
    Expr,
    For,
    Iter,
    IterKind,
    Range,
    Stmt,
    Var,
    as_expr,
)
from ..tir.piecewise import linear
from ..tir.simplify import Simplifier
from ..tir.visit import nested, substitute
from .block_queries import Ranges, feeding, free_vars, loop_ranges, region_buffers
from .find import with_children
from .places import block_redirected
from .require import certain, require


class Versions(NamedTuple):
    """A buffer with as many versions of what one iteration writes as are alive at once.

    There are `live` of them. The index of dimension d is `scales[d]` times the iteration and
    `starts[d]` less than before.
    """

    buffer: Buffer
    live: int
    scales: tuple[Dim, ...]
    starts: tuple[Dim, ...]


def versions_of(
    buffer: Buffer, count: int, box: Sequence[Range], loop: For, ranges: Ranges
) -> Versions:
    """`count` versions of what one iteration of `loop`, `box`, has of `buffer`.

    `ranges` are those of `loop` and the loops around it. Raises `ScheduleError` if the buffer
    cannot be indexed by the iteration.
    """
    require(
        buffer.scope != "register",
        "{0} is held in registers, whose indices must be constant; {1} versions are indexed by "
        "the iteration",
        buffer.name,
        count,
        at=loop.var,
        hint="use the scope local",
    )
    require(
        buffer.strides is None,
        "{0} has strides of its own; it cannot get {1} versions",
        buffer.name,
        count,
        at=loop.var,
        hint="leave its strides to storage_align",
    )
    shape: list[Dim] = [count]
    scales: list[Dim] = []
    starts: list[Dim] = []
    for r, size in zip(box, buffer.shape, strict=True):
        scale, start, extent = _window(r, size, loop.var, ranges)
        shape.append(extent)
        scales.append(scale)
        starts.append(start)
    align = tuple((axis + 1, factor, offset) for axis, factor, offset in buffer.align)
    swizzle = buffer.swizzle
    if swizzle is not None:
        swizzle = (swizzle[0] + 1, swizzle[1] + 1, *swizzle[2:])
    name = f"{buffer.name}_stages"
    new = _replace(buffer, name=name, shape=tuple(shape), align=align, swizzle=swizzle)
    return Versions(new, count, tuple(scales), tuple(starts))


def _window(r: Range, size: Dim, loop: Var, ranges: Ranges) -> tuple[Dim, Dim, Dim]:
    """How the range `r` of a dimension moves with `loop`, where it starts, and its extent.

    A range that depends on loops outside stays where it is, and one that does not move evenly too.
    """
    parts = linear(r.min, (loop,), ranges)
    if parts is None or loop in free_vars(parts.constant):
        return 0, 0, size
    scale = parts.coefficients.get(loop, 0)
    low, high = bound(parts.constant, ranges)
    if low is None or high is None or not certain(low >= 0):
        return 0, 0, size
    start = low if certain(as_expr(low) == as_expr(high)) else 0
    extent = high - start + r.extent
    if certain(extent >= size) or certain(extent < 0):  # below zero where loops are empty
        return 0, 0, size
    return scale, start, extent


class Turn(NamedTuple):
    """The iterations of `loop` that a copy of a statement works on: `extent` from `first` on.

    `var` counts them, from zero on; where it is `None` there is the first one alone.
    """

    loop: For
    first: Dim
    var: Var | None = None
    extent: Dim = 1


def renewed(
    stmt: Stmt, turn: Turn, versioned: Mapping[Buffer, Versions], above: Sequence[For]
) -> Stmt:
    """`stmt` with its accesses made to the versions of the iteration; `above` are loops around it.

    Loop variables mean what they did; what counts the iterations of the copy comes in new.
    """
    if type(stmt) is Block:
        used = region_buffers((*stmt.reads, *stmt.writes))
        return stmt if used.isdisjoint(versioned) else _by_iteration(stmt, turn, versioned, above)
    around = (*above, stmt) if type(stmt) is For else above
    return with_children(stmt, tuple(renewed(s, turn, versioned, around) for s in nested(stmt)))


def _by_iteration(
    block: Block, turn: Turn, versioned: Mapping[Buffer, Versions], above: Sequence[For]
) -> Block:
    """`block` with iteration variables for loops, as far as they depend on the pipeline's.

    So each visit has a point of its own, and the iteration is known in the block.
    """
    taken, loops = _by_loops(block, turn.loop, above)
    values: dict[Var, Expr] = {}
    iters: list[Iter] = []
    visited = True
    for s in loops:
        count, extent = (turn.var, turn.extent) if s is turn.loop else (s.var, s.extent)
        first = turn.first if s is turn.loop else 0
        value: Expr = as_expr(first)
        own = next((i.extent for i in taken if i.value is s.var), None)
        if own is not None and certain(own - first < extent):  # a guard leaves out those beyond
            visited = visited and not certain(own - first < 1)
            extent = own - first if visited else 1
        if count is not None:
            fresh = Var(f"v{s.var.name}")
            iters.append(Iter(fresh, extent, _kind(block, s), count))
            value = fresh + value
        values[s.var] = value
    kept = [i for i in block.iters if i not in taken]
    ranges = {i.var: (0, i.extent - 1) for i in (*iters, *kept)}
    simple = Simplifier({**loop_ranges(()), **ranges})
    mapping = {i.var: simple(substitute(i.value, values)) for i in taken}
    iteration = values[turn.loop.var]

    def moved(versions: Versions, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        rest = (
            simple(e - iteration * as_expr(scale) - as_expr(start))
            for e, scale, start in zip(indices, versions.scales, versions.starts, strict=True)
        )
        return (simple(iteration % versions.live), *rest)

    moves = {old: (v.buffer, partial(moved, v)) for old, v in versioned.items()}
    begins = certain(as_expr(turn.first) == 0) or _kind(block, turn.loop) is not IterKind.REDUCE
    begins = begins and visited and _may_begin(block, taken, loop_ranges(above))
    init = substitute(block.init, mapping) if block.init is not None and begins else None
    body = substitute(block.body, mapping)
    new = _replace(block, iters=(*iters, *kept), body=body, init=init)
    return block_redirected(new, moves)


def _by_loops(
    block: Block, loop: For, above: Sequence[For]
) -> tuple[tuple[Iter, ...], tuple[For, ...]]:
    """The iteration variables that share loops with `loop`, directly or not, and all those loops.

    Requires that variables of these loops can take the place of them. A single iteration is not
    among those of a concrete program, whose indices leave it out; open extents are larger.
    """
    used = {loop.var}
    taken: set[Iter] = set()
    while True:
        more = {i for i in block.iters if not used.isdisjoint(free_vars(i.value))}
        if more == taken:
            break
        taken = more
        used |= {v for i in taken for v in free_vars(i.value)}
    loops = tuple(s for s in above if s.var in used)
    for s in loops:
        if isinstance(s.extent, Expr):
            require(
                s.extent > 1,
                "loop {0} has a single iteration, which makes no iteration variable of block {1}",
                s.var,
                block.label.name,
            )
    kinds = [feeding(block, kind) & used for kind in (IterKind.REDUCE, IterKind.SPATIAL)]
    require(
        not kinds[0] & kinds[1],
        "loop {0} is part of both the reduction and the elements of block {1}",
        lambda: ", ".join(sorted(v.name for v in kinds[0] & kinds[1])),
        block.label,
    )
    reduce = [i.value for i in block.iters if i in taken and i.kind is IterKind.REDUCE]
    ranges = loop_ranges(above)
    simple = Simplifier(ranges)
    starts = [simple(substitute(e, dict.fromkeys(kinds[0], as_expr(0)))) for e in reduce]
    for v in kinds[0] if _may_begin(block, taken, ranges) else ():
        require(
            any(prove(e >= v, ranges) is True for e in reduce)
            and all(certain(e == 0) for e in starts),
            "it cannot be shown that the reduction of block {0} starts with the first iteration "
            "of loop {1}",
            block.label,
            v.name,
            hint="decompose_reduction gives the init a nest of its own",
        )
    return tuple(i for i in block.iters if i in taken), loops


def _may_begin(block: Block, taken: Iterable[Iter], ranges: Ranges) -> bool:
    """Whether some visit of a block may be the first of a reduction, which sets its init."""
    reduce = [i.value for i in taken if i.kind is IterKind.REDUCE]
    return block.init is not None and not any(prove(e >= 1, ranges) is True for e in reduce)


def _kind(block: Block, loop: For) -> IterKind:
    """The kind of the iteration variables that `loop` is part of; spatial if it is of none."""
    for kind in (IterKind.OPAQUE, IterKind.REDUCE):
        if loop.var in feeding(block, kind):
            return kind
    return IterKind.SPATIAL
