"""Plain statements as blocks: `make_blocks`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from ... import dtypes
from ...tir.ir import (
    Binary,
    Block,
    For,
    ForKind,
    Func,
    Iter,
    IterKind,
    Label,
    Load,
    Op,
    Range,
    Seq,
    Stmt,
    Store,
    Var,
)
from ...tir.structure import same
from ...tir.visit import substitute, walk
from ..blocks import free_vars, loop_ranges, with_regions
from ..distinct import Access, distinct
from ..find import blocks_in, replace
from ..primitive import primitive
from ..require import require

UPDATES = frozenset({Op.ADD, Op.MUL, Op.MIN, Op.MAX, Op.AND, Op.OR, Op.XOR})
"""The associative and commutative operators."""


@primitive
def make_blocks(fn: Func) -> tuple[Func, tuple[Label, ...]]:
    """Make a block of each statement that is in no block yet.

        for i: for k: B[i] = B[i] + A[i, k]
          ->  for i: for k: block B: vi, vk = spatial(i), reduce(k): B[vi] = B[vi] + A[vi, vk]

    The block gets an iteration variable for each loop around the statement. It is spatial if it
    tells by itself what the statement touches of what it stores to. It is one of a reduction, whose
    order is free from then on, if the statement updates elements that it does not choose, by an
    associative and commutative operator. Otherwise it is opaque: its iterations run in order.
    Statements under a condition, in vectorized loops and of several values at once stay as they
    are. Gives the labels of the blocks.
    """
    found: list[tuple[Store, tuple[For, ...]]] = []
    _collect(fn.body, (), found)
    require(
        bool(found),
        "all statements of {0} are in blocks, or under conditions or in vectorized loops",
        fn.name,
    )
    taken = {b.label.name for b in blocks_in(fn.body)}
    labels: list[Label] = []
    for statement, loops in found:
        label = Label(_unique(statement.buffer.name, taken))
        taken.add(label.name)
        fn = replace(fn, statement, _block(label, statement, loops))
        labels.append(label)
    return fn, tuple(labels)


def _collect(
    stmt: Stmt, around: tuple[For, ...], found: list[tuple[Store, tuple[For, ...]]]
) -> None:
    """The statements in `stmt` that can be blocks, with the loops around them."""
    if type(stmt) is For and stmt.kind not in (ForKind.VECTOR, ForKind.THREAD):
        _collect(stmt.body, (*around, stmt), found)
    elif type(stmt) is Seq:
        for s in stmt.stmts:
            _collect(s, around, found)
    elif type(stmt) is Store and stmt.mask is None and dtypes.info(stmt.value.dtype).lanes == 1:
        found.append((stmt, around))


def _unique(name: str, taken: set[str]) -> str:
    return next(n for k in count() if (n := f"{name}_{k}" if k else name) not in taken)


def _block(label: Label, statement: Store, loops: Sequence[For]) -> Block:
    variables = {s.var: Var(f"v{s.var.name}") for s in loops}
    spatial = _spatial(statement, loops)
    updates = _is_update(statement)
    chosen = {v for e in statement.indices for v in free_vars(e)}
    iters = []
    for s in loops:
        free = updates and s.var not in chosen
        otherwise = IterKind.REDUCE if free else IterKind.OPAQUE
        kind = IterKind.SPATIAL if s.var in spatial else otherwise
        iters.append(Iter(variables[s.var], s.extent, kind, s.var))
    return with_regions(Block(label, tuple(iters), (), (), substitute(statement, variables)))


def _spatial(statement: Store, loops: Sequence[For]) -> set[Var]:
    """The loops no two iterations of which have to do with the same elements of what is stored."""
    indices, own = statement.indices, _own(statement)
    used = {v for e in indices for v in free_vars(e)}
    telling = [s for s in loops if s.var in used]
    access = Access(tuple(Range(e, 1) for e in indices), {})
    alike = all(_same_place(n, statement) for n in own)
    if alike and distinct([access], telling, loop_ranges(loops)):
        return {s.var for s in telling}
    plain = ((d, e) for d, e in enumerate(indices) if type(e) is Var)
    return {e for d, e in plain if all(n.indices[d] is e for n in own)}


def _is_update(statement: Store) -> bool:
    """Whether a statement combines an element, in an order that is free, with other values."""
    value, own = statement.value, _own(statement)
    return (
        type(value) is Binary
        and value.op in UPDATES
        and len(own) == 1
        and (value.a is own[0] or value.b is own[0])
        and _same_place(own[0], statement)
    )


def _own(statement: Store) -> list[Load]:
    """What a statement reads of the buffer that it stores to."""
    return [n for n in walk(statement) if type(n) is Load and n.buffer is statement.buffer]


def _same_place(a: Load, b: Store) -> bool:
    return all(map(same, a.indices, b.indices))
