"""Norms and softmax that exporters write out, which are one kernel instead of several.

Reductions may keep their dimensions by a reshape, so that matching looks through reshapes; that the
last shape is as expected then says that the others are.
"""

from __future__ import annotations

import math
from itertools import permutations
from typing import TypeAlias

from ..builder import Builder, Rules
from ..ir import Node, Value
from .rules import beside_number, factors, near, new, number, reshaped, scaled, without_views

Rows: TypeAlias = tuple[Value, tuple[int, ...]]
"""A value and its axes that are reduced, in order."""


def softmax(b: Builder, node: Node) -> Value | None:
    """e / sum(e) with e = exp(x - max(x))   ->   softmax(x)"""
    exponential, total = node.inputs
    argument = b.producer(exponential, "exp")
    distance = None if argument is None else b.producer(argument.inputs[0], "subtract")
    sums = _reduction(b, total, "sum")
    if distance is None or sums is None or sums[0] is not exponential:
        return None
    x, largest = distance.inputs
    _, axes = sums
    if _reduction(b, largest, "max") != (x, axes) or len(axes) != 1:
        return None
    if not _keeps(total, x, axes) or not _keeps(largest, x, axes):
        return None
    return reshaped(b, new(b, "softmax", x, axis=axes[0]), node.output.shape)


def normalize(b: Builder, node: Node) -> Value | None:
    """d / sqrt(mean(d * d) + epsilon) with d = x - mean(x)   ->   normalize(x)

    Or d * (1 / sqrt(..)) times others; the variance may be mean(x * x) - mean(x) * mean(x), which
    is less precise, and d any x, which then is not centered.
    """
    if node.operator == "divide":
        distance, divisor = node.inputs
        found = _normalized(b, distance, divisor, _producer(b, divisor, "sqrt"))
        return None if found is None else reshaped(b, found, node.output.shape)
    parts, scale = factors(b, node)
    if scale != 1:
        return None
    for (n, inverse), (m, distance) in permutations(enumerate(parts), 2):
        quotient = _producer(b, inverse, "divide")
        if quotient is None or number(quotient.inputs[0]) != 1:
            continue
        found = _normalized(b, distance, inverse, _producer(b, quotient.inputs[1], "sqrt"))
        if found is not None:
            for other in (part for k, part in enumerate(parts) if k not in (n, m)):
                found = b.add("multiply", found, other)
            return reshaped(b, found, node.output.shape)
    return None


def _normalized(b: Builder, distance: Value, by: Value, root: Node | None) -> Value | None:
    """The norm of a distance from the mean, which is divided by a root, or times its inverse."""
    found = None if root is None else beside_number(b, without_views(b, root.inputs[0]), "add")
    if found is None:
        return None
    variance, epsilon = found
    rows = _rows(b, distance, variance)
    if rows is None:
        return None
    x, axes = rows
    last = tuple(range(x.type.rank - len(axes), x.type.rank))
    if not axes or axes != last or not _keeps(by, x, axes):
        return None
    return new(b, "normalize", x, axis=axes[0], epsilon=epsilon, centered=x is not distance)


def _rows(b: Builder, distance: Value, variance: Value) -> Rows | None:
    """The x, or the distance itself, whose variance it is."""
    centre = b.producer(distance, "subtract")
    mean = None if centre is None else _mean(b, centre.inputs[1])
    if centre is None or mean is None or mean[0] is not centre.inputs[0]:
        mean = None
    elif not _keeps(centre.inputs[1], *mean):
        return None
    squared = _mean_square(b, variance, distance)
    if squared is not None:
        return (distance, squared) if mean is None else mean if mean[1] == squared else None
    positive = beside_number(b, without_views(b, variance), "maximum")
    if positive is not None and positive[1] == 0:
        variance = positive[0]
    moments = _producer(b, variance, "subtract")
    if moments is None or mean is None or _mean_square(b, moments.inputs[0], mean[0]) != mean[1]:
        return None
    square = _producer(b, moments.inputs[1], "multiply")
    if square is None or square.inputs[0] is not square.inputs[1]:
        return None
    return mean if _mean(b, square.inputs[0]) == mean else None


def _mean(b: Builder, value: Value) -> Rows | None:
    """The operand of a mean, or of a sum that is divided by the number of elements."""
    product = scaled(b, without_views(b, value))
    if product is None:
        return _reduction(b, value, "mean")
    total, share = product
    found = _reduction(b, total, "sum")
    if found is None:
        return None
    x, axes = found
    count = math.prod(x.shape[axis] for axis in axes)
    return found if count and near(share, 1 / count, x.dtype) else None


def _mean_square(b: Builder, value: Value, x: Value) -> tuple[int, ...] | None:
    """The axes of the mean of x * x."""
    found = _mean(b, value)
    square = None if found is None else _producer(b, found[0], "multiply")
    if found is None or square is None or found[0].shape != x.shape:
        return None
    source = without_views(b, x)
    return found[1] if all(without_views(b, v) is source for v in square.inputs) else None


def _reduction(b: Builder, value: Value, operator: str) -> Rows | None:
    node = _producer(b, value, operator)
    if node is None:
        return None
    (x,) = node.inputs
    axes = node.attributes["axes"]
    assert isinstance(axes, tuple)
    return x, tuple(sorted(axes))  # type: ignore[arg-type]


def _producer(b: Builder, value: Value, operator: str) -> Node | None:
    return b.producer(without_views(b, value), operator)


def _keeps(value: Value, x: Value, axes: tuple[int, ...]) -> bool:
    """Whether a value has the shape of a reduction that keeps its dimensions."""
    return value.shape == tuple(1 if d in axes else e for d, e in enumerate(x.shape))


RULES: Rules = {"divide": [softmax, normalize], "multiply": [normalize]}
