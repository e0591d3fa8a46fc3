"""Linear forms: expressions as linear functions of some of their variables."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from .ir import Dim, Expr, Var, as_dim
from .polynomial import Poly, Ranges, factors, without
from .simplify import NO_RANGES, Simplifier
from .visit import walk


class Linear(NamedTuple):
    """`sum(variable * coefficient) + constant`; neither part has any of the variables.

    `coefficients` has the variables that appear, in order of appearance.
    """

    coefficients: Mapping[Var, Dim]
    constant: Expr


def linear(expr: Expr, variables: Collection[Var], ranges: Ranges = NO_RANGES) -> Linear | None:
    """`expr` (int64) as a linear function of `variables`; `None` if it is not one.

    Coefficients are integers, or expressions where they are products of other variables.
    """
    s = Simplifier(ranges)
    wanted = dict.fromkeys(variables)
    parts: dict[Var, Poly] = {}
    rest: Poly = {}
    for k, c in s.poly(expr).items():
        inside = [a for a in factors(k) if _mentions(a, wanted)]
        if not inside:
            rest[k] = c
            continue
        atom = inside[0]
        if len(inside) > 1 or type(atom) is not Var:
            return None
        remaining = without(k, atom)
        assert remaining is not None
        parts.setdefault(atom, {})[remaining] = c
    return Linear({v: as_dim(s.build(p)) for v, p in parts.items()}, s.build(rest))


def _mentions(e: Expr, variables: Mapping[Var, None]) -> bool:
    if type(e) is Var:
        return e in variables
    return any(type(n) is Var and n in variables for n in walk(e))
