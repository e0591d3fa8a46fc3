"""Verify that every element of internal buffers and outputs is written before it is read.

For each read, the analysis looks for earlier stores in the same iteration of their common loops:
first by structure, a store that sweeps a dense box around the hull of the read; where that does not
decide, exactly by integer sets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from ..base.errors import VerifyError
from . import affine
from .bounds import Sweeper, truth, variables
from .digits import Digit, Joined, digit_of, free, joined
from .inequality import at_most
from .ir import (
    INDEX,
    UNORDERED,
    Binary,
    Block,
    Buffer,
    Cast,
    Const,
    Expr,
    For,
    ForKind,
    Func,
    IterKind,
    Load,
    Op,
    Select,
    Store,
    Var,
    binary,
    const,
)
from .nests import read_by
from .polynomial import ONE, Poly, Ranges, add, factors, number
from .simplify import Simplifier
from .structure import conjuncts, key_of, same
from .survey import Survey, Touch, of_both_branches
from .visit import reads_from, rewrite_children, stored_buffers, substitute, walk

_QUOTIENTS = (Op.FLOORDIV, Op.MOD)
_NARROWER = ("int8", "int16", "int32", "uint8", "uint16", "uint32")


class Side(NamedTuple):
    """One dimension of a box that is certainly written: first and last, within 0 .. limit-1."""

    low: Poly
    high: Poly
    limit: int


def _hint(t: Touch, writes: Sequence[Touch]) -> str:
    """How to have an element stored before it is read."""
    for w in writes:
        shared = {*w.place.loops}
        both = [f for f in t.place.loops if f in shared and f.kind is ForKind.THREAD]
        if both and w.place.name != t.place.name:
            return (
                f"what another iteration of thread loop {both[-1].var.name} stores is there in the "
                f"next phase: close the loop after {w.place.name}, and read in one of its own"
            )
    return (
        "initialise it: give the reduction an init, or name the parameter in `inplace`, "
        "in program text by T.inplace(A)"
    )


class Initialised:
    """Answers for one surveyed program.

    Iterations of the loops `apart` find nothing that others stored, as if they ran at once.
    """

    def __init__(self, func: Func, survey: Survey, apart: Collection[Var] = ()) -> None:
        self.survey = survey
        self.apart = apart
        self.writes: dict[Buffer, list[Touch]] = {}
        for t in survey.touches:
            if t.is_write:
                self.writes.setdefault(t.buffer, []).append(t)
        self.inputs = {b for b in func.params if b not in self.writes} | set(func.inplace)
        self._scalars = {p for p in func.params if isinstance(p, Var)}
        self._stores: dict[Buffer, list[Store]] = {}
        for n in walk(func.body):
            if type(n) is Store:
                self._stores.setdefault(n.buffer, []).append(n)
        self._axes: list[Var] = []
        self._dense: dict[tuple[int, int], list[Side] | None] = {}
        self._found: list[Touch] = []
        self._conditions = {block: place.conditions for block, place in survey.blocks}

    def check(self) -> None:
        """Raise `VerifyError` for the first read that is not shown to find a stored element."""
        for t in self.survey.touches:
            if not t.is_write and t.buffer not in self.inputs and not self._finds(t):
                raise self._missing(t)

    def holds(self, buffer: Buffer) -> bool:
        """Whether all reads of `buffer` are shown to find stored elements."""
        reads = [t for t in self.survey.touches if not t.is_write and t.buffer is buffer]
        return all(self._finds(t) for t in reads)

    def _finds(self, t: Touch) -> bool:
        block = t.place.block
        writes = self.writes.get(t.buffer, [])
        if block is not None and not t.in_init and self._own_init(t, block, writes):
            return True
        before = [w for w in writes if w.order < t.order and not w.in_init]
        if any(self._covers(w, t) for w in before):
            return True
        if any(_same_read(u, t) for u in self._found):
            return True
        if self._covered_exactly(t, writes):
            self._found.append(t)
            return True
        return False

    def _missing(self, t: Touch) -> VerifyError:
        writes = self.writes.get(t.buffer, [])
        what, plain = "and nothing is stored to it", self.survey.plain
        if writes:
            names = sorted({w.place.name for w in writes})
            what = f"which is not shown to be stored by then (stores in {', '.join(names)})"
        return VerifyError(
            "{0}: reads {1}[{2}], {3}", t.place.name, t.buffer.name,
            lambda: ", ".join(str(plain(self.survey.resolved(i))) for i in t.indices), what,
            hint=_hint(t, writes),
        )  # fmt: skip

    def _own_init(self, t: Touch, block: Block, writes: Sequence[Touch]) -> bool:
        """Whether the block's init, which comes first for each spatial point, stores what is read.

        It does if its reduction starts at zero, in loops of its own, none of which is `apart`, and
        the read is under the conditions of the store. `check_starts` shows that the predicate does
        not skip the init.
        """
        starts = [w for w in writes if w.in_init and w.place.block is block and _same_element(w, t)]
        if not any(self._starts_under(w, t, block) for w in starts):
            return False
        spatial: set[Var] = set()
        reduce: set[Var] = set()
        for i in block.iters:
            value = self.survey.resolved(i.value)
            (reduce if i.kind is IterKind.REDUCE else spatial).update(variables(value))
            if i.kind is IterKind.REDUCE and not self._starts_at_zero(value):
                return False
        found_by_others = {v for v in self.apart if self.survey.ranges.get(v) != (0, 0)}
        return reduce.isdisjoint(spatial) and reduce.isdisjoint(found_by_others)

    def _starts_under(self, w: Touch, t: Touch, block: Block) -> bool:
        """Whether the store `w` of an init runs if the read `t` does in any reduce iteration."""
        own = w.place.conditions[len(self._conditions.get(block, ())) :]
        if not own:
            return True
        reduced = [i for i in block.iters if i.kind is IterKind.REDUCE]
        moving = variables(*(self.survey.resolved(i.value) for i in reduced))
        loops = [f for f in t.place.loops if f.var in moving]
        stored = stored_buffers(loops[0].body) if loops else stored_buffers(block.body)
        return {key_of(c) for c in own} <= {key_of(c) for c in t.place.conditions} and all(
            moving.isdisjoint(variables(self.survey.resolved(c))) and not reads_from(c, stored)
            for c in own
        )

    def _starts_at_zero(self, value: Expr) -> bool:
        p = self.survey.plain.poly(value)
        return all(isinstance(k, Var) and c > 0 for k, c in p.items())

    def _covers(self, w: Touch, t: Touch) -> bool:
        shared = shared_loops(w, t)
        key = (w.order, len(shared))
        if key not in self._dense:
            self._dense[key] = self._sides(w, shared)
        sides = self._dense[key]
        if sides is None:
            return False
        if all(self._all(side, n) for side, n in zip(sides, t.buffer.shape, strict=True)):
            return True
        swept = {f.var for f in t.place.loops[len(shared) :]}
        sweeper = Sweeper(self.survey.ranges, swept, ())
        return all(
            self._within(sweeper, side, e, n)
            for side, e, n in zip(sides, t.indices, t.buffer.shape, strict=True)
        )

    def _all(self, side: Side, size: object) -> bool:
        assert isinstance(size, int)
        low, high = (
            self.survey.plain.interval(side.low)[1],
            self.survey.plain.interval(side.high)[0],
        )
        return low <= 0 and high >= size - 1 and side.limit >= size

    def _within(self, sweeper: Sweeper, side: Side, e: Expr, size: object) -> bool:
        assert isinstance(size, int)
        window = sweeper.window(sweeper.poly(self.survey.resolved(e)))
        if window is None:
            return False
        low, high = window
        last = number(size - 1)
        first, end = (sweeper.poly(self.survey.plain.build(p)) for p in (side.low, side.high))
        below = at_most(sweeper, first, low) or at_most(sweeper, first, {})
        above = at_most(sweeper, high, end) or at_most(sweeper, last, end)
        limit = side.limit >= size or at_most(sweeper, high, number(side.limit - 1))
        return below and above and limit

    def _sides(self, w: Touch, shared: Sequence[For]) -> list[Side] | None:
        """The box that `w` surely stores to in one iteration of `shared`; `None` if not a box."""
        block = w.place.block
        domain: list[Expr] = []
        if block is not None:
            for i in block.iters:
                value = self.survey.resolved(i.value)
                assert isinstance(i.extent, int)
                domain += [binary(Op.GE, value, const(0)), binary(Op.LT, value, const(i.extent))]
        open_conditions = [
            c for c in map(self.survey.resolved, w.place.conditions)
            if truth(self.survey.plain, c) is not True
        ]  # fmt: skip
        if open_conditions:
            inside = Simplifier(self.survey.ranges, domain)
            if not all(truth(inside, c) is True for c in open_conditions):
                return None
        moving = {f.var: f for f in w.place.loops[len(shared) :]}
        is_open = bool(open_conditions)
        sides = self._box(block, w.indices, moving, is_open=is_open)
        if sides is not None:
            return sides
        whole = joined(w.buffer, w.indices)  # of a number whose digits are indices
        if len(whole.shape) == len(w.indices):
            return None
        sides = self._box(block, whole.indices, moving, is_open=is_open)
        return None if sides is None else self._apart(w.buffer, whole, sides)

    def _box(
        self, block: Block | None, indices: Sequence[Expr], moving: dict[Var, For], *, is_open: bool
    ) -> list[Side] | None:
        used: dict[Var, list[Digit]] = {}
        sides: list[Side] = []
        for e in indices:
            limit = self._limit(block, e) if is_open else 1 << 62
            side = None if limit is None else self._side(e, moving, used, limit)
            if side is None:
                return None
            sides.append(side)
        extents = {v: self.survey.ranges[v][1] + 1 for v in used}
        swept = all(isinstance(n, int) and free(used[v], n) for v, n in extents.items())
        return sides if swept else None

    def _apart(self, buffer: Buffer, whole: Joined, sides: Sequence[Side]) -> list[Side] | None:
        """The sides by the dimensions of a buffer; those that are joined have to be swept whole."""
        found: list[Side] = []
        for dims, size, side in zip(whole.dims, whole.shape, sides, strict=True):
            if len(dims) == 1:
                found.append(side)
                continue
            if not self._all(side, size):
                return None
            for n in (buffer.shape[d] for d in dims):
                assert isinstance(n, int)
                found.append(Side({}, number(n - 1), n))
        return found

    def _limit(self, block: Block | None, e: Expr) -> int | None:
        """The extent of the iteration variable that `e` is; a number has none."""
        if type(e) is Const:
            return 1 << 62
        iters = () if block is None else block.iters
        found = next((i.extent for i in iters if i.var is e), None)
        return found if isinstance(found, int) else None

    def _side(
        self, e: Expr, moving: dict[Var, For], used: dict[Var, list[Digit]], limit: int
    ) -> Side | None:
        p = self.survey.plain.poly(self.survey.resolved(e))
        steps: list[tuple[int, int]] = []
        low: Poly = {}
        high: Poly = {}
        for k, c in p.items():
            if not any(v in moving for a in factors(k) for v in variables(a)):
                low, high = add(low, {k: c}), add(high, {k: c})
                continue
            digit = digit_of(self.survey.plain, k) if isinstance(k, Expr) else None
            if digit is None:
                return None
            used.setdefault(digit.var, []).append(digit)
            steps.append((abs(c), digit.size))
            span = number(c * (digit.size - 1))
            low, high = (low, add(high, span)) if c > 0 else (add(low, span), high)
        reach = 1
        for c, extent in sorted(steps):
            if c > reach:
                return None
            reach += c * (extent - 1)
        return Side(low, high, limit)

    def _covered_exactly(self, t: Touch, writes: Sequence[Touch]) -> bool:
        told = {key_of(c) for _, c in self._conditions_on_element(t)}
        found = list(writes)
        for n, b in enumerate(found):
            found += [w for a in found[:n] if (w := of_both_branches(a, b)) is not None]
        writes = [self._without(w, told) for w in found]
        loops = telling_loops(self.survey, (t, *writes), t.place.loops)
        common = _wrapping(self.survey, t, loops)
        read = elements(self.survey, t, loops, common)
        if read is None:
            return False
        before = (
            stored_before(self.survey, w, t, loops, depth, common, self.apart)
            for depth in reversed(range(len(loops) + 1))
            for w in sorted(writes, key=lambda w: -w.order)
        )
        return affine.covered(read, (w for w in before if w is not None))

    def _without(self, w: Touch, told: Set[object]) -> Touch:
        """`w` without the conditions on its element that are `told` of it, and so hold."""
        known = {id(c) for c, new in self._conditions_on_element(w) if key_of(new) in told}
        left = [c for k in w.place.conditions for c in conjuncts(k) if id(c) not in known]
        return w._replace(place=w.place._replace(conditions=tuple(left)))

    def _conditions_on_element(self, t: Touch) -> Iterator[tuple[Expr, Expr]]:
        """Conditions that data make for the element of `t`, the same at all times.

        Each comes again with a variable for each index of the element, and originals for copies.
        """
        self._axes += [Var("axis") for _ in t.indices[len(self._axes) :]]
        axes = {key_of(i): v for i, v in zip(t.indices, self._axes, strict=False)}

        def visit(n: Any) -> Any:
            axis = axes.get(key_of(n)) if isinstance(n, Expr) else None
            if axis is not None:
                return axis
            if type(n) is Load and n.buffer in self._stores and n.mask is None:
                (store,) = self._stores[n.buffer]
                return visit(substitute(store.value, self._visit_of(store.indices, n.indices)))
            return rewrite_children(n, visit)

        for c in (c for k in t.place.conditions for c in conjuncts(k)):
            asked = read_by(c)
            if asked and all(map(self._is_constant, asked)):
                new = visit(c)
                if variables(new) <= {*axes.values(), *self._scalars}:
                    yield c, new

    def _visit_of(self, stored: Sequence[Expr], read: Sequence[Expr]) -> dict[Var, Expr]:
        """The variables of the visit that stores an element, as far as its indices tell them.

        An index `7 - v` tells that `v` is 7 less that of the element.
        """
        s = self.survey.plain
        found: dict[Var, Expr] = {}
        for place, index in zip(stored, read, strict=True):
            p = s.poly(place)
            own = [k for k in p if k is not ONE]
            if len(own) != 1 or type(own[0]) is not Var or p[own[0]] not in (1, -1):
                continue
            first = substitute(place, {own[0]: const(0)})
            a, b = (index, first) if p[own[0]] == 1 else (first, index)
            found[own[0]] = s(binary(Op.SUB, a, b))
        return found

    def _is_constant(self, buffer: Buffer, users: Set[Buffer] = frozenset()) -> bool:
        """Whether an element has the same value at all times at which it has one, as in a copy.

        Then all that is stored to it is a function of its indices and of what is constant too.
        """
        stores = self._stores.get(buffer, [])
        if not stores:
            return True
        place = self._visit_of(stores[0].indices, stores[0].indices)
        value = stores[0].value
        return (
            len(stores) == 1
            and buffer not in self.inputs | users
            and all(v in place or v in self._scalars for v in variables(value))
            and all(self._is_constant(b, users | {buffer}) for b in read_by(value))
        )


Common: TypeAlias = Mapping[object, tuple[Var, int, int]]
"""Values by their keys: a variable from zero on, and inclusive bounds."""


def elements(
    survey: Survey, t: Touch, loops: Sequence[For], common: Common | None = None
) -> affine.Elements | None:
    """The elements that `t` may touch in one iteration of `loops`, and for the `common` values.

    Without those, what wraps around may be anything within its bounds, as data are.

    A part of an index that depends on data may be anything within its bounds, and within the
    conditions on it.
    """
    common = common or {}
    unknown = dict(common)
    indices = [_with_unknowns(survey.plain, survey.resolved(i), unknown) for i in t.indices]
    each = (c for k in conditions_of(survey, t) for c in conjuncts(k))
    conditions = [_with_known(c, unknown) for c in each]
    ranges = {**survey.ranges, **{v: (0, high - low) for v, low, high in unknown.values()}}
    shared = [*(f.var for f in loops), *(v for v, _, _ in common.values())]
    box = _box(shared, indices, conditions, ranges)
    return affine.elements(indices, t.buffer.shape, box, shared, certain=False)


def _with_unknowns(s: Simplifier, e: Any, unknown: dict[object, tuple[Var, int, int]]) -> Any:
    """`e` with variables from zero on for data and choices; `unknown` gets their inclusive bounds.

    Data are also quotients and remainders of what may wrap around. A part without bounds stays.
    """
    wraps = _wraps(s, e)
    if type(e) is Binary and not wraps:
        return rewrite_children(e, lambda n: _with_unknowns(s, n, unknown))
    if type(e) is not Select and not wraps and not any(type(n) is Load for n in walk(e)):
        return e
    if not s.fits(s.poly(e)):
        return e
    low, high = s.interval(s.poly(e))
    var, _, _ = unknown.setdefault(key_of(_widened(e)), (Var("data"), low, high))
    return binary(Op.ADD, var, const(low))


def _with_known(e: Any, unknown: Common) -> Any:
    """A condition with the variables that indices have for data.

    What is computed of data in another dtype than that of indices, and may wrap around, stays.
    """
    if not isinstance(e, Expr):
        return e
    known = unknown.get(key_of(_widened(e)))
    if known is not None:
        return binary(Op.ADD, known[0], const(known[1]))
    if e.dtype not in (INDEX, "bool"):
        return e
    return rewrite_children(e, lambda n: _with_known(n, unknown))


def _widened(e: Expr) -> Expr:
    """What is cast to a wider index, which is the same number."""
    while type(e) is Cast and e.dtype == INDEX and e.value.dtype in _NARROWER:
        e = e.value
    return e


def _wraps(s: Simplifier, e: Any) -> bool:
    """Whether it is a quotient or remainder of what may wrap around."""
    return type(e) is Binary and e.op in _QUOTIENTS and not s.fits(s.poly(e.a))


def _wrapping(survey: Survey, t: Touch, loops: Sequence[For]) -> Common:
    """The quotients and remainders in the indices of `t` that wrap around, of `loops` alone: others
    have the same values in the same iterations of these."""
    s, around = survey.plain, {f.var for f in loops}
    found: dict[object, tuple[Var, int, int]] = {}
    for e in (n for i in t.indices for n in walk(survey.resolved(i)) if _wraps(s, n)):
        if set(variables(e)) <= around and not any(type(n) is Load for n in walk(e)):
            low, high = s.interval(s.poly(e))
            found.setdefault(key_of(e), (Var("wrapped"), low, high))
    return found


@lru_cache(128)
def wraps_around(func: Func) -> bool:
    """Whether parts of indices and conditions of `func`, of loops alone, may wrap around.

    `func` is concrete. What its steps change is then beyond integer sets, and only `verify` tells.
    """
    survey = Survey(func)
    around = {v for v, (_, high) in survey.ranges.items() if isinstance(high, int)}
    return any(
        e.dtype == INDEX
        and set(variables(e)) <= around
        and not survey.plain.fits(survey.plain.poly(e))
        for t in survey.touches
        for i in (*t.indices, *t.place.conditions)
        for e in walk(survey.resolved(i))
        if type(e) is Binary and not any(type(n) is Load for n in walk(e))
    )


def _with_common(e: Any, common: Common) -> Any:
    """`e` with the variables of what it has in common."""
    if type(e) is not Binary:
        return e
    known = common.get(key_of(e)) if e.op in _QUOTIENTS else None
    if known is None:
        return rewrite_children(e, lambda n: _with_common(n, common))
    return binary(Op.ADD, known[0], const(known[1]))


def stored_before(
    survey: Survey,
    w: Touch,
    t: Touch,
    loops: Sequence[For],
    depth: int,
    common: Common,
    apart: Collection[Var],
) -> affine.Elements | None:
    """The elements that `w` certainly stores to before `t` runs in one iteration of `loops`.

    Those are loops around `t`. `w` is in the same iteration of the first `depth` common loops and
    in an earlier one of the next, or precedes `t` within the same iteration of all. `None` if that
    is impossible: iterations of parallel, vectorized and thread loops are unordered, and so are
    those of the loops `apart`. What is `common` is of these loops.
    """
    both = set(shared_loops(w, t))
    shared = [f for f in loops if f in both]
    turn = shared[depth] if depth < len(shared) else None
    if depth > len(shared) or (w.order > t.order if turn is None else _unordered(turn, apart)):
        return None
    fixed = set(shared[:depth])
    fresh = {f.var: Var(f.var.name) for f in w.place.loops if f.extent != 1 and f not in fixed}
    indices = [_with_common(substitute(survey.resolved(i), fresh), common) for i in w.indices]
    conditions = [substitute(c, fresh) for c in conditions_of(survey, w)]
    if turn is not None:
        conditions.append(binary(Op.LT, fresh[turn.var], turn.var))
    ranges = {**survey.ranges, **{v: survey.ranges[f] for f, v in fresh.items()}}
    ranges |= {v: (0, high - low) for v, low, high in common.values()}
    names = [*(f.var for f in loops), *(v for v, _, _ in common.values())]
    box = _box(names, indices, conditions, ranges)
    return affine.elements(indices, w.buffer.shape, box, names, certain=True)


def _unordered(loop: For, apart: Collection[Var]) -> bool:
    return loop.kind in UNORDERED or loop.var in apart


def conditions_of(survey: Survey, t: Touch) -> list[Expr]:
    """The conditions under which `t` runs, in terms of loops."""
    conditions = [survey.resolved(c) for c in t.place.conditions]
    if t.in_init and t.place.block is not None:
        conditions += [
            binary(Op.EQ, survey.resolved(i.value), const(0))
            for i in t.place.block.iters
            if i.kind is IterKind.REDUCE
        ]
    return conditions


def _box(
    loops: Sequence[Var],
    indices: Sequence[Expr],
    conditions: Sequence[Expr],
    ranges: Ranges,
) -> affine.Box:
    """The loops, and lanes that indices and conditions mention, with their extents."""
    used = [v for e in (*indices, *conditions) for v in variables(e) if v in ranges]
    return affine.Box({v: extent_of(v, ranges) for v in (*loops, *used)}, conditions)


def telling_loops(survey: Survey, touches: Sequence[Touch], loops: Sequence[For]) -> list[For]:
    """Those of `loops` that affect which elements are touched, or when; each costs time.

    In an iteration of another loop everything is as in its first one.
    """
    used: set[Var] = set()
    for t in touches:
        for e in (*t.indices, *conditions_of(survey, t)):
            used.update(variables(survey.resolved(e)))
    return [f for f in loops if f.extent != 1 and f.var in used]


def shared_loops(a: Touch, b: Touch) -> list[For]:
    """The loops that both are in."""
    shared = []
    for x, y in zip(a.place.loops, b.place.loops, strict=False):
        if x is not y:
            break
        shared.append(x)
    return shared


def _same_element(a: Touch, b: Touch) -> bool:
    return all(same(x, y) for x, y in zip(a.indices, b.indices, strict=True))


def _same_read(a: Touch, b: Touch) -> bool:
    alike = a.buffer is b.buffer and a.place is b.place and a.in_init == b.in_init
    return alike and _same_element(a, b)


def extent_of(v: Var, ranges: Ranges) -> int:
    """The extent of a loop or lane of a concrete program."""
    last = ranges[v][1]
    assert isinstance(last, int)
    return last + 1
