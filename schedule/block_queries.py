"""Queries on blocks: producers and consumers, kinds of iterations, regions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace as _replace
from typing import Any

from ..tir.bounds import truth, variables
from ..tir.ir import (
    Binary,
    Block,
    Buffer,
    Const,
    Dim,
    Expr,
    For,
    ForKind,
    Func,
    Iter,
    IterKind,
    Label,
    Let,
    Load,
    Op,
    Prefetch,
    Range,
    Region,
    Stmt,
    Store,
    Var,
    as_dim,
    as_expr,
    binary,
    const,
)
from ..tir.piecewise import unclamped
from ..tir.regions import Hulls, hull
from ..tir.simplify import Simplifier
from ..tir.structure import key_of
from ..tir.visit import nested, substitute, walk, with_body, with_func_body
from .facts import last
from .find import blocks_in, find_path, loops_above, with_children
from .require import current_space, require

Ranges = Mapping[Var, tuple[Dim, Dim]]
NOTHING: Mapping[Var, Any] = {}


def region_buffers(regions: Iterable[Region]) -> set[Buffer]:
    return {r.buffer for r in regions}


def buffers_in_order(regions: Iterable[Region]) -> list[Buffer]:
    """The buffers of regions in the order of their first ones.

    Steps number the buffers that a block reads or writes so; a buffer may have several regions.
    """
    return list(dict.fromkeys(r.buffer for r in regions))


def writers_of(fn: Func, buffer: Buffer) -> list[Block]:
    """The blocks that store to `buffer`, in program order."""
    return [b for b in blocks_in(fn.body) if buffer in region_buffers(b.writes)]


def readers_of(fn: Func, buffers: set[Buffer], but: Label | None = None) -> list[Block]:
    """The blocks that load from one of `buffers`, in program order, except the block `but`."""
    return [
        b
        for b in blocks_in(fn.body)
        if b.label is not but and not buffers.isdisjoint(region_buffers(b.reads))
    ]


def has_reduction(block: Block) -> bool:
    return any(i.kind is IterKind.REDUCE for i in block.iters)


def require_unit(fn: Func, block: Block, updated: Collection[Buffer] = ()) -> None:
    """Require that `block` is a complete computation: spatial, or a reduction with its init.

    It must be the only writer of its outputs, and read none of them except in the reduction's
    update. A spatial block may update those that are `updated` in place.
    """
    for b in sorted(region_buffers(block.writes), key=lambda b: b.name):
        others = [w.label.name for w in writers_of(fn, b) if w.label is not block.label]
        require(
            not others,
            "{0} is also written by block {1}; block {2} alone must write it",
            b.name,
            ", ".join(others),
            block.label,
            hint="begin with this step where the initial value was split off by "
            "decompose_reduction, which sets it in a block of its own",
        )
    require(
        all(i.kind is not IterKind.OPAQUE for i in block.iters),
        "block {0} has opaque iteration variables, of which no independence is known",
        block.label,
    )
    if has_reduction(block):
        reduced = {i.var for i in block.iters if i.kind is IterKind.REDUCE}
        apart = [r for r in block.writes for x in r.ranges if free_vars(x.min) & reduced]
        require(
            not apart,
            "block {0} stores to other elements of {1} in each iteration of its reduction",
            block.label,
            lambda: apart[0].buffer.name,
            hint="declare the axis by T.axis.spatial",
        )
        require(
            block.init is not None,
            "block {0} is a reduction whose init was split off",
            block.label,
            hint="do this step before decompose_reduction",
        )
    else:
        own = (region_buffers(block.writes) & region_buffers(block.reads)).difference(updated)
        require(
            not own,
            "block {0} reads {1}, which it writes",
            block.label,
            lambda: ", ".join(b.name for b in own),
        )


def require_inside(loop: For, block: Label) -> None:
    """Require that a block is inside a loop."""
    require(
        find_path(loop, block) is not None,
        "block {0} is not inside loop {1}",
        block,
        loop.var.name,
    )


def require_not_vectorized(path: Sequence[Stmt], at: Var | Label, hint: str) -> None:
    """Require that no loop around the end of `path` is vectorized."""
    for s in path[:-1]:
        require(
            not (type(s) is For and s.kind is ForKind.VECTOR),
            "loop {0} around it is vectorized; only unrolled loops may be inside",
            lambda s=s: s.var.name,
            at=at,
            hint=hint,
        )


def require_not_inplace(fn: Func, buffer: Buffer, at: Label) -> None:
    """Require that the computation does not depend on the contents of a buffer at entry."""
    require(
        buffer not in fn.inplace,
        "{0} is updated in place; its first contents are part of the computation",
        buffer.name,
        at=at,
    )


def require_internal(fn: Func, block: Block) -> None:
    """Require that no output of `block` is a parameter of the function."""
    for b in region_buffers(block.writes):
        require(
            b in fn.allocs,
            "block {0} writes {1}, a parameter of the function; its computation must stay",
            block.label,
            b.name,
            hint="cache_write gives it an internal buffer first",
        )


def with_regions(block: Block) -> Block:
    """`block` with its declared regions taken from its body and then its init, one for each access.

    A region is a point, or what the loops of the body sweep. An index that is read from a buffer,
    or bound in the body, covers the whole dimension.
    """
    reads: dict[object, Region] = {}
    writes: dict[object, Region] = {}
    for root in (block.body, block.init):
        if root is None:
            continue
        box = _Swept(block, root)
        for n in walk(root):
            kind = type(n)
            if kind is Load or kind is Store:
                into = reads if kind is Load else writes
                ranges = box(n.buffer, n.indices)
                key = (n.buffer, *map(range_key, ranges))
                if key not in into:
                    into[key] = Region(n.buffer, ranges)
    return _replace(block, reads=tuple(reads.values()), writes=tuple(writes.values()))


class _Swept:
    """The hull of indices in a block's body while `root` runs once."""

    def __init__(self, block: Block, root: Stmt) -> None:
        self.loops: dict[Var, Dim] = {}
        self.local: set[Var] = set()
        if type(root) is not Store:
            self.loops = {n.var: n.extent for n in walk(root) if type(n) is For}
            self.local = {n.var for n in walk(root) if type(n) is Let}
        self.ranges = domain(block.iters)

    def __call__(self, buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Range, ...]:
        if not self.loops and not self.local and not any(map(reads_data, indices)):
            return tuple([Range(e, 1) for e in indices])
        pairs = zip(indices, buffer.shape, strict=True)
        return tuple([self._range(e, size) for e, size in pairs])

    def _range(self, e: Expr, size: Dim) -> Range:
        if reads_data(e) or (self.local and not free_vars(e).isdisjoint(self.local)):
            return Range(const(0), size)
        if not self.loops or free_vars(e).isdisjoint(self.loops):
            return Range(e, 1)
        found = hull(e, self.loops, self.ranges)
        return Range(const(0), size) if found is None else found


def range_key(r: Range) -> object:
    """A key, equal for ranges of one structure."""
    key = key_of(r.min)
    return key if type(r.extent) is int and r.extent == 1 else (key, key_of(as_expr(r.extent)))


def reads_data(e: Expr) -> bool:
    """Whether the value of `e` depends on what is in a buffer."""
    if type(e) is Var or type(e) is Const:
        return False
    if type(e) is Binary:
        return reads_data(e.a) or reads_data(e.b)
    return any(type(n) is Load for n in walk(e))


def loop_ranges(stmts: Iterable[Stmt]) -> dict[Var, tuple[Dim, Dim]]:
    """The inclusive ranges of loop variables, with those of the decisions of the current space."""
    space = current_space()
    ranges: dict[Var, tuple[Dim, Dim]] = {} if space is None else dict(space.bounds)
    for s in stmts:
        if type(s) is For:
            ranges[s.var] = (0, last(s.extent))
    return ranges


def domain(iters: Iterable[Iter]) -> dict[Var, tuple[Dim, Dim]]:
    """The inclusive ranges of iteration variables, with those of the decisions."""
    return loop_ranges(()) | {i.var: (0, last(i.extent)) for i in iters}


def free_vars(e: Expr) -> set[Var]:
    """The variables in an expression."""
    return variables(e)


def feeding(block: Block, kind: IterKind | None = None) -> set[Var]:
    """The loop variables that appear in the values of `block`'s iterations of `kind`."""
    found: set[Var] = set()
    for i in block.iters:
        if kind is None or i.kind is kind:
            found |= free_vars(i.value)
    space = current_space()
    return found if space is None else found - space.bounds.keys()


def domain_conditions(value: Expr, extent: Dim, s: Simplifier) -> list[Expr]:
    """The conditions for 0 <= `value` < `extent` that `s` does not already imply."""
    both = (binary(Op.GE, value, const(0)), binary(Op.LT, value, as_expr(extent)))
    return [c for c in both if truth(s, c) is not True]


def bound_regions(block: Block, regions: Iterable[Region], buffer: Buffer) -> list[Region]:
    """The `regions` on `buffer`, in terms of the loops around `block`.

    An index that depends on data covers its whole dimension.
    """
    values = {i.var: i.value for i in block.iters}
    return [
        Region(
            buffer,
            tuple(
                Range(const(0), size)
                if reads_data(x.min)
                else Range(substitute(x.min, values), x.extent)
                for x, size in zip(r.ranges, buffer.shape, strict=True)
            ),
        )
        for r in regions
        if r.buffer is buffer
    ]


def covering(regions: Sequence[Region], inner: Mapping[Var, Dim], ranges: Ranges) -> list[Range]:
    """The part of `hulls` that can be in the buffer."""
    s = Simplifier(ranges)
    boxes = zip(_hulls(regions, inner, ranges, s), regions[0].buffer.shape, strict=True)
    return [_clamped(r, size, s) for r, size in boxes]


def hulls(regions: Sequence[Region], inner: Mapping[Var, Dim], ranges: Ranges) -> list[Range]:
    """The hull per dimension of `regions` on one buffer while the loops `inner` sweep.

    It may reach beyond the buffer. A dimension is taken whole if its hull is not known relative to
    the outer loops, if it is longer in some of their iterations than in others, or if it has no
    value in some of them, where the block itself does not run.
    """
    return _hulls(regions, inner, ranges, Simplifier(ranges))


def _hulls(
    regions: Sequence[Region], inner: Mapping[Var, Dim], ranges: Ranges, s: Simplifier
) -> list[Range]:
    hull_of = Hulls(inner, ranges)
    found: list[Range] = []
    for d, size in enumerate(regions[0].buffer.shape):
        h = _hull([(r.ranges[d].min, r.ranges[d].extent) for r in regions], hull_of, s)
        if h is None or _has_loops(h.extent, ranges):
            h = Range(const(0), size)
        found.append(h)
    return found


def _has_loops(extent: Dim, ranges: Ranges) -> bool:
    """Whether an extent varies with the loops of `ranges`, as no loop's or region's may."""
    space = current_space()
    decisions: Collection[Var] = () if space is None else space.bounds.keys()
    return any(v in ranges and v not in decisions for v in free_vars(as_expr(extent)))


def _hull(places: Sequence[tuple[Expr, Dim]], hull_of: Hulls, s: Simplifier) -> Range | None:
    """The hull of `places`, each a first index and a number of indices; `None` if not known.

    Clamps to constants do not move it: an index that is clamped stays between the others.
    """
    free = [unclamped(start) for start, _ in places]
    bare = _union_of([(f.bare, n) for f, (_, n) in zip(free, places, strict=True)], hull_of, s)
    if bare is not None:
        last = bare.min + as_expr(bare.extent) - 1
        inside = [last >= const(a) for f in free for a in f.at_least]
        inside += [bare.min <= const(b) for f in free for b in f.at_most]
        if all(truth(s, c) is True for c in inside):
            return bare
    return _union_of(places, hull_of, s)


def _union_of(places: Sequence[tuple[Expr, Dim]], hull_of: Hulls, s: Simplifier) -> Range | None:
    total: Range | None = None
    for place, extent in places:
        start = s(place)
        h = None if _may_divide_by_zero(start, s) else hull_of(start)
        if h is None:
            return None
        h = Range(s(h.min), _simple(h.extent + (extent - 1), s))
        total = h if total is None else _union(total, h, s)
        if total is None:
            return None
    return total


def _may_divide_by_zero(e: Expr, s: Simplifier) -> bool:
    if type(e) is not Binary:
        return False
    if e.op in (Op.FLOORDIV, Op.MOD):
        divisor = e.b
        known = (
            divisor.value != 0
            if type(divisor) is Const
            else truth(s, binary(Op.NE, divisor, const(0))) is True
        )
        if not known:
            return True
    return _may_divide_by_zero(e.a, s) or _may_divide_by_zero(e.b, s)


def clamped(box: Sequence[Range], buffer: Buffer, ranges: Ranges) -> list[Range]:
    """The part of a box that can be in `buffer`, in simple terms."""
    s = Simplifier(ranges)
    return [
        _clamped(Range(s(r.min), _simple(r.extent, s)), size, s)
        for r, size in zip(box, buffer.shape, strict=True)
    ]


def _simple(dim: Dim, s: Simplifier) -> Dim:
    return dim if isinstance(dim, int) else as_dim(s(dim))


def _clamped(r: Range, size: Dim, s: Simplifier) -> Range:
    """The part of `r` that can be within a dimension of `size`: at most `size` from its start on.

    A start that loops move, perhaps from below zero, stays: the same for sizes that are open and
    for those that turn out to be large.
    """
    start, extent = r.min, r.extent
    if type(start) is Const and int(start.value) < 0:
        start, extent = const(0), _simple(extent + int(start.value), s)
    if isinstance(extent, int) and extent <= 0:  # of loops or regions that are empty
        return Range(const(0), 0)
    at_most = truth(s, binary(Op.LE, as_expr(extent), as_expr(size)))
    if at_most is True or truth(s, start >= 0) is not True:
        return Range(start, extent)
    return Range(start, _simple(binary(Op.MIN, as_expr(extent), as_expr(size)), s))


def _union(a: Range, b: Range, s: Simplifier) -> Range | None:
    shift = s(b.min - a.min)
    if type(shift) is not Const:
        return None
    by = int(shift.value)
    low = a.min if by >= 0 else b.min
    a_end, b_end = (a.extent, b.extent + by) if by >= 0 else (a.extent - by, b.extent)
    if isinstance(a_end, int) and isinstance(b_end, int):
        return Range(low, max(a_end, b_end))
    return Range(low, _simple(binary(Op.MAX, as_expr(a_end), as_expr(b_end)), s))


def nest_like(
    loops: Sequence[For],
    leaf: Stmt,
    names: Mapping[Var, Var] = NOTHING,
    extents: Mapping[Var, Dim] = NOTHING,
) -> Stmt:
    """Loops like `loops`, outermost first, around `leaf`; some with other names or extents."""
    body = leaf
    for s in reversed(loops):
        body = with_body(s, body, names.get(s.var), extents.get(s.var))
    return body


def nest(loops: Sequence[tuple[Var, Dim]], leaf: Stmt) -> Stmt:
    """Serial loops around `leaf`, outermost first."""
    body = leaf
    for var, extent in reversed(loops):
        body = For(var, extent, body, ForKind.SERIAL)
    return body


def loop_name(v: Var) -> str:
    """The name of a loop for a block's iteration variable: `i` for `vi`."""
    name = v.name.removeprefix("v")
    return name if name.isidentifier() else v.name


def without_block(fn: Func, label: Label) -> Func:
    """`fn` without a block, which is not its only one, and without the loops that become empty."""
    body = _without(fn.body, label)
    assert body is not None
    return with_func_body(fn, body)


def _without(root: Stmt, label: Label) -> Stmt | None:
    """`root` without a block, or `None` if nothing remains."""
    if type(root) is Block:
        return None if root.label is label else root
    below = nested(root)
    if not below:
        return root
    kept = [_without(s, label) for s in below]
    left = tuple(s for s in kept if s is not None)
    if len(left) == len(below):
        changed = any(a is not b for a, b in zip(left, below, strict=True))
        return with_children(root, left) if changed else root
    if not left:
        return None
    return left[0] if len(left) == 1 and len(below) > 1 else with_children(root, left)


def without_buffers(fn: Func, buffers: Collection[Buffer]) -> Func:
    """`fn` without unused internal buffers, and without prefetches of them."""
    for b in [b for b in blocks_in(fn.body) if not prefetched(b).isdisjoint(buffers)]:
        fn = without_block(fn, b.label)
    return _replace(fn, allocs=tuple([b for b in fn.allocs if b not in buffers]))


def prefetched(block: Block) -> set[Buffer]:
    """The buffers that a pure prefetching block prefetches."""
    if block.reads or block.writes:
        return set()
    return {n.buffer for n in walk(block.body) if type(n) is Prefetch}


def require_not_prefetched(fn: Func, buffers: Collection[Buffer]) -> None:
    """Require that no block prefetches a buffer whose elements will move."""
    for b in blocks_in(fn.body):
        moved = prefetched(b).intersection(buffers)
        require(
            not moved,
            "block {0} prefetches {1}, whose elements will lie elsewhere",
            b.label,
            lambda moved=moved: ", ".join(m.name for m in moved),
            hint="do this before prefetch",
        )


def order_of(fn: Func) -> dict[Label, int]:
    """The position of each block in program order."""
    return {b.label: n for n, b in enumerate(blocks_in(fn.body))}


def outer_ranges(fn: Func, at: Label | Var) -> dict[Var, tuple[Dim, Dim]]:
    """The ranges of the loops around a block or loop."""
    return loop_ranges(loops_above(fn, at))
