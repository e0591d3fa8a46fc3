"""What a schedule computes of constant operands alone is left out of the kernel.

A copy of a constant operand in another layout (`Schedule.pack`) does not depend on a call: the
kernel takes the packed operand in its place, and the module says how to make it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..runtime.packing import Packing
from ..tir.conditions import conjuncts
from ..tir.ir import (
    Binary,
    Block,
    Buffer,
    Const,
    Dim,
    Expr,
    Func,
    Load,
    Op,
    Select,
    Seq,
    Stmt,
    Store,
    Var,
    as_dim,
    seq,
)
from ..tir.visit import walk


@dataclass(frozen=True)
class Ahead:
    """A copy of a constant operand: the statement that makes it, and its layout."""

    operand: Buffer
    packed: Buffer
    block: Block
    stmt: Stmt
    layout: str
    factors: tuple[Dim, ...]


def packed_ahead(func: Func) -> list[Ahead]:
    """The copies of constant operands that `func` makes, of operands that it reads nowhere else.

    Sizes may be symbolic.
    """
    operands = [p for p in func.params if type(p) is Buffer and p.constant]
    if not operands:
        return []
    stages = func.body.stmts if type(func.body) is Seq else (func.body,)
    users: dict[Buffer, list[Block]] = {}
    makers: dict[Buffer, list[Block]] = {}
    homes: dict[Block, Stmt] = {}
    crowded: set[Stmt] = set()
    for stage in stages:
        blocks = [n for n in walk(stage) if type(n) is Block]
        homes |= dict.fromkeys(blocks, stage)
        if len(blocks) != 1:
            crowded.add(stage)
        for b in blocks:
            for buffer in dict.fromkeys(r.buffer for r in b.reads):
                users.setdefault(buffer, []).append(b)
            for buffer in dict.fromkeys(r.buffer for r in b.writes):
                makers.setdefault(buffer, []).append(b)
    found = []
    for operand in operands:
        blocks = users.get(operand, [])
        if len(blocks) != 1 or operand in makers or homes[blocks[0]] in crowded:
            continue
        copy = _copy(blocks[0], operand)
        if copy is None:
            continue
        packed, layout, factors = copy
        if packed in func.allocs and packed.scope == "global" and len(makers[packed]) == 1:
            found.append(Ahead(operand, packed, blocks[0], homes[blocks[0]], layout, factors))
    return found


def take_ahead(func: Func) -> tuple[Func, dict[Buffer, tuple[str, Packing]]]:
    """`func` with packed operands for parameters: their names and packings by the new buffers."""
    copies = packed_ahead(func)
    if not copies:
        return func, {}
    packings = {}
    for c in copies:
        factors = tuple(_integer(n) for n in c.factors)
        shape = tuple(_integer(n) for n in c.operand.shape)
        packings[c.packed] = (c.operand.name, Packing(c.layout, factors, shape))
    instead = {c.operand: c.packed for c in copies}
    made = {c.stmt for c in copies}
    stages = func.body.stmts if type(func.body) is Seq else (func.body,)
    return replace(
        func,
        params=tuple(instead.get(p, p) if type(p) is Buffer else p for p in func.params),
        allocs=tuple(b for b in func.allocs if b not in packings),
        body=seq(*(s for s in stages if s not in made)),
    ), packings


def _copy(block: Block, operand: Buffer) -> tuple[Buffer, str, tuple[Dim, ...]] | None:
    """The buffer, layout and factors where `block` copies `operand` into another layout."""
    store = block.body
    if type(store) is not Store or block.init is not None:
        return None
    variables = [i.var for i in block.iters]
    if not _same(store.indices, variables):
        return None
    value, guards = store.value, list[Expr]()
    if type(value) is Select:
        if type(value.other) is not Const or value.other.value != 0:
            return None
        guards, value = conjuncts(value.cond), value.then
    if type(value) is not Load or value.buffer is not operand or value.mask is not None:
        return None
    letters: dict[Var, str] = {}
    inner: dict[Var, Dim] = {}
    for d, index in enumerate(value.indices):
        parts = _digits(index)
        if parts is None or any(v in letters for v in parts[:2] if v is not None):
            return None
        outer, small, factor = parts
        letters[outer] = chr(ord("A") + d)
        if small is not None:
            letters[small] = chr(ord("a") + d)
            inner[small] = factor
    if set(letters) != set(variables):
        return None
    extents = {i.var: i.extent for i in block.iters}
    if any(not _equal(extents[v], f) for v, f in inner.items()):
        return None
    if not all(_is_bound(g, value) for g in guards):
        return None
    layout = "".join(letters[v] for v in variables)
    return store.buffer, layout, tuple(inner[v] for v in variables if v in inner)


def _same(indices: tuple[Expr, ...], variables: list[Var]) -> bool:
    return len(indices) == len(variables) and all(
        i is v for i, v in zip(indices, variables, strict=True)
    )


def _digits(index: Expr) -> tuple[Var, Var | None, Dim] | None:
    """The parts of `outer` or `outer * factor + inner`."""
    if type(index) is Var:
        return index, None, 1
    if type(index) is not Binary or index.op is not Op.ADD or type(index.b) is not Var:
        return None
    if type(index.a) is Var:
        return index.a, index.b, 1
    if type(index.a) is Binary and index.a.op is Op.MUL and type(index.a.a) is Var:
        return index.a.a, index.b, as_dim(index.a.b)
    return None


def _is_bound(guard: Expr, value: Load) -> bool:
    """Whether a guard says that an index is within the operand, and nothing else."""
    if type(guard) is not Binary or guard.op is not Op.LT:
        return False
    tested = _digits(guard.a)
    if tested is None:
        return False
    for index, extent in zip(value.indices, value.buffer.shape, strict=True):
        parts = _digits(index)
        assert parts is not None, "the indices of the load have been looked at"
        if parts[0] is tested[0] and parts[1] is tested[1] and _equal(parts[2], tested[2]):
            return _equal(as_dim(guard.b), extent)
    return False


def _equal(a: Dim, b: Dim) -> bool:
    return a is b or (type(a) is int and type(b) is int and a == b)


def _integer(n: Dim) -> int:
    assert isinstance(n, int), "sizes are checked before code is generated"
    return n
