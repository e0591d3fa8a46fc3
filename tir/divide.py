"""Simplify quotients and remainders of integer polynomials, as far as intervals allow.

    (a * c + b) // c  ->  a + b // c             (a * c + b) % c  ->  b % c
    b // c            ->  0    for 0 <= b < c    b % c            ->  b    for 0 <= b < c
    (x // a) // b     ->  x // (a * b)           (x % (a * c)) % c  ->  x % c
    x // c * c + x % c  ->  x

`c` is a positive constant or a product of atoms known to be positive. Division floors.
"""

from __future__ import annotations

from math import gcd

from .inequality import nonnegative, positive
from .ir import INDEX, Binary, Expr, Op
from .polynomial import (
    HIGH,
    LOW,
    ONE,
    Context,
    Interval,
    Key,
    Poly,
    add,
    constant,
    identity,
    multiplied,
    shifted,
    times,
    without,
)


def quotient(context: Context, a: Poly, b: Poly, shown: Expr | None = None) -> Poly:
    """The polynomial of `a // b`; `shown` is how to write it if it stays as it is."""
    whole = _whole(context, a, b)
    if whole is None:
        return {_atom(context, Op.FLOORDIV, a, b, shown): 1}
    part, scale = whole
    q, r = _parts(a, part, scale)
    fixed = _constant_quotient(context, r, b)
    if fixed is not None:
        return shifted(q, fixed)
    if q and not context.fits(r):
        return {_atom(context, Op.FLOORDIV, a, b, shown): 1}
    if part is ONE:
        common = gcd(scale, *(c for k, c in r.items() if k is not ONE))
        if common > 1:
            r = {k: c // common for k, c in r.items() if c // common}
            return add(q, quotient(context, r, {ONE: scale // common}))
    inner = _nested(context, r, b)
    if inner is not None:
        return add(q, inner)
    same = not q and len(r) == len(a) and r == a
    return add(q, {_atom(context, Op.FLOORDIV, r, b, shown if same else None): 1})


def remainder(context: Context, a: Poly, b: Poly, shown: Expr | None = None) -> Poly:
    """The polynomial of `a % b`; `shown` is how to write it if it stays as it is."""
    whole = _whole(context, a, b)
    if whole is None:
        return {_atom(context, Op.MOD, a, b, shown): 1}
    part, scale = whole
    q, r = _parts(a, part, scale)
    fixed = _constant_quotient(context, r, b)
    if fixed is not None:
        return add(r, b, -fixed) if fixed else r
    if q and not context.fits(r):
        return {_atom(context, Op.MOD, a, b, shown): 1}
    for k, c in r.items():
        definition = context.definitions.get(k) if not isinstance(k, tuple) else None
        if definition is None or definition[0] is not Op.MOD:
            continue
        m = constant(definition[2])
        if part is ONE and m is not None and c * m % scale == 0:
            unwrapped = add(add(r, {k: -c}), definition[1], c)
            if context.fits(unwrapped):
                return remainder(context, unwrapped, b)
    if part is ONE:
        # A sum of several terms stays alike under `//` and `%`, whose digits then tell it.
        alone = len(r.keys() - {ONE}) == 1
        smaller = {k: _residue(k, c, scale) if alone or k is ONE else c for k, c in r.items()}
        if smaller != r and context.fits(smaller):
            return remainder(context, smaller, b)
    if part is ONE:
        common = gcd(scale, *r.values())
        if common > 1:
            r = {k: c // common for k, c in r.items()}
            inner = remainder(context, r, {ONE: scale // common})
            return {k: c * common for k, c in inner.items()}
    same = not q and r == a
    return {_atom(context, Op.MOD, r, b, shown if same else None): 1}


def _residue(k: Key, c: int, scale: int) -> int:
    """A coefficient smaller than `scale`; its sign is kept, except where it is the constant."""
    if abs(c) < scale:
        return c
    return c % scale if k is ONE or c > 0 else -(-c % scale)


def rejoin(context: Context, p: Poly) -> Poly:
    """`p` with quotients and remainders of the same division put together again."""
    for k, c in p.items():
        definition = context.definitions.get(k) if not isinstance(k, tuple) else None
        if definition is None or definition[0] is not Op.MOD:
            continue
        _, top, bottom = definition
        if len(bottom) != 1 or not context.fits(top):
            continue
        ((part, scale),) = bottom.items()
        partner = context.atoms.get((Op.FLOORDIV, identity(top), identity(bottom)))
        if partner is not None and p.get(multiplied(part, partner)) == c * scale:
            rest = add(add(p, {k: -c}), {multiplied(part, partner): -c * scale})
            return rejoin(context, add(rest, top, c))
        if part is ONE:
            joined = _join_digits(context, p, k, c, top, scale)
            if joined is not None:
                return rejoin(context, joined)
    return p


def _join_digits(context: Context, p: Poly, k: Key, c: int, top: Poly, scale: int) -> Poly | None:
    """The remainder `k`, of `top` by `scale`, and what it is the lower digit to in `p` as one.

    x % c and x' // c, where x' and x differ by multiples of c, as x'; x % c and (x % (c*d)) // c,
    or x % c and (x // c) % d, as the digits of one remainder.
    """
    for other, d in p.items():
        definition = context.definitions.get(other) if not isinstance(other, tuple) else None
        if definition is None or d != c * scale:
            continue
        op, over, under = definition
        size = constant(under)
        if size is None:
            continue
        divided = op is Op.FLOORDIV and size == scale and context.fits(over)
        if divided and not remainder(context, add(over, top, -1), {ONE: scale}):
            return add(add(add(p, {k: -c}), {other: -d}), over, c)
        if len(over) != 1:
            continue
        ((inner, one),) = over.items()
        within = context.definitions.get(inner) if not isinstance(inner, tuple) else None
        if one != 1 or within is None or within[1] != top:
            continue
        m = constant(within[2])
        rest = add(add(p, {k: -c}), {other: -d})
        if op is Op.FLOORDIV and within[0] is Op.MOD and size == scale and m and m % scale == 0:
            return add(rest, over, c)
        if op is Op.MOD and within[0] is Op.FLOORDIV and m == scale:
            return add(rest, remainder(context, top, {ONE: size * scale}), c)
    return None


def _whole(context: Context, a: Poly, b: Poly) -> tuple[Key, int] | None:
    """(part, scale) with `b == part * scale > 0`, if `a` and `b` are exact; else `None`."""
    if len(b) != 1 or not context.fits(a):
        return None
    ((part, scale),) = b.items()
    if part is ONE:
        return (part, scale) if scale > 0 else None
    return (part, scale) if scale > 0 and positive(context, b) and context.fits(b) else None


def _parts(a: Poly, part: Key, scale: int) -> tuple[Poly, Poly]:
    """(q, r) with `a == q * part * scale + r`, as much as possible in q."""
    q: Poly = {}
    r: Poly = {}
    for k, c in a.items():
        rest = without(k, part) if c % scale == 0 else None
        if rest is None:
            r[k] = c
        else:
            q[rest] = c // scale
    return q, r


def _constant_quotient(context: Context, r: Poly, b: Poly) -> int | None:
    """The value of `r // b` where all values of `r` have the same."""
    low, high = context.interval(r)
    scale = constant(b)
    if scale is not None:
        if low // scale == high // scale:
            return low // scale
        if not context.symbolic:
            return None
    guesses = (0,) if scale is None else tuple({0, low // scale, high // scale})
    for n in guesses:
        least = add(r, b, -n) if n else r
        if nonnegative(context, least) and nonnegative(context, shifted(add(b, least, -1), -1)):
            return n
    return None


def _nested(context: Context, r: Poly, b: Poly) -> Poly | None:
    """(x // a + n) // b as (x + n * a) // (a * b)."""
    atoms = [k for k in r if k is not ONE]
    if len(atoms) != 1 or r[atoms[0]] != 1 or isinstance(atoms[0], tuple):
        return None
    definition = context.definitions.get(atoms[0])
    if definition is None or definition[0] is not Op.FLOORDIV:
        return None
    _, top, bottom = definition
    if not positive(context, bottom):
        return None
    over = add(top, bottom, r.get(ONE, 0))
    under = times(bottom, b)
    if not (context.fits(over) and context.fits(under) and context.fits(top)):
        return None
    return quotient(context, over, under)


def _atom(context: Context, op: Op, a: Poly, b: Poly, shown: Expr | None) -> Expr:
    key = (op, identity(a), identity(b))
    found = context.atoms.get(key)
    if found is not None:
        return found
    e = Binary(op, context.build(a), context.build(b), INDEX) if shown is None else shown
    (low, high), (bottom, top) = context.interval(a), context.interval(b)
    exact = low >= LOW and high <= HIGH
    if not exact:
        low, high = LOW, HIGH  # it wraps around, and may be anything
    divides = top <= HIGH and (bottom > 0 or positive(context, b))
    context.atom(key, e, _ends(op, low, high, max(bottom, 1), top) if divides else None)
    if exact and divides:
        context.definitions[e] = (op, a, b)
    return e


def _ends(op: Op, low: int, high: int, bottom: int, top: int) -> Interval:
    """Ends of a quotient or remainder of low .. high by bottom .. top, which are positive."""
    if op is Op.MOD:
        if low >= 0 and high < bottom:
            return low, high
        return 0, min(top - 1, high) if low >= 0 else top - 1
    return min(low // bottom, low // top), max(high // bottom, high // top)
