"""Simplify expressions by the ranges of their variables.

`simplify` keeps the value for every assignment within the ranges, returns the same object if there
is nothing to do, never returns more nodes, and is idempotent. Sums and products of int64 become
polynomials (`polynomial.py`). Quotients, remainders, minima, comparisons and selects are decided by
intervals and, for symbolic bounds, by `inequality.py`. Floating-point arithmetic changes only where
the result is bit-identical.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..base import dtypes
from .divide import quotient, rejoin, remainder
from .inequality import contradicted, nonnegative, tight
from .ir import (
    COMPARISONS,
    INDEX,
    Binary,
    Call,
    Cast,
    Const,
    Dim,
    Expr,
    Load,
    Op,
    Select,
    Var,
    as_dim,
)
from .polynomial import (
    HIGH,
    LOW,
    ONE,
    Context,
    Interval,
    Poly,
    Ranges,
    add,
    constant,
    identity,
    merge,
    negated,
    number,
    shifted,
    times,
    wrapped,
)
from .rules import RULES, negation
from .structure import key_of, same, tree_size
from .visit import rewrite_children

_SUMS = frozenset({Op.ADD, Op.SUB, Op.MUL})
MOST_TERMS = 64
"""Of a product that is multiplied out: those of many sums have too many."""
NO_RANGES: Ranges = {}


def simplify(expr: Expr, ranges: Ranges = NO_RANGES, assuming: Sequence[Expr] = ()) -> Expr:
    """`expr` in a simpler form of the same value.

    `ranges` has inclusive bounds of variables, integers or expressions over other variables;
    `assuming` are conditions that are known to hold.
    """
    kind = type(expr)
    if kind is Var or kind is Const:
        return expr
    return Simplifier(ranges, assuming)(expr)


def simplify_dim(dim: Dim, ranges: Ranges = NO_RANGES) -> Dim:
    """`simplify` of a dimension; a constant becomes an integer."""
    return dim if isinstance(dim, int) else as_dim(simplify(dim, ranges))


class Simplifier(Context):
    """Simplifies many expressions under the same ranges, with a cache."""

    def __init__(self, ranges: Ranges = NO_RANGES, assuming: Sequence[Expr] = ()) -> None:
        super().__init__(ranges)
        self._done: dict[Expr, Expr] = {}
        self._polys: dict[Expr, Poly] = {}
        self._sizes: dict[Expr, int] = {}
        for condition in assuming:
            self.assume(condition)

    def __call__(self, e: Expr) -> Expr:
        """`e` in a simpler form."""
        while True:
            new = self.visit(e)
            if new is e or not self.definitions:
                return new
            e = new

    def assume(self, condition: Expr) -> None:
        """Assume `condition` in all later queries."""
        for told in facts_of(self, condition):
            fact = tight(self, told)  # as what it is asked about will be
            self.impossible = self.impossible or contradicted(self, fact)
            self.facts.append(fact)
            self.facts.extend(self._of_quotient(fact))
            self.symbolic = True
            self.decided.clear()

    def _of_quotient(self, fact: Poly) -> list[Poly]:
        """The consequence for `x` of a fact about `x // n`."""
        atoms = [k for k in fact if k is not ONE]
        if len(atoms) != 1 or isinstance(atoms[0], tuple):
            return []
        definition = self.definitions.get(atoms[0])
        if definition is None or definition[0] is not Op.FLOORDIV:
            return []
        c, rest, n = fact[atoms[0]], fact.get(ONE, 0), constant(definition[2])
        if n is None or n < 1:
            return []
        if c < 0:  # x // n <= rest // -c
            return [add({ONE: n * (rest // -c) + n - 1}, definition[1], -1)]
        return [shifted(definition[1], n * (rest // c))]  # x // n >= -(rest // c)

    def visit(self, e: Expr) -> Expr:
        kind = type(e)
        if kind is Var or kind is Const:
            return e
        found = self._done.get(e)
        if found is not None:
            return found
        if type(e) is Binary and e.dtype == INDEX and (e.op in _SUMS or e.op in _INTEGER):
            new = self.build(self.poly(e))
        else:
            new = RULES[kind](self, e)
        if new is not e:
            if same(new, e):
                new = e
            elif tree_size(new, self._sizes) > tree_size(e, self._sizes):
                new = self._kept(e)
        self._done[e] = new
        return new

    def _kept(self, e: Expr) -> Expr:
        """`e` itself with its operands simplified."""
        if type(e) is not Binary:
            return rewrite_children(e, self.visit)
        a, b = self.visit(e.a), self.visit(e.b)
        return e if a is e.a and b is e.b else Binary(e.op, a, b, e.dtype)

    def poly(self, e: Expr) -> Poly:
        """The polynomial of an int64 expression; it is kept, and must not be changed."""
        found = self._polys.get(e)
        if found is not None:
            return found
        p: Poly = {}
        self._collect(e, 1, p)
        for c in p.values():
            if c == 0 or c > HIGH or c < LOW:
                p = {k: w for k, x in p.items() if (w := wrapped(x))}
                break
        if len(p) > 1 and self.definitions:
            p = rejoin(self, p)
        self._polys[e] = p
        return p

    def _collect(self, e: Any, scale: int, into: Poly) -> None:
        kind = type(e)
        if kind is Var:
            into[e] = into.get(e, 0) + scale
            return
        if kind is Const:
            into[ONE] = into.get(ONE, 0) + scale * int(e.value)
            return
        if kind is Binary:
            op = e.op
            if op is Op.ADD:
                self._collect(e.a, scale, into)
                self._collect(e.b, scale, into)
                return
            if op is Op.SUB:
                self._collect(e.a, scale, into)
                self._collect(e.b, -scale, into)
                return
            if op is Op.MUL:
                a, b = e.a, e.b
                if type(a) is Const:
                    a, b = b, a
                if type(b) is Const:
                    self._collect(a, scale * int(b.value), into)
                    return
                p, q = self.poly(a), self.poly(b)
                if len(p) * len(q) <= MOST_TERMS:
                    merge(into, times(p, q), scale)
                    return
        elif kind is Call and e.fn == "neg":
            self._collect(e.args[0], -scale, into)
            return
        merge(into, self._atom(e), scale)

    def _atom(self, e: Expr) -> Poly:
        found = self._polys.get(e)
        if found is None:
            rule = _INTEGER.get(e.op) if type(e) is Binary else None
            if type(e) is Binary and e.op is Op.MUL:
                found = _long_product(self, e)
            elif rule is not None:
                found = rule(self, e)
            else:
                new = RULES[type(e)](self, e)
                if new is not e and _is_arithmetic(new):
                    found = self.poly(new)
                else:
                    found = {self.atom(key_of(new), new, atom_ends(self, new)): 1}
            self._polys[e] = found
        return found


def _is_arithmetic(e: Expr) -> bool:
    """Whether an int64 expression is more than an atom to `Simplifier.poly`."""
    match e:
        case Var() | Const():
            return True
        case Binary(op=op):
            return op in _SUMS or op in _INTEGER
        case Call(fn=fn):
            return fn == "neg"
        case _:
            return False


def _operands(s: Simplifier, e: Binary) -> tuple[Poly, Poly, Expr]:
    """Polynomials of the operands, and `e` with its operands simplified."""
    a, b = s.visit(e.a), s.visit(e.b)
    return s.poly(a), s.poly(b), e if a is e.a and b is e.b else Binary(e.op, a, b, e.dtype)


def _long_product(s: Simplifier, e: Binary) -> Poly:
    """A product of sums that stays as it is."""
    a, b, shown = _operands(s, e)
    return {s.atom((Op.MUL, frozenset((identity(a), identity(b)))), shown): 1}


def _floordiv(s: Simplifier, e: Binary) -> Poly:
    a, b, shown = _operands(s, e)
    y = constant(b)
    if y is not None:
        x = constant(a)
        if y == 0:
            return {s.atom(key_of(shown), shown): 1}
        if x is not None:
            return number(wrapped(x // y))
        if y == 1:
            return a
        if y == -1:
            return negated(a)
        taken_apart = _quotient_of_extremum(s, a, y) if y > 1 else None
        if taken_apart is not None:
            return taken_apart
    elif a == b and s.interval(b)[0] > 0:
        return {ONE: 1}
    return quotient(s, a, b, shown)


def _quotient_of_extremum(s: Simplifier, a: Poly, by: int) -> Poly | None:
    """`(min(x, y) + c) // by` as the minimum of two exact quotients, where they are."""
    atoms = [k for k in a if k is not ONE]
    if len(atoms) != 1 or isinstance(atoms[0], tuple) or a[atoms[0]] != 1 or not s.fits(a):
        return None
    definition = s.definitions.get(atoms[0])
    if definition is None or definition[0] not in (Op.MIN, Op.MAX):
        return None
    op, *sides = definition
    for side in sides:
        if any(c % by for k, c in side.items() if k is not ONE) or not s.fits(side):
            return None
    x, y = (
        {k: q for k, c in shifted(side, a.get(ONE, 0)).items() if (q := c // by)} for side in sides
    )
    return s.poly(Binary(op, s.build(x), s.build(y), INDEX))


def _mod(s: Simplifier, e: Binary) -> Poly:
    a, b, shown = _operands(s, e)
    y = constant(b)
    if y is not None:
        x = constant(a)
        if y == 0:
            return {s.atom(key_of(shown), shown): 1}
        if x is not None:
            return number(x % y)
        if y in (1, -1):
            return {}
    return remainder(s, a, b, shown)


def _extremum(s: Simplifier, e: Binary) -> Poly:
    a, b, shown = _operands(s, e)
    if a == b:
        return a
    if s.fits(a) and s.fits(b):
        difference = add(b, a, -1)
        if nonnegative(s, difference):
            return a if e.op is Op.MIN else b
        if nonnegative(s, negated(difference)):
            return b if e.op is Op.MIN else a
        x, y = constant(a), constant(b)
        if x is not None:
            a, b, y = b, a, x
        inner = s.definitions.get(next(iter(a))) if len(a) == 1 else None  # type: ignore[arg-type]
        if y is not None and inner is not None and inner[0] is e.op and next(iter(a.values())) == 1:
            z = constant(inner[2])
            if z is not None:
                best = number(min(y, z) if e.op is Op.MIN else max(y, z))
                return {_extremum_atom(s, e.op, inner[1], best, None): 1}
        if (
            inner is not None
            and inner[0] is e.op
            and next(iter(a.values())) == 1
            and (inner[1] == b or inner[2] == b)
        ):
            return a
    return {_extremum_atom(s, e.op, *(_operands(s, e)[:2]), shown): 1}


def _extremum_atom(s: Simplifier, op: Op, a: Poly, b: Poly, shown: Expr | None) -> Expr:
    key = (op, frozenset((identity(a), identity(b))))
    found = s.atoms.get(key)
    if found is not None:
        return found
    e = Binary(op, s.build(a), s.build(b), INDEX) if shown is None else shown
    ends = None
    if s.fits(a) and s.fits(b):
        choose = min if op is Op.MIN else max
        (a0, a1), (b0, b1) = s.interval(a), s.interval(b)
        ends = choose(a0, b0), choose(a1, b1)
    s.atom(key, e, ends)
    if ends is not None:
        s.definitions[e] = (op, a, b)
    return e


_INTEGER: dict[Op, Callable[[Simplifier, Any], Poly]] = {
    Op.FLOORDIV: _floordiv,
    Op.MOD: _mod,
    Op.MIN: _extremum,
    Op.MAX: _extremum,
}


def atom_ends(s: Simplifier, e: Expr) -> Interval | None:
    """The interval of an int64 atom, where more than its dtype is known."""
    match e:
        case Load(buffer=b) if b.value_range is not None:
            return b.value_range[0], b.value_range[1] - 1
        case Cast(value=v) if not dtypes.is_float(v.dtype):
            if type(v) is Load and v.buffer.value_range is not None:
                low, high = v.buffer.value_range[0], v.buffer.value_range[1] - 1
            else:
                low, high = dtypes.int_limits(dtypes.info(v.dtype).scalar)
            return (low, high) if high <= HIGH else None  # uint64 wraps around
        case Select(then=a, other=b):
            p, q = s.poly(a), s.poly(b)
            if s.fits(p) and s.fits(q):
                (a0, a1), (b0, b1) = s.interval(p), s.interval(q)
                return min(a0, b0), max(a1, b1)
        case Call(fn="abs", args=(a,)):
            p = s.poly(a)
            low, high = s.interval(p)
            if low > LOW and high <= HIGH:
                return 0, max(-low, high)
        case Binary(op=Op.AND, b=Const(value=mask)) | Binary(op=Op.AND, a=Const(value=mask)):
            if mask >= 0:
                return 0, int(mask)
        case _:
            pass
    return None


def difference(s: Simplifier, comparison: Expr) -> Poly | None:
    """`a - b` of a comparison of indices such as `a < b`, not wrapped: it may leave int64.

    `None` where a side may wrap around, so that the sign of the difference decides nothing.
    """
    if type(comparison) is not Binary or comparison.op not in COMPARISONS:
        return None
    if comparison.a.dtype != INDEX:
        return None
    a, b = s.poly(comparison.a), s.poly(comparison.b)
    return add(a, b, -1) if s.fits(a) and s.fits(b) else None


def facts_of(s: Simplifier, condition: Expr) -> list[Poly]:
    """Polynomials that are non-negative where `condition` holds."""
    if type(condition) is Call and condition.fn == "not":
        flipped = negation(condition.args[0])
        return [] if flipped is None else facts_of(s, flipped)
    if type(condition) is not Binary:
        return []
    op = condition.op
    if op is Op.AND and condition.dtype == "bool":
        return facts_of(s, condition.a) + facts_of(s, condition.b)
    down = difference(s, condition)
    if down is None:
        return []
    up = negated(down)
    match op:
        case Op.LE:
            return [up]
        case Op.LT:
            return [add(up, {ONE: -1})]
        case Op.GE:
            return [down]
        case Op.GT:
            return [add(down, {ONE: -1})]
        case Op.EQ:
            return [up, down]
        case _:
            return []
