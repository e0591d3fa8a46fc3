"""Reduce the lanes of a vector in registers by halves, as a tree."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ...base import dtypes
from ...tir.ir import (
    Binary,
    Buffer,
    Const,
    Expr,
    For,
    ForKind,
    Func,
    Load,
    Op,
    Seq,
    Stmt,
    Store,
    const,
    seq,
)
from ...tir.simplify import Simplifier
from ...tir.visit import substitute, walk, with_func_body
from .rewrite import adjacent, allocated, map_stmts, simplifier_of

_OPERATORS = frozenset({Op.ADD, Op.MUL, Op.MIN, Op.MAX})
_LEAST = 4


def tree_reduce(func: Func) -> Func:
    """Combine the lanes of a register in a logarithmic number of steps.

    for i in unrolled(4):              T[ramp(0, 1, 2)] = R[ramp(0, 1, 2)] + R[ramp(2, 1, 2)]
        S[0] = S[0] + R[i]      ->     S[0] = S[0] + (T[0] + T[1])

    Several reductions in one loop are combined one after the other. This changes the order of a
    reduction, which the IR does not specify.
    """
    s = simplifier_of(func)

    def visit(stmt: Stmt) -> Stmt:
        if type(stmt) is For and stmt.kind in (ForKind.UNROLL, ForKind.SERIAL):
            chains = _chains(stmt, s)
            if chains:
                return seq(*map(_steps, chains))
        return map_stmts(stmt, visit)

    return with_func_body(func, visit(func.body))


class _Chain(NamedTuple):
    """`store` adds (or the like) the elements of `register` from `start` on, `length` in all."""

    store: Store
    op: Op
    register: Buffer
    start: Expr
    length: int


def _chains(loop: For, s: Simplifier) -> list[_Chain]:
    """The loop as chains over what none of them writes; none where it does anything else."""
    stores = loop.body.stmts if type(loop.body) is Seq else (loop.body,)
    chains = [chain for body in stores if (chain := _match(body, loop, s)) is not None]
    written = {chain.store.buffer for chain in chains}
    places = (n for chain in chains for n in walk(chain.store.indices[0]))
    read = {c.register for c in chains} | {n.buffer for n in places if type(n) is Load}
    return chains if len(written) == len(stores) and written.isdisjoint(read) else []


def _match(body: Stmt, loop: For, s: Simplifier) -> _Chain | None:
    """A store in the loop as a chain over a power of two of elements that lie side by side."""
    count = loop.extent
    if type(body) is not Store or not isinstance(count, int) or body.mask is not None:
        return None
    value = body.value
    if type(value) is not Binary or value.op not in _OPERATORS or count & (count - 1):
        return None
    total, element = value.a, value.b
    if type(total) is not Load or type(element) is not Load or count < _LEAST:
        return None
    if total.buffer is not body.buffer or s.poly(total.indices[0]) != s.poly(body.indices[0]):
        return None
    if element.buffer.scope != "register":
        return None
    if loop.var in s.poly(body.indices[0]) or s.poly(element.indices[0]).get(loop.var) != 1:
        return None
    start = s(substitute(element.indices[0], {loop.var: const(0)}))
    if type(start) is not Const:
        return None
    return _Chain(body, value.op, element.buffer, start, count)


def _steps(chain: _Chain) -> Stmt:
    source, start, width = chain.register, chain.start, chain.length // 2
    stmts: list[Stmt] = []
    made: list[Buffer] = []
    while width > 1:
        half = replace(source, name=f"{chain.register.name}_{width}", shape=(width,))
        made.append(half)
        whole = _combined(chain.op, source, start, width)
        stmts.append(Store(half, (adjacent(const(0), width),), whole))
        source, start, width = half, const(0), width // 2
    rest = _combined(chain.op, source, start, 1)
    total = chain.store.value
    assert isinstance(total, Binary)
    stmts.append(replace(chain.store, value=Binary(chain.op, total.a, rest, total.dtype)))
    return allocated(made, seq(*stmts))


def _combined(op: Op, source: Buffer, start: Expr, width: int) -> Expr:
    dtype = dtypes.vector(source.dtype, width)
    low = Load(source, (adjacent(start, width),), dtype)
    high = Load(source, (adjacent(start + width, width),), dtype)
    return Binary(op, low, high, dtype)
