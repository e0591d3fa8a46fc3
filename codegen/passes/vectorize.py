"""Turn vectorized loops into vector expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

from ...base import dtypes
from ...base.errors import BuildError
from ...tir.bounds import truth
from ...tir.ir import (
    COMPARISONS,
    FALSE,
    INDEX,
    Alloc,
    Binary,
    Broadcast,
    Buffer,
    Call,
    Cast,
    Const,
    Dot,
    Expr,
    For,
    ForKind,
    Func,
    If,
    Let,
    Load,
    Matmul,
    Op,
    Prefetch,
    Ramp,
    Select,
    Seq,
    Shuffle,
    Stmt,
    Store,
    Var,
    const,
    seq,
)
from ...tir.piecewise import is_piecewise
from ...tir.polynomial import Poly, factors, shifted
from ...tir.simplify import Simplifier, difference
from ...tir.visit import map_tuple, substitute, walk, with_func_body
from .guards import first_lane
from .rewrite import (
    adjacent,
    fresh,
    holds_registers,
    map_stmts,
    may_trap,
    renewed,
    simplifier_of,
)
from .safety import (
    Inequalities,
    Lanes,
    Safety,
    inequalities_of,
    inequalities_of_negation,
    lasting,
    near_load,
)
from .unbent import unbent

MAX_UNROLLED_CHUNKS = 16
LINE_BYTES = 64
MAX_COPIED_NODES = 24
"""A condition of more nodes that reads memory is computed once for all the masks it is part of."""


def vectorize(func: Func, vector_bits: int, mask_bits: int | None) -> Func:
    """Turn each vectorized loop into vector statements, in chunks of a vector register's width.

    for j in vectorized(20): C[j] = A[j]   ->   C[ramp(0, 1, 16)] = A[ramp(0, 1, 16)]
                                                C[ramp(16, 1, 4)] = A[ramp(16, 1, 4)]

    The tail is masked if its elements have at least `mask_bits`, and else uses smaller vectors:
    vectors of such elements can be loaded and stored in part. A condition that differs between
    lanes masks the loads and stores below it, but not the loads that cannot fail without it. Where
    a row may be clamped, reflected or wrapped, as a tile decides when it runs, a branch asks for
    that.
    """
    s, unit = simplifier_of(func), _Unit(vector_bits, mask_bits)
    safety = Safety(s)

    def visit(stmt: Stmt, around: Inequalities) -> Stmt:
        if type(stmt) is For and stmt.kind is ForKind.VECTOR:
            return _loop(stmt, unit, _Facts(s, safety, around))
        if type(stmt) is not If:
            return map_stmts(stmt, lambda c: visit(c, around))
        then = visit(stmt.then, around + lasting(inequalities_of(stmt.cond)))
        other = stmt.other
        if other is not None:
            other = visit(other, around + lasting(inequalities_of_negation(stmt.cond)))
        same = then is stmt.then and other is stmt.other
        return stmt if same else replace(stmt, then=then, other=other)

    return with_func_body(func, visit(func.body, ()))


def native_lanes(body: Stmt, vector_bits: int) -> int:
    """How many lanes of the widest element that `body` accesses fit a vector register."""
    bits = [dtypes.info(n.dtype).bits for n in walk(body) if type(n) is Buffer]
    return max(vector_bits // max(bits, default=32), 2)


class _Unit(NamedTuple):
    """The width of vectors, and the narrowest element that masks are for."""

    vector_bits: int
    mask_bits: int | None


class _Facts(NamedTuple):
    """What is known at a loop: the ranges of variables, and the bounds that hold around it."""

    s: Simplifier
    safety: Safety
    around: Inequalities


def chunks(extent: int, lanes: int, masked: bool) -> Iterator[tuple[int, int, int]]:
    """The vectors that cover `extent` elements: start, lanes, and how many of them are on."""
    full = extent // lanes * lanes
    yield from ((start, lanes, lanes) for start in range(0, full, lanes))
    rest = extent - full
    while rest:
        width = 1 << (rest.bit_length() - 1)
        if masked and width < rest:
            yield full, 2 * width, rest
            return
        yield full, width, width
        full, rest = full + width, rest - width


def _loop(loop: For, unit: _Unit, facts: _Facts) -> Stmt:
    assert isinstance(loop.extent, int)
    lanes = native_lanes(loop.body, unit.vector_bits)
    widest = lanes * MAX_UNROLLED_CHUNKS
    if loop.extent < widest + lanes or holds_registers(loop.body):
        return _chunks(loop, 0, loop.extent, lanes, unit, facts)
    full = loop.extent // lanes
    chunk = renewed(loop.var, f"{loop.var.name}_chunk")
    facts.s.ranges = {**facts.s.ranges, chunk: (0, full - 1)}
    many = For(chunk, full, _vector(loop, chunk * lanes, lanes, lanes, facts))
    if full * lanes == loop.extent:
        return many
    return seq(many, fresh(_chunks(loop, full * lanes, loop.extent, lanes, unit, facts)))


def _chunks(loop: For, start: int, end: int, lanes: int, unit: _Unit, facts: _Facts) -> Stmt:
    parts = chunks(end - start, lanes, _has_masks(loop.body, unit.mask_bits))
    copies = [_vector(loop, const(start + at), n, on, facts) for at, n, on in parts]
    return seq(*copies[:1], *map(fresh, copies[1:]))


def _has_masks(body: Stmt, mask_bits: int | None) -> bool:
    """Whether a vector that is only on in part is cheap. Registers are cut without: a vector that
    reaches beyond its row would be part of the next one."""
    if mask_bits is None or holds_registers(body):
        return False
    bits = {dtypes.info(n.dtype).bits for n in walk(body) if type(n) is Buffer}
    return min(bits, default=32) >= mask_bits


def _vector(loop: For, base: Expr, lanes: int, on: int, facts: _Facts) -> Stmt:
    """The body of `loop` for the iterations from `base` on, those after the first `on` off."""
    if lanes == 1:
        return substitute(_plain(loop.body), {loop.var: base})
    numbers = adjacent(const(0), lanes)
    mask = (
        None
        if on == lanes
        else _compare(Op.LT, numbers, Broadcast(const(on), lanes, numbers.dtype))
    )
    v = _Vectorizer(loop.var, base, lanes, facts)
    straight = unbent(loop.body, loop.var, base, on, lambda e: v.is_gathered(e, on), facts.s)
    if straight is None:
        return v.stmt(loop.body, mask)
    row = _Vectorizer(loop.var, base, lanes, facts).stmt(straight.stmt, mask)
    return If(straight.condition, row, v.stmt(loop.body, mask))


def _plain(s: Stmt) -> Stmt:
    """Without vectors: a loop in a vectorized loop runs in order."""
    if type(s) is For and s.kind is not ForKind.SERIAL and s.kind is not ForKind.UNROLL:
        s = replace(s, kind=ForKind.SERIAL)
    return map_stmts(s, _plain)


Mask = Expr | None


class _Vectorizer:
    """Vectorizes expressions that depend on one loop variable; others stay scalar.

    An expression is vectorized once for each mask in a statement, however often the statement has
    it. A large condition that masks others is named by a `Let` around the statement.
    """

    def __init__(self, var: Var, base: Expr, lanes: int, facts: _Facts) -> None:
        self.lanes = lanes
        self.s, self.safety, self.around = facts
        self.var = var
        self.base = base
        self.index = dtypes.vector(INDEX, lanes)
        self.vectors: dict[Var, Expr] = {var: adjacent(base, lanes)}
        self.on: dict[Expr, bool] = {}
        self.bounds: dict[Mask, Inequalities] = {}
        self.done: dict[Mask, dict[Expr, Expr]] = {}
        self.named: dict[Var, Expr] = {}
        self.chosen: tuple[Expr, ...] = ()

    def stmt(self, s: Stmt, mask: Mask) -> Stmt:
        above = self.done, self.named
        self.done, self.named = {}, {}
        result = self.parts(s, mask)
        for var, value in reversed(self.named.items()):
            result = Let(var, value, result)
        self.done, self.named = above
        return result

    def parts(self, s: Stmt, mask: Mask) -> Stmt:
        match s:
            case Store():
                return self.store(s, mask)
            case Seq():
                return seq(*(self.stmt(c, mask) for c in s.stmts))
            case For():
                kind = s.kind if s.kind is ForKind.UNROLL else ForKind.SERIAL
                return replace(s, kind=kind, body=self.stmt(s.body, mask))
            case If():
                return self.branch(s, mask)
            case Let():
                return self.let(s, mask)
            case Prefetch():
                return self.prefetch(s, mask)
            case Alloc():
                return replace(s, body=self.stmt(s.body, mask))
            case _:
                raise BuildError("{0} cannot be vectorized", type(s).__name__)

    def store(self, s: Store, mask: Mask) -> Stmt:
        if s.mask is not None:
            raise BuildError("a masked store to {0} cannot be vectorized again", s.buffer.name)
        (offset,) = (self.expr(i, mask) for i in s.indices)
        value = self.expr(s.value, mask)
        if offset.dtype == INDEX:
            if value.dtype == s.buffer.dtype and mask is None:
                return Store(s.buffer, (offset,), value)
            raise BuildError(
                "the vectorized loop {0} stores to one element of {1} in all iterations",
                self.var.name,
                s.buffer.name,
                hint="vectorize a loop that the index of the store depends on",
            )
        return Store(s.buffer, (offset,), self.wide(value), mask)

    def prefetch(self, s: Prefetch, mask: Mask) -> Stmt:
        """One prefetch for each cache line of a ramp.

        None if lanes are unrelated, or if an index is read from memory that a mask may guard.
        """
        offset = self.expr(s.indices[0], mask)
        first = offset.base if type(offset) is Ramp else offset
        reads = any(type(n) is Load for n in walk(first))
        if dtypes.info(first.dtype).lanes > 1 or (reads and mask is not None):
            return Seq(())
        if type(offset) is not Ramp or type(offset.stride) is not Const:
            return Prefetch(s.buffer, (first,))
        step = int(offset.stride.value)
        line = max(LINE_BYTES // (dtypes.nbytes(s.buffer.dtype) * max(abs(step), 1)), 1)
        lanes = range(0, self.lanes if step else 1, line)
        return seq(*(Prefetch(s.buffer, (first + step * k,)) for k in lanes))

    def branch(self, s: If, mask: Mask) -> Stmt:
        cond = self.condition(s.cond, mask)
        if dtypes.info(cond.dtype).lanes == 1:
            other = None if s.other is None else self.stmt(s.other, mask)
            return If(cond, self.stmt(s.then, mask), other)
        cond = self.name(cond, 0)  # the statements may change what it reads
        chosen = self.both(mask, cond, lasting(inequalities_of(s.cond)))
        then = self.stmt(s.then, chosen)
        if s.other is None:
            return then
        rejected = self.both(mask, self.negation(cond), lasting(inequalities_of_negation(s.cond)))
        return seq(then, self.stmt(s.other, rejected))

    def let(self, s: Let, mask: Mask) -> Stmt:
        value = self.expr(s.value, mask)
        if value is s.value:
            return replace(s, body=self.stmt(s.body, mask))
        var = Var(s.var.name, value.dtype)
        self.vectors[s.var] = var
        return Let(var, value, self.stmt(s.body, mask))

    def expr(self, e: Expr, mask: Mask) -> Expr:
        """`e` with a value for each lane, or a scalar if all lanes agree."""
        done = self.done.setdefault(mask, {})
        found = done.get(e)
        if found is None:
            found = done[e] = self.vectorized(e, mask)
        return found

    def vectorized(self, e: Expr, mask: Mask) -> Expr:
        if e.dtype == INDEX and self.may_run(e, mask):
            ramp = self.linear(e)
            if ramp is not None:
                return ramp
        return _EXPR[type(e)](self, e, mask)

    def may_run(self, e: Expr, mask: Mask) -> bool:
        """Whether `e` may be evaluated once for all lanes: one of them is on, or it never fails."""
        return mask is None or self.first_is_on(mask) or self.never_fails(e, ())

    def first_is_on(self, mask: Expr) -> bool:
        """Whether a mask is shown to hold for the first lane, as in the last vector of a loop."""
        known = self.on.get(mask)
        if known is None:
            first = first_lane(mask)
            known = self.on[mask] = first is not None and truth(self.s, first) is True
        return known

    def never_fails(self, e: Expr, bounds: Inequalities) -> bool:
        """Whether `e` is shown not to fail here, where `bounds` hold."""
        return self.safety.never_fails(e, self.around + bounds)

    def linear(self, e: Expr) -> Expr | None:
        """An index that is linear in the loop's variable, as a ramp."""
        if type(e) is Const:
            return e
        step = 0
        p = self.s.poly(e)
        for key, coefficient in p.items():
            if key is self.var:
                step = coefficient
            elif self.depends(key):
                return None
        if step == 0:
            return self.s.build(p) if self.depends(e) else e
        base = self.s(substitute(e, {self.var: self.base}))
        return Ramp(base, const(step), self.lanes, self.index)

    def depends_on_lane(self, e: Expr) -> bool:
        """Whether `e` is made of indices and of the loop's variable, but of no other vector."""
        found = {n for n in walk(e) if type(n) is Var}
        others = found & self.vectors.keys() - {self.var}
        return self.var in found and not others and not any(type(n) is Load for n in walk(e))

    def is_gathered(self, e: Load, enabled: int) -> bool:
        """Whether the lanes of a load lie neither in a row nor near each other, as far as known."""
        (index,) = e.indices
        if (
            e.buffer.scope == "register"
            or not is_piecewise(index)
            or not self.depends_on_lane(index)
        ):
            return False
        lanes = Lanes(self.lanes, enabled)
        return (
            self.linear(index) is None and near_load(e, self.var, self.base, lanes, self.s) is None
        )

    def depends(self, key: Any) -> bool:
        return any(type(n) is Var and n in self.vectors for f in factors(key) for n in walk(f))

    def wide(self, e: Expr) -> Expr:
        """`e` with lanes."""
        facts = dtypes.info(e.dtype)
        if facts.lanes > 1:
            return e
        return Broadcast(e, self.lanes, dtypes.vector(e.dtype, self.lanes))

    def negation(self, cond: Expr) -> Expr:
        return Call("not", (cond,), cond.dtype)

    def both(self, mask: Mask, cond: Expr, bounds: Inequalities) -> Expr:
        """The mask of the lanes of `mask` where `cond` holds, and with it `bounds`."""
        result = cond if mask is None else self.name(_logic(Op.AND, mask, cond))
        self.bounds[result] = self.bounds.get(mask, ()) + bounds
        return result

    def name(self, cond: Expr, copied: int = MAX_COPIED_NODES) -> Expr:
        """A condition as it is put into masks: what reads memory and is larger than `copied` nodes
        is computed once."""
        large = any(True for _ in islice(walk(cond), copied, None))
        if type(cond) is Var or not large or not any(map(_reads, walk(cond))):
            return cond
        var = Var("mask", cond.dtype)
        for choice in reversed(self.chosen):  # elsewhere it may fail
            cond = Select(choice, cond, self.wide(FALSE), cond.dtype)
        self.named[var] = cond
        return var

    def branch_of(self, e: Expr, choice: Expr, mask: Mask) -> Expr:
        """`expr` of a branch that is evaluated only where `choice`, a scalar, holds."""
        if self.never_fails(e, self.bounds.get(mask, ())):
            return self.expr(e, mask)
        above = self.done, self.chosen
        self.done, self.chosen = {}, (*self.chosen, choice)
        result = self.expr(e, mask)
        self.done, self.chosen = above
        return result

    def condition(self, cond: Expr, mask: Mask) -> Expr:
        """A condition; comparisons of indices become comparisons with the numbers of the lanes."""
        match cond:
            case Binary(op=Op.AND | Op.OR) if cond.dtype == "bool":
                a, b = self.condition(cond.a, mask), self.condition(cond.b, mask)
                if a is cond.a and b is cond.b:
                    return cond
                return _logic(cond.op, self.wide(a), self.wide(b))
            case Binary() if (
                cond.op in _BOUNDS and cond.a.dtype == INDEX and self.may_run(cond, mask)
            ):
                found = self.lane_bound(cond)
                if found is not None:
                    return found
        return self.expr(cond, mask)

    def lane_bound(self, cond: Binary) -> Expr | None:
        """`a < b` with `a - b` linear with a step of one or minus one, as a bound on the lane.

        `None` for others, and where a side may leave int64.
        """
        found = difference(self.s, cond)
        if found is None:
            return None
        exact = self.s.fits(found)
        p: Poly = dict(self.s.poly(cond.a - cond.b) if exact else found)
        step = p.pop(self.var, 0)
        if step not in (1, -1) or any(self.depends(k) for k in p):
            return None
        op = cond.op if step == 1 else _MIRROR[cond.op]
        rest = {k: -c * step for k, c in p.items()}
        first = self.s.poly(self.base)
        if exact:
            end = self.s.build(rest)
            limit = self.s(_clamp(self.s(end - self.base), const(-1), const(self.lanes)))
        elif self.s.fits(rest) and self.s.fits(first) and self.s.fits(shifted(first, self.lanes)):
            # The end may be any number: nothing is subtracted from it before it is near.
            near = _clamp(self.s.build(rest), self.base - 1, self.base + self.lanes)
            limit = self.s(near - self.base)
        else:
            return None
        small = dtypes.vector("int32", self.lanes)
        numbers = Ramp(Const(0, "int32"), Const(1, "int32"), self.lanes, small)
        return _compare(op, numbers, Broadcast(limit.astype("int32"), self.lanes, small))


def _clamp(e: Expr, low: Expr, high: Expr) -> Expr:
    return Binary(Op.MIN, Binary(Op.MAX, e, low, INDEX), high, INDEX)


_BOUNDS = frozenset({Op.LT, Op.LE, Op.GT, Op.GE})
_MIRROR = {Op.LT: Op.GT, Op.LE: Op.GE, Op.GT: Op.LT, Op.GE: Op.LE}


def _compare(op: Op, a: Expr, b: Expr) -> Expr:
    return Binary(op, a, b, dtypes.vector("bool", dtypes.info(a.dtype).lanes))


def _logic(op: Op, a: Expr, b: Expr) -> Expr:
    return Binary(op, a, b, a.dtype)


def _reads(n: object) -> bool:
    """Whether a node of a condition is a load, or names a condition that was read from memory."""
    return type(n) is Load or (type(n) is Var and dtypes.info(n.dtype).lanes > 1)


def _leaf(v: _Vectorizer, e: Expr, mask: Mask) -> Expr:
    del mask
    return v.vectors.get(e, e) if type(e) is Var else e


def _binary(v: _Vectorizer, e: Binary, mask: Mask) -> Expr:
    a, b = v.expr(e.a, mask), v.expr(e.b, mask)
    guarded = mask is not None and may_trap(e)
    if a is e.a and b is e.b and not (guarded and not v.may_run(e, mask)):
        return e
    a, b = v.wide(a), v.wide(b)
    if mask is not None and guarded:
        one = Broadcast(const(1, e.dtype), v.lanes, b.dtype)
        b = Select(mask, b, one, b.dtype)
    scalar = "bool" if e.op in COMPARISONS else e.dtype
    return Binary(e.op, a, b, dtypes.vector(scalar, v.lanes))


def _call(v: _Vectorizer, e: Call, mask: Mask) -> Expr:
    args = map_tuple(e.args, lambda a: v.expr(a, mask))
    if args is e.args:
        return e
    return Call(e.fn, tuple(v.wide(a) for a in args), dtypes.vector(e.dtype, v.lanes))


def _cast(v: _Vectorizer, e: Cast, mask: Mask) -> Expr:
    value = v.expr(e.value, mask)
    if value is e.value:
        return e
    return Cast(value, dtypes.vector(e.dtype, dtypes.info(value.dtype).lanes))


def _select(v: _Vectorizer, e: Select, mask: Mask) -> Expr:
    cond = v.condition(e.cond, mask)
    if dtypes.info(cond.dtype).lanes == 1:
        then = v.branch_of(e.then, cond, mask)
        other = v.branch_of(e.other, v.negation(cond), mask)
        if cond is e.cond and then is e.then and other is e.other:
            return e
        then, other = v.wide(then), v.wide(other)
        return Select(cond, then, other, then.dtype)
    # What never fails is evaluated in all lanes: few vector units load in part at full speed.
    known = v.bounds.get(mask, ())
    then_holds, other_holds = inequalities_of(e.cond), inequalities_of_negation(e.cond)
    chosen = rejected = mask
    if not v.never_fails(e.then, known):
        cond = v.name(cond)
        chosen = v.both(mask, cond, then_holds)
    if not v.never_fails(e.other, known):
        cond = v.name(cond)
        rejected = v.both(mask, v.negation(cond), other_holds)
    then, other = v.wide(v.expr(e.then, chosen)), v.wide(v.expr(e.other, rejected))
    return Select(cond, then, other, then.dtype)


def _load(v: _Vectorizer, e: Load, mask: Mask) -> Expr:
    (index,) = e.indices
    if e.buffer.scope != "register" and is_piecewise(index):
        enabled = v.lanes if mask is None else enabled_lanes(mask)
        if enabled is not None and v.depends_on_lane(index) and v.linear(index) is None:
            near = near_load(e, v.var, v.base, Lanes(v.lanes, enabled), v.s)
            if near is not None:
                return near
    offset = v.expr(index, mask)
    if offset.dtype == INDEX:
        one = e if offset is index else Load(e.buffer, (offset,), e.dtype)
        if e.buffer.scope == "register" or v.may_run(one, mask):
            return one
    return Load(e.buffer, (v.wide(offset),), dtypes.vector(e.dtype, v.lanes), mask)


def enabled_lanes(mask: Expr) -> int | None:
    """How many of the first lanes a mask enables, if that is known and it enables no others."""
    match mask:
        case Binary(
            op=Op.LT,
            a=Ramp(base=Const(value=0), stride=Const(value=1)),
            b=Broadcast(value=Const(value=count) | Cast(value=Const(value=count))),
        ) if count > 0:
            return min(int(count), dtypes.info(mask.dtype).lanes)
        case _:
            return None


def _refused(v: _Vectorizer, e: Dot | Matmul | Shuffle, mask: Mask) -> Expr:
    del mask
    raise BuildError(
        "the vectorized loop {0} is around a vector instruction, {1}", v.var.name, e,
        hint="run the loop around it in order",
    )  # fmt: skip


_EXPR: dict[type, Callable[[_Vectorizer, Any, Mask], Expr]] = {
    Var: _leaf,
    Const: _leaf,
    Binary: _binary,
    Call: _call,
    Cast: _cast,
    Select: _select,
    Load: _load,
    Dot: _refused,
    Matmul: _refused,
    Shuffle: _refused,
}
