"""Turning plain statements into blocks: `make_blocks`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

from ...tir.dependence import Access
from ...tir.ir import (
    Binary,
    Block,
    Buffer,
    Expr,
    For,
    ForKind,
    Func,
    Iter,
    IterKind,
    Label,
    Load,
    Ramp,
    Range,
    Seq,
    Stmt,
    Store,
    Var,
)
from ...tir.structure import same
from ...tir.updates import OPERATORS
from ...tir.visit import nested, reads_from, substitute, walk
from ..block_queries import free_vars, loop_ranges, with_regions
from ..distinct import distinct
from ..find import blocks_in, replace
from ..primitive import primitive
from ..reduction_blocks import without_conditions
from ..require import require


@primitive
def make_blocks(fn: Func) -> tuple[Func, tuple[Label, ...]]:
    """Turn each statement outside of blocks into a block.

        for i: for k: B[i] = B[i] + A[i, k]
          ->  for i: for k: block B: vi, vk = spatial(i), reduce(k): B[vi] = B[vi] + A[vi, vk]

    The block gets an iteration variable for each loop around the statement. The variable is spatial
    if it alone determines which elements the statement touches in the buffer that it stores to. It
    is reduce if the statement accumulates with an associative, commutative operator into elements
    independent of it; its iterations may then be reordered. Otherwise it is opaque: its iterations
    run in order. Conditions and vectorized loops become part of a block. Returns the labels of the
    blocks.
    """
    found = list(loose_statements(fn.body))
    require(bool(found), "all statements of {0} are in blocks", fn.name)
    taken = {b.label.name for b in blocks_in(fn.body)}
    labels: list[Label] = []
    for statement, loops in found:
        require(
            not any(type(n) is Ramp for n in walk(statement)),
            "{0} stores several elements at once: the program was lowered already",
            lambda statement=statement: str(statement).strip(),
        )
        label = Label(_unique(_name(statement), taken))
        taken.add(label.name)
        fn = replace(fn, statement, _block(label, statement, loops))
        labels.append(label)
    return fn, tuple(labels)


def loose_statements(
    stmt: Stmt, around: tuple[For, ...] = ()
) -> Iterator[tuple[Stmt, tuple[For, ...]]]:
    """The statements that are in no block, with the loops around them."""
    if type(stmt) is For and stmt.kind is not ForKind.VECTOR:
        yield from loose_statements(stmt.body, (*around, stmt))
    elif type(stmt) is Seq or (type(stmt) is not Block and any(blocks_in(stmt))):
        for s in nested(stmt):
            yield from loose_statements(s, around)
    elif type(stmt) is not Block:
        yield stmt, around


def _name(statement: Stmt) -> str:
    stored = next((n.buffer for n in walk(statement) if type(n) is Store), None)
    return "block" if stored is None else stored.name


def _unique(name: str, taken: set[str]) -> str:
    return next(n for k in count() if (n := f"{name}_{k}" if k else name) not in taken)


def _block(label: Label, statement: Stmt, loops: Sequence[For]) -> Block:
    variables = {s.var: Var(f"v{s.var.name}") for s in loops}
    spatial = _spatial(statement, loops)
    chosen = _chosen(statement)
    iters = []
    for s in loops:
        free = chosen is not None and s.var not in chosen
        otherwise = IterKind.REDUCE if free else IterKind.OPAQUE
        kind = IterKind.SPATIAL if s.var in spatial else otherwise
        iters.append(Iter(variables[s.var], s.extent, kind, s.var))
    return with_regions(Block(label, tuple(iters), (), (), substitute(statement, variables)))


def _spatial(statement: Stmt, loops: Sequence[For]) -> set[Var]:
    """The loops of which different iterations touch different elements of the stored buffer."""
    around = {s.var for s in loops}
    found = set(around)
    for buffer, indices in {
        n.buffer: n.indices for n in walk(statement) if type(n) is Store
    }.items():
        accesses = [n.indices for n in _accesses(statement, buffer)]
        used = {v for e in indices for v in free_vars(e)}
        alike = used <= around and all(_same_place(i, indices) for i in accesses)
        if alike and _determined([indices], [s for s in loops if s.var in used], loops):
            found &= used
        else:
            known = [d for d in range(len(indices)) if all(_over(i[d], around) for i in accesses)]
            places = [tuple(i[d] for d in known) for i in accesses]
            found = {s.var for s in loops if s.var in found and _determined(places, [s], loops)}
    return found


def _over(index: Expr, loops: set[Var]) -> bool:
    """Whether an index depends on nothing but `loops`."""
    return free_vars(index) <= loops and not any(type(n) is Load for n in walk(index))


def _determined(
    places: Sequence[tuple[Expr, ...]], telling: Sequence[For], loops: Sequence[For]
) -> bool:
    """Whether no element is at one of `places` in two iterations of the loops `telling`."""
    others = {s.var: s.extent for s in loops if s not in set(telling)}
    accesses = [Access(tuple(Range(e, 1) for e in indices), others) for indices in places]
    return distinct(accesses, telling, loop_ranges(loops))


def _chosen(statement: Stmt) -> set[Var] | None:
    """The indices of the element that a statement combines with others in a free order.

    `None` for other statements. Conditions around it may not read what it stores.
    """
    conditions, statement = without_conditions(statement)
    if type(statement) is not Store or type(statement.value) is not Binary:
        return None
    value = statement.value
    old = [n for n in _accesses(statement, statement.buffer) if n is not statement]
    updates = value.op in OPERATORS and len(old) == 1 and (value.a is old[0] or value.b is old[0])
    if not updates or not _same_place(old[0].indices, statement.indices):
        return None
    if any(reads_from(c, {statement.buffer}) for c in conditions):
        return None
    return {v for e in statement.indices for v in free_vars(e)}


def _accesses(statement: Stmt, buffer: Buffer) -> list[Store | Load]:
    found = [n for n in walk(statement) if type(n) is Store or type(n) is Load]
    return [n for n in found if n.buffer is buffer]


def _same_place(a: Sequence[Expr], b: Sequence[Expr]) -> bool:
    return all(map(same, a, b))
