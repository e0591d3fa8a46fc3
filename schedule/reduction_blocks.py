"""Analysis of reduction blocks: the updated element, the combiner, and the combined values."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from typing import Any, NamedTuple

from .. import dtypes
from ..tir.combiners import COMBINERS, Combiner, Place
from ..tir.ir import (
    Binary,
    Block,
    Buffer,
    Const,
    Expr,
    Func,
    IterKind,
    Let,
    Load,
    Op,
    Select,
    Seq,
    Stmt,
    Store,
    Var,
    load,
)
from ..tir.structure import same
from ..tir.visit import reads_from, substitute
from .block_queries import free_vars, region_buffers, writers_of
from .require import require

_BY_OP = {Op.ADD: "sum", Op.MUL: "prod", Op.MAX: "max", Op.MIN: "min"}
_OF_TWO = [c for c in COMBINERS.values() if c.arity == 2]


class Reduction(NamedTuple):
    """A block that is `buffer[indices] = combine(buffer[indices], value)`."""

    combiner: Combiner
    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr

    @property
    def place(self) -> Place:
        return Place(self.buffer, self.indices)


class Update(NamedTuple):
    """`places = combine(places, values)`, for as many places as the combiner has results."""

    combiner: Combiner
    places: tuple[Place, ...]
    values: tuple[Expr, ...]


class Updates(NamedTuple):
    """The updates of a block. Their values may use `bindings`, which come before all updates."""

    bindings: tuple[tuple[Var, Expr], ...]
    updates: tuple[Update, ...]


def match_reduction(block: Block, combiner: str | None = None) -> Reduction | None:
    """The reduction to one result that `block` computes, or `None` for anything else.

    With `combiner`, reductions by others are something else.
    """
    body = block.body
    found = _simple(body, {body.buffer}) if type(body) is Store else None
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


def match_updates(block: Block) -> Updates | None:
    """The reductions that `block` computes, of one or several results; `None` for anything else.

    The old values must all be read before the first of them is replaced.
    """
    reader = _Reader(region_buffers(block.writes))
    if not reader.read(block.body):
        return None
    found = _updates(reader.stores, reader.outputs)
    if found is None:
        return None
    bound = dict(reader.bindings)
    updates = tuple(
        u._replace(values=tuple(bound.get(v, v) if type(v) is Var else v for v in u.values))
        for u in found
    )
    used = {v for u in updates for e in u.values for v in free_vars(e)}
    kept: list[tuple[Var, Expr]] = []
    for var, value in reversed(reader.bindings):
        if var in used:
            kept.append((var, value))
            used |= free_vars(value)
    return Updates(tuple(reversed(kept)), updates)


class _Reader:
    """The stores of a body, with bound names replaced by old values and results."""

    def __init__(self, outputs: set[Buffer]) -> None:
        self.outputs = outputs
        self.stores: list[Store] = []
        self.bindings: list[tuple[Var, Expr]] = []
        self._old: dict[Var, Expr] = {}
        self._results: dict[Var, Expr] = {}
        self._stored: set[Buffer] = set()

    def read(self, stmt: Stmt) -> bool:
        """Whether `stmt` only binds and stores, and reads no output that it has replaced."""
        match stmt:
            case Seq():
                return all(self.read(s) for s in stmt.stmts)
            case Let():
                return self._bind(stmt.var, stmt.value) and self.read(stmt.body)
            case Store():
                return self._store(stmt)
            case _:
                return False

    def _bind(self, var: Var, value: Expr) -> bool:
        used = free_vars(value)
        if not used.isdisjoint(self._results) or reads_from(value, self._stored):
            return False
        if type(value) is Load and value.buffer in self.outputs:
            self._old[var] = value
        elif not used.isdisjoint(self._old) or reads_from(value, self.outputs):
            self._results[var] = substitute(value, self._old)
        else:
            self.bindings.append((var, value))
        return True

    def _store(self, stmt: Store) -> bool:
        value = self._results.get(stmt.value) if type(stmt.value) is Var else None
        if value is None:
            value = substitute(stmt.value, self._old)
        if (
            stmt.mask is not None
            or stmt.buffer in self._stored
            or reads_from(stmt.value, self._stored)
            or any(not free_vars(e).isdisjoint(self._results) for e in (*stmt.indices, value))
        ):
            return False
        self.stores.append(Store(stmt.buffer, stmt.indices, value))
        self._stored.add(stmt.buffer)
        return True


def _updates(stores: list[Store], outputs: set[Buffer]) -> list[Update] | None:
    """The stores as updates, each in one of them."""
    left = list(stores)
    found: list[Update] = []
    while left:
        simple = _simple(left[0], outputs)
        if simple is not None:
            found.append(Update(simple.combiner, (simple.place,), (simple.value,)))
            del left[0]
            continue
        pair = next(_pairs(left, outputs), None)
        if pair is None:
            return None
        update, members = pair
        found.append(update)
        left = [s for s in left if s is not members[0] and s is not members[1]]
    return found


def _simple(store: Store, outputs: set[Buffer]) -> Reduction | None:
    """The update of one element that does not depend on other outputs."""
    value = store.value
    if type(value) is not Binary or value.op not in _BY_OP:
        return None
    for old, new in ((value.a, value.b), (value.b, value.a)):
        if _is_old(old, store) and not reads_from(new, outputs):
            return Reduction(COMBINERS[_BY_OP[value.op]], store.buffer, store.indices, new)
    return None


def _is_old(e: Expr, store: Store) -> bool:
    return (
        type(e) is Load
        and e.buffer is store.buffer
        and e.mask is None
        and all(same(x, y) for x, y in zip(e.indices, store.indices, strict=True))
    )


def _pairs(stores: list[Store], outputs: set[Buffer]) -> Iterator[tuple[Update, tuple[Any, ...]]]:
    """The updates of two elements that the first of `stores` is part of."""
    for members in permutations(stores, 2):
        if stores[0] not in members:
            continue
        values = [s.value for s in members]
        kinds = [dtypes.info(s.buffer.dtype).kind for s in members]
        if kinds[0] not in ("int", "uint") or kinds[1] == "bool":
            continue
        new = tuple(v.other for v in values if type(v) is Select)
        if len(new) != len(values) or any(reads_from(v, outputs) for v in new):
            continue
        old = tuple(load(s.buffer, s.indices) for s in members)
        for combiner in _OF_TWO:
            if all(same(a, b) for a, b in zip(values, combiner.combine(old, new), strict=True)):
                places = tuple(Place(s.buffer, s.indices) for s in members)
                yield Update(combiner, places, new), members
