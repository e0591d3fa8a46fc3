"""Branches and loops: operators that run modules within the program."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ....graph.builder import Builder
from ....graph.compose.basics import reshaped
from ....graph.ir import TensorType, Value
from ...control import chosen, repeated, scanned
from ..table import Body, Operand, as_number, aten


@aten("higher_order.cond")
def cond(
    b: Builder,
    _out: TensorType,
    condition: Operand,
    then: Body,
    otherwise: Body,
    operands: Sequence[Operand],
) -> Sequence[Value]:
    """The branch that is known to be taken; else both are computed, and one is chosen."""
    branches = [partial(branch.translate, operands) for branch in (then, otherwise)]
    return chosen(b, [reshaped(b, as_number(b, condition), ())], branches)


@aten("higher_order.while_loop")
def while_loop(
    b: Builder,
    _out: TensorType,
    condition: Body,
    body: Body,
    states: Sequence[Operand],
    others: Sequence[Operand],
) -> Sequence[Value]:
    """As often as known numbers say, such as those that the loop counts."""

    def going(given: Sequence[Value]) -> list[Value]:
        return condition.translate([*given, *others])

    def step(given: Sequence[Value]) -> list[Value]:
        return body.translate([*given, *others])

    return repeated(b, body.apart, going, step, [as_number(b, value) for value in states])


@aten("higher_order.scan")
def scan(
    b: Builder,
    _out: TensorType,
    body: Body,
    states: Sequence[Value],
    rows: Sequence[Value],
    others: Sequence[Operand],
) -> list[Value]:
    def step(given: Sequence[Value]) -> list[Value]:
        return body.translate([*given, *others])

    return scanned(b, body.apart, step, states, rows)


@aten("higher_order.map_impl")
def map_(
    b: Builder, out: TensorType, body: Body, rows: Sequence[Value], others: Sequence[Operand]
) -> list[Value]:
    """A scan without states."""
    return scan(b, out, body, (), rows, others)
