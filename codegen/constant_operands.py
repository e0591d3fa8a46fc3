"""Split off the work that a schedule does on a constant operand alone.

Such work is the same in every call. The leading statements of the program that need nothing but the
operand (a packing copy, Winograd's transform of weights) become a program of their own, which runs
once. The kernel takes its result in place of the operand.

    for p, k, s: B_packed[p, k, s] = B[k, p * 4 + s]        packer: B -> B_packed
    for i, j, k: C[i, j] += A[i, k] * B_packed[...]     ->  kernel: A, B_packed -> C
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

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
    Prefetch,
    Select,
    Seq,
    Stmt,
    Store,
    Var,
    as_dim,
    seq,
)
from ..tir.structure import conjuncts
from ..tir.visit import distinct


@dataclass(frozen=True)
class Ahead:
    """The statements that compute from `operand` alone all that the others need of it: `packed`."""

    operand: Buffer
    packed: Buffer
    stmts: tuple[Stmt, ...]

    @property
    def blocks(self) -> list[Block]:
        return [n for s in self.stmts for n in distinct(s) if type(n) is Block]


@dataclass(frozen=True)
class _Stage:
    """A statement at the top of a program, and what it uses."""

    stmt: Stmt
    buffers: frozenset[Buffer]
    written: frozenset[Buffer]
    variables: frozenset[Var]


def computed_ahead(func: Func) -> list[Ahead]:
    """The statements of `func` that compute from one constant operand alone, for each operand."""
    operands = [p for p in func.params if type(p) is Buffer and p.constant]
    if not operands:
        return []
    stages = [_stage(s) for s in _statements(func)]
    found = [_ahead(func, operand, stages) for operand in operands]
    return [a for a in found if a is not None]


def take_ahead(func: Func, ahead: Sequence[Ahead]) -> Func:
    """`func` without those statements; their results are parameters."""
    if not ahead:
        return func
    instead = {a.operand: a.packed for a in ahead}
    taken = {s for a in ahead for s in a.stmts}
    rest = [s for s in _statements(func) if s not in taken]
    kept = {b for s in rest for b in _stage(s).buffers} - {a.packed for a in ahead}
    return replace(
        func,
        params=tuple(instead.get(p, p) if type(p) is Buffer else p for p in func.params),
        allocs=tuple(b for b in func.allocs if b in kept),
        body=seq(*rest),
    )


def packer(func: Func, ahead: Ahead, name: str) -> Func:
    """The program `name` from the operand to `ahead.packed`."""
    used = {b for s in ahead.stmts for b in _stage(s).buffers} - {ahead.packed}
    return replace(
        func,
        name=name,
        params=(ahead.operand, ahead.packed),
        inplace=(),
        annotations=(),
        allocs=tuple(b for b in func.allocs if b in used),
        body=seq(*ahead.stmts),
    )


def layout_of(ahead: Ahead) -> str:
    """A description of the packed operand, for people.

    A copy is described as in `Schedule.pack`: `BAb, b = 48` has panels of 48 columns, padded with
    zeros. Anything else is listed by the names of its blocks.
    """
    copies: dict[Buffer, Buffer] = {}
    texts = []
    for block in ahead.blocks:
        source = _same_as(block)
        if source is None:
            texts.append(_copy(block, ahead.operand, copies) or "")
        else:
            copies[block.writes[0].buffer] = copies.get(source, source)
    if len(texts) == 1 and texts[0]:
        return texts[0]
    return f"computed by {', '.join(dict.fromkeys(b.label.name for b in ahead.blocks))}"


def _statements(func: Func) -> tuple[Stmt, ...]:
    return func.body.stmts if type(func.body) is Seq else (func.body,)


def _stage(stmt: Stmt) -> _Stage:
    buffers, written, variables = set[Buffer](), set[Buffer](), set[Var]()
    for n in distinct(stmt):
        kind = type(n)
        if kind is Store:
            written.add(n.buffer)
        if kind is Store or kind is Load or kind is Prefetch:
            buffers.add(n.buffer)
        elif kind is Var:
            variables.add(n)
    return _Stage(stmt, frozenset(buffers), frozenset(written), frozenset(variables))


def _ahead(func: Func, operand: Buffer, stages: Sequence[_Stage]) -> Ahead | None:
    """As many statements as leave one internal buffer, which no other statement writes."""
    found = None
    taken: list[_Stage] = []
    known = {operand}
    if any(operand in s.written for s in stages):
        return None
    for stage in stages:
        inputs = stage.buffers - stage.written
        if not inputs & known or not inputs <= known or not stage.variables.isdisjoint(func.params):
            continue
        taken.append(stage)
        known |= stage.written
        rest = [s for s in stages if s not in taken]
        needed = {b for s in rest for b in s.buffers} & known
        written = {b for s in rest for b in s.written}
        if len(needed) == 1 and written.isdisjoint(needed) and _can_be_given(func, known, needed):
            (packed,) = needed
            found = Ahead(operand, packed, tuple(s.stmt for s in taken))
    return found


def _can_be_given(func: Func, known: Collection[Buffer], needed: Collection[Buffer]) -> bool:
    """Whether what is known has no result of the program, and what is needed of it is plain."""
    allocated = set(func.allocs)
    return sum(b not in allocated for b in known) == 1 and all(
        b in allocated and b.scope == "global" and not b.align and b.swizzle is None for b in needed
    )


def _same_as(block: Block) -> Buffer | None:
    """The buffer that a block copies without moving any element."""
    store = block.body
    if type(store) is not Store or type(store.value) is not Load or store.value.mask is not None:
        return None
    indices = store.value.indices
    return store.value.buffer if _same(store.indices, indices) and block.init is None else None


def _copy(block: Block, operand: Buffer, copies: dict[Buffer, Buffer]) -> str | None:
    """The layout in which `block` copies the operand, or one of its copies."""
    store = block.body
    if type(store) is not Store or block.init is not None:
        return None
    variables = [i.var for i in block.iters]
    if not _same(store.indices, variables):
        return None
    value, guards = store.value, list[Expr]()
    while type(value) is Select:
        if type(value.other) is not Const or value.other.value != 0:
            return None
        guards += conjuncts(value.cond)
        value = value.then
    if type(value) is not Load or value.mask is not None:
        return None
    if copies.get(value.buffer, value.buffer) is not operand:
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
    return ", ".join([layout, *(f"{letters[v]} = {inner[v]}" for v in variables if v in inner)])


def _same(a: Sequence[Expr], b: Sequence[Expr]) -> bool:
    return len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True))


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
