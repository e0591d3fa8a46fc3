"""Compute location: `compute_at` and `reverse_compute_at`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace as _replace
from typing import NamedTuple

from ...tir.bounds import prove
from ...tir.digits import joined, two_digits
from ...tir.ir import (
    Block,
    Buffer,
    Dim,
    Expr,
    For,
    ForKind,
    Func,
    IterKind,
    Label,
    Range,
    Region,
    Stmt,
    Var,
    as_expr,
    const,
    seq,
)
from ...tir.structure import same
from ...tir.visit import substitute
from ..available import (
    concurrent_loops,
    require_available,
    require_left_behind,
    require_readers_served,
    require_still_concurrent,
)
from ..block_queries import (
    Ranges,
    bound_regions,
    clamped,
    covering,
    feeding,
    has_reduction,
    loop_ranges,
    order_of,
    outer_ranges,
    readers_of,
    region_buffers,
    require_internal,
    require_unit,
    without_block,
    writers_of,
)
from ..digit_sums import solve
from ..facts import last
from ..find import (
    find_block,
    find_loop,
    find_path,
    loops_above,
    path_to,
    replace,
    statements,
)
from ..legality import require_visited_once, reuses, touches_apart
from ..placement import may_shrink, placed
from ..places import always_read
from ..primitive import primitive
from ..require import certain, current_space, note_provisional, require, require_some
from ..steady import require_same_points, require_steady, require_used_at_once, updated_around
from ..written import fills, varying_ends, visited, written_box


@primitive
def compute_at(fn: Func, block: Label, loop: Var) -> tuple[Func, None]:
    """Compute what the body of `loop` needs of `block` inside it, before its first consumer there.

        for i: B[i] = A[i] + 1                 for i_0:
        for i_0, i_1: C[..] = B[..] * 2   ->     for ax0: B[i_0 * 8 + ax0] = A[..] + 1
                                                 for i_1: C[..] = B[..] * 2

    The block gets new loops, one for each of its iteration variables. All its consumers must be
    inside `loop`, and the buffer that it writes must be internal.
    """
    producer = find_block(fn, block)
    target = find_loop(fn, loop)
    require_elsewhere(producer, target)
    require_unit(fn, producer)
    require_internal(fn, producer)
    outputs = region_buffers(producer.writes)
    consumers = readers_of(fn, outputs, but=block)
    require(bool(consumers), "block {0} has no consumer", block)
    for c in consumers:
        require(
            find_path(target, c.label) is not None,
            "block {0} consumes {1} but is not inside loop {2}",
            c.label,
            block.name,
            loop.name,
            found=loop,
        )
    order = order_of(fn)
    overwriting = [
        (w.label, b)
        for b in sorted(region_buffers(producer.reads) - outputs, key=lambda b: b.name)
        for w in writers_of(fn, b)
        if order[w.label] > order[block]
    ]
    outer = (*loops_above(fn, loop), target)
    inputs = region_buffers(producer.reads) - outputs
    require_steady(fn, producer, inputs, outer)
    require_used_at_once(fn, producer, inputs, consumers)
    _require_stored_once(producer, outputs)
    _require_no_vector(outer, block)
    needed: dict[Var, Range] = {}
    read = region_buffers(r for c in consumers for r in c.reads)
    for buffer in sorted(read & outputs, key=lambda b: b.name):
        region = _needed(consumers, buffer, target, outer)
        _assign(producer, buffer, covering(*region), needed)
        if may_shrink(*region):
            note_provisional(block)
    position = min(_child_index(target, c.label) for c in consumers)
    moved = placed(producer, needed, loop_ranges(outer), outer_ranges(fn, block))
    at_once = concurrent_loops(path_to(fn, block))
    fn = _move(fn, producer, target, position, moved)
    order = order_of(fn)
    for w, b in overwriting:
        require(
            order[w] > order[block],
            "block {0} overwrites {1}, which block {2} reads",
            w,
            b.name,
            block.name,
        )
    require_available(fn, block)
    require_left_behind(fn, block, at_once)
    if overwriting:
        require_still_concurrent(fn, (block,), only={b for _, b in overwriting})
    return fn, None


def _require_no_vector(loops: Sequence[For], block: Label) -> None:
    for s in loops:
        require(
            s.kind is not ForKind.VECTOR,
            "loop {0} is vectorized; block {1} would bring loops of its own into it",
            s.var,
            block.name,
            hint="move the block before the loop is vectorized",
        )


def _needed(
    consumers: Sequence[Block], buffer: Buffer, target: For, outer: Sequence[For]
) -> tuple[list[Region], dict[Var, Dim], Ranges]:
    """The part of `buffer` that the consumers inside `target` read in one of its iterations.

    Returns their regions, the loops inside that sweep, and the ranges of all loops.
    """
    regions: list[Region] = []
    inner: dict[Var, Dim] = {}
    loops = list(outer)
    for c in consumers:
        below = [s for s in _below(target, c.label) if type(s) is For]
        inner |= {s.var: s.extent for s in below}
        loops += below
        regions += bound_regions(c, c.reads, buffer)
    return regions, inner, loop_ranges(loops)


def _assign(block: Block, buffer: Buffer, ranges: Sequence[Range], into: dict[Var, Range]) -> None:
    """Note which range each iteration variable of `block` needs to write `ranges` of `buffer`.

    A variable that is no plain index of one of the buffers, or is one of two different ranges,
    sweeps its whole domain.
    """
    spatial = {i.var: i.extent for i in block.iters if i.kind is IterKind.SPATIAL}
    seen: set[Var] = set()
    for region in block.writes:
        if region.buffer is not buffer:
            continue
        for r, point in zip(ranges, region.ranges, strict=True):
            var = point.min
            if type(var) is Var and var in spatial and point.extent == 1 and var not in seen:
                seen.add(var)
                if var in into and not _alike(into[var], r):
                    into[var] = Range(as_expr(0), spatial[var])
                else:
                    into[var] = r
    into |= {v: Range(as_expr(0), n) for v, n in spatial.items() if v not in seen}


def _alike(a: Range, b: Range) -> bool:
    return same(a.min, b.min) and same(as_expr(a.extent), as_expr(b.extent))


@primitive
def reverse_compute_at(fn: Func, block: Label, loop: Var) -> tuple[Func, None]:
    """Compute the consumer `block` inside `loop`, on what the loop's body has just produced.

        for i_0, i_1: B[..] = A[..] + 1        for i_0:
        for i: C[i] = B[i] * 2            ->     for i_1: B[..] = A[..] + 1
                                                 for ax0: C[i_0 * 8 + ax0] = B[i_0 * 8 + ax0] * 2

    The block must index the buffer of one producer there by plain iteration variables, as that
    producer does, or read it at one place whose indices tell iteration variables: fused, split,
    permuted or reversed (`B[i // 8, i % 8]`). Everything that it reads must be written by then, so
    the loop must lie outside of the producers' reductions. A block that is itself a reduction (of
    partial results from `rfactor`), or updates a buffer in place, moves only to where each of its
    points is visited once.
    """
    return put_after(fn, block, loop, moves=True), None


def put_after(fn: Func, block: Label, loop: Var, *, moves: bool) -> Func:
    """`reverse_compute_at`; without `moves` the block is a copy that has its readers there."""
    consumer = find_block(fn, block)
    target = find_loop(fn, loop)
    require_elsewhere(consumer, target)
    outputs = region_buffers(consumer.writes)
    require_unit(fn, consumer, updated=outputs)
    producers = [w for b in region_buffers(consumer.reads) - outputs for w in writers_of(fn, b)]
    inside = [p for p in producers if find_path(target, p.label) is not None]
    require(
        bool(inside),
        "no producer of block {0} is inside loop {1}",
        block.name,
        loop,
        found=loop,
    )
    order = order_of(fn)
    first = min(order[p.label] for p in inside)
    for p in inside:
        require(
            order[p.label] < order[block],
            "block {0} overwrites what block {1} has read before",
            p.label,
            block.name,
        )
    for p in producers:
        require(
            p in inside or order[p.label] < first or order[p.label] > order[block],
            "block {0}, which block {1} needs, is computed after loop {2}",
            p.label,
            block.name,
            loop.name,
        )
    before = [r.label for r in readers_of(fn, outputs, but=block) if order[r.label] < order[block]]
    outer = (*loops_above(fn, loop), target)
    _require_no_vector(outer, block)
    for s in outer:
        require(
            not isinstance(s.extent, int) or s.extent > 0,
            "loop {0} has no iterations; block {1} would not run",
            s.var,
            block.name,
        )
    _require_reduced(inside, {s.var for s in outer}, loop)
    path, updated = path_to(fn, block), list[For]()
    if moves:
        require_steady(fn, consumer, region_buffers(consumer.reads), outer)
        updated = updated_around(fn, consumer, region_buffers(consumer.reads), outer)
        _require_stored_once(consumer, outputs)
    produced = _produced(fn, consumer, inside, target, outer)
    # It follows one producer. All that it reads is of that one, or all of the buffer is.
    alone = writers_of(fn, produced.buffer) == [produced.source]
    follows = (
        (always_read(consumer, produced.buffer) and produced.buffer not in fn.inplace and alone)
        or current_space() is not None
        or fills(fn, produced.source, produced.buffer)
    )
    position = max(_child_index(target, p.label) for p in inside) + 1
    if produced.shrinks:
        note_provisional(block)
    old = outer_ranges(fn, block)
    moved = placed(consumer, produced.ranges, loop_ranges(outer), old, produced.limits)
    fn = _move(fn, consumer, target, position, moved)
    own = find_block(fn, block)
    require(
        follows or visited(fn, [(own, own.iters)]),
        "block {0} also runs where block {1} is not known to compute an element of {2}",
        block,
        produced.source.label.name,
        produced.buffer.name,
    )
    if updated:
        require_same_points(path, path_to(fn, block), updated)
    order = order_of(fn)
    for reader in before:
        require(
            order[reader] < order[block],
            "block {0} reads what block {1} overwrites",
            reader,
            block.name,
        )
    require_available(fn, block, produced.settled)
    require_readers_served(fn, block)
    if has_reduction(consumer) or not outputs.isdisjoint(region_buffers(consumer.reads)):
        above = loops_above(fn, block)
        moved_block = find_block(fn, block)
        require_visited_once(moved_block, above, loop_ranges(above))
        _require_zero_first(moved_block, above)
    _require_apart(fn, consumer, produced)
    if before:
        require_still_concurrent(fn, (block,), only=outputs)
    return fn


def _require_stored_once(block: Block, outputs: Collection[Buffer]) -> None:
    for buffer in sorted(outputs, key=lambda b: b.name):
        require(
            not reuses(block, buffer),
            "block {0} uses elements of {1} again in several of its iterations, which must keep "
            "their order and their place between those who read them",
            block.label,
            buffer.name,
        )


def _require_apart(fn: Func, consumer: Block, produced: _Produced) -> None:
    """Require that the concurrent loops around the moved `consumer` may still run as they do.

    Where its inputs are made apart from each other and it stores at all the variables by which it
    follows them, so are its results.
    """
    path = path_to(fn, consumer.label)
    follows = produced.followed and all(
        produced.ranges.keys() <= _telling_apart(consumer, w) for w in consumer.writes
    )
    for k, s in enumerate(path):
        if type(s) is For and s.var in concurrent_loops([s]):
            apart = follows and touches_apart(path[: k + 1], produced.source, produced.buffer)
            if not apart or has_reduction(consumer):
                require_still_concurrent(fn, (s.var,))


def _telling_apart(block: Block, write: Region) -> set[Expr]:
    """The iteration variables of a block that the place of what it writes determines.

    They are indices, or the digits of one, whatever dimensions are joined to that.
    """
    found: set[Expr] = set()
    extents = {i.var: i.extent for i in block.iters}
    for e in joined(write.buffer, tuple(r.min for r in write.ranges)).indices:
        found.update(two_digits(e, extents) or (e,))
    return found


def _require_zero_first(block: Block, loops: Sequence[For]) -> None:
    """Require that the first iteration of `loops` is at the zero point of a reduction."""
    first = {s.var: const(0) for s in loops}
    for i in block.iters:
        require(
            i.kind is not IterKind.REDUCE or prove(substitute(i.value, first) == 0) is True,
            "block {0} would not start its reduction with its init",
            block.label,
        )


def _require_reduced(producers: Sequence[Block], outer: set[Var], loop: Var) -> None:
    for p in producers:
        unfinished = feeding(p, IterKind.REDUCE) & outer
        require(
            not unfinished,
            "block {0} is still being reduced over loop {1} at loop {2}",
            p.label,
            lambda u=unfinished: ", ".join(sorted(v.name for v in u)),
            loop.name,
            hint="choose a loop outside of the reduction, or split the reduction with rfactor",
            found=loop,
        )


class _Produced(NamedTuple):
    """The ranges of a consumer's iteration variables whose inputs a loop has just produced.

    `source` writes them to `buffer`. `followed` says that the consumer has a variable for each of
    its dimensions; what it then reads of the buffers `settled` is known to be written. Where the
    variables leave the element that it reads open, `limits` say which have been produced. `shrinks`
    says that the ranges may be smaller once the open decisions are taken.
    """

    ranges: dict[Var, Range]
    source: Block
    buffer: Buffer
    followed: bool
    settled: frozenset[Buffer]
    limits: list[Expr]
    shrinks: bool


def _produced(
    fn: Func, consumer: Block, inside: Sequence[Block], target: For, outer: Sequence[For]
) -> _Produced:
    """The ranges that the consumer can follow in one iteration of `target`.

    The ranges come from one producer, so that all its iterations together make the consumer visit
    its whole domain: it is the only one that computes the buffer, and writes it at iteration
    variables that go as far as those at which the consumer reads it. Other variables sweep their
    domains.
    """
    best: _Produced | None = None
    for p in inside:
        below = [s for s in _below(target, p.label) if type(s) is For]
        around = loop_ranges(outer)
        ranges = {**around, **loop_ranges(below)}
        inner = {s.var: s.extent for s in below}
        for buffer in sorted(region_buffers(consumer.reads), key=lambda b: b.name):
            if buffer not in region_buffers(p.writes) or not _computed_by(fn, buffer, p):
                continue
            box = written_box(p, buffer, inner, around)
            written = bound_regions(p, p.writes, buffer)
            ends: list[tuple[int, Expr]] = []
            if box is None:
                produced = covering(written, inner, ranges)
                ends = varying_ends(p, buffer, inner, ranges)
            else:
                produced = clamped(box, buffer, around)
            found = _followed(consumer, p, buffer, produced)
            more = _determined(consumer, found, written, inner, ranges)
            if len(found | more) > (0 if best is None else len(best.ranges)):
                regions = [r for r in consumer.reads if r.buffer is buffer]
                points = [x for r in regions for x in r.ranges]
                followed = all(x.min in found and certain(x.extent == 1) for x in points)
                settled = frozenset([buffer] if box is not None and followed else [])
                limits = _limits(consumer, buffer, found, produced, ends) if more or ends else []
                shrinks = may_shrink(written, inner, ranges)
                best = _Produced(found | more, p, buffer, followed, settled, limits, shrinks)
    return require_some(
        best,
        "block {0} does not follow what is produced in loop {1} by iteration variables of its own",
        consumer.label,
        target.var.name,
        hint="compute_at moves the producer to it",
    )


def _determined(
    consumer: Block,
    known: Collection[Var],
    written: Sequence[Region],
    inner: Mapping[Var, Dim],
    ranges: Ranges,
) -> dict[Var, Range]:
    """The ranges of other variables of `consumer` that the element that it reads determines.

    At each of its points it must read one element, which has then been written somewhere. The loops
    `inner` sweep what is `written`; `ranges` are those of all loops.
    """
    place = _only_place(consumer, written[0].buffer)
    if place is None or len(written) > 1:
        return {}
    swept = {Var(f"d{d}"): x.extent for d, x in enumerate(written[0].ranges)}
    at = [x.min + v for x, v in zip(written[0].ranges, swept, strict=True)]
    extents = {i.var: i.extent for i in consumer.iters}
    values = {v: e for v, e in solve(place, extents, at).values.items() if v not in known}
    if not values:
        return {}
    points = Buffer(consumer.label.name, tuple([extents[v] for v in values]), "bool")
    region = Region(points, tuple([Range(e, 1) for e in values.values()]))
    ranges = {**ranges, **{v: (0, last(n)) for v, n in swept.items()}}
    return dict(zip(values, covering([region], {**inner, **swept}, ranges), strict=True))


def _limits(
    consumer: Block,
    buffer: Buffer,
    plain: Collection[Var],
    produced: Sequence[Range],
    ends: Sequence[tuple[int, Expr]],
) -> list[Expr]:
    """The conditions for the element that `consumer` reads to be in `produced`, before `ends`."""
    place = _only_place(consumer, buffer)
    if place is None:
        return []
    limits = [place[d] < end for d, end in ends]
    for e, r in zip(place, produced, strict=True):
        if e not in plain:
            limits += [e >= r.min, e < r.min + as_expr(r.extent)]
    return limits


def _only_place(block: Block, buffer: Buffer) -> tuple[Expr, ...] | None:
    """The indices at which each visit of a spatial block reads `buffer`, if they are such."""
    regions = [r for r in block.reads if r.buffer is buffer]
    if len(regions) > 1 or has_reduction(block) or not always_read(block, buffer):
        return None
    points = regions[0].ranges
    return tuple([x.min for x in points]) if all(certain(x.extent == 1) for x in points) else None


def _computed_by(fn: Func, buffer: Buffer, producer: Block) -> bool:
    """Whether `producer` computes all of `buffer`, up to the init of its reduction."""
    others = [w for w in writers_of(fn, buffer) if w.label is not producer.label]
    updates = buffer in region_buffers(producer.reads)
    return all(
        updates and not has_reduction(w) and buffer not in region_buffers(w.reads) for w in others
    )


def _followed(
    consumer: Block, producer: Block, buffer: Buffer, produced: Sequence[Range]
) -> dict[Var, Range]:
    """The variables of `consumer` that index `buffer` where those of `producer` do, with ranges.

    One variable follows each of the producer's: two that did would never be apart.
    """
    extents = {i.var: i.extent for i in consumer.iters}
    sizes = {i.var: i.extent for i in producer.iters if i.kind is not IterKind.REDUCE}
    written = [r for r in producer.writes if r.buffer is buffer]
    found: dict[Var, Range] = {}
    dropped: set[Var] = set()
    following: dict[Var, Var] = {}
    if len(written) != 1:
        return found
    for region in consumer.reads:
        if region.buffer is not buffer:
            continue
        for r, point, place in zip(produced, region.ranges, written[0].ranges, strict=True):
            var, source = point.min, place.min
            if type(var) is not Var or var not in extents or not certain(point.extent == 1):
                continue
            size = sizes.get(source) if type(source) is Var else None
            follows = size is not None and certain(extents[var] <= size)
            alone = type(source) is not Var or following.setdefault(source, var) is var
            if not follows or not alone or found.setdefault(var, r) is not r:
                dropped.add(var)
    return {v: r for v, r in found.items() if v not in dropped}


def require_elsewhere(block: Block, target: For) -> None:
    """Require that a block is not inside the loop that it is moved to."""
    require(
        find_path(target, block.label) is None,
        "block {0} is inside loop {1} already",
        block.label,
        target.var.name,
        found=target.var,
    )


def _below(target: For, label: Label) -> tuple[Stmt, ...]:
    """The statements between a loop and a block in it, both left out."""
    path = find_path(target, label)
    assert path is not None
    return path[1:-1]


def _child_index(target: For, label: Label) -> int:
    children = enumerate(statements(target.body))
    return next(n for n, s in children if find_path(s, label) is not None)


def _require_all_run(fn: Func, block: Block) -> None:
    """Require that the loops of `block` go through its domain, as those that it is moved to do.

    A predicate says what is left out, and is kept. Nobody finds more stored to an internal buffer
    that `block` alone stores to, and does not update.
    """
    outputs = region_buffers(block.writes)
    afresh = block.init is not None or outputs.isdisjoint(region_buffers(block.reads))
    alone = afresh and all(b in fn.allocs and len(writers_of(fn, b)) == 1 for b in outputs)
    require(
        alone
        or current_space() is not None
        or visited(fn, [(_replace(block, predicate=None), block.iters)]),
        "the loops of block {0} run only a part of its domain, and new ones would run all of it",
        block.label,
        hint="give its axes the extents of the loops in the program",
    )


def _move(fn: Func, block: Block, target: For, position: int, moved: Stmt) -> Func:
    """`fn` with the block taken from where it was and `moved` put into the body of `target`."""
    _require_all_run(fn, block)
    children = statements(target.body)
    body = seq(*children[:position], moved, *children[position:])
    # The moved block keeps its label: it is cut out of the program before it is put in again.
    fn = without_block(fn, block.label)
    path = path_to(fn, target.var)
    return replace(fn, path[-1], _replace(target, body=body))
