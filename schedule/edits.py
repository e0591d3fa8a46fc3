"""Blocks changed as a whole: bodies rewritten, accesses redirected, and nests for new blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace as _replace
from typing import Any, TypeAlias

from ..tir.combiners import COMBINERS, Place, update
from ..tir.ir import (
    Block,
    Buffer,
    Dim,
    Expr,
    Iter,
    IterKind,
    Label,
    Load,
    Prefetch,
    Stmt,
    Store,
    Var,
    load,
)
from ..tir.visit import rewrite_children, substitute
from .block_queries import nest, with_regions
from .require import note_provisional

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
