"""Collect, in one walk over a program, what has to be verified and where it is.

Vectors are taken one lane at a time: a `Ramp` becomes its base plus stride times a lane variable,
so all collected indices and conditions are scalar.
"""

from __future__ import annotations

from copy import copy
from typing import NamedTuple

from ..base import dtypes
from .ir import (
    UNORDERED,
    Alloc,
    Barrier,
    Binary,
    Block,
    Broadcast,
    Buffer,
    Call,
    Cast,
    Const,
    Dim,
    Expr,
    For,
    Func,
    If,
    Iter,
    Let,
    Load,
    Op,
    Prefetch,
    Ramp,
    Select,
    Seq,
    Stmt,
    Store,
    Var,
    binary,
    call,
)
from .simplify import Simplifier
from .structure import key_of
from .visit import reads_from, rewrite_children, stored_buffers, substitute, walk


class Place(NamedTuple):
    """The position of an access: the statements around it, and the conditions on its path."""

    around: tuple[Stmt, ...]
    conditions: tuple[Expr, ...]

    @property
    def block(self) -> Block | None:
        """The innermost block."""
        return next((s for s in reversed(self.around) if type(s) is Block), None)

    @property
    def name(self) -> str:
        """The name of the innermost block, for messages."""
        block = self.block
        return "the body" if block is None else f"block {block.label.name}"

    @property
    def loops(self) -> tuple[For, ...]:
        """The loops around it, outermost first."""
        return tuple([s for s in self.around if type(s) is For])


class Touch(NamedTuple):
    """An access to one element; `order` grows with the order of execution in one iteration."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    is_write: bool
    place: Place
    order: int
    in_init: bool = False


class Division(NamedTuple):
    """An integer quotient or remainder."""

    expr: Binary
    place: Place


class Binding(NamedTuple):
    """An iteration variable of a block, and where its value is computed."""

    iter: Iter
    place: Place


class Stored(NamedTuple):
    """A value that is stored to a buffer with a `value_range`."""

    buffer: Buffer
    value: Expr
    place: Place


class Survey:
    """All accesses, divisions and bindings of `func` that can run.

    `ranges` are those of variables, `values` the values of iteration variables and `Let`. `plain`
    is a simplifier under the ranges alone.
    """

    def __init__(self, func: Func) -> None:
        self.touches: list[Touch] = []
        self.divisions: list[Division] = []
        self.stored: list[Stored] = []
        self.bindings: list[Binding] = []
        self.blocks: list[tuple[Block, Place]] = []
        self.ranges: dict[Var, tuple[Dim, Dim]] = {}
        self.values: dict[Var, Expr] = {}
        self.parallel: list[tuple[For, Place]] = []
        self._in_init = False
        self._lanes: dict[int, Var] = {}
        self._resolved: dict[Expr, Expr] = {}
        self._stmt(func.body, Place((), ()))
        self.plain = Simplifier(self.ranges)

    def resolved(self, e: Expr) -> Expr:
        """`e` in terms of loop variables and parameters."""
        found = self._resolved.get(e)
        if found is None:
            found = e
            while (new := substitute(found, self.values)) is not found:
                found = new
            self._resolved[e] = found  # a condition is that of many accesses
        return found

    def _stmt(self, s: Stmt, place: Place) -> None:
        match s:
            case Seq():
                for child in s.stmts:
                    self._stmt(child, place)
                    place = self._after(child, place)
            case For():
                self._for(s, place)
            case Block():
                self._block(s, place)
            case Store():
                self._store(s, place)
            case Barrier():
                pass
            case Prefetch():
                for i in s.indices:
                    self._expr(i, place)
            case If():
                self._expr(s.cond, place)
                cond = s.cond if s.other is None else copy(s.cond)  # that of its two branches alone
                self._stmt(s.then, under(place, cond))
                if s.other is not None:
                    self._stmt(s.other, under(place, call("not", cond)))
            case Let():
                self._expr(s.value, place)
                if not reads_from(s.value, stored_buffers(s.body)):
                    self.values[s.var] = s.value
                self._stmt(s.body, place)
            case Alloc():
                self._stmt(s.body, Place((*place.around, s), place.conditions))
            case _:
                raise TypeError(f"{type(s).__name__} is no statement")

    def _for(self, s: For, place: Place) -> None:
        if not isinstance(s.extent, int):
            self._expr(s.extent, place)
        elif s.extent <= 0:
            return
        self.ranges[s.var] = (0, s.extent - 1)
        if s.kind in UNORDERED:
            self.parallel.append((s, place))
        if not isinstance(s.extent, int) or s.extent > 1:
            place = self._after(s.body, place)
        self._stmt(s.body, Place((*place.around, s), place.conditions))

    def _block(self, s: Block, place: Place) -> None:
        if s.predicate is not None:
            self._expr(s.predicate, place)
            place = under(place, s.predicate)
        inside = Place((*place.around, s), place.conditions)
        self.blocks.append((s, inside))
        if any(i.extent == 0 for i in s.iters if isinstance(i.extent, int)):
            return
        for i in s.iters:
            self._expr(i.value, place)
            self.bindings.append(Binding(i, place))
            self.ranges[i.var] = (0, i.extent - 1)
            self.values[i.var] = i.value
        if s.init is not None:
            self._in_init = True
            self._stmt(s.init, inside)
            self._in_init = False
            inside = self._after(s.init, inside)
        self._stmt(s.body, inside)

    def _after(self, s: Stmt, place: Place) -> Place:
        """`place` where `s` may have run since its conditions were evaluated.

        An element that `s` may have stored to becomes a variable, for what it was.
        """
        if not any(type(n) is Load for c in place.conditions for n in walk(c)):
            return place
        stored = stored_buffers(s)
        conditions = tuple([_before(c, stored) for c in place.conditions])
        return Place(place.around, conditions)

    def _store(self, s: Store, place: Place) -> None:
        self._expr(s.value, place)
        place = self._access(s, place)
        if s.buffer.value_range is not None:
            self.stored.append(Stored(s.buffer, self.lane_of(s.value), place))

    def _access(self, n: Load | Store, place: Place) -> Place:
        """The place of an access in the lanes that its mask leaves on."""
        if n.mask is not None:
            self._expr(n.mask, place)
            place = under(place, self.lane_of(n.mask))
        for i in n.indices:
            self._expr(i, place)
        lanes, order = tuple([self.lane_of(i) for i in n.indices]), len(self.touches)
        self.touches.append(Touch(n.buffer, lanes, type(n) is Store, place, order, self._in_init))
        return place

    def _expr(self, e: Expr, place: Place) -> None:
        match e:
            case Var() | Const():
                pass
            case Select():
                cond = self.lane_of(e.cond)
                self._expr(e.cond, place)
                self._expr(e.then, under(place, cond))
                self._expr(e.other, under(place, call("not", cond)))
            case Binary():
                self._expr(e.a, place)
                self._expr(e.b, place)
                if e.op in (Op.FLOORDIV, Op.MOD) and dtypes.is_integer(e.dtype):
                    self.divisions.append(Division(self.lane_of(e), place))  # type: ignore[arg-type]
            case Load():
                self._access(e, place)
            case _:
                rewrite_children(e, lambda n: self._below(n, place))

    def _below(self, n: Expr, place: Place) -> Expr:
        if isinstance(n, Expr):
            self._expr(n, place)
        return n

    def lane_of(self, e: Expr) -> Expr:
        """The value of `e` in one lane."""
        lanes = dtypes.info(e.dtype).lanes
        return e if lanes == 1 else self._scalar(e, self._lane(lanes))

    def _scalar(self, e: Expr, lane: Var) -> Expr:
        if dtypes.info(e.dtype).lanes == 1:
            return e
        match e:
            case Ramp():
                return e.base + lane * e.stride
            case Broadcast():
                return e.value
            case Binary():
                return binary(e.op, self._scalar(e.a, lane), self._scalar(e.b, lane))
            case Call():
                return call(e.fn, *(self._scalar(a, lane) for a in e.args))
            case Cast():
                return Cast(self._scalar(e.value, lane), dtypes.vector(e.dtype, 1))
            case Select():
                cond, then, other = (self._scalar(x, lane) for x in (e.cond, e.then, e.other))
                return Select(cond, then, other, dtypes.vector(e.dtype, 1))
            case Load():
                indices = tuple([self._scalar(i, lane) for i in e.indices])
                return Load(e.buffer, indices, e.buffer.dtype)
            case _:
                return e

    def _lane(self, lanes: int) -> Var:
        if lanes not in self._lanes:
            self._lanes[lanes] = lane = Var("lane")
            self.ranges[lane] = (0, lanes - 1)
        return self._lanes[lanes]


def _before(e: Expr, stored: set[Buffer]) -> Expr:
    """`e` with variables, for values that are no longer there, in the place of elements."""
    if type(e) is Load and e.buffer in stored:
        return Var(f"{e.buffer.name}_before", e.dtype)
    return rewrite_children(e, lambda n: _before(n, stored) if isinstance(n, Expr) else n)


def of_both_branches(a: Touch, b: Touch) -> Touch | None:
    """What `a` and `b`, accesses in the two branches of one condition, do whichever is taken."""
    differ = [
        n
        for n, (p, q) in enumerate(zip(a.place.conditions, b.place.conditions, strict=False))
        if p is not q
    ]
    if len(differ) != 1 or len(a.place.conditions) != len(b.place.conditions):
        return None
    p, q = (t.place.conditions[differ[0]] for t in (a, b))
    opposite = type(q) is Call and q.fn == "not" and q.args[0] is p
    if not opposite or a.place.around != b.place.around or a.in_init != b.in_init:
        return None
    if list(map(key_of, a.indices)) != list(map(key_of, b.indices)):
        return None
    left = tuple([c for n, c in enumerate(a.place.conditions) if n != differ[0]])
    return b._replace(place=Place(a.place.around, left))


def under(place: Place, condition: Expr) -> Place:
    """`place` where `condition` holds too."""
    return Place(place.around, (*place.conditions, condition))
