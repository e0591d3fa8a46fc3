"""Sum long reductions by parts, as the rounding errors of one long sum add up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import isqrt
from typing import NamedTuple

from ...base import dtypes
from ...tir.ir import (
    Alloc,
    Binary,
    Broadcast,
    Buffer,
    Expr,
    For,
    ForKind,
    Func,
    Load,
    Op,
    Ramp,
    Stmt,
    Store,
    const,
    seq,
)
from ...tir.structure import key_of
from ...tir.visit import ReadBuffers, children, nested, substitute, with_func_body
from .registers import SCOPE
from .rewrite import allocated, fresh, map_stmts, renewed

PART = 128
"""Terms of a part, at least. Two parts or less are summed as one."""
PLAIN_PART = 16
"""The same of terms that are no products, where registers hold the parts beside the sums: such sums
wait for memory rather than for the additions of parts."""


def partial_sums(func: Func, registers: int) -> Func:
    """Sum what serial loops add to floats in some of so many registers by parts, each from 0 on.

    for k in 1024: R[0] = R[0] + X[k]   ->   for p in 8:
                                                 P[0] = 0
                                                 for k in 128: P[0] = P[0] + X[p * 128 + k]
                                                 R[0] = R[0] + P[0]

    The error of a sum of n terms grows with the root of n; so it grows with that of a part, and of
    how many there are. The loop that is divided is the outermost one of which some iterations are
    a part. This changes the order of a reduction, which the IR does not specify.
    """

    read = ReadBuffers()

    def visit(stmt: Stmt) -> Stmt:
        if type(stmt) is For and stmt.kind is ForKind.SERIAL and type(stmt.extent) is int:
            totals = _totals(stmt.body, read)
            each = max((total.terms for total in totals.values()), default=0)
            plain = all(total.plain for total in totals.values())
            least = PLAIN_PART if plain and 2 * len(totals) <= registers else PART
            part = max(least, isqrt(each * stmt.extent))
            if each * stmt.extent > 2 * least and each <= part:
                return _divided(stmt, stmt.extent, part // each, totals)
        return map_stmts(stmt, visit)

    return with_func_body(func, visit(func.body))


class _Total(NamedTuple):
    """Where a register is added to, how many terms in an iteration, and whether none of them is a
    product."""

    place: Expr
    dtype: str
    terms: int
    plain: bool


def _totals(body: Stmt, read: ReadBuffers) -> dict[Buffer, _Total]:
    """What is added to in a body, of registers of which it does nothing else."""
    found: dict[Buffer, _Total] = {}
    others: set[Buffer] = set()

    def visit(stmt: Stmt, times: int) -> None:
        operands = [e for e in children(stmt) if isinstance(e, Expr)]
        if type(stmt) is Alloc:
            others.add(stmt.buffer)
        elif type(stmt) is Store and stmt.buffer.scope == SCOPE:
            term, known = _term(stmt), found.get(stmt.buffer)
            plain = not (type(term) is Binary and term.op is Op.MUL)
            total = _Total(stmt.indices[0], stmt.value.dtype, times, plain)
            if term is None:
                others.add(stmt.buffer)
            elif known is None:
                operands, found[stmt.buffer] = [term], total
            elif key_of(known.place) == key_of(total.place):
                total = total._replace(terms=known.terms + times, plain=known.plain and plain)
                operands, found[stmt.buffer] = [term], total
        others.update(*map(read, operands))
        for below in nested(stmt):
            count = stmt.extent if type(stmt) is For and type(stmt.extent) is int else 1
            visit(below, times * count)

    visit(body, 1)
    return {buffer: total for buffer, total in found.items() if buffer not in others}


def _term(stmt: Store) -> Expr | None:
    """What a store adds to a float in a register."""
    value = stmt.value
    if stmt.mask is not None or type(value) is not Binary or value.op is not Op.ADD:
        return None
    total = value.a
    if type(total) is not Load or total.buffer is not stmt.buffer or total.mask is not None:
        return None
    same = key_of(total.indices[0]) == key_of(stmt.indices[0])
    return value.b if same and dtypes.is_float(stmt.buffer.dtype) else None


def _divided(loop: For, extent: int, many: int, totals: Mapping[Buffer, _Total]) -> Stmt:
    """The loop by parts of about `many` iterations, which divide its extent if that is near."""
    near = (n for n in range(many, many // 2, -1) if extent % n == 0)
    size = next(near, many)
    parts, rest = divmod(extent, size)
    outer = renewed(loop.var, f"{loop.var.name}_part")
    stmts: list[Stmt] = [For(outer, parts, _part(loop, outer * size, size, totals))]
    if rest:
        stmts.append(fresh(_part(loop, const(parts * size, loop.var.dtype), rest, totals)))
    return seq(*stmts)


def _part(loop: For, first: Expr, count: int, totals: Mapping[Buffer, _Total]) -> Stmt:
    """`count` iterations from `first` on, added up by themselves."""
    parts = {buffer: replace(buffer, name=f"{buffer.name}_part") for buffer in totals}
    inner = renewed(loop.var)
    before: list[Stmt] = []
    after: list[Stmt] = []
    for buffer, (index, dtype, *_) in totals.items():
        zero: Expr = const(0.0, buffer.dtype)
        zero = Broadcast(zero, index.lanes, dtype) if type(index) is Ramp else zero
        before.append(Store(parts[buffer], (index,), zero))
        whole, part = Load(buffer, (index,), dtype), Load(parts[buffer], (index,), dtype)
        after.append(Store(buffer, (index,), Binary(Op.ADD, whole, part, dtype)))
    body = substitute(loop.body, {loop.var: first + inner, **parts})
    summed = replace(loop, var=inner, extent=count, body=body)
    return allocated(list(parts.values()), seq(*before, summed, *after))
