"""The accesses of blocks to buffers, and nests that copy between buffers.

Blocks changed as a whole: bodies rewritten, accesses redirected, and nests for new blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace as _replace
from typing import Any, TypeAlias

from ..tir.bounds import bound, prove
from ..tir.combiners import COMBINERS, Place, update
from ..tir.contradiction import contradict
from ..tir.dependence import Access
from ..tir.ir import (
    Binary,
    Block,
    Buffer,
    Const,
    Dim,
    Expr,
    For,
    If,
    Iter,
    IterKind,
    Label,
    Load,
    Op,
    Prefetch,
    Range,
    Select,
    Seq,
    Stmt,
    Store,
    Var,
    as_expr,
    binary,
    load,
    product,
)
from ..tir.simplify import simplify_dim
from ..tir.structure import key_of
from ..tir.visit import rewrite_children, substitute, walk
from .block_queries import Ranges, domain, free_vars, loop_ranges, nest, with_regions
from .distinct import distinct
from .facts import last
from .index_map import IndexMap
from .require import certain, note_provisional, require

SPREAD = 4096
"""At most how many times as many places as elements a copy may have."""


def place_of(block: Block, buffer: Buffer) -> tuple[Expr, ...]:
    """The indices at which a block accesses a buffer, if they are the same everywhere."""
    accesses = [
        n
        for root in (block.body, block.init)
        if root is not None
        for n in walk(root)
        if (type(n) is Load or type(n) is Store) and n.buffer is buffer
    ]
    keys = {tuple(map(key_of, n.indices)) for n in accesses}
    require(
        len(keys) == 1,
        "block {0} accesses {1} at {2} different places; expected one",
        block.label,
        buffer.name,
        len(keys),
    )
    own = {i.var for i in block.iters}
    found: tuple[Expr, ...] = accesses[0].indices
    inner = {n.var for n in walk(block.body) if not isinstance(n, Expr) and hasattr(n, "var")}
    local = {v for e in found for v in free_vars(e)} & inner
    require(
        not local - own,
        "the place where block {0} accesses {1} depends on {2}, which is bound in its body",
        block.label,
        buffer.name,
        lambda: ", ".join(sorted(v.name for v in local)),
    )
    return found


def places_of(block: Block, mapping: IndexMap) -> tuple[Expr, ...]:
    require(
        len(mapping.inputs) == len(block.iters),
        "the map takes {0} indices, block {1} has {2} iteration variables ({3})",
        len(mapping.inputs),
        block.label,
        len(block.iters),
        lambda: ", ".join(i.var.name for i in block.iters),
    )
    return mapping.apply(tuple(i.var for i in block.iters))


def moving(block: Block, exprs: Sequence[Expr]) -> tuple[Iter, ...]:
    """The iterations that expressions depend on."""
    used = {v for e in exprs for v in free_vars(e)}
    return tuple(i for i in block.iters if i.var in used)


def require_inside(buffer: Buffer, indices: Sequence[Expr], ranges: Ranges, at: Label) -> None:
    """Require that a copy may evaluate `buffer[indices]` all over `ranges`."""
    for e, size in zip(indices, buffer.shape, strict=True):
        require(
            _is_inside(e, as_expr(size), ranges),
            "index {0} of {1} is not shown to lie within 0 to {2} in all iterations",
            e,
            buffer.name,
            last(size),
            at=at,
            hint="a copy is made in all of them, also where a condition keeps the block from it",
        )
        for n in walk(e):
            require(
                type(n) is not Binary
                or n.op not in (Op.FLOORDIV, Op.MOD)
                or (type(n.b) is Const and n.b.value != 0)
                or prove(n.b >= 1, ranges) is True,
                "index {0} of {1} divides by what is not known to be positive",
                e,
                buffer.name,
                at=at,
            )


def _is_inside(e: Expr, size: Expr, ranges: Ranges) -> bool:
    """Whether an index is shown to be one of `size`: by its ends, or by integer sets."""
    below, above = binary(Op.LT, e, 0), binary(Op.GE, e, size)
    ends = (prove(c, ranges) is False for c in (below, above))
    return all(ends) or contradict([binary(Op.OR, below, above)], ranges)


def always_read(block: Block, buffer: Buffer) -> bool:
    """Whether each visit of a block reads an element of `buffer`, independent of data."""

    def visit(n: Any) -> bool:
        if type(n) is Load and n.buffer is buffer and n.mask is None:
            return True
        if type(n) is Select or type(n) is If:
            return visit(n.cond)
        found = False

        def see(child: Any) -> Any:
            nonlocal found
            found = found or visit(child)
            return child

        if type(n) is not Buffer:
            rewrite_children(n, see)
        return found

    return visit(block.body)


def require_apart(
    iters: Sequence[Iter], places: Sequence[Expr], message: str, buffer: Buffer, at: Label
) -> None:
    """Require that different values of `iters` have different `places`."""
    require(are_apart(iters, places), message, buffer.name, at=at)


def are_apart(iters: Sequence[Iter], places: Sequence[Expr]) -> bool:
    """Whether different values of `iters` are shown to have different `places`."""
    loops = [For(i.var, i.extent, Seq(())) for i in iters]
    access = Access(tuple(Range(e, 1) for e in places), {})
    return all(certain(i.extent == 1) for i in iters) or (
        bool(places) and distinct([access], loops, loop_ranges(loops))
    )


def extent_of(e: Expr, ranges: Ranges, at: Label) -> Dim:
    """The smallest extent that contains all values of an index."""
    low, high = bound(e, ranges)
    known = low is not None and high is not None and low >= 0
    require(known, "the new index {0} has no known range from zero on", e, at=at)
    assert high is not None
    return simplify_dim(high + 1, ranges)


def shape_of(
    old: Buffer, places: Sequence[Expr], iters: Sequence[Iter], at: Label
) -> tuple[Dim, ...]:
    """The extents that hold all `places`."""
    if any(isinstance(i.extent, int) and i.extent <= 0 for i in iters):
        return (0,) * len(places)
    ranges = domain(iters)
    shape = [extent_of(e, ranges, at) for e in places]
    count, most = product(shape), product([i.extent for i in iters]) * SPREAD
    require(
        not (isinstance(count, int) and isinstance(most, int)) or count <= most,
        "the map spreads what is copied of {0} over {1} places",
        old.name,
        count,
        at=at,
    )
    return tuple(shape)


def copy_nest(
    name: str,
    iters: Sequence[Iter],
    target: tuple[Buffer, Sequence[Expr]],
    source: tuple[Buffer, Sequence[Expr]],
) -> tuple[Stmt, Label]:
    """A nest over `iters` that copies between places of two buffers."""
    label = Label(name)
    fresh = {i.var: Var(f"v{n}") for n, i in enumerate(iters)}
    axes = [(f"c{n}", fresh[i.var], i.extent) for n, i in enumerate(iters)]
    to, of = (tuple(substitute(e, fresh) for e in side[1]) for side in (target, source))
    body = Store(target[0], to, load(source[0], of))
    return spatial_nest(label, axes, body), label


Moved: TypeAlias = "tuple[Buffer, Callable[[tuple[Expr, ...]], tuple[Expr, ...]]]"
"""The buffer that is accessed instead, and its indices as a function of the old ones."""


def rewritten(block: Block, visit: Callable[[Any], Any]) -> Block:
    """`block` with `visit` applied to its body and its init, and the regions of the result."""
    init = None if block.init is None else visit(block.init)
    return with_regions(_replace(block, body=visit(block.body), init=init))


def redirected(n: Any, moves: Mapping[Buffer, Moved]) -> Any:
    """A part of a program with its accesses to some buffers made to others."""
    kind = type(n)
    if kind not in (Load, Store, Prefetch) or n.buffer not in moves:
        return rewrite_children(n, lambda child: redirected(child, moves))
    new, moved = moves[n.buffer]
    indices = moved(tuple([redirected(e, moves) for e in n.indices]))
    if kind is Prefetch:
        return Prefetch(new, indices)
    mask = None if n.mask is None else redirected(n.mask, moves)
    if kind is Load:
        return load(new, indices, mask)
    return Store(new, indices, redirected(n.value, moves), mask)


def with_indices(n: Any, f: Callable[[Expr], Expr]) -> Any:
    """A part of a program with `f` applied to the indices of its accesses, innermost first."""
    new = rewrite_children(n, lambda child: with_indices(child, f)) if type(n) is not Buffer else n
    if type(new) is Load:
        return load(new.buffer, tuple(map(f, new.indices)), new.mask)
    return _replace(new, indices=tuple(map(f, new.indices))) if type(new) is Store else new


def block_redirected(block: Block, moves: Mapping[Buffer, Moved]) -> Block:
    """`block` with its accesses to some buffers made to others."""
    return rewritten(block, lambda n: redirected(n, moves))


def adding(block: Block, place: Place, value: Expr) -> Block:
    """`block` as a sum of `value` at `place`; its iterations and its init stay."""
    body = update(COMBINERS["sum"], [place], [load(*place)], [value])
    return with_regions(_replace(block, body=body))


def copied(block: Block, label: Label, values: Mapping[Var, Expr]) -> Block:
    """`block` under another label, with iteration variables of its own.

    What they are bound to, and its predicate, has `values` in the place of variables. Its loops are
    copies of the block's.
    """
    fresh = {i.var: Var(i.var.name) for i in block.iters}
    iters = tuple(
        Iter(fresh[i.var], i.extent, i.kind, substitute(i.value, values)) for i in block.iters
    )
    predicate = None if block.predicate is None else substitute(block.predicate, values)
    inside = substitute(_replace(block, label=label, iters=(), predicate=None), fresh)
    note_provisional(label, block.label)
    return _replace(inside, iters=iters, predicate=predicate)


def spatial_nest(label: Label, axes: Sequence[tuple[str, Var, Dim]], body: Stmt) -> Stmt:
    """A block that runs `body` once for all values of some variables, in serial loops of its own.

    `axes` are names of loops with the variables that they give values to, and their extents.
    """
    loops = [(Var(name), extent) for name, _, extent in axes]
    iters = tuple(
        Iter(v, n, IterKind.SPATIAL, loop) for (_, v, n), (loop, _) in zip(axes, loops, strict=True)
    )
    return nest(loops, with_regions(Block(label, iters, (), (), body)))
