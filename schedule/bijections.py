"""Bijective index maps and their inverses.

A map over a box is decomposed into *digits*: each input is written in a mixed radix, and each
output must be another mixed radix made of such digits. Fusing, splitting and permuting indices are
of this form, in any mix. The inputs then follow from the outputs by quotients and remainders.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from ..errors import ScheduleError
from ..tir.ir import Binary, Const, Expr, Op, Var, as_expr, binary
from .index_map import IndexMap


class Digit(NamedTuple):
    """`var // place % size`."""

    var: Var
    place: int
    size: int


class Term(NamedTuple):
    """`scale` times a digit."""

    scale: int
    digit: Digit


@dataclass(frozen=True, eq=False)
class Bijection:
    """A bijection between two boxes.

    `extents` are those of the outputs, `sources` the inputs of each output.
    """

    extents: tuple[int, ...]
    sources: tuple[frozenset[Var], ...]
    terms: tuple[tuple[Term, ...], ...]

    def inverse(self, inputs: tuple[Var, ...], outputs: tuple[Var, ...]) -> dict[Var, Expr]:
        """The inputs in terms of variables for the outputs."""
        values: dict[Var, Expr] = {v: as_expr(0) for v in inputs}
        for out, extent, terms in zip(outputs, self.extents, self.terms, strict=True):
            for scale, digit in terms:
                value: Expr = binary(Op.FLOORDIV, out, scale)
                if scale * digit.size < extent:
                    value = binary(Op.MOD, value, digit.size)
                values[digit.var] = values[digit.var] + value * digit.place
        return values


class _Cut(Exception):
    """A digit of `var` has to be cut at `place`."""

    def __init__(self, var: Var, place: int) -> None:
        self.var = var
        self.place = place


def bijection(mapping: IndexMap, extents: Mapping[Var, int]) -> Bijection:
    """Returns `mapping` on the box of `extents`, which are positive, as a `Bijection`.

    Raises `ScheduleError` if it is not one to one onto a box, or not shown to be.
    """
    digits, outputs = _taken_apart(mapping, extents)
    sizes = [_size(e, terms) for e, terms in zip(mapping.outputs, outputs, strict=True)]
    used = [t.digit for terms in outputs for t in terms]
    for v in mapping.inputs:
        for digit in digits[v]:
            times = sum(d.var is v and d.place == digit.place for d in used)
            if times != 1:
                raise ScheduleError(
                    "the map has {0} {1} times in its results; a one-to-one map has it once",
                    lambda d=digit, n=extents[v]: _digit_text(d, n),
                    times,
                )
    sources = tuple(frozenset(t.digit.var for t in terms) for terms in outputs)
    return Bijection(tuple(sizes), sources, tuple(map(tuple, outputs)))


def _digit_text(digit: Digit, extent: int) -> str:
    quotient = "" if digit.place == 1 else f" // {digit.place}"
    remainder = "" if digit.place * digit.size == extent else f" % {digit.size}"
    return f"{digit.var.name}{quotient}{remainder}"


def _taken_apart(
    mapping: IndexMap, extents: Mapping[Var, int]
) -> tuple[dict[Var, list[Digit]], list[list[Term]]]:
    """Digits of the inputs, split until each output is a sum of them; smaller scales first."""
    cuts: dict[Var, set[int]] = {v: set() for v in mapping.inputs}
    while True:
        digits = {v: _digits(v, extents[v], cuts[v]) for v in mapping.inputs}
        try:
            terms = [_terms(e, digits) for e in mapping.outputs]
        except _Cut as cut:
            cuts[cut.var].add(cut.place)
        else:
            return digits, [sorted(ts, key=lambda t: t.scale) for ts in terms]


def _digits(var: Var, extent: int, cuts: set[int]) -> list[Digit]:
    edges = [1, *sorted(cuts), extent]  # each divides the next: digits are cut evenly
    return [Digit(var, low, high // low) for low, high in pairwise(edges) if high > low]


def _terms(e: Expr, digits: Mapping[Var, list[Digit]]) -> list[Term]:
    """`e` as a sum of digits."""
    if type(e) is Var and e in digits:
        return [Term(d.place, d) for d in digits[e]]
    if type(e) is Const and e.value == 0:
        return []
    if type(e) is Binary:
        if e.op is Op.ADD:
            return _terms(e.a, digits) + _terms(e.b, digits)
        a, b = (e.b, e.a) if e.op is Op.MUL and type(e.a) is Const else (e.a, e.b)
        if type(b) is Const and int(b.value) >= 1:
            by = int(b.value)
            if e.op is Op.MUL:
                return [Term(t.scale * by, t.digit) for t in _terms(a, digits)]
            if e.op in (Op.FLOORDIV, Op.MOD):
                high, low = _divided(e, _terms(a, digits), by)
                return high if e.op is Op.FLOORDIV else low
    raise ScheduleError(
        "{0} is not a sum of indices and of their quotients and remainders by positive numbers",
        lambda: repr(e),
    )


def _divided(e: Expr, terms: list[Term], by: int) -> tuple[list[Term], list[Term]]:
    """The terms of the quotient and those of the remainder."""
    high: list[Term] = []
    low: list[Term] = []
    for scale, digit in terms:
        if scale % by == 0:
            high.append(Term(scale // by, digit))
        elif scale * (digit.size - 1) < by:
            low.append(Term(scale, digit))
        elif by % scale == 0 and digit.size % (by // scale) == 0:
            raise _Cut(digit.var, digit.place * (by // scale))
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
    if sum(scale * (digit.size - 1) for scale, digit in low) >= by:
        raise ScheduleError("the remainder of {0} is more than one index", lambda: repr(e))
    return high, low


def _size(e: Expr, terms: list[Term]) -> int:
    """The number of values of a sum of digits, which are 0 and those that follow it."""
    size = 1
    for scale, digit in terms:
        if scale != size:
            raise ScheduleError(
                "{0} leaves out values: {1} has the factor {2}, expected {3}",
                lambda: repr(e),
                digit.var.name,
                scale,
                size,
            )
        size *= digit.size
    return size
