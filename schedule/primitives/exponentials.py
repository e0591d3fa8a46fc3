"""Recognise sums of exponentials relative to a maximum."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...tir.combiners import lowest
from ...tir.ir import (
    Binary,
    Block,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    Func,
    Load,
    Op,
    Var,
    binary,
)
from ...tir.structure import same
from ..edits import redirected
from ..reduction_blocks import match_reduction, reduction_into
from ..require import require, require_some
from .pieces import Statistic


class Exponent(NamedTuple):
    """`x` - `shift`, multiplied with the `factors` or divided by them: positive numbers."""

    x: Expr
    shift: Expr
    factors: tuple[tuple[Op, Const], ...] = ()

    def of(self, x: Expr, shift: Expr) -> Expr:
        """The same of another `x` and `shift`."""
        value = binary(Op.SUB, x, shift)
        for op, factor in self.factors:
            value = binary(op, value, factor)
        return value


class Exponentials(NamedTuple):
    """A sum of the exponentials of `exponent`, whose shift is that of the largest x of the row.

    The shift is the element `at` of what `largest` computes: in another dtype, or multiplied with
    positive numbers, as x is.
    """

    largest: Statistic
    exponent: Exponent


def exponent_of(e: Expr) -> Exponent | None:
    """The argument of an exponential; `None` where `e` is none, or not that of a difference."""
    if type(e) is not Call or e.fn != "exp":
        return None
    e = e.args[0]
    factors: list[tuple[Op, Const]] = []
    while (scaled := _scaled(e)) is not None:
        op, e, factor = scaled
        factors.insert(0, (op, factor))
    if type(e) is Binary and e.op is Op.SUB:
        return Exponent(e.a, e.b, tuple(factors))
    if type(e) is Binary and e.op is Op.ADD:
        for x, other in ((e.a, e.b), (e.b, e.a)):
            if type(other) is Call and other.fn == "neg":
                return Exponent(x, other.args[0], tuple(factors))
    return None


def maximum_in(shift: Expr) -> Load | None:
    """The element of a buffer that a shift is, as it is or multiplied with positive numbers."""
    while type(shift) is not Load:
        scaled = _scaled(shift)
        if type(shift) is Cast:
            shift = shift.value
        elif scaled is not None:
            shift = scaled[1]
        else:
            return None
    return shift


def _scaled(e: Expr) -> tuple[Op, Expr, Const] | None:
    """The parts of a value that is multiplied with a positive number or divided by one."""
    if type(e) is not Binary or e.op not in (Op.MUL, Op.DIV) or e.dtype != e.a.dtype:
        return None
    pairs = [(e.a, e.b), (e.b, e.a)] if e.op is Op.MUL else [(e.a, e.b)]
    for value, factor in pairs:
        if type(factor) is Const and 0 < factor.value < float("inf"):
            return e.op, value, factor
    return None


def exponentials(fn: Func, block: Block) -> Exponentials:
    """Match a sum of exponentials relative to a maximum. Raises `ScheduleError` if it is none."""
    label = block.label
    found = match_reduction(block, "sum")
    exponent = None if found is None else exponent_of(found.value)
    largest = require_some(
        None if exponent is None else maximum_in(exponent.shift),
        "block {0} must sum exp(x - m), with a maximum m from a buffer",
        label,
        hint="compute_inline puts the exponentials into the sum",
    )
    assert exponent is not None
    require(
        lowest(exponent.shift.dtype).value == float("-inf"),
        "the exponentials of block {0} are of {1}, which has no infinity",
        label,
        exponent.shift.dtype,
    )
    first, matched = require_some(
        reduction_into(fn, largest.buffer, "max"),
        "block {0} subtracts {1}; expected a maximum that one block computes",
        label,
        largest.buffer.name,
    )
    x = require_some(
        _unscaled(exponent.x, exponent.shift),
        "what block {0} subtracts is {1} in another dtype or scaled, what it subtracts that from "
        "is not",
        label,
        largest.buffer.name,
    )
    return Exponentials(Statistic("maximum", first, matched, x, largest.indices), exponent)


def _unscaled(x: Expr, shift: Expr) -> Expr | None:
    """The value that `x` scales as `shift` scales the maximum; `None` where it does not."""
    while type(shift) is not Load:
        of_x, of_shift = _scaled(x), _scaled(shift)
        if type(x) is Cast and type(shift) is Cast and x.dtype == shift.dtype:
            x, shift = x.value, shift.value
        elif (
            of_x is not None
            and of_shift is not None
            and of_x[0] is of_shift[0]
            and same(of_x[2], of_shift[2])
        ):
            x, shift = of_x[1], of_shift[1]
        else:
            return None
    return x


def at_pieces(node: Any, whole: Buffer, pieces: Buffer, piece: Var) -> Any:
    """`node` with the elements of `pieces` in place of those of `whole`."""
    return redirected(node, {whole: (pieces, lambda indices: (*indices, piece))})
