"""Carry elements that serial loops store and load again later in registers, not through memory.

An `if` in such a loop whose two branches only store to the same element becomes one store of a
`select`, so that the element is carried whichever branch is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ...base import dtypes
from ...tir.ir import (
    Alloc,
    Buffer,
    Const,
    Expr,
    For,
    ForKind,
    Func,
    If,
    Let,
    Load,
    Ramp,
    Select,
    Stmt,
    Store,
    Var,
    call,
    const,
    seq,
)
from ...tir.polynomial import Poly, add, constant
from ...tir.simplify import Simplifier
from ...tir.structure import conjuncts, key_of
from ...tir.visit import (
    ReadBuffers,
    children,
    map_tuple,
    nested,
    rewrite_children,
    substitute,
    walk,
    with_body,
    with_func_body,
)
from .registers import SCOPE
from .rewrite import adjacent, allocated, decided, map_stmts, simplifier_of, statements
from .vectorize import enabled_lanes

MAX_DISTANCE = 4
"""How many iterations after its store an element may be loaded from a register."""
MAX_CARRIED = 64
"""How many elements or vectors of a loop are carried: of more the most would be in memory still."""


def carry(func: Func) -> Func:
    """Replace loads of what a serial loop has stored before by reads of registers.

    for t in 64: Y[t + 1] = Y[t] * a + X[t]   ->   R1[0] = Y[0]
                                                   for t in 64:
                                                       R0[0] = R1[0] * a + X[t]
                                                       Y[t + 1] = R0[0]
                                                       R1[0] = R0[0]

    A load is replaced if it reads the element, or vector, that the same iteration stored, or one of
    the `MAX_DISTANCE` before it, and no other store of the loop may touch that in between. The
    first iterations read what was in memory before the loop. An element that is the same one each
    time is stored after the loop, if no other access in it may meet it. A register has the dtype of
    the buffer: values are rounded as they are in memory.
    """
    s, read = simplifier_of(func), ReadBuffers()

    def visit(stmt: Stmt) -> Stmt:
        stmt = map_stmts(stmt, visit)
        if type(stmt) is For and stmt.kind is ForKind.SERIAL and _loads_again(stmt, read):
            loop = with_body(stmt, _with_one_store(stmt.body))
            carried = _Loop(loop, s).with_registers()
            return stmt if carried is loop else carried
        return stmt

    return with_func_body(func, visit(func.body))


def _loads_again(loop: For, read: ReadBuffers) -> bool:
    """Whether a loop of several iterations loads from a buffer that it stores to, in no loop."""
    if not (isinstance(loop.extent, int) and loop.extent > 1):
        return False
    stored = {n.buffer for n in _directly(loop.body) if type(n) is Store}
    stored = {b for b in stored if b.scope != SCOPE}
    return bool(stored) and not stored.isdisjoint(read(loop.body))


def _directly(stmt: Stmt) -> Iterator[Stmt]:
    """`stmt` and the statements in it that no loop in it is around."""
    yield stmt
    for below in nested(stmt) if type(stmt) is not For else ():
        yield from _directly(below)


def _with_one_store(stmt: Stmt) -> Stmt:
    """`stmt` with one store for each `if` whose branches do nothing but store to one element."""
    match map_stmts(stmt, _with_one_store):
        case If(cond, Store() as then, Store() as other) if (
            then.buffer is other.buffer
            and _same_mask(then, other)
            and list(map(key_of, then.indices)) == list(map(key_of, other.indices))
        ):
            return replace(then, value=Select(cond, then.value, other.value, then.value.dtype))
        case changed:
            return changed


class _Place(NamedTuple):
    """Elements from `base` on in steps of `stride`: as many as are `enabled` of the lanes."""

    base: Poly
    stride: int
    lanes: int
    enabled: int

    def elements(self, offset: int) -> set[int]:
        return {offset + k * self.stride for k in range(self.enabled)}

    def beyond(self, other: _Place) -> int | None:
        """The offset of its first element from that of another one, if it is constant."""
        return constant(add(self.base, other.base, -1))


@dataclass(frozen=True, eq=False)
class _Use:
    """A load or store in statement `number` of a loop's body, under `conditions`.

    A place that the body decides is unknown. `plain`: no loop of the body is around a store, and
    none whose iterations run at once around a load.
    """

    node: Load | Store
    place: _Place | None
    number: int
    conditions: tuple[Expr, ...]
    plain: bool


@dataclass(eq=False)
class _Chain:
    """Stores to one element, which moves by `step` each iteration or stays, and loads of it.

    Each load comes with the number of iterations since the element was stored.
    """

    stores: list[_Use]
    place: _Place
    step: int
    loads: list[tuple[_Use, Load, int]] = field(default_factory=list)


class _Loop:
    """A serial loop with the uses of memory in its body, in the order of its statements."""

    def __init__(self, loop: For, s: Simplifier) -> None:
        assert isinstance(loop.extent, int)
        self.loop, self.extent, self.s = loop, loop.extent, s
        inside = list(statements(loop.body))
        self.bound: set[Expr] = {n.var for n in inside if type(n) is For or type(n) is Let}
        self.private: set[Buffer] = {n.buffer for n in inside if type(n) is Alloc}
        self.stored: set[Buffer] = {n.buffer for n in inside if type(n) is Store} | self.private
        self.count = 0
        self.uses = list(self._uses(loop.body, (), in_loop=False, at_once=False))

    def with_registers(self) -> Stmt:
        """The loop where elements are carried in registers."""
        values: dict[tuple[int, Load], Expr] = {}
        copies: dict[int, Buffer] = {}
        late: set[int] = set()
        buffers: list[Buffer] = []
        before: list[Stmt] = []
        after: list[Stmt] = []
        beyond: list[Stmt] = []
        chains = list(self._chains())
        for chain in chains if len(chains) <= MAX_CARRIED else ():
            store = chain.stores[0].node
            lanes = chain.place.lanes
            dtype = dtypes.vector(store.buffer.dtype, lanes)
            where = (adjacent(const(0), lanes),)
            ages = range(max(age for *_, age in chain.loads) + 1)
            own = [_register(store.buffer, age, lanes) for age in ages]
            buffers += own
            copies |= {use.number: own[0] for use in chain.stores}
            if self._may_store_late(chain):
                late |= {use.number for use in chain.stores}
                at = map_tuple(store.indices, lambda i: substitute(i, {self.loop.var: const(0)}))
                beyond.append(Store(store.buffer, at, Load(own[0], where, dtype), store.mask))
            for use, load, age in chain.loads:
                value: Expr = Load(own[age], where, dtype)
                if load.mask is not None:
                    value = Select(load.mask, value, const(0, dtype), dtype)
                values[use.number, load] = value
            if chain.stores[0].conditions:
                before.append(Store(own[0], where, const(0, dtype)))
            for age in reversed(ages[1:]):
                before += self._initially(chain, age, own[age], where)
                after.append(Store(own[age], where, Load(own[age - 1], where, dtype)))
        if not buffers:
            return self.loop
        self.count = 0
        body = self._rewritten(self.loop.body, values, copies, late)
        loop = replace(self.loop, body=seq(body, *after))
        return allocated(buffers, seq(*before, loop, *beyond))

    def _may_store_late(self, chain: _Chain) -> bool:
        """Whether only the last iteration needs to store: nothing else in the loop sees it."""
        if chain.step or chain.stores[0].conditions:
            return False
        own = {(use.number, use.node) for use in chain.stores}
        own |= {(use.number, load) for use, load, _ in chain.loads}
        buffer, elements = chain.stores[0].node.buffer, chain.place.elements(0)
        for use in self.uses:
            if use.node.buffer is buffer and (use.number, use.node) not in own:
                offset = None if use.place is None else use.place.beyond(chain.place)
                if use.place is None or offset is None or elements & use.place.elements(offset):
                    return False
        return True

    def _uses(
        self, stmt: Stmt, conditions: tuple[Expr, ...], *, in_loop: bool, at_once: bool
    ) -> Iterator[_Use]:
        number = self.count
        self.count += 1
        loads = [pair for e in children(stmt) for pair in _loads(e, conditions)]
        for load, under in dict.fromkeys(loads):
            yield _Use(load, self._place(load), number, under, not at_once)
        if type(stmt) is Store:
            yield _Use(stmt, self._place(stmt), number, conditions, not in_loop)
        if type(stmt) is For:
            in_loop, at_once = True, at_once or stmt.kind is not ForKind.SERIAL
        for below in nested(stmt):
            under = conditions
            if type(stmt) is If and stmt.then is not stmt.other:
                under += _told(stmt.cond, holds=below is stmt.then)
            yield from self._uses(below, under, in_loop=in_loop, at_once=at_once)

    def _place(self, node: Load | Store) -> _Place | None:
        (index,), mask = node.indices, node.mask
        if any(n in self.bound or type(n) is Load for n in walk(index)):
            return None
        if type(index) is Ramp and type(index.stride) is Const:
            base, stride, lanes = self.s.poly(index.base), int(index.stride.value), index.lanes
            enabled = None if mask is None else enabled_lanes(mask)
            return _Place(base, stride, lanes, lanes if enabled is None else enabled)
        lanes = dtypes.info(index.dtype).lanes
        return _Place(self.s.poly(index), 1, 1, 1) if lanes == 1 else None

    def _chains(self) -> Iterator[_Chain]:
        """The chains with a load in a later iteration than the store."""
        taken: set[_Use] = set()
        for use in self.uses:
            if type(use.node) is Store and use not in taken and self._begins(use):
                chain = self._chain(use)
                if chain is not None and any(age for *_, age in chain.loads):
                    taken.update(chain.stores)
                    yield chain

    def _begins(self, store: _Use) -> bool:
        """Whether a store runs in all iterations or in none, the same lanes in all."""
        buffer, mask = store.node.buffer, store.node.mask
        told = store.conditions if mask is None else (*store.conditions, mask)
        return (
            store.plain
            and buffer.scope != SCOPE
            and buffer not in self.private
            and all(self._is_early(c) and self.loop.var not in set(walk(c)) for c in told)
        )

    def _is_early(self, e: Expr) -> bool:
        """Whether a value in an iteration can be computed before the loop."""
        return not any(
            n in self.bound or (type(n) is Load and n.buffer in self.stored) for n in walk(e)
        )

    def _chain(self, first: _Use) -> _Chain | None:
        """The chain that a store begins; `None` if another store may touch its elements."""
        place = first.place
        step = None if place is None else self._step(place)
        if place is None or step is None:
            return None
        chain = _Chain([first], place, step)
        others: list[set[int]] = []
        reading: list[tuple[_Use, Load, int]] = []
        unknown: set[tuple[int, Load]] = set()
        for use in self.uses:
            if use is first or use.node.buffer is not first.node.buffer:
                continue
            offset = None if use.place is None else use.place.beyond(place)
            alike = use.place is not None and use.place[1:] == place[1:]
            alike = alike and use.plain and _same_mask(use.node, first.node)
            if type(use.node) is Load:
                age = None if offset is None else _age(offset, step, use.number > first.number)
                if alike and age is not None and self._is_read(use, first, age):
                    reading.append((use, use.node, age))
                else:
                    unknown.add((use.number, use.node))
            elif offset is None or use.place is None or (offset == 0 and not alike):
                return None
            elif offset == 0:
                chain.stores.append(use)
            else:
                others.append(use.place.elements(offset))
        if any(use.number < first.number for use in chain.stores):
            return None
        most = self._oldest(place, step, others)
        # An object may be in one statement under several conditions.
        unknown |= {(use.number, load) for use, load, age in reading if age > most}
        chain.loads += [r for r in reading if (r[0].number, r[1]) not in unknown]
        return chain

    def _step(self, place: _Place) -> int | None:
        """How far the elements are apart in two iterations that follow each other."""
        following = {self.loop.var: self.loop.var + 1}
        later = self.s.poly(substitute(self.s.build(place.base), following))
        return constant(add(later, place.base, -1))

    def _is_read(self, load: _Use, store: _Use, age: int) -> bool:
        """Whether a load runs after the store, and only if the store does."""
        held = set(map(key_of, load.conditions))
        return (
            (age > 0 or (age == 0 and load.number > store.number))
            and all(key_of(c) in held for c in store.conditions)
            and all(dtypes.info(c.dtype).lanes == 1 for c in load.conditions)
            and all(map(self._is_early, load.conditions))
        )

    def _oldest(self, place: _Place, step: int, others: Sequence[set[int]]) -> int:
        """For how many iterations nothing else stores to an element after it was stored."""
        oldest = -1
        for age in range(min(MAX_DISTANCE, self.extent - 1) + 1):
            elements = place.elements(-age * step)
            own = [place.elements(0)] if age > 1 or (age and step) else []
            if not all(map(elements.isdisjoint, (*own, *others))):
                break
            oldest = age
        return oldest

    def _initially(
        self, chain: _Chain, age: int, register: Buffer, where: tuple[Expr, ...]
    ) -> list[Stmt]:
        """Load what was in memory before the loop, where an iteration would.

        The loads of what is older find that `age` in a later iteration.
        """
        found: dict[object, Stmt] = {}
        for use, load, oldest in chain.loads:
            if not age <= oldest < age + self.extent:
                continue
            now: dict[Var, Expr] = {self.loop.var: const(oldest - age)}
            stmt: Stmt = Store(register, where, substitute(load, now))
            conditions = [self.s(substitute(c, now)) for c in use.conditions]
            for c in reversed(conditions):
                stmt = If(c, stmt)
            found[tuple(map(key_of, conditions))] = decided(stmt)
        if () in found:
            return [found[()]]
        zero = const(0, dtypes.vector(register.dtype, chain.place.lanes))
        return [Store(register, where, zero), *found.values()]

    def _rewritten(
        self,
        stmt: Stmt,
        values: dict[tuple[int, Load], Expr],
        copies: dict[int, Buffer],
        late: set[int],
    ) -> Stmt:
        """`stmt`, which is numbered as in `_uses`, with loads replaced and stores copied.

        Stores that are made `late` leave the loop.
        """
        number = self.count
        self.count += 1
        done: dict[Expr, Expr] = {}

        def visit(c: object) -> object:
            if isinstance(c, Stmt):
                return self._rewritten(c, values, copies, late)
            if not isinstance(c, Expr):
                return c
            if c not in done:
                value = values.get((number, c)) if type(c) is Load else None
                done[c] = rewrite_children(c, visit) if value is None else value
            return done[c]

        new = rewrite_children(stmt, visit)
        if type(new) is not Store or number not in copies:
            return new
        register, dtype = copies[number], new.value.dtype
        where = (adjacent(const(0), dtypes.info(dtype).lanes),)
        kept = Store(register, where, new.value)
        stored = replace(new, value=Load(register, where, dtype))
        return kept if number in late else seq(kept, stored)


def _register(buffer: Buffer, age: int, lanes: int) -> Buffer:
    return Buffer(f"{buffer.name}_{age}", (lanes,), buffer.dtype, scope=SCOPE)


def _age(offset: int, step: int, stored: bool) -> int | None:
    """In how many iterations an element moves on by `offset`; one that stays may be `stored`."""
    if step:
        return None if offset % step else -offset // step
    return None if offset else int(not stored)


def _same_mask(a: Load | Store, b: Load | Store) -> bool:
    if a.mask is None or b.mask is None:
        return a.mask is b.mask
    return key_of(a.mask) == key_of(b.mask)


def _told(cond: Expr, *, holds: bool) -> tuple[Expr, ...]:
    return tuple(conjuncts(cond)) if holds else (call("not", cond),)


def _loads(n: object, conditions: tuple[Expr, ...]) -> Iterator[tuple[Load, tuple[Expr, ...]]]:
    """The loads in an expression, with the conditions under which each is evaluated."""
    pending = [(n, conditions)]
    seen = set(pending)
    below: dict[Select, tuple[tuple[Expr, ...], tuple[Expr, ...]]] = {}
    while pending:
        e, under = pending.pop()
        if not isinstance(e, Expr):
            continue
        if type(e) is Load:
            yield e, under
        parts = [(c, under) for c in children(e)]
        if type(e) is Select and e.then is not e.other:
            if e not in below:
                below[e] = _told(e.cond, holds=True), _told(e.cond, holds=False)
            then, other = below[e]
            parts = [(e.cond, under), (e.then, under + then), (e.other, under + other)]
        pending += [pair for pair in parts if pair not in seen]
        seen.update(parts)
