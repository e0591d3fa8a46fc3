"""The form of loop nests around blocks, to which the parser brings what an author writes.

Around a block stand loops of constant extents, sequences and buffers. What a condition or a `Let`
around it says is said by the block: conditions of loops are part of its predicate, conditions that
read memory stand in its body, whose declared regions tell what it reads.

    for i:                                      for i:
        if i > 2:                                   with block("C"):
            x = i // 2                                  v = axis.spatial(8, i)
            if B[x] < 0:                ->              where(i > 2)
                with block("C"):                        if B[v // 2] < 0:
                    v = axis.spatial(8, i)                  C[v] = A[v]
                    C[v] = A[v]
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ..base import dtypes
from ..base.errors import IRError
from .bounds import bound, variables
from .ir import (
    INDEX,
    Alloc,
    Binary,
    Block,
    Buffer,
    Const,
    Expr,
    For,
    If,
    Iter,
    IterKind,
    Let,
    Load,
    Op,
    Seq,
    Stmt,
    Var,
    call,
    seq,
)
from .piecewise import linear
from .polynomial import Ranges
from .regions import infer_regions, same_regions
from .rules import negation
from .simplify import simplify
from .structure import conjunction, conjuncts
from .visit import nested, rewrite_children, stored_buffers, substitute, walk, with_body


def holds_block(s: Stmt) -> bool:
    """Whether a block is in `s`."""
    return type(s) is Block or any(map(holds_block, nested(s)))


def read_by(e: Expr) -> set[Buffer]:
    """The buffers that an expression reads."""
    return {n.buffer for n in walk(e) if type(n) is Load}


def conditional(cond: Expr, then: Stmt, other: Stmt | None, ranges: Ranges) -> Stmt:
    """`If(cond, then, other)`, where it has blocks in their form.

    `ranges` has the variables of the loops around it. Raises `IRError` where the condition reads
    memory that is stored to before all blocks have asked it, or loops that no block knows of.
    """
    whole = If(cond, then, other)
    if not holds_block(whole):
        return whole
    if type(then) is not Block or other is not None:
        _require_kept(cond, whole, "condition")
    opposite = negation(cond)
    parts = [_under(cond, then, ranges)]
    if other is not None:
        parts.append(_under(call("not", cond) if opposite is None else opposite, other, ranges))
    return seq(*parts)


def binding(var: Var, value: Expr, body: Stmt) -> Stmt:
    """`Let(var, value, body)`; where it has blocks, `value` stands in the place of `var`.

    Raises `IRError` where it reads memory that `body` stores to.
    """
    if not holds_block(body):
        return Let(var, value, body)
    _require_kept(value, body, f"value of {var.name}")
    return substitute(body, {var: value})


def largest(extent: Expr, ranges: Ranges) -> int | None:
    """The largest value of an extent, from zero on, over the loops around it.

    `None` if it is not known, or depends on more than those.
    """
    if not variables(extent) <= ranges.keys() or read_by(extent):
        return None
    high = bound(extent, ranges)[1]
    return max(high, 0) if isinstance(high, int) else None


def where(block: Block, conditions: Collection[Expr], ranges: Ranges) -> Block:
    """`block` where `conditions` on the loops around it hold too, asked in their order.

    They may be on its iteration variables too.
    Raises `IRError` for a condition that reads memory and depends on loops that the block's
    iteration variables do not tell.
    """
    values = {i.var: i.value for i in block.iters}
    predicate = [substitute(c, values) for c in conditions if not read_by(c)]
    inside = [c for c in conditions if read_by(c)]
    block = replace(block, predicate=conjunction([*predicate, *conjuncts(block.predicate)]))
    for c in reversed(inside):
        block = _inside(block, c, ranges)
    return block


def _under(cond: Expr, s: Stmt, ranges: Ranges) -> Stmt:
    """`s` under a condition that nothing in it changes."""
    if not holds_block(s):
        return s if type(s) is Seq and not s.stmts else If(cond, s)
    match s:
        case Block():
            # Conditions that are asked together with a predicate do not keep it from failing.
            unsafe = [c for c in conjuncts(s.predicate) if _may_fail(c)]
            if unsafe:
                kept = [c for c in conjuncts(s.predicate) if not _may_fail(c)]
                s = replace(s, predicate=conjunction(kept))
                for c in reversed(unsafe):
                    s = _inside(s, c, ranges)
            return where(s, conjuncts(cond), ranges)
        case For():
            return with_body(s, _under(cond, s.body, ranges))
        case Seq():
            return seq(*(_under(cond, part, ranges) for part in s.stmts))
        case Alloc():
            return Alloc(s.buffer, _under(cond, s.body, ranges))
        case _:
            raise TypeError(f"a {type(s).__name__} stands around a block")


def _inside(block: Block, cond: Expr, ranges: Ranges) -> Block:
    """`block` with a condition in its body.

    The init is under it too, where it does not depend on the reduce iterations: then it says which
    elements are computed, not of which terms.
    """
    block, told = _told(block, cond, ranges)
    before = infer_regions(block.iters, block.body, block.init)
    init, body = block.init, If(told, block.body)
    if init is not None:
        _require_kept(cond, Seq((block.body, init)), "condition")
        reduced = {i.var for i in block.iters if i.kind is IterKind.REDUCE}
        init = If(told, init) if reduced.isdisjoint(variables(told)) else init
    after = infer_regions(block.iters, body, init)
    asked = infer_regions(block.iters, If(told, Seq(())), None)[0]
    more = tuple([r for r in asked if not any(same_regions((r,), (q,)) for q in block.reads)])
    reads = after[0] if same_regions(block.reads, before[0]) else (*more, *block.reads)
    return replace(block, body=body, init=init, reads=reads)


def _told(block: Block, cond: Expr, ranges: Ranges) -> tuple[Block, Expr]:
    """`cond` in terms of the iteration variables of a block.

    A loop that none of them depends on becomes an opaque one.
    """
    bound_to = {v for i in block.iters for v in (i.var, *variables(i.value))}
    more = [
        Iter(Var(f"v{v.name}"), ranges[v][1] + 1, IterKind.OPAQUE, v)
        for v in sorted((variables(cond) & ranges.keys()) - bound_to, key=lambda v: v.name)
    ]
    iters = (*block.iters, *more)
    told = _in_iterations(cond, iters, ranges)
    for v in (variables(told) & ranges.keys()) - {i.var for i in iters}:
        raise IRError(
            "the condition {0} around block {1} reads memory, and the block's iteration variables "
            "do not tell loop {2}", cond, block.label.name, v.name,
            hint=f"bind one to it, as v = T.axis.opaque(extent, {v.name}), or write the condition "
            "in the body of the block",
        )  # fmt: skip
    return replace(block, iters=iters), told


def _in_iterations(e: Expr, iters: Collection[Iter], ranges: Ranges) -> Expr:
    """`e` with iteration variables in the place of loops, as far as they tell them."""
    e = substitute(e, {i.value: i.var for i in iters if type(i.value) is Var})
    own = {i.var for i in iters}
    compound = [i for i in iters if type(i.value) is not Var]

    def visit(n: Expr) -> Expr:
        left = (variables(n) & ranges.keys()) - own
        if not left:
            return n
        solved = _solved(n, left, compound) if n.dtype == INDEX else None
        if solved is not None:
            return solved
        return rewrite_children(n, lambda c: visit(c) if isinstance(c, Expr) else c)

    return visit(e)


def _solved(e: Expr, left: Collection[Var], iters: Collection[Iter]) -> Expr | None:
    """A linear index as one of iteration variables; `None` if they do not tell it."""
    for i in iters:
        parts, steps = linear(e, left), linear(i.value, left)
        if parts is None:
            return None
        for v, step in ({} if steps is None else steps.coefficients).items():
            size = parts.coefficients.get(v)
            if isinstance(size, int) and isinstance(step, int) and size % step == 0:
                e = simplify(e + (i.var - i.value) * (size // step))
                break
    return None if variables(e) & set(left) else e


def _require_kept(e: Expr, stmt: Stmt, what: str) -> None:
    changed = read_by(e) & stored_buffers(stmt)
    if changed:
        raise IRError(
            "the {0} {1} around blocks reads {2}, which is stored to below it; expected memory "
            "that stays as it is", what, e, ", ".join(sorted(b.name for b in changed)),
            hint="store what it is in a buffer of its own, before, and ask that",
        )  # fmt: skip


def _may_fail(e: Expr) -> bool:
    """Whether evaluating `e` may be refused: a quotient, or a shift, by what is not constant."""
    risky = (Op.FLOORDIV, Op.MOD, Op.SHL, Op.SHR)
    return any(
        type(n) is Binary
        and n.op in risky
        and dtypes.is_integer(n.dtype)
        and type(n.b) is not Const
        for n in walk(e)
    )
