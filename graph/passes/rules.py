"""What rules of several passes ask of values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from ..builder import Builder
from ..ir import Constant, Node, Value

EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
"""What a dtype's 1 and its next number differ by."""


def number(value: Value) -> float | int | None:
    """The number that all elements of a constant are, if it has one element."""
    if isinstance(value, Constant) and value.type.size == 1:
        found = value.data.reshape(-1)[0].item()
        return None if isinstance(found, bool) else found
    return None


def is_number(value: Value, wanted: float) -> bool:
    """Whether it is a constant of that one number, with its sign if that is zero."""
    found = number(value)
    return found == wanted and np.signbit(found) == np.signbit(wanted)


def units(shape: Iterable[int]) -> tuple[int, ...]:
    """The extents of a shape that are not 1."""
    return tuple(e for e in shape if e != 1)


def near(found: float | int | None, wanted: float, dtype: str) -> bool:
    """Whether a number is what an exporter writes for another one in that dtype."""
    return found is not None and abs(found - wanted) <= abs(wanted) * EPSILON.get(dtype, 0)


def same(found: Sequence[Value], wanted: Sequence[Value]) -> bool:
    """Whether both have the same values, in any order."""
    return sorted(map(id, found)) == sorted(map(id, wanted))


def without_views(b: Builder, value: Value) -> Value:
    """What a value is a reshape of, or itself."""
    while (view := b.producer(value, "reshape")) is not None:
        value = view.inputs[0]
    return value


def reshaped(b: Builder, value: Value, shape: Sequence[int]) -> Value:
    """The elements of a value in that shape."""
    source = without_views(b, value)
    return source if source.shape == tuple(shape) else b.add("reshape", source, shape=shape)


_DEPTH = 4
"""Products within products that are looked into."""


def factors(b: Builder, node: Node, *whole: Value) -> tuple[list[Value], float]:
    """The factors of a product of products, and the product of those that are numbers.

    Divisors that are numbers are among these. Values of `whole` are not looked into.
    """
    found = list[Value]()
    scale = 1.0

    def visit(part: Node, depth: int) -> None:
        nonlocal scale
        operands = part.inputs
        if part.operator == "divide":
            scale /= number(operands[1]) or math.nan
            operands = operands[:1]
        for value in operands:
            held, inner = number(value), b.producers.get(value)
            if held is not None:
                scale *= held
            elif inner is None or value in whole or depth == _DEPTH or not _is_product(inner):
                found.append(value)
            else:
                visit(inner, depth + 1)

    if _is_product(node):
        visit(node, 0)
    return found, scale


def _is_product(node: Node) -> bool:
    return node.operator == "multiply" or (
        node.operator == "divide" and bool(number(node.inputs[1]))
    )


def beside_number(b: Builder, value: Value, operator: str) -> tuple[Value, float] | None:
    """The x and the number of operator(x, number) or operator(number, x)."""
    node = b.producer(value, operator)
    if node is not None:
        for operand, other in (node.inputs, node.inputs[::-1]):
            held = number(other)
            if held is not None:
                return operand, held
    return None


def scaled(b: Builder, value: Value) -> tuple[Value, float] | None:
    """The x and the number of x * number or x / number."""
    node = b.producer(value, "divide")
    if node is None:
        return beside_number(b, value, "multiply")
    divisor = number(node.inputs[1])
    return (node.inputs[0], 1 / divisor) if divisor else None
