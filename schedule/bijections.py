"""Bijective index maps.

A map over a box is decomposed into digits of its inputs: each output must be a mixed radix made of
such digits, and each digit must be in one output. Fusing, splitting and permuting indices are of
this form, in any mix.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..base.errors import ScheduleError
from ..tir.ir import Expr, Var
from .digit_sums import Digit, DigitSum, Term, no_sum, taken_apart
from .index_map import IndexMap


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
