"""Replace blocks by plain statements: substitute the bindings of their iteration variables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from ...tir.instruction import KEY
from ...tir.ir import (
    TRUE,
    Block,
    Const,
    Expr,
    For,
    ForKind,
    Func,
    If,
    IterKind,
    Op,
    Seq,
    Stmt,
    Var,
    binary,
    const,
    seq,
)
from ...tir.polynomial import ONE
from ...tir.simplify import Simplifier
from ...tir.structure import conjunction
from ...tir.visit import substitute, with_func_body
from .rewrite import fresh, loops, map_exprs, map_stmts, simplifier_of


def blocks(func: Func) -> Func:
    """Replace each block by its body, and put its init before the reduction loops.

    for i in 8:                                     for i in 8:
        for k in 4:                                     C[i] = 0
            with block("C"):                            for k in 4:
                v, r = axis.spatial(8, i), ...  ->          C[i] = C[i] + A[i, k]
                with init(): C[v] = 0
                C[v] = C[v] + A[v, r]

    If the reduction loops are not around this block alone, the init stays in place, under the
    condition that all reduce variables are zero. Loops of one iteration are removed, but for those
    over axes of a device and those around such loops, which make statements one launch. So is a
    block without iterations, with its init. The loops of a block that runs as an instruction keep
    its annotation.
    """
    s = simplifier_of(func)
    return with_func_body(func, _settled(_visit(func.body, s)))


class _Part(NamedTuple):
    """A statement, and an init that belongs before the loops over `zero`, not yet placed."""

    stmt: Stmt
    init: Stmt | None = None
    zero: frozenset[Var] = frozenset()


_NOTHING = _Part(Seq(()))


def _settled(part: _Part) -> Stmt:
    """The init placed right here, at the iterations where the `zero` variables are zero."""
    if part.init is None:
        return part.stmt
    variables = sorted(part.zero, key=lambda v: v.name)
    return seq(_if(_all_zero(variables), part.init), part.stmt)


def _visit(stmt: Stmt, s: Simplifier) -> _Part:
    if type(stmt) is Block:
        return _block(stmt, s)
    if type(stmt) is For:
        return _for(stmt, s)
    return _Part(map_stmts(stmt, lambda c: _settled(_visit(c, s))))


def _for(loop: For, s: Simplifier) -> _Part:
    if type(loop.extent) is int and loop.extent == 0:
        return _NOTHING
    if type(loop.extent) is int and loop.extent == 1 and loop.kind is not ForKind.THREAD:
        return _once(loop, _visit(substitute(loop.body, {loop.var: const(0)}), s))
    body, init, zero = _visit(loop.body, s)
    nothing = type(body) is Seq and not body.stmts
    if nothing and init is None:
        return _NOTHING
    if init is not None and loop.var not in zero and not zero:
        body, init, nothing = seq(init, body), None, False
    new = body if nothing else loop if body is loop.body else replace(loop, body=body)
    if init is None:
        return _Part(new)
    if loop.var not in zero:
        return _Part(new, fresh(replace(loop, body=init)), zero)
    in_order = loop.kind in (ForKind.SERIAL, ForKind.UNROLL)
    if not (in_order and isinstance(loop.extent, int)):
        return _Part(replace(loop, body=_settled(_Part(body, init, zero))))
    init = fresh(substitute(init, {loop.var: const(0)}))
    if len(zero) == 1:
        return _Part(seq(init, new))
    return _Part(new, init, zero - {loop.var})


def _once(loop: For, part: _Part) -> _Part:
    """What a loop of one iteration does: `part`, in that loop where it makes phases one launch."""
    if not any(f.thread is not None for f in loops(part.stmt)):
        return part
    init = None if part.init is None else fresh(replace(loop, body=part.init))
    return part._replace(stmt=replace(loop, body=part.stmt), init=init)


def _block(block: Block, s: Simplifier) -> _Part:
    values = {i.var: s(i.value) for i in block.iters}
    predicate = TRUE if block.predicate is None else s(block.predicate)
    inner = map_exprs(_inner(block.body, values, s), s)
    notes = tuple(pair for pair in block.annotations if pair[0] == KEY)
    if notes and type(inner) is For:
        inner = replace(inner, annotations=notes)
    body = _if(predicate, inner)
    if block.init is None:
        return _Part(body)
    init = _if(predicate, map_exprs(_inner(block.init, values, s), s))
    zero: set[Var] = set()
    reduced = [values[i.var] for i in block.iters if i.kind is IterKind.REDUCE]
    for value in reduced:
        variables = _zero_together(value, s)
        if variables is None:
            return _Part(seq(_if(s(_all_zero(reduced)), init), body))
        zero |= variables
    if not zero:
        return _Part(seq(init, body))
    return _Part(body, init, frozenset(zero))


def _inner(stmt: Stmt, values: dict[Var, Expr], s: Simplifier) -> Stmt:
    return _settled(_visit(substitute(stmt, values), s))


def _zero_together(value: Expr, s: Simplifier) -> set[Var] | None:
    """The loop variables that are all zero exactly where `value` is; `None` if not known."""
    variables: set[Var] = set()
    for atom, coefficient in s.poly(value).items():
        if type(atom) is not Var or atom is ONE or coefficient < 0:
            return None
        if s.ranges.get(atom, (None,))[0] != 0:
            return None
        variables.add(atom)
    return variables


def _all_zero(values: Iterable[Expr]) -> Expr:
    condition = conjunction([binary(Op.EQ, v, const(0)) for v in values])
    return TRUE if condition is None else condition


def _if(condition: Expr, then: Stmt) -> Stmt:
    if condition is TRUE or (type(condition) is Const and condition.value):
        return then
    return If(condition, then)
