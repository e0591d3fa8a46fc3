"""A statistic of a row and a sum that depends on it, computed piece by piece.

Recognise sums of exponentials relative to a maximum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace as _replace
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
    For,
    Func,
    Label,
    Load,
    Op,
    Stmt,
    Var,
    binary,
)
from ...tir.structure import same
from ...tir.updates import Reduction
from ...tir.visit import substitute
from ..block_queries import has_reduction, nest_like, require_unit, writers_of
from ..find import find_block, perfect_nest
from ..places import redirected
from ..reduction_blocks import match_reduction, reduction_into, require_terms
from ..require import certain, require, require_some
from .cached_copies import replace_top, top_position, top_statements
from .reduction import rfactor


class Statistic(NamedTuple):
    """The statistic of each row that `block` computes, which a sum reads at the indices `at`.

    `value` is its operand, in the variables of the sum. `name` is for people.
    """

    name: str
    block: Block
    of: Reduction
    value: Expr
    at: tuple[Expr, ...]


class Pieces(NamedTuple):
    """The labels of the blocks of the pieces, and the buffer with the statistic of each piece."""

    first: Label
    second: Label
    local: Buffer


def in_pieces(fn: Func, found: Statistic, block: Block, loop: Var) -> tuple[Func, Pieces]:
    """Keep a statistic and the sum `block` for each iteration of `loop`, and combine them.

    The sum still uses the statistic of the row, and partial sums are added as they are; the caller
    rewrites both.
    """
    first = found.block
    for b in (first, block):
        require_unit(fn, b)
    own_nest(fn, first)
    nest = own_nest(fn, block)
    _require_same_elements(fn, found, block)
    require_terms(block)

    fn, second = rfactor(fn, loop, -1)
    require(
        has_reduction(find_block(fn, second)),
        "the pieces of block {0} have one element each",
        block.label.name,
        at=loop,
        hint="split the loop, and give the outer part",
    )
    loops = {s.var: Var(s.var.name) for s in nest}
    fn = replace_top(fn, first.label, _like(first, block, nest, loops))
    fn, label = rfactor(fn, loops[loop], -1)
    (local,) = (r.buffer for r in find_block(fn, label).writes)
    return fn, Pieces(label, second, local)


def in_variables_of(block: Block, first: Block, e: Expr) -> Expr:
    """`e` with the variables of `block` in the places of those of `first`."""
    return substitute(e, _variables(first, block))


def own_nest(fn: Func, block: Block) -> list[For]:
    """The loops around a block that has them to itself, in the outermost statement."""
    loops, leaf = perfect_nest(top_statements(fn)[top_position(fn, block.label)])
    require(
        leaf is block,
        "block {0} shares a nest with others",
        block.label,
        hint="pieces are made before compute_at",
    )
    return loops


def _variables(first: Block, block: Block) -> dict[Var, Var]:
    return {a.var: b.var for a, b in zip(first.iters, block.iters, strict=False)}


def _require_same_elements(fn: Func, found: Statistic, block: Block) -> None:
    """Require that the statistic is that of the very elements that are summed."""
    first = found.block
    fits = (
        len(first.iters) == len(block.iters)
        and all(
            a.kind is b.kind and certain(a.extent == b.extent)
            for a, b in zip(first.iters, block.iters, strict=True)
        )
        and same(in_variables_of(block, first, found.of.value), found.value)
        and all(
            same(in_variables_of(block, first, e), f)
            for e, f in zip(found.of.indices, found.at, strict=True)
        )
    )
    require(
        fits,
        "block {0} is not the {1} of the elements that block {2} sums, over the same "
        "iterations in the same order",
        first.label.name,
        found.name,
        block.label,
    )
    position = top_position(fn, first.label)
    for buffer in sorted({r.buffer for r in first.reads}, key=lambda b: b.name):
        late = [
            w.label.name
            for w in writers_of(fn, buffer)
            if w.label is not first.label and top_position(fn, w.label) > position
        ]
        require(
            not late,
            "block {0} writes {1} after its {2} was found",
            ", ".join(late),
            buffer.name,
            found.name,
            at=block.label,
        )


def _like(first: Block, block: Block, nest: list[For], loops: Mapping[Var, Var]) -> Stmt:
    """The block of the statistic in loops like those of the sum."""
    variables = _variables(first, block)
    values = {i.var: i.value for i in block.iters}
    iters = tuple(
        _replace(i, value=substitute(values[variables[i.var]], loops)) for i in first.iters
    )
    guard = None if block.predicate is None else substitute(block.predicate, loops)
    return nest_like(nest, _replace(first, iters=iters, predicate=guard), loops)


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
