"""Updates of reductions: the updated elements, the combiner, and the combined values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import NamedTuple

from .choices import choices_among, is_old
from .combiners import COMBINERS, Combiner, Place
from .ir import Binary, Block, Buffer, Expr, Let, Load, Op, Seq, Stmt, Store, Var
from .visit import reads_from, substitute
from .windows import variables

OPERATORS = frozenset({Op.ADD, Op.MUL, Op.MIN, Op.MAX, Op.AND, Op.OR, Op.XOR})
"""The associative and commutative operators."""
_BY_OP = {Op.ADD: "sum", Op.MUL: "prod", Op.MAX: "max", Op.MIN: "min"}


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


def match_updates(block: Block, *, numbered: bool = False) -> Updates | None:
    """The reductions that `block` computes, of one or several results; `None` for anything else."""
    return updates_in(block.body, {r.buffer for r in block.writes}, numbered=numbered)


def updates_in(
    stmt: Stmt,
    outputs: Set[Buffer],
    *,
    numbered: bool = False,
    carried: Callable[[Expr], bool] | None = None,
) -> Updates | None:
    """The updates that `stmt`, a part of a block that stores to `outputs`, consists of.

    `None` if it does anything else, or nothing. The old values must all be read before the first
    of them is replaced. `numbered` and `carried` allow more of the best results that comparisons
    choose: see `choices_among`.
    """
    reader = _Reader(outputs)
    if not reader.read(stmt) or not reader.stores:
        return None
    bindings = dict(reader.bindings)
    told = carried and (lambda e: carried(_with_values(e, bindings)))
    found = _updates(reader.stores, outputs, numbered, told)
    if found is None:
        return None
    updates = tuple(
        u._replace(values=tuple(bindings.get(v, v) if type(v) is Var else v for v in u.values))
        for u in found
    )
    used = {v for u in updates for e in u.values for v in variables(e)}
    kept: list[tuple[Var, Expr]] = []
    for var, value in reversed(reader.bindings):
        if var in used:
            kept.append((var, value))
            used |= variables(value)
    return Updates(tuple(reversed(kept)), updates)


class _Reader:
    """The stores of a body, with bound names replaced by old values and results."""

    def __init__(self, outputs: Set[Buffer]) -> None:
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
        used = variables(value)
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
            or any(not variables(e).isdisjoint(self._results) for e in (*stmt.indices, value))
            or any(not variables(e).isdisjoint(self._old) for e in stmt.indices)
            or any(reads_from(e, self.outputs) for e in stmt.indices)
        ):
            return False
        self.stores.append(Store(stmt.buffer, stmt.indices, value))
        self._stored.add(stmt.buffer)
        return True


def _with_values(e: Expr, bindings: Mapping[Var, Expr]) -> Expr:
    while (new := substitute(e, bindings)) is not e:
        e = new
    return e


def _updates(
    stores: list[Store],
    outputs: Set[Buffer],
    numbered: bool,
    carried: Callable[[Expr], bool] | None,
) -> list[Update] | None:
    """The stores as updates, each in one of them."""
    left = list(stores)
    found: list[Update] = []
    while left:
        simple = simple_update(left[0], outputs)
        if simple is not None:
            found.append(Update(simple.combiner, (simple.place,), (simple.value,)))
            del left[0]
            continue
        options = choices_among(left, outputs, numbered=numbered, carried=carried)
        option = next((o for o in options if any(c.store is left[0] for c in o[1])), None)
        if option is None:
            return None
        combiner, members = option
        places = tuple([Place(c.store.buffer, c.store.indices) for c in members])
        found.append(Update(combiner, places, tuple([c.new for c in members])))
        left = [s for s in left if not any(s is c.store for c in members)]
    return found


def simple_update(store: Store, outputs: Set[Buffer]) -> Reduction | None:
    """The update of one element that does not depend on other outputs."""
    value = store.value
    if type(value) is not Binary or value.op not in _BY_OP:
        return None
    for old, new in ((value.a, value.b), (value.b, value.a)):
        if is_old(old, store) and not reads_from(new, outputs):
            return Reduction(COMBINERS[_BY_OP[value.op]], store.buffer, store.indices, new)
    return None
