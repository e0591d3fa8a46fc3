"""Updates of reductions: the updated elements, the combiner, and the combined values.

Stores that keep an old value or take a new one, as comparisons choose: an argmax by hand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from itertools import permutations, product
from typing import NamedTuple, TypeAlias

from ..base import dtypes
from .bounds import variables
from .combiners import COMBINERS, Combiner, Place, chosen
from .ir import (
    BITWISE,
    COMPARISONS,
    INDEX,
    ON_NUMBERS,
    Binary,
    Block,
    Buffer,
    Call,
    Expr,
    Let,
    Load,
    Op,
    Select,
    Seq,
    Stmt,
    Store,
    Var,
)
from .structure import key_of, same
from .visit import reads_from, substitute

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


class Choice(NamedTuple):
    """A store of an old value where `cond` holds (or not, without `keeps`), else of a new one."""

    store: Store
    old: Expr
    new: Expr
    cond: Expr
    keeps: bool


_NUMBERS: tuple[tuple[float, float], ...] = ((0, 1), (1, 1), (1, 0))
_WITH_NAN = (*_NUMBERS, (math.nan, 0), (0, math.nan), (math.nan, math.nan))
"""An old and a new value in each of their relations."""


def choices_among(
    stores: Sequence[Store],
    outputs: Set[Buffer],
    *,
    numbered: bool,
    carried: Callable[[Expr], bool] | None,
) -> Iterator[tuple[Combiner, tuple[Choice, ...]]]:
    """The combiners of best visits, with the stores that each of them replaces.

    Among equal values a key decides, or, if `numbered`, the order of visits. More results than
    these two may go with them if `carried` tells that all visits have different keys. If not, the
    order of visits decides among those with equal values and keys.
    """
    choices = [c for s in stores if (c := _choice(s)) and not reads_from(c.new, outputs)]
    for value, key in permutations(choices, 2):
        facts = _facts(value, value, key)
        keyed = dtypes.is_integer(key.store.buffer.dtype) and _facts(key, value, key) == facts
        others = [c for c in choices if carried and c is not value and c is not key]
        group = [c for c in others if _facts(c, value, key) == facts]
        ties = bool(carried and group and not carried(key.new))
        alike = {_keeps(c, value, key) for c in (key, *group, value)} if ties else set()
        if ties and (not numbered or len(alike) > 1):
            continue
        for combiner in _by_comparisons(len(group) + 2) if keyed and facts else ():
            if _facts_of(combiner, value, key) == facts:
                yield combiner, (key, *group, value)
    for value in choices if numbered else ():
        facts = _facts(value, value)
        group = [c for c in choices if c is not value and _facts(c, value) == facts]
        for combiner in _by_comparisons(len(group) + 2, numbered=True) if facts else ():
            if _facts_of(combiner, value) == facts:
                yield combiner, (*group, value)


def is_old(e: Expr, store: Store) -> bool:
    return (
        type(e) is Load
        and e.buffer is store.buffer
        and e.mask is None
        and all(same(x, y) for x, y in zip(e.indices, store.indices, strict=True))
    )


def _choice(store: Store) -> Choice | None:
    value = store.value
    if type(value) is not Select or dtypes.is_bool(store.buffer.dtype):
        return None
    keeps = is_old(value.then, store)
    old, new = (value.then, value.other) if keeps else (value.other, value.then)
    return Choice(store, old, new, value.cond, keeps) if is_old(old, store) else None


def _by_comparisons(arity: int, *, numbered: bool = False) -> Iterator[Combiner]:
    for op, tie in product((Op.GT, Op.LT), (Op.LT, Op.GT)):
        yield chosen(op, tie, arity, numbered=numbered)
        yield chosen(op, tie, arity, nan="loses", numbered=numbered)
        yield chosen(op, tie, arity, nan="later", numbered=numbered)


def _facts_of(combiner: Combiner, value: Choice, key: Choice | None = None) -> object:
    """`_facts` of what a combiner chooses by the key, or by the number of the visit."""
    types = [key.store.buffer.dtype if key else INDEX, *[INDEX] * (combiner.arity - 2)]
    types.append(value.store.buffer.dtype)
    old, new = (tuple([Var(side, d) for d in types]) for side in ("old", "new"))
    chosen_keys = combiner.combine(old, new)[0]
    assert type(chosen_keys) is Select
    keeps = chosen_keys.then is old[0]
    first, last = (Choice(value.store, old[n], new[n], chosen_keys.cond, keeps) for n in (0, -1))
    return _facts(last, last, first, _NUMBERS if key else _NUMBERS[:1])


def _facts(
    choice: Choice,
    value: Choice,
    key: Choice | None = None,
    keys: Sequence[tuple[float, float]] = _NUMBERS,
) -> tuple[bool, ...] | None:
    """Whether `choice` keeps the old for all relations of values, and of keys, of old and new.

    `None` if it is not by comparisons of these. Without a key it is the number of the visit, which
    grows.
    """
    terms = _terms((value,) if key is None else (value, key))
    if terms is None:
        return None
    values = _WITH_NAN if dtypes.is_float(value.store.buffer.dtype) else _NUMBERS
    found = []
    for v, k in product(values, _NUMBERS[:1] if key is None else keys):
        if v is k is _NUMBERS[1]:
            continue  # equal values of equal keys are the same results
        keeps = _keeps_at(choice, terms, (v, k))
        if keeps is None:
            return None
        found.append(keeps)
    return tuple(found)


Terms: TypeAlias = Sequence[tuple[object, object]]
"""Old and new of what decides."""


def _terms(deciding: Sequence[Choice]) -> Terms | None:
    terms = [(key_of(c.old), key_of(c.new)) for c in deciding]
    return terms if len({t for pair in terms for t in pair}) == 2 * len(terms) else None


def _keeps(choice: Choice, value: Choice, key: Choice) -> bool | None:
    """Whether `choice` keeps the old of equal values and keys."""
    terms = _terms((value, key))
    return None if terms is None else _keeps_at(choice, terms, (_NUMBERS[1], _NUMBERS[1]))


def _keeps_at(choice: Choice, terms: Terms, numbers: Sequence[tuple[float, float]]) -> bool | None:
    pairs = zip(terms, numbers, strict=False)
    holds = _holds(choice.cond, [dict(zip(pair, xs, strict=True)) for pair, xs in pairs])
    return None if holds is None else holds is choice.keeps


def _holds(e: Expr, at: Sequence[Mapping[object, float]]) -> bool | None:
    """Whether a condition holds: comparisons within one of the groups of terms `at` numbers."""
    if type(e) is Call and e.fn == "not":
        inner = _holds(e.args[0], at)
        return None if inner is None else not inner
    if type(e) is not Binary:
        return None
    if e.op in BITWISE and dtypes.is_bool(e.dtype):
        a, b = _holds(e.a, at), _holds(e.b, at)
        return None if a is None or b is None else bool(ON_NUMBERS[e.op](a, b))
    x, y = key_of(e.a), key_of(e.b)
    group = next((g for g in at if x in g and y in g), None)
    if e.op not in COMPARISONS or group is None:
        return None
    return bool(ON_NUMBERS[e.op](group[x], group[y]))
