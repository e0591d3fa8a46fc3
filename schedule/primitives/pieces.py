"""A statistic of a row and a sum that depends on it, computed piece by piece."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace as _replace
from typing import NamedTuple

from ...tir.ir import Block, Buffer, Expr, For, Func, Label, Stmt, Var
from ...tir.structure import same
from ...tir.updates import Reduction
from ...tir.visit import substitute
from ..block_queries import has_reduction, nest_like, require_unit, writers_of
from ..find import find_block, perfect_nest
from ..reduction_blocks import require_terms
from ..require import certain, require
from .cached_copies import replace_top, top_position, top_statements
from .reduction import rfactor


class Statistic(NamedTuple):
    """The statistic of each row that `block` computes, which a sum reads at the indices `at`.

    `value` is its operand, in the variables of the sum. `name` is for people.
    """

    name: str
    block: Block
    of: Reduction
    value: Expr
    at: tuple[Expr, ...]


class Pieces(NamedTuple):
    """The labels of the blocks of the pieces, and the buffer with the statistic of each piece."""

    first: Label
    second: Label
    local: Buffer


def in_pieces(fn: Func, found: Statistic, block: Block, loop: Var) -> tuple[Func, Pieces]:
    """Keep a statistic and the sum `block` for each iteration of `loop`, and combine them.

    The sum still uses the statistic of the row, and partial sums are added as they are; the caller
    rewrites both.
    """
    first = found.block
    for b in (first, block):
        require_unit(fn, b)
    own_nest(fn, first)
    nest = own_nest(fn, block)
    _require_same_elements(fn, found, block)
    require_terms(block)

    fn, second = rfactor(fn, loop, -1)
    require(
        has_reduction(find_block(fn, second)),
        "the pieces of block {0} have one element each",
        block.label.name,
        at=loop,
        hint="split the loop, and give the outer part",
    )
    loops = {s.var: Var(s.var.name) for s in nest}
    fn = replace_top(fn, first.label, _like(first, block, nest, loops))
    fn, label = rfactor(fn, loops[loop], -1)
    (local,) = (r.buffer for r in find_block(fn, label).writes)
    return fn, Pieces(label, second, local)


def in_variables_of(block: Block, first: Block, e: Expr) -> Expr:
    """`e` with the variables of `block` in the places of those of `first`."""
    return substitute(e, _variables(first, block))


def own_nest(fn: Func, block: Block) -> list[For]:
    """The loops around a block that has them to itself, in the outermost statement."""
    loops, leaf = perfect_nest(top_statements(fn)[top_position(fn, block.label)])
    require(
        leaf is block,
        "block {0} shares a nest with others",
        block.label,
        hint="pieces are made before compute_at",
    )
    return loops


def _variables(first: Block, block: Block) -> dict[Var, Var]:
    return {a.var: b.var for a, b in zip(first.iters, block.iters, strict=False)}


def _require_same_elements(fn: Func, found: Statistic, block: Block) -> None:
    """Require that the statistic is that of the very elements that are summed."""
    first = found.block
    fits = (
        len(first.iters) == len(block.iters)
        and all(
            a.kind is b.kind and certain(a.extent == b.extent)
            for a, b in zip(first.iters, block.iters, strict=True)
        )
        and same(in_variables_of(block, first, found.of.value), found.value)
        and all(
            same(in_variables_of(block, first, e), f)
            for e, f in zip(found.of.indices, found.at, strict=True)
        )
    )
    require(
        fits,
        "block {0} is not the {1} of the elements that block {2} sums, over the same "
        "iterations in the same order",
        first.label.name,
        found.name,
        block.label,
    )
    position = top_position(fn, first.label)
    for buffer in sorted({r.buffer for r in first.reads}, key=lambda b: b.name):
        late = [
            w.label.name
            for w in writers_of(fn, buffer)
            if w.label is not first.label and top_position(fn, w.label) > position
        ]
        require(
            not late,
            "block {0} writes {1} after its {2} was found",
            ", ".join(late),
            buffer.name,
            found.name,
            at=block.label,
        )


def _like(first: Block, block: Block, nest: list[For], loops: Mapping[Var, Var]) -> Stmt:
    """The block of the statistic in loops like those of the sum."""
    variables = _variables(first, block)
    values = {i.var: i.value for i in block.iters}
    iters = tuple(
        _replace(i, value=substitute(values[variables[i.var]], loops)) for i in first.iters
    )
    guard = None if block.predicate is None else substitute(block.predicate, loops)
    return nest_like(nest, _replace(first, iters=iters, predicate=guard), loops)
