"""Reduction blocks of a schedule: those that a step or rule can take apart."""

from __future__ import annotations

from ..tir.ir import Block, Buffer, Const, Expr, Func, If, IterKind, Stmt, Store
from ..tir.updates import Reduction, simple_update
from .block_queries import writers_of
from .require import require


def without_conditions(stmt: Stmt) -> tuple[list[Expr], Stmt]:
    """The conditions around what `stmt` does, from the outermost one, and that without them."""
    conditions: list[Expr] = []
    while type(stmt) is If and stmt.other is None:
        conditions.append(stmt.cond)
        stmt = stmt.then
    return conditions, stmt


def match_reduction(block: Block, combiner: str | None = None) -> Reduction | None:
    """The reduction to one result that `block` computes, or `None` for anything else.

    With `combiner`, reductions by others are something else.
    """
    body = block.body
    found = simple_update(body, {body.buffer}) if type(body) is Store else None
    return None if found is None or combiner not in (None, found.combiner.name) else found


def reduction_into(fn: Func, buffer: Buffer, combiner: str) -> tuple[Block, Reduction] | None:
    """The one block that writes `buffer`, and the reduction by `combiner` that it computes."""
    writers = writers_of(fn, buffer)
    found = match_reduction(writers[0], combiner) if len(writers) == 1 else None
    return None if found is None else (writers[0], found)


def starts_from_zero(block: Block) -> bool:
    """Whether the init of `block` stores the number zero."""
    start = block.init.value if type(block.init) is Store else None
    return type(start) is Const and start.value == 0


def require_terms(block: Block) -> None:
    """Require that each sum of `block` has a term."""
    for i in block.iters:
        if i.kind is IterKind.REDUCE:
            require(i.extent > 0, "the sum of block {0} has no terms", block.label)
