"""Reductions by a body, sorting, and what is largest."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ....graph.builder import Builder
from ....graph.compose import rows
from ....graph.compose.basics import cast_to, part, reshaped
from ....graph.ir import Constant, Value
from ...unsupported import Reason, Unsupported
from ..table import LETTERS, Op, hlo

_BODIES = {
    "add(a, b)": ("sum", "add"),
    "multiply(a, b)": ("prod", "multiply"),
    "maximum(a, b)": ("max", "maximum"),
    "minimum(a, b)": ("min", "minimum"),
    "or(a, b)": ("max", "or"),
    "and(a, b)": ("min", "and"),
}
"""Bodies of two elements, and the reductions that they are."""


def _chosen(compare: str) -> list[str]:
    """The body by which JAX finds the place of the largest or smallest element, NaN first."""
    better = f"or({compare}(a, c), ne(a, a))"
    first = f"or({better}, and(eq(a, c), lt(b, d)))"
    return [f"select({better}, a, c)", f"select({first}, b, d)"]


def reduction_of(op: Op) -> str | None:
    """The reduction that a body of two elements is, if graphs have it for its dtype."""
    (formula,) = op.formulas()
    operator, name = _BODIES.get(formula.replace("(b, a)", "(a, b)"), (None, ""))
    is_bool = op.type.dtype == "bool"
    if name in ("or", "and") and not is_bool:
        return None
    if is_bool:
        return {"sum": "max", "prod": "min"}.get(operator or "", operator)
    return operator


def is_unit(operator: str, value: Value) -> bool:
    """Whether it is known that a value changes nothing in a reduction."""
    unit = rows.unit(operator, value.dtype)
    return isinstance(value, Constant) and bool(value.data == unit)


@hlo("reduce")
def reduce(b: Builder, op: Op) -> Sequence[Value]:
    count = len(op.results)
    values, units = op.operands[:count], op.operands[count:]
    axes = op.integers("dimensions")
    if not all(values[0].shape[d] for d in axes):
        return [b.add("broadcast_to", u, shape=op.type.shape) for u in units]
    if count == 1:
        operator = reduction_of(op)
        if operator is not None:
            return (_reduced(b, op, operator, values[0], units[0], axes),)
    if count == 2 and len(axes) == 1 and values[0].dtype != "bool":
        formulas = op.formulas()
        for operator, compare in (("max", "gt"), ("min", "lt")):
            if (
                formulas == _chosen(compare)
                and is_unit(operator, units[0])
                and _are_places(b, values[1], axes[0])
            ):
                found = b.add(f"arg{operator}", values[0], axis=axes[0])
                best = b.add(operator, values[0], axes=axes)
                return best, cast_to(b, found, values[1].dtype)
    return _by_halves(b, op, values, units, axes)


def _reduced(
    b: Builder, op: Op, operator: str, x: Value, unit: Value, axes: tuple[int, ...]
) -> Value:
    own = cast_to(b, x, "int8") if x.dtype == "bool" else x
    value = cast_to(b, rows.reduced(b, operator, own, axes, keepdims=False), x.dtype)
    return value if is_unit(operator, unit) else op.lifted_body([unit, value])[0]


def _are_places(b: Builder, value: Value, axis: int) -> bool:
    """Whether the elements are known to be their places along an axis."""
    node = b.producer(value, "broadcast_to")
    known = node.inputs[0] if node is not None else value
    if not isinstance(known, Constant) or known.type.rank != value.type.rank:
        return False
    shape = [e if d == axis else 1 for d, e in enumerate(value.shape)]
    wanted = np.arange(value.shape[axis]).reshape(shape)
    return known.shape[axis] == value.shape[axis] and bool((known.data == wanted).all())


def _by_halves(
    b: Builder, op: Op, values: Sequence[Value], units: Sequence[Value], axes: Sequence[int]
) -> Sequence[Value]:
    """By any body, of neighbours, until one element is left."""
    rank = values[0].type.rank
    kept = [d for d in range(rank) if d not in axes]
    shape = [values[0].shape[d] for d in kept]
    count = math.prod(values[0].shape[d] for d in axes)
    lead = len(kept)
    own = [
        reshaped(b, b.add("transpose", v, axes=(*kept, *sorted(axes))), (*shape, count))
        for v in values
    ]
    while count > 1:
        pairs = count // 2
        first, second = (
            [
                b.add(
                    "slice", v, starts=(*(0,) * lead, k), steps=(*(1,) * lead, 2),
                    shape=(*shape, pairs),
                )
                for v in own
            ]
            for k in (0, 1)
        )  # fmt: skip
        joined = op.lifted_body([*first, *second])
        if count % 2:
            ends = [part(b, v, lead, count - 1, 1) for v in own]
            joined = [
                b.add("concatenate", v, e, axis=lead) for v, e in zip(joined, ends, strict=True)
            ]
        own, count = joined, pairs + count % 2
    last = [reshaped(b, v, shape) for v in own]
    return op.lifted_body([*units, *last])


@hlo("sort")
def sort(b: Builder, op: Op) -> Sequence[Value]:
    """By the operands that the body compares, the first of them first; equal ones keep an order."""
    axis = op.attribute("dimension", -1) % op[0].type.rank
    (formula,) = op.formulas()
    keys = _keys(formula, len(op.operands))
    if not keys:
        raise Unsupported(Reason.ATTRIBUTE, f"the order {formula}")
    values = list(op.operands)
    for place, largest in reversed(keys):
        key = values[place]
        key = cast_to(b, key, "int8") if key.dtype == "bool" else key
        _, order = b.add_all("top", key, axis=axis, count=key.shape[axis], largest=largest)
        values = [b.add("take_along", v, order, axis=axis) for v in values]
    return values


def _keys(formula: str, count: int) -> list[tuple[int, bool]]:
    """The operands that are compared, and whether the largest come first; nothing if not known."""
    for place in range(count):
        for form in ("{0}", _CANONICAL):
            pair = ", ".join(form.format(letter) for letter in LETTERS[2 * place : 2 * place + 2])
            for compare, largest in (("lt", False), ("gt", True)):
                before = f"{compare}({pair})"
                head = f"or({before}, and(eq({pair}), "
                if formula == before:
                    return [(place, largest)]
                if formula.startswith(head):
                    rest = _keys(formula[len(head) : -2], count)
                    return rest and [(place, largest), *rest]
    return []


_CANONICAL = "select(ne({0}, {0}), nan, select(eq({0}, 0.0), 0.0, {0}))"
"""A float with zeros of one sign, and NaN of one form."""


@hlo("chlo.top_k")
def top(b: Builder, op: Op) -> Sequence[Value]:
    axis, count = op[0].type.rank - 1, op.type.shape[-1]
    values, places = b.add_all("top", op[0], axis=axis, count=count, largest=True)
    return values, cast_to(b, places, op.results[1].dtype)
