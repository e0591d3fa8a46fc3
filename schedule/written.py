"""The elements that blocks write for certain, and iterations that they take through all values."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace as _replace

from ..tir.bounds import prove
from ..tir.dependence import Access
from ..tir.ir import (
    TRUE,
    Binary,
    Block,
    Buffer,
    Dim,
    Expr,
    Func,
    Iter,
    IterKind,
    Op,
    Range,
    Region,
    Store,
    Var,
    as_dim,
    as_expr,
    binary,
    const,
)
from ..tir.simplify import Simplifier
from ..tir.structure import conjuncts, key_of
from ..tir.visit import substitute
from .block_queries import Ranges, bound_regions, feeding, free_vars, has_reduction, loop_ranges
from .distinct import gapless
from .facts import last, truths
from .find import loops_above
from .loop_dependence import Use, always_writes, served, uses_of
from .require import certain, require


def written_box(
    block: Block,
    buffer: Buffer,
    inner: Mapping[Var, Dim],
    ranges: Ranges,
    given: Collection[object] = (),
) -> list[Range] | None:
    """The box of elements that `block` writes while the loops `inner` sweep, if it has no gaps.

    It may reach beyond the domain of the block. `given` are keys of conditions that hold. `None`
    if a stride, a condition in the body or a predicate, other than one that ends a dimension, may
    leave elements out.
    """
    own = {**ranges, **{v: (0, last(e)) for v, e in inner.items()}}
    declared = [r for r in block.writes if r.buffer is buffer]
    if len(declared) != 1 or not always_writes(block, declared[0]):
        return None
    regions = bound_regions(block, declared, buffer)
    placing = set().union(*(free_vars(r.min) for r in regions[0].ranges))
    # A point in the buffer is one where all of these hold: what follows from them leaves none out.
    # That of a reduction does, where none of its loops says which point it is.
    domain: list[Expr] = []
    for i in block.iters:
        apart = i.kind is IterKind.REDUCE and free_vars(i.value).isdisjoint(placing)
        if apart or _spans(i, block, buffer):
            domain += [
                binary(Op.LT, i.value, as_expr(i.extent)),
                binary(Op.GE, i.value, as_expr(0)),
            ]
    known = {key_of(c) for c in domain} | set(given)
    limits = [
        c
        for c in conjuncts(block.predicate)
        if key_of(c) not in known and not _follows(c, domain, own)
    ]
    if limits and has_reduction(block):
        # An element is written where one visit of it is.
        reducing = feeding(block, IterKind.REDUCE) - feeding(block, IterKind.SPATIAL) - placing
        zero = {v: const(0) for v in inner if v in reducing}
        limits = [c for c in limits if truths(own)(substitute(c, zero)) is not True]
    box: list[Range] = []
    seen: set[Var] = set()
    for r in regions[0].ranges:
        run = gapless(r, inner, own)
        if run is None or not seen.isdisjoint(free_vars(r.min) & inner.keys()):
            return None
        seen |= free_vars(r.min) & inner.keys()
        ends = [(c, _end(c, r, own)) for c in limits]
        limits = [c for c, end in ends if end is None]
        for end in [end for _, end in ends if end is not None]:
            least = Simplifier(own)(binary(Op.MIN, as_expr(run.extent), end - run.min))
            if not free_vars(least).isdisjoint(own):
                return None
            run = Range(run.min, as_dim(least))
        box.append(run)
    return None if limits else box


def varying_ends(
    block: Block, buffer: Buffer, inner: Collection[Var], ranges: Ranges
) -> list[tuple[int, Expr]]:
    """Dimensions in which a predicate ends what `block` writes, and the ends, free of `inner`."""
    regions = bound_regions(block, block.writes, buffer)
    found = [
        (d, _end(c, r, ranges))
        for c in conjuncts(block.predicate)
        for d, r in enumerate(regions[0].ranges)
        if len(regions) == 1
    ]
    return [(d, e) for d, e in found if e is not None and free_vars(e).isdisjoint(inner)]


def visited(fn: Func, blocks: Sequence[tuple[Block, Sequence[Iter]]]) -> bool:
    """Whether blocks together take iterations, those of each block, through all their values.

    A block that was moved, or whose loop was cut in two, may leave some out. The iterations of all
    blocks have the same extents, in their order. Where there are none, one of the blocks has to
    run: the guard of a part that was cut off may never hold.
    """
    block, iters = blocks[0]
    extents = tuple([i.extent for i in iters]) or (1,)
    if any(certain(n == 0) for n in extents):
        return True
    if all(any(certain(s.extent == 0) for s in loops_above(fn, b.label)) for b, _ in blocks):
        return False  # none of them runs at all
    points = Buffer(block.label.name, extents, "bool")
    visits = []
    for b, own in blocks:
        place = tuple([Range(i.var, 1) for i in own]) or (Range(const(0), 1),)
        body = Store(points, tuple([r.min for r in place]), TRUE)
        visits.append((_replace(b, writes=(Region(points, place),), body=body, init=None), b))
    for probe, b in visits:
        inner = {s.var: s.extent for s in loops_above(fn, b.label)}
        box = written_box(probe, points, inner, loop_ranges(()))
        whole = [Range(as_expr(0), n) for n in extents]
        if box is not None and within(whole, box, loop_ranges(())):
            return True
    variables = [Var(f"v{d}") for d in range(len(extents))]
    sweep = dict(zip(variables, extents, strict=True))
    all_points = Access(tuple([Range(v, 1) for v in variables]), sweep)
    writes = [u for probe, _ in visits for u in uses_of(probe, points, fn.body) if u.writes]
    return served([Use(block, points, False, all_points)], writes, ()).apart


def fills(fn: Func, block: Block, buffer: Buffer) -> bool:
    """Whether a block stores to all elements of a buffer."""
    inner = {s.var: s.extent for s in loops_above(fn, block.label)}
    box = written_box(block, buffer, inner, loop_ranges(()))
    return box is not None and within([Range(const(0), n) for n in buffer.shape], box, {})


def require_whole_domain(fn: Func, block: Block, variables: Sequence[Var], buffer: Buffer) -> None:
    """Require that `block` runs for all elements of `buffer`, which `variables` index."""
    iters = {i.var: i for i in block.iters}
    require(
        all(certain(iters[v].extent == n) for v, n in zip(variables, buffer.shape, strict=True))
        and visited(fn, [(block, [iters[v] for v in variables])]),
        "block {0} reads only a part of {1}",
        block.label,
        buffer.name,
    )


def within(inner: list[Range] | None, outer: list[Range], ranges: Ranges) -> bool:
    """Whether a box lies in another; so does `None`, the box of no elements."""
    if inner is None:
        return True
    holds = truths(ranges)
    return all(
        holds(binary(Op.GE, i.min, o.min)) is True
        and holds(binary(Op.LE, i.min + as_expr(i.extent), o.min + as_expr(o.extent))) is True
        for i, o in zip(inner, outer, strict=True)
    )


def _end(condition: Expr, r: Range, ranges: Ranges) -> Expr | None:
    """The end of the part of `r` in which `condition` holds, if it limits only that."""
    if type(condition) is not Binary or condition.op is not Op.LT or not certain(r.extent == 1):
        return None
    end = Simplifier(ranges)(r.min - condition.a + condition.b)
    return end if free_vars(end).isdisjoint(free_vars(condition.a)) else None


def _follows(condition: Expr, known: Sequence[Expr], ranges: Ranges) -> bool:
    """Whether `condition` follows from those of `known` that are about the same variables."""
    mine = free_vars(condition)
    op = condition.op if type(condition) is Binary else None
    related = [k for k in known if type(k) is Binary and k.op is op and free_vars(k) & mine]
    return prove(condition, ranges, related) is True or prove(condition, ranges, known) is True


def _spans(i: Iter, block: Block, buffer: Buffer) -> bool:
    """Whether `block` writes all of a dimension of `buffer` as `i` goes over its extent."""
    return any(
        r.min is i.var and certain(i.extent == size)
        for region in block.writes
        if region.buffer is buffer
        for r, size in zip(region.ranges, buffer.shape, strict=True)
    )
