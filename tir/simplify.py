"""Simplification of expressions by the ranges of their variables.

`simplify` keeps the value for every assignment within the ranges, gives the same object back where
there is nothing to do, never gives more nodes, and simplifying its result changes nothing. Sums and
products of int64 become polynomials (`polynomial.py`); quotients, remainders, minima, comparisons
and selects are decided by intervals and, where bounds are symbolic, by `inequality.py`. Floating
arithmetic is touched only where the result is the same bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import dtypes
from . import lanes
from .compare import compare
from .divide import quotient, rejoin, remainder
from .fold import fold_binary, fold_call, fold_cast
from .inequality import nonnegative
from .ir import (
    COMPARISONS,
    FALSE,
    INDEX,
    TRUE,
    Binary,
    Broadcast,
    Call,
    Cast,
    Const,
    Dim,
    Expr,
    Load,
    Op,
    Ramp,
    Reduce,
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
    times,
    wrapped,
)
from .visit import map_tuple, rewrite_children

_SUMS = frozenset({Op.ADD, Op.SUB, Op.MUL})
NO_RANGES: Ranges = {}


def simplify(expr: Expr, ranges: Ranges = NO_RANGES, assuming: Sequence[Expr] = ()) -> Expr:
    """`expr` in a simpler form of the same value.

    `ranges` gives inclusive ends of variables, integers or expressions over other variables;
    `assuming` are conditions known to hold.
    """
    kind = type(expr)
    if kind is Var or kind is Const:
        return expr
    return Simplifier(ranges, assuming)(expr)


def simplify_dim(dim: Dim, ranges: Ranges = NO_RANGES) -> Dim:
    """`simplify` of a dimension; a constant becomes an integer."""
    return dim if type(dim) is int else as_dim(simplify(dim, ranges))  # type: ignore[arg-type]


class Simplifier(Context):
    """Simplifies many expressions under the same ranges, and remembers what it has seen."""

    def __init__(self, ranges: Ranges = NO_RANGES, assuming: Sequence[Expr] = ()) -> None:
        super().__init__(ranges)
        self._done: dict[Expr, Expr] = {}
        self._polys: dict[Expr, Poly] = {}
        for condition in assuming:
            self.assume(condition)

    def __call__(self, e: Expr) -> Expr:
        """`e` in a simpler form."""
        for _ in range(8):
            new = self.visit(e)
            if new is e:
                return e
            self._done.setdefault(new, new)
            e = new
        return e

    def assume(self, condition: Expr) -> None:
        """Take `condition` for granted in what is asked from now on."""
        for fact in facts_of(self, condition):
            self.facts.append(fact)
            self.symbolic = True

    def visit(self, e: Expr) -> Expr:
        kind = type(e)
        if kind is Var or kind is Const:
            return e
        found = self._done.get(e)
        if found is not None:
            return found
        if kind is Binary and e.dtype == INDEX and (e.op in _SUMS or e.op in _INTEGER):  # type: ignore[attr-defined]
            new = self.build(self.poly(e))
        else:
            new = _RULES[kind](self, e)
        if new is not e:
            if same(new, e):
                new = e
            elif size(new) > size(e):
                new = self._kept(e)
        self._done[e] = new
        return new

    def _kept(self, e: Expr) -> Expr:
        """`e` itself with its operands simplified."""
        if type(e) is not Binary:
            return rewrite_children(e, lambda n: self.visit(n) if isinstance(n, Expr) else n)  # type: ignore[no-any-return]
        a, b = self.visit(e.a), self.visit(e.b)
        return e if a is e.a and b is e.b else Binary(e.op, a, b, e.dtype)

    def poly(self, e: Expr) -> Poly:
        """The polynomial of an int64 expression."""
        p: Poly = {}
        self._collect(e, 1, p)
        for c in p.values():
            if c == 0 or c > HIGH or c < LOW:
                p = {k: w for k, x in p.items() if (w := wrapped(x))}
                break
        if len(p) > 1 and self.has_remainders:
            p = rejoin(self, p)
        return p

    def _collect(self, e: Any, scale: int, into: Poly) -> None:
        kind = type(e)
        if kind is Var:
            into[e] = into.get(e, 0) + scale
            return
        if kind is Const:
            into[ONE] = into.get(ONE, 0) + scale * e.value
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
                    self._collect(a, scale * b.value, into)
                    return
                p, q = self.poly(a), self.poly(b)
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
            if rule is not None:
                found = rule(self, e)
            else:
                new = _RULES[type(e)](self, e)
                if new is not e and _is_arithmetic(new):
                    found = self.poly(new)
                else:
                    found = {self.atom(key_of(self, new), new, atom_ends(self, new)): 1}
            self._polys[e] = found
        return found

    @property
    def has_remainders(self) -> bool:
        """Whether a remainder has been met."""
        return bool(self.definitions)


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


def _floordiv(s: Simplifier, e: Binary) -> Poly:
    a, b, shown = _operands(s, e)
    y = constant(b)
    if y is not None:
        x = constant(a)
        if y == 0:
            return {s.atom(key_of(s, shown), shown): 1}
        if x is not None:
            return number(wrapped(x // y))
        if y == 1:
            return a
        if y == -1:
            return negated(a)
    elif a == b and s.interval(b)[0] > 0:
        return {ONE: 1}
    return quotient(s, a, b, shown)


def _mod(s: Simplifier, e: Binary) -> Poly:
    a, b, shown = _operands(s, e)
    y = constant(b)
    if y is not None:
        x = constant(a)
        if y == 0:
            return {s.atom(key_of(s, shown), shown): 1}
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


def _binary(s: Simplifier, e: Binary) -> Expr:
    op = e.op
    a, b = s.visit(e.a), s.visit(e.b)
    if op in COMPARISONS and a.dtype == INDEX:
        return compare(s, op, a, b, e)
    if type(a) is Const and type(b) is Const:
        folded = fold_binary(op, a, b)
        if folded is not None:
            return folded
    kind = dtypes.info(a.dtype)
    if kind.lanes > 1:
        vector = lanes.binary(s, op, a, b, e.dtype)
        if vector is not None:
            return vector
    elif kind.kind == "bool":
        decided = _logic(op, a, b)
        if decided is not None:
            return decided
    short = _neutral(op, a, b)
    if short is not None:
        return short
    return e if a is e.a and b is e.b else Binary(op, a, b, e.dtype)


def _logic(op: Op, a: Expr, b: Expr) -> Expr | None:
    if type(a) is Const:
        a, b = b, a
    if type(b) is Const and op in (Op.AND, Op.OR, Op.MIN, Op.MAX, Op.XOR, Op.EQ, Op.NE):
        if op in (Op.AND, Op.MIN):
            return a if b.value else FALSE
        if op in (Op.OR, Op.MAX):
            return TRUE if b.value else a
        if bool(b.value) is (op is Op.EQ):
            return a
    if same(a, b):
        if op in (Op.AND, Op.OR, Op.MIN, Op.MAX):
            return a
        if op in COMPARISONS:
            return TRUE if op in (Op.EQ, Op.LE, Op.GE) else FALSE
        if op is Op.XOR:
            return FALSE
    if op in (Op.AND, Op.OR) and _among(op, a, b):
        return b
    return a if op in (Op.AND, Op.OR) and _among(op, b, a) else None


def _among(op: Op, a: Expr, chain: Expr) -> bool:
    """Whether `a` is one of the operands of a chain of `op`."""
    if type(chain) is not Binary or chain.op is not op:
        return same(a, chain)
    return _among(op, a, chain.a) or _among(op, a, chain.b)


def _neutral(op: Op, a: Expr, b: Expr) -> Expr | None:
    """x + 0, x * 1 and the like in any dtype but int64, where they keep every bit."""
    is_float = dtypes.is_float(a.dtype)
    x, y = _value(a), _value(b)
    if y is not None:
        if op is Op.MUL and y == 1:
            return a
        if y == 1 and (op is Op.DIV or (op is Op.FLOORDIV and not is_float)):
            return a
        if op is Op.SUB and y == 0 and (not is_float or str(y) == "0.0"):
            return a
        if op is Op.ADD and y == 0 and (not is_float or str(y) == "-0.0"):
            return a
        if not is_float and op is Op.MUL and y == 0:
            return b
    if x is not None:
        if op is Op.MUL and x == 1:
            return b
        if op is Op.ADD and x == 0 and (not is_float or str(x) == "-0.0"):
            return b
        if not is_float and op is Op.MUL and x == 0:
            return a
    if op in (Op.MIN, Op.MAX) and same(a, b):
        return a
    return None


def _value(e: Expr) -> Any:
    """The number that all lanes of `e` hold, if it is a constant."""
    if type(e) is Broadcast:
        e = e.value
    return e.value if type(e) is Const else None


def _call(s: Simplifier, e: Call) -> Expr:
    if e.fn == "neg" and e.dtype == INDEX:
        return s.build(s.poly(e))
    args = map_tuple(e.args, s.visit)
    if all(type(a) is Const for a in args):
        folded = fold_call(e.fn, args)  # type: ignore[arg-type]
        if folded is not None:
            return folded
    a = args[0]
    if e.fn == "not":
        flipped = _negation(a)
        if flipped is not None:
            return flipped
    elif e.fn == "neg" and type(a) is Call and a.fn == "neg":
        return a.args[0]
    elif e.fn == "abs":
        if type(a) is Call and a.fn == "abs":
            return a
        if a.dtype == INDEX and s.interval(s.poly(a))[0] >= 0 and s.fits(s.poly(a)):
            return a
    if len(args) == 1 and type(a) is Broadcast:
        inner = s.visit(Call(e.fn, (a.value,), dtypes.vector(e.dtype, 1)))
        return Broadcast(inner, a.lanes, e.dtype)
    return e if args is e.args else Call(e.fn, args, e.dtype)


_OPPOSITE = {Op.LT: Op.GE, Op.GE: Op.LT, Op.GT: Op.LE, Op.LE: Op.GT, Op.EQ: Op.NE, Op.NE: Op.EQ}


def _negation(a: Expr) -> Expr | None:
    """`not a` without the `not`; order of floats is kept for the sake of NaN."""
    if type(a) is Call and a.fn == "not":
        return a.args[0]
    if type(a) is not Binary or a.op not in _OPPOSITE:
        return None
    if not dtypes.is_float(a.a.dtype) or a.op in (Op.EQ, Op.NE):
        return Binary(_OPPOSITE[a.op], a.a, a.b, a.dtype)
    return None


def _cast(s: Simplifier, e: Cast) -> Expr:
    value = s.visit(e.value)
    if value.dtype == e.dtype:
        return value
    if type(value) is Const:
        folded = fold_cast(value, e.dtype)
        if folded is not None:
            return folded
    if type(value) is Cast and e.dtype == value.value.dtype == INDEX:
        inner = s.poly(value.value)
        if dtypes.is_integer(value.dtype) and s.fits(inner):
            low, high = s.interval(inner)
            least, most = dtypes.int_limits(value.dtype)
            if least <= low and high <= most:
                return value.value
    elif type(value) is Cast and value.value.dtype == e.dtype and _lossless(e.dtype, value.dtype):
        return value.value
    if type(value) is Broadcast:
        inner_value = s.visit(Cast(value.value, dtypes.vector(e.dtype, 1)))
        return Broadcast(inner_value, value.lanes, e.dtype)
    return e if value is e.value else Cast(value, e.dtype)


def _lossless(a: str, b: str) -> bool:
    """Whether every value of integer dtype `a` is one of integer dtype `b`."""
    if not (dtypes.is_integer(a) and dtypes.is_integer(b)):
        return False
    (low, high), (least, most) = dtypes.int_limits(a), dtypes.int_limits(b)
    return least <= low and high <= most


def _select(s: Simplifier, e: Select) -> Expr:
    cond = s.visit(e.cond)
    chosen = _value(cond)
    if chosen is not None:
        return s.visit(e.then if chosen else e.other)
    then, other = s.visit(e.then), s.visit(e.other)
    if same(then, other):
        return then
    if type(cond) is Call and cond.fn == "not":
        return Select(cond.args[0], other, then, e.dtype)
    if cond is e.cond and then is e.then and other is e.other:
        return e
    return Select(cond, then, other, e.dtype)


def _children(s: Simplifier, e: Expr) -> Expr:
    def child(n: Any) -> Any:
        return s.visit(n) if isinstance(n, Expr) else n

    return rewrite_children(e, child)  # type: ignore[no-any-return]


def _ramp(s: Simplifier, e: Ramp) -> Expr:
    base, stride = s.visit(e.base), s.visit(e.stride)
    if type(stride) is Const and stride.value == 0:
        return Broadcast(base, e.lanes, e.dtype)
    return e if base is e.base and stride is e.stride else Ramp(base, stride, e.lanes, e.dtype)


_RULES: dict[type, Callable[[Simplifier, Any], Expr]] = {
    Binary: _binary,
    Call: _call,
    Cast: _cast,
    Select: _select,
    Load: _children,
    Ramp: _ramp,
    Broadcast: _children,
    Reduce: _children,
}


def atom_ends(s: Simplifier, e: Expr) -> Interval | None:
    """The interval of an int64 atom, where more than its dtype is known."""
    match e:
        case Load(buffer=b) if b.value_range is not None:
            return b.value_range[0], b.value_range[1] - 1
        case Cast(value=v):
            if type(v) is Load and v.buffer.value_range is not None:
                return v.buffer.value_range[0], v.buffer.value_range[1] - 1
            if not dtypes.is_float(v.dtype):
                low, high = dtypes.int_limits(dtypes.info(v.dtype).scalar)
                return max(low, LOW), min(high, HIGH)
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
    return None


def key_of(s: Simplifier, e: Any) -> object:
    """Equal for structurally equal expressions; variables and buffers are themselves."""
    kind = type(e)
    if kind is Var:
        return e
    if kind is Const:
        return (e.dtype, repr(e.value))
    if kind is Binary:
        return (e.op, key_of(s, e.a), key_of(s, e.b))
    if kind is Call:
        return (e.fn, *(key_of(s, a) for a in e.args))
    if kind is Cast:
        return ("cast", e.dtype, key_of(s, e.value))
    if kind is Select:
        return ("select", key_of(s, e.cond), key_of(s, e.then), key_of(s, e.other))
    if kind is Load:
        return (e.buffer, *(key_of(s, i) for i in e.indices), e.mask and key_of(s, e.mask))
    return e


def same(a: Any, b: Any) -> bool:
    """Whether two expressions are structurally equal, variables and buffers by identity."""
    if a is b:
        return True
    kind = type(a)
    if kind is not type(b) or kind is Var:
        return False
    if kind is Const:
        return a.dtype == b.dtype and repr(a.value) == repr(b.value)
    if a.dtype != b.dtype:
        return False
    if kind is Binary:
        return a.op is b.op and same(a.a, b.a) and same(a.b, b.b)
    if kind is Call:
        return a.fn == b.fn and all(same(x, y) for x, y in zip(a.args, b.args, strict=True))
    if kind is Cast:
        return same(a.value, b.value)
    if kind is Select:
        return same(a.cond, b.cond) and same(a.then, b.then) and same(a.other, b.other)
    if kind is Load:
        return (
            a.buffer is b.buffer
            and a.mask is b.mask
            and all(same(x, y) for x, y in zip(a.indices, b.indices, strict=True))
        )
    if kind is Ramp:
        return same(a.base, b.base) and same(a.stride, b.stride)
    return kind is Broadcast and same(a.value, b.value)


def size(e: Any) -> int:
    """The number of expression nodes in `e`, shared ones counted each time."""
    kind = type(e)
    if kind is Var or kind is Const:
        return 1
    if kind is Binary:
        return 1 + size(e.a) + size(e.b)
    total = 1

    def count(n: Any) -> Any:
        nonlocal total
        if isinstance(n, Expr):
            total += size(n)
        return n

    rewrite_children(e, count)
    return total


def facts_of(s: Simplifier, condition: Expr) -> list[Poly]:
    """Polynomials that are non-negative where `condition` holds."""
    if type(condition) is Call and condition.fn == "not":
        flipped = _negation(condition.args[0])
        return [] if flipped is None else facts_of(s, flipped)
    if type(condition) is not Binary:
        return []
    op = condition.op
    if op is Op.AND and condition.dtype == "bool":
        return facts_of(s, condition.a) + facts_of(s, condition.b)
    if op not in COMPARISONS or condition.a.dtype != INDEX:
        return []
    a, b = s.poly(condition.a), s.poly(condition.b)
    if not (s.fits(a) and s.fits(b)):
        return []
    up, down = add(b, a, -1), add(a, b, -1)
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
