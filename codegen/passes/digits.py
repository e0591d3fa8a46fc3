"""Whether an element tells which thread uses it: indices as numbers whose digits are threads."""

from __future__ import annotations

from collections.abc import Collection

from ...tir.ir import Expr, Op, Var
from ...tir.polynomial import ONE, Key, Poly, constant, factors
from ...tir.simplify import Simplifier
from ...tir.visit import walk
from .uses import Use


def tells_apart(
    a: Use, b: Use, crossed: Collection[Var], fixed: Collection[Var], s: Simplifier
) -> bool:
    """Whether two uses of one element are surely at the same values of the variables `crossed`.

    Those of `fixed` are the same in both anyway; all other variables may differ. Decided by simple
    structure: both indices have the same digits in `crossed`, and what else is in them is less than
    the lowest one.
    """
    known: set[Expr] = set()
    for x, y in zip(a.indices, b.indices, strict=True):
        known |= _digits(s.poly(x), s.poly(y), crossed, fixed, s)
    return all(_is_told(v, known, s) for v in crossed)


def _digits(
    p: Poly, q: Poly, crossed: Collection[Var], fixed: Collection[Var], s: Simplifier
) -> set[Expr]:
    """The atoms in `crossed` that are equal where two indices are."""
    one, other = _parts(p, crossed, fixed), _parts(q, crossed, fixed)
    if one is None or other is None:
        return set()
    (digits, same, rest), (others, also_same, other_rest) = one, other
    if digits != others or same != also_same or not (s.fits(p) and s.fits(q)):
        return set()
    (low, high), (least, most) = s.interval(rest), s.interval(other_rest)
    below = max(high, most) - min(low, least)
    found: set[Expr] = set()
    for key, step in sorted(digits.items(), key=lambda item: abs(item[1])):
        if isinstance(key, tuple) or abs(step) <= below:
            return set()
        low, high = s.ends(key)
        below += abs(step) * (high - low)
        found.add(key)
    return found


def _parts(
    p: Poly, crossed: Collection[Var], fixed: Collection[Var]
) -> tuple[Poly, Poly, Poly] | None:
    """The terms of an index in `crossed`, those in `fixed`, and others; `None` for mixed ones."""
    digits: Poly = {}
    same: Poly = {}
    rest: Poly = {}
    for key, c in p.items():
        variables = {n for f in factors(key) for n in walk(f) if type(n) is Var}
        if key is ONE or variables.isdisjoint(crossed):
            part = same if key is not ONE and variables <= set(fixed) else rest
        elif variables <= set(crossed):
            part = digits
        else:
            return None
        part[key] = c
    return digits, same, rest


def _is_told(v: Var, known: set[Expr], s: Simplifier) -> bool:
    """Whether a variable is known by some of its quotients and remainders.

    With x // m known, which is v for m = 1, so are x // m % c and x // (m * c), and the other way.
    """
    factor = _lowest(v, known, s)
    while factor > 1:
        lower = _steps(v, factor, known, s)
        if not lower:
            return False
        factor = min(lower)
    return factor == 1


def _lowest(v: Var, known: set[Expr], s: Simplifier) -> int:
    """The least m for which `v // m` is known; that of a quotient that is always 0 if none is."""
    if v in known:
        return 1
    quotients = [m for e in known if (m := _quotient(v, e, s)) is not None]
    return min(quotients, default=s.ends(v)[1] + 1)


def _quotient(v: Var, e: Key, s: Simplifier) -> int | None:
    """The m for which an atom is `v // m`."""
    if e is v:
        return 1
    definition = s.definitions.get(e) if isinstance(e, Expr) else None
    if definition is None or definition[0] is not Op.FLOORDIV or definition[1] != {v: 1}:
        return None
    return constant(definition[2])


def _steps(v: Var, factor: int, known: set[Expr], s: Simplifier) -> list[int]:
    """The m below `factor` for which `v // m` is known, since `v // factor` is: by `v // m % c`.

    `v // (m * c)` is known too, either as a quotient of `v // factor` or because it is 0.
    """
    found = list[int]()
    for e in known:
        definition = s.definitions.get(e)
        if definition is None or definition[0] is not Op.MOD or len(definition[1]) != 1:
            continue
        ((inner, one),) = definition[1].items()
        m, c = _quotient(v, inner, s), constant(definition[2])
        if one != 1 or m is None or c is None or m >= factor:
            continue
        if m * c % factor == 0 or m * c > s.ends(v)[1]:
            found.append(m)
    return found
