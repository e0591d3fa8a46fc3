"""Guards of loops and masks of vectors: comparisons of indices, and where they hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...base import dtypes
from ...tir.ir import (
    COMPARISONS,
    INDEX,
    Binary,
    Broadcast,
    Call,
    Expr,
    For,
    If,
    Op,
    Ramp,
    Stmt,
    Store,
    Var,
    binary,
    call,
    cast,
)
from ...tir.polynomial import ONE, Poly
from ...tir.rules import negation
from ...tir.simplify import Simplifier, difference
from ...tir.structure import conjuncts
from ...tir.visit import nested


def guards(s: Stmt, *, in_loops: bool = False) -> Iterator[Expr]:
    """The comparisons of indices that something below `s` runs under; or those within loops."""
    pending = [(s, not in_loops)]
    while pending:
        top, wanted = pending.pop()
        if type(top) is If and wanted:
            yield from (c for c in conjuncts(top.cond) if is_bound(c))
        wanted = wanted or type(top) is For
        pending.extend((c, wanted) for c in nested(top))


def is_bound(cond: Expr) -> bool:
    """Whether a condition is an inequality of indices."""
    return type(cond) is Binary and cond.op in _ORDERS and cond.a.dtype == INDEX


def slack(cond: Expr, s: Simplifier) -> Poly:
    """The polynomial that is non-negative where an inequality of indices holds.

    Where a side or their difference may leave int64, it is the condition itself, as an atom.
    """
    assert isinstance(cond, Binary)
    found = difference(s, cond)
    if found is None or not s.fits(found):
        return {cond: 1}
    left, right = (cond.a, cond.b) if cond.op in (Op.LT, Op.LE) else (cond.b, cond.a)
    p: Poly = dict(s.poly(right - left))
    if cond.op in (Op.LT, Op.GT):
        p[ONE] = p.get(ONE, 0) - 1
    return p


def fails_from(cond: Expr, var: Var, s: Simplifier) -> int | None:
    """The first iteration of `var` from which on the condition certainly fails, if known."""
    rest = slack(cond, s)
    step = rest.pop(var, 0)
    if step >= 0:
        return None
    _, high = s.interval(rest)
    return 0 if high < 0 else high // -step + 1


def first_lane(mask: Expr) -> Expr | None:
    """The condition that a mask holds for the first lane, if it only compares signed integers.

    ramp(0, 1, 8) < broadcast(n - j)  ->  0 < n - j
    """
    match mask:
        case Binary(op=Op.AND | Op.OR, a=a, b=b):
            left, right = first_lane(a), first_lane(b)
            return None if left is None or right is None else binary(mask.op, left, right)
        case Call(fn="not", args=(a,)):
            inner = first_lane(a)
            return None if inner is None else call("not", inner)
        case Binary(op=op, a=Ramp() | Broadcast() as a, b=Ramp() | Broadcast() as b):
            if op not in COMPARISONS or dtypes.info(a.dtype).kind != "int":
                return None  # an index holds all values of signed integers alone
            return binary(op, cast(INDEX, _first(a)), cast(INDEX, _first(b)))
        case _:
            return None


def _first(e: Ramp | Broadcast) -> Expr:
    return e.base if isinstance(e, Ramp) else e.value


class Guarded(NamedTuple):
    """A store, the conditions around it, and the loops around it, the outermost first."""

    store: Store
    conditions: tuple[Expr, ...]
    loops: tuple[For, ...]


def stores(s: Stmt) -> Iterator[Guarded]:
    """The stores in `s` in program order, with the conditions and loops in `s` around them."""

    def visit(top: Stmt, above: tuple[Expr, ...], around: tuple[For, ...]) -> Iterator[Guarded]:
        if type(top) is Store:
            yield Guarded(top, above, around)
        elif type(top) is If:
            yield from visit(top.then, (*above, *conjuncts(top.cond)), around)
            if top.other is not None:
                otherwise = negation(top.cond)
                failed = call("not", top.cond) if otherwise is None else otherwise
                yield from visit(top.other, (*above, failed), around)
        else:
            inside = (*around, top) if type(top) is For else around
            for c in nested(top):
                yield from visit(c, above, inside)

    yield from visit(s, (), ())


_ORDERS = frozenset({Op.LT, Op.LE, Op.GT, Op.GE})
