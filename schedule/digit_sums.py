"""Indices as sums of digits of variables, and the variables in terms of the indices.

Each variable is written in a mixed radix. Indices that fuse, split, permute or reverse variables,
or leave out some of their values, are sums of multiples of such digits. The variables then follow
from the indices by quotients and remainders.

Bijective index maps.

A map over a box is decomposed into digits of its inputs: each output must be a mixed radix made of
such digits, and each digit must be in one output. Fusing, splitting and permuting indices are of
this form, in any mix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from ..base.errors import ScheduleError
from ..tir.ir import Binary, Const, Dim, Expr, Op, Var, as_expr, binary
from .index_map import IndexMap


class Digit(NamedTuple):
    """`var // place % size`; above the last digit of a variable is nothing to cut off."""

    var: Var
    place: int
    size: Dim


class Term(NamedTuple):
    """`scale`, which is positive, times a digit, or times what it lacks to its last value."""

    scale: int
    digit: Digit
    descends: bool = False


class DigitSum(NamedTuple):
    terms: tuple[Term, ...]
    offset: int = 0


class Solution(NamedTuple):
    """Variables in terms of the values of indices.

    `values` has the variables that are known to follow from the indices. The indices take values
    only where all of `conditions` hold, and if `exact`, everywhere there.
    """

    values: dict[Var, Expr]
    conditions: list[Expr]
    exact: bool


class _Cut(Exception):
    """A digit of `var` has to be cut at `place`."""

    def __init__(self, var: Var, place: int) -> None:
        self.var = var
        self.place = place


def solve(indices: Sequence[Expr], extents: Mapping[Var, Dim], at: Sequence[Expr]) -> Solution:
    """Solve `indices` == `at` for the variables of `extents`, which start at zero."""
    digits, sums = taken_apart(indices, extents, even=False)
    found: dict[Digit, Expr] = {}
    conditions: list[Expr] = []
    exact = True
    for total, value in zip(sums, at, strict=True):
        solved = None if isinstance(total, ScheduleError) else _solved(total, value)
        if solved is None or not found.keys().isdisjoint(solved[0]):
            exact = False
            continue
        found |= solved[0]
        conditions += solved[1]
    values: dict[Var, Expr] = {}
    for v, parts in digits.items():
        if all(d in found for d in parts):
            values[v] = as_expr(0)
            for d in reversed(parts):
                values[v] = values[v] + found[d] * d.place
            if parts and parts[-1].place > 1:
                conditions.append(binary(Op.LT, values[v], as_expr(extents[v])))
    return Solution(values, conditions, exact)


def _solved(total: DigitSum, value: Expr) -> tuple[dict[Digit, Expr], list[Expr]] | None:
    """The digits of a sum that is `value`, and when they exist; `None` if it does not tell them."""
    number = value - total.offset if total.offset else value
    terms = sorted(total.terms, key=lambda t: t.scale)
    if not terms:
        return {}, [binary(Op.EQ, number, as_expr(0))]
    if len(terms) > 1 and not all(isinstance(t.digit.size, int) for t in terms):
        return None
    found: dict[Digit, Expr] = {}
    conditions: list[Expr] = []
    if terms[0].scale > 1:
        conditions.append(binary(Op.EQ, binary(Op.MOD, number, terms[0].scale), as_expr(0)))
    for n, (scale, digit, descends) in enumerate(terms):
        part: Expr = number if scale == 1 else binary(Op.FLOORDIV, number, scale)
        values: Dim | None = None
        if n + 1 < len(terms):
            values, rest = divmod(terms[n + 1].scale, scale)
            if rest or values < digit.size:
                return None
            part = binary(Op.MOD, part, values)
        else:
            conditions.append(binary(Op.GE, part, as_expr(0)))
        if values is None or values != digit.size:
            conditions.append(binary(Op.LT, part, as_expr(digit.size)))
        found[digit] = as_expr(digit.size) - 1 - part if descends else part
    return found, conditions


def taken_apart(
    indices: Sequence[Expr], extents: Mapping[Var, Dim], even: bool
) -> tuple[dict[Var, list[Digit]], list[DigitSum | ScheduleError]]:
    """Digits of the variables, split until each index is a sum of them, or why it is none.

    With `even`, all digits of a variable together have as many values as it has.
    """
    cuts: dict[Var, set[int]] = {v: set() for v in extents}
    while True:
        digits = {v: _digits(v, n, cuts[v]) for v, n in extents.items()}
        sums: list[DigitSum | ScheduleError] = []
        try:
            for e in indices:
                try:
                    sums.append(_sum(e, digits, even))
                except ScheduleError as refusal:
                    sums.append(refusal)
        except _Cut as cut:
            cuts[cut.var].add(cut.place)
        else:
            return digits, sums


def _digits(var: Var, extent: Dim, cuts: set[int]) -> list[Digit]:
    if not isinstance(extent, int):
        return [Digit(var, 1, extent)]
    edges = [1, *sorted(cuts)]  # each divides the next: digits are cut evenly
    below = [Digit(var, low, high // low) for low, high in pairwise(edges)]
    size = -(-extent // edges[-1])
    return below if size == 1 else [*below, Digit(var, edges[-1], size)]


def _sum(e: Expr, digits: Mapping[Var, list[Digit]], even: bool) -> DigitSum:
    if type(e) is Var and e in digits:
        return DigitSum(tuple([Term(d.place, d) for d in digits[e]]))
    if type(e) is Const:
        return DigitSum((), int(e.value))
    if type(e) is Binary:
        if e.op is Op.ADD or e.op is Op.SUB:
            a, b = _sum(e.a, digits, even), _sum(e.b, digits, even)
            b = _times(b, -1) if e.op is Op.SUB else b
            return DigitSum(a.terms + b.terms, a.offset + b.offset)
        x, y = (e.b, e.a) if e.op is Op.MUL and type(e.a) is Const else (e.a, e.b)
        if type(y) is Const:
            by = int(y.value)
            if e.op is Op.MUL:
                return _times(_sum(x, digits, even), by)
            if e.op in (Op.FLOORDIV, Op.MOD) and by >= 1:
                high, low = _divided(e, _sum(x, digits, even), by, digits, even)
                return high if e.op is Op.FLOORDIV else low
    raise no_sum(e)


def no_sum(e: Expr) -> ScheduleError:
    return ScheduleError(
        "{0} is not a sum of indices and of their quotients and remainders by positive numbers",
        lambda: repr(e),
    )


def _times(total: DigitSum, by: int) -> DigitSum:
    if by >= 0:
        terms = [t._replace(scale=t.scale * by) for t in total.terms if by]
        return DigitSum(tuple(terms), total.offset * by)
    offset = total.offset * by
    terms = []
    for scale, digit, descends in total.terms:
        if not isinstance(digit.size, int):
            raise no_sum(digit.var)
        offset += scale * by * (digit.size - 1)
        terms.append(Term(-scale * by, digit, not descends))
    return DigitSum(tuple(terms), offset)


def _divided(
    e: Expr, total: DigitSum, by: int, digits: Mapping[Var, list[Digit]], even: bool
) -> tuple[DigitSum, DigitSum]:
    """The quotient and the remainder."""
    high: list[Term] = []
    low: list[Term] = []
    quotient, reached = divmod(total.offset, by)
    for term in total.terms:
        scale, digit, _ = term
        times = by // scale
        if scale % by == 0:
            high.append(term._replace(scale=scale // by))
        elif not isinstance(digit.size, int):
            raise no_sum(e)
        elif scale * (digit.size - 1) < by:
            low.append(term)
            reached += scale * (digit.size - 1)
        elif by % scale == 0 and (
            digit.size % times == 0 or (not even and digits[digit.var][-1] is digit)
        ):
            raise _Cut(digit.var, digit.place * times)
        else:
            raise ScheduleError(
                "{0} cuts {1}, of {2} values at steps of {3}, where {4} does not divide them",
                lambda: repr(e),
                digit.var.name,
                digit.size,
                scale,
                by,
                hint="fuse the indices in one step, and split the result in the next",
            )
    if reached >= by:
        raise ScheduleError("the remainder of {0} is more than one index", lambda: repr(e))
    return DigitSum(tuple(high), quotient), DigitSum(tuple(low), total.offset % by)


@dataclass(frozen=True, eq=False)
class Bijection:
    """A bijection between two boxes.

    `extents` are those of the outputs, `sources` the inputs of each output.
    """

    extents: tuple[int, ...]
    sources: tuple[frozenset[Var], ...]


def bijection(mapping: IndexMap, extents: Mapping[Var, int]) -> Bijection:
    """Returns `mapping` on the box of `extents`, which are positive, as a `Bijection`.

    Raises `ScheduleError` if it is not one to one onto a box, or not shown to be.
    """
    digits, sums = taken_apart(mapping.outputs, extents, even=True)
    outputs = [_terms(e, total) for e, total in zip(mapping.outputs, sums, strict=True)]
    sizes = [_size(e, terms) for e, terms in zip(mapping.outputs, outputs, strict=True)]
    used = [t.digit for terms in outputs for t in terms]
    for v in mapping.inputs:
        for digit in digits[v]:
            times = sum(d is digit for d in used)
            if times != 1:
                raise ScheduleError(
                    "the map has {0} {1} times in its results; a one-to-one map has it once",
                    lambda d=digit, n=extents[v]: _digit_text(d, n),
                    times,
                )
    sources = tuple(frozenset(t.digit.var for t in terms) for terms in outputs)
    return Bijection(tuple(sizes), sources)


def _terms(e: Expr, total: DigitSum | ScheduleError) -> list[Term]:
    """The terms of an output, smaller scales first."""
    if isinstance(total, ScheduleError):
        raise total
    if total.offset or any(t.descends for t in total.terms):
        raise no_sum(e)
    return sorted(total.terms, key=lambda t: t.scale)


def _digit_text(digit: Digit, extent: int) -> str:
    assert isinstance(digit.size, int)
    quotient = "" if digit.place == 1 else f" // {digit.place}"
    remainder = "" if digit.place * digit.size == extent else f" % {digit.size}"
    return f"{digit.var.name}{quotient}{remainder}"


def _size(e: Expr, terms: list[Term]) -> int:
    """The number of values of a sum of digits, which are 0 and those that follow it."""
    size = 1
    for scale, digit, _ in terms:
        if scale != size:
            raise ScheduleError(
                "{0} leaves out values: {1} has the factor {2}, expected {3}",
                lambda: repr(e),
                digit.var.name,
                scale,
                size,
            )
        assert isinstance(digit.size, int)
        size *= digit.size
    return size
