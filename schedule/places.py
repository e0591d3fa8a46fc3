"""The accesses of blocks to buffers, and nests that copy between buffers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..tir.bounds import bound, prove
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
    Label,
    Load,
    Op,
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
from .block_queries import Ranges, domain, free_vars, loop_ranges
from .distinct import distinct
from .edits import spatial_nest
from .facts import last
from .index_map import IndexMap
from .require import certain, require

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
