"""Prove that an integer polynomial is non-negative for all values of its atoms.

Sound and incomplete: intervals first, then elimination of one atom after another by its symbolic
bounds, by the definition of quotients, remainders, minima and maxima, and by assumed facts. The
search is bounded, so an answer of `False` (not shown) comes in bounded time.

Comparisons of int64 expressions: decided where possible, else reduced by common terms.
"""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING

from .ir import COMPARISONS, FALSE, TRUE, Binary, Expr, Op, Var
from .polynomial import (
    ONE,
    Context,
    Key,
    Points,
    Poly,
    add,
    constant,
    identity,
    negated,
    number,
    shifted,
    times,
    without,
)
from .structure import size

if TYPE_CHECKING:
    from .simplify import Simplifier

BUDGET = 48
"""Polynomials looked at for one question."""
DEPTH = 10


def nonnegative(context: Context, p: Poly) -> bool:
    """Whether `p >= 0` is shown; `p` is taken as exact (see `Context.fits`)."""
    low, _ = context.interval(p)
    if low >= 0 or context.impossible:
        return True
    if not context.symbolic and not any(_has_structure(context, k) for k in p):
        return False  # the interval is tight
    if context.points is None:
        context.points = Points()
    if context.points.refute(context, p):
        return False
    return _combined(context, p, context.facts, [BUDGET // 2]) or _search(
        context, p, context.facts, [BUDGET], DEPTH
    )


def _combined(context: Context, p: Poly, facts: list[Poly], budget: list[int]) -> bool:
    """Whether the facts alone, each used at most once, leave a plainly non-negative remainder."""
    budget[0] -= 1
    if budget[0] < 0:
        return False
    for i, fact in enumerate(facts):
        for q in _less(p, fact):
            rest = facts[:i] + facts[i + 1 :]
            if context.interval(q)[0] >= 0 or _combined(context, q, rest, budget):
                return True
    return False


def _has_structure(context: Context, k: Key) -> bool:
    """Whether more is known of a product of atoms than its interval."""
    return k in context.definitions if not isinstance(k, tuple) else k is not ONE


def contradicted(context: Context, fact: Poly) -> bool:
    """Whether `fact >= 0` plainly contradicts the known facts."""
    if context.interval(fact)[1] < 0:
        return True
    opposite = shifted(negated(fact), -1)
    return bool(context.facts) and _combined(context, opposite, context.facts, [BUDGET // 4])


def positive(context: Context, p: Poly) -> bool:
    """Whether `p >= 1` is shown."""
    return nonnegative(context, shifted(p, -1))


def at_most(context: Context, a: Poly, b: Poly) -> bool:
    """Whether `a <= b` is shown."""
    return nonnegative(context, add(b, a, -1))


def _search(context: Context, p: Poly, facts: list[Poly], budget: list[int], depth: int) -> bool:
    low, high = context.interval(p)
    if low >= 0:
        return True
    if high < 0 and not facts:
        return False
    if budget[0] <= 0 or depth <= 0:
        return False
    budget[0] -= 1
    p = tight(context, p)
    for atom in _candidates(context, p):
        options = _bounds_below(context, p, atom)
        if options is None:
            continue
        need_all, polys = options
        shown = (_search(context, q, facts, budget, depth - 1) for q in polys)
        if all(shown) if need_all else any(shown):
            return True
    return any(
        _search(context, q, facts[:i] + facts[i + 1 :], budget, depth - 1)
        for i, fact in enumerate(facts)
        for q in _less(p, fact)
    )


def tight(context: Context, p: Poly) -> Poly:
    """A polynomial that is non-negative exactly where `p` is, in lower terms.

    Terms of one value go to the constant, and what divides all others is divided out.
    """
    offset = p.get(ONE, 0)
    terms: Poly = {}
    for k, c in p.items():
        if k is not ONE:
            low, high = context.ends(k)
            if low == high:
                offset += c * low
            else:
                terms[k] = c
    common = gcd(*terms.values())
    if common > 1:
        terms = {k: c // common for k, c in terms.items()}
        offset //= common
    if offset:
        terms[ONE] = offset
    return terms


def _candidates(context: Context, p: Poly) -> list[Expr]:
    """The atoms to eliminate, in order: atoms defined by others come before them.

    Atoms that are in no product and have only numeric bounds are covered by the interval of `p`.
    """
    defined: list[Expr] = []
    bounded: list[Expr] = []
    others: list[Expr] = []
    for atom in context.atoms_of(p):
        if atom in context.definitions:
            defined.append(atom)
        elif type(atom) is Var and context.bounded_symbolically(atom):
            bounded.append(atom)
        else:
            others.append(atom)
    in_products = any(type(k) is tuple and k is not ONE for k in p)
    return [*defined, *bounded, *others] if in_products else defined + bounded


def _bounds_below(context: Context, p: Poly, atom: Expr) -> tuple[bool, list[Poly]] | None:
    """Polynomials without `atom`: if all of them (or any) are non-negative then so is `p`.

    `None` if the numeric interval of `atom` is all there is to use, or nothing is known.
    """
    parts = context.coefficient(p, atom)
    if parts is None:
        return None
    q, r = parts
    definition = context.definitions.get(atom)
    if definition is not None and definition[0] in (Op.MIN, Op.MAX):
        sign = _sign(context, q)
        polys = [add(r, times(q, x)) for x in definition[1:]]
        either = sign < 0 if definition[0] is Op.MIN else sign > 0
        return not either, polys
    if definition is not None and definition[0] is Op.FLOORDIV:
        return _quotient_below(context, q, r, definition[1], definition[2])
    sign = _sign(context, q)
    if sign == 0:
        return None
    if definition is not None and definition[0] is Op.MOD:
        alone = constant(q) is not None
        if sign > 0:
            return None if alone else (False, [r])  # the interval has it already
        polys = []
        if not (alone and constant(definition[2]) is not None):
            polys.append(add(r, times(q, shifted(definition[2], -1))))
        if context.interval(definition[1])[0] >= 0:
            polys.append(add(r, times(q, definition[1])))
        return (False, polys) if polys else None
    low, high = context.symbolic_ends(atom)
    end = low if sign > 0 else high
    if constant(q) is not None and constant(end) is not None:
        return None  # the interval has it already
    return False, [add(r, times(q, end))]


def _quotient_below(
    context: Context, q: Poly, r: Poly, top: Poly, bottom: Poly
) -> tuple[bool, list[Poly]] | None:
    """For `p = q * (top // bottom) + r`, with `bottom > 0`."""
    divided = _exact_quotient(q, bottom)
    sign = _sign(context, q if divided is None else divided)
    if sign == 0:
        return None
    end = top if sign < 0 else shifted(add(top, bottom, -1), 1)
    if divided is not None:
        return False, [add(r, times(divided, end))]
    scaled = add(times(r, bottom), times(q, end))
    return False, [shifted(add(scaled, bottom), -1)]


def _exact_quotient(q: Poly, bottom: Poly) -> Poly | None:
    """`q / bottom` for a `bottom` of one term; `None` if there is none."""
    if len(bottom) != 1:
        return None
    ((part, scale),) = bottom.items()
    result: Poly = {}
    for k, c in q.items():
        rest = without(k, part)
        if rest is None or c % scale:
            return None
        result[rest] = c // scale
    return result


def _sign(context: Context, q: Poly) -> int:
    """1 or -1 where `q` is shown to be non-negative or non-positive, else 0."""
    low, high = context.interval(q)
    if low >= 0:
        return 1
    return -1 if high <= 0 else 0


def _less(p: Poly, fact: Poly) -> list[Poly]:
    """Multiples of `p` less multiples of `fact` such that a term of `p` is gone.

    An integer is non-negative where `scale` times it is more than `-scale`.
    """
    result: list[Poly] = []
    for k, c in fact.items():
        d = p.get(k, 0)
        if k is ONE or c * d <= 0:
            continue
        scale = abs(c) // gcd(c, d)
        candidate = shifted({m: x * scale for m, x in p.items()}, scale - 1)
        candidate = add(candidate, fact, -(abs(d) * scale // abs(c)))
        if candidate not in result:
            result.append(candidate)
    return result


_HOLDS_OF_EQUALS = frozenset({Op.EQ, Op.LE, Op.GE})


def decide(context: Context, op: Op, a: Poly, b: Poly) -> bool | None:
    """The truth of `a op b` for all values; `None` if it varies or is not known."""
    difference = add(b, a, -1)
    if not difference:
        return op in _HOLDS_OF_EQUALS
    if not (context.fits(a) and context.fits(b)):
        return None
    key = op, identity(difference)
    if key not in context.decided:
        context.decided[key] = _decide(context, op, difference)
    return context.decided[key]


def _decide(context: Context, op: Op, difference: Poly) -> bool | None:
    """`decide` by the difference of exact operands."""
    if op in (Op.GT, Op.GE):
        op, difference = (Op.LT if op is Op.GT else Op.LE), negated(difference)
    if op in (Op.LT, Op.LE):
        slack = shifted(difference, -1) if op is Op.LT else difference
        if nonnegative(context, slack):
            return True
        return False if nonnegative(context, shifted(negated(slack), -1)) else None
    common = gcd(*(c for k, c in difference.items() if k is not ONE))
    apart = (
        (common > 0 and difference.get(ONE, 0) % common != 0)
        or nonnegative(context, shifted(difference, -1))
        or nonnegative(context, shifted(negated(difference), -1))
    )
    if apart:
        return op is Op.NE
    if nonnegative(context, difference) and nonnegative(context, negated(difference)):
        return op is Op.EQ
    return None


def compare(s: Simplifier, op: Op, a: Expr, b: Expr, e: Binary) -> Expr:
    """`a op b` of simplified operands; returns `e` itself if it is the same."""
    assert op in COMPARISONS
    p, q = s.poly(a), s.poly(b)
    decided = decide(s, op, p, q)
    if decided is not None:
        return TRUE if decided else FALSE
    kept = e if a is e.a and b is e.b else Binary(op, a, b, e.dtype)
    if not (s.fits(p) and s.fits(q)):
        return kept
    reduced = _reduced(s, op, add(q, p, -1), _tidy(p) and _tidy(q) and p.keys().isdisjoint(q))
    if reduced is None:
        return kept
    new = Binary(*reduced, e.dtype)
    return new if size(new) < size(kept) else kept


def _tidy(p: Poly) -> bool:
    """Whether no term is subtracted."""
    return all(c > 0 or k is ONE for k, c in p.items())


def _reduced(
    s: Simplifier, op: Op, difference: Poly, is_tidy: bool
) -> tuple[Op, Expr, Expr] | None:
    """`0 op difference` with common factors taken out, positive terms on either side.

    `None` if that is no gain; `is_tidy` if terms are on either side already.
    """
    if op in (Op.GT, Op.GE):
        difference = negated(difference)
        op = Op.LT if op is Op.GT else Op.LE
    if op is Op.LT:
        difference, op = shifted(difference, -1), Op.LE
    if op is Op.LE:
        coarser = _coarser(s, difference)
        if is_tidy and coarser is difference:
            return None
        difference = coarser
    else:
        common = gcd(*difference.values())
        if is_tidy and common == 1:
            return None
        difference = {k: c // common for k, c in difference.items()}
    left = {k: -c for k, c in difference.items() if c < 0 and k is not ONE}
    right = {k: c for k, c in difference.items() if c > 0 and k is not ONE}
    offset = difference.get(ONE, 0)
    if op is Op.LE:
        if not left:
            return _checked(s, Op.GE, right, number(-offset))
        if offset == -1 or (offset > 0 and not right):
            op, offset = Op.LT, offset + 1
    if offset >= 0 or not right:
        return _checked(s, op, left, shifted(right, offset))
    return _checked(s, op, shifted(left, -offset), right)


def _checked(s: Simplifier, op: Op, left: Poly, right: Poly) -> tuple[Op, Expr, Expr] | None:
    if not (s.fits(left) and s.fits(right)):
        return None
    return op, s.build(left), s.build(right)


def _coarser(s: Simplifier, difference: Poly) -> Poly:
    """A polynomial with fewer or smaller terms that is non-negative exactly where this one is."""
    for scale in sorted({abs(c) for k, c in difference.items() if k is not ONE}, reverse=True):
        if scale == 1:
            break
        q = {k: c // scale for k, c in difference.items() if k is not ONE and c % scale == 0}
        r = {k: c for k, c in difference.items() if k is ONE or c % scale}
        low, high = s.interval(r)
        if low // scale == high // scale:
            return _coarser(s, add(q, {ONE: low // scale}) if low // scale else q)
    return difference
