"""What exporters write out, and one kernel computes: norms, softmax, activations and attention.

Reductions may keep their dimensions by a reshape, so that matching looks through reshapes; that the
last shape is as expected then says that the others are. Activations are those with a division,
which their operators do without. Others (SiLU, gelu) are as fast written out: all pointwise nodes
of a kernel are fused.
"""

from __future__ import annotations

import math
from itertools import permutations
from typing import TypeAlias

from ...base import dtypes
from ..builder import Builder, Rules
from ..ir import Node, Value
from . import movement
from .rules import (
    beside_number,
    factors,
    near,
    number,
    reshaped,
    same,
    scaled,
    units,
    without_views,
)

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
    return reshaped(b, b.add("softmax", x, axis=axes[0]), node.output.shape)


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
    return b.add("normalize", x, axis=axes[0], epsilon=epsilon, centered=x is not distance)


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


def hard_swish(b: Builder, node: Node) -> Value | None:
    """x * minimum(maximum(x + 3, 0), 6) / 6   ->   hard_swish(x), in any order"""
    dtype = node.output.dtype
    if not dtypes.is_float(dtype):
        return None
    for part in factors(b, node)[0]:
        found = _clipped(b, part)
        if found is None:
            continue
        x, offset, top = found
        others, scale = factors(b, node, x, part)
        if same(others, (x, part)) and near(scale, 1 / top, dtype):
            value = b.add("hard_swish", x, alpha=1 / top, beta=offset / top)
            return reshaped(b, value, node.output.shape)
    return None


def _clipped(b: Builder, value: Value) -> tuple[Value, float, float] | None:
    """The x, offset and top of x + offset between 0 and the top.

    An offset above the top would cost x / top + offset / top more digits than it costs the sum.
    """
    for outer, inner in (("minimum", "maximum"), ("maximum", "minimum")):
        first = beside_number(b, value, outer)
        second = None if first is None else beside_number(b, first[0], inner)
        if first is None or second is None:
            continue
        low, top = sorted((first[1], second[1]))
        moved = beside_number(b, second[0], "add")
        if (
            moved is not None
            and low == 0 < top < math.inf
            and abs(moved[1]) <= top
            and (top == first[1]) == (outer == "minimum")
        ):
            return moved[0], moved[1], top
    return None


ACTIVATIONS: Rules = {"multiply": [hard_swish], "divide": [hard_swish]}


def attention(b: Builder, node: Node) -> Value | None:
    """matmul(softmax(matmul(q, transpose(k)) * c + m), v)   ->   attention(q, k, v, m, scale=c)

    Without `m` too, and with factors at `q` and `k`. Nobody else reads the scores or weights.
    """
    weights, v = node.inputs
    rows = b.producer(without_views(b, weights), "softmax")
    if rows is None or any(node.attributes.values()) or not _alone(b, weights, rows.output):
        return None
    shape = weights.shape
    scores = without_views(b, rows.inputs[0])
    last = rows.output.type.rank - 1
    if rows.attributes["axis"] != last or rows.output.shape[-1] != shape[-1]:
        return None
    if not _alone(b, rows.inputs[0], scores) or scores.shape != shape:
        return None
    for product, mask in _sums(b, scores):
        found = _product(b, product)
        if found is None or product.shape != shape or not _batched(found[0], found[1], v):
            continue
        q, k, scale = found
        return b.add("attention", q, k, v, *([] if mask is None else [mask]), scale=scale)
    return None


def blind_rows(b: Builder, node: Node) -> Value | None:
    """matmul(where(c, 0, w), v)   ->   where(c, 0, matmul(w, v)), where w is a softmax, c of rows

    It leaves out the rows of queries that see no key, also where v is infinite.
    """
    weights, v = node.inputs
    chosen = b.producer(without_views(b, weights), "where")
    if chosen is None or any(node.attributes.values()) or not _alone(b, weights, chosen.output):
        return None
    blind, zero, rows = chosen.inputs
    shape = (*rows.shape[:-1], v.shape[-1])
    if (
        number(zero) != 0
        or b.producer(without_views(b, rows), "softmax") is None
        or chosen.output.shape != rows.shape
        or rows.shape[-1] != weights.shape[-1]
        or blind.shape[-1:] != (1,)
        or node.output.type.size != math.prod(shape)
    ):
        return None
    product = b.add("matmul", reshaped(b, rows, weights.shape), v)
    value = b.add("where", blind, zero, reshaped(b, product, shape))
    return reshaped(b, value, node.output.shape)


def _alone(b: Builder, value: Value, source: Value) -> bool:
    """Whether only one node reads a value, and each that it is a reshape of, down to the source."""
    while b.read_once(value):
        if value is source:
            return True
        value = b.producers[value].inputs[0]
    return False


def _sums(b: Builder, scores: Value) -> list[tuple[Value, Value | None]]:
    """What scores may be the sum of: products and a mask, or products alone."""
    node = b.producer(scores, "add")
    if node is None:
        return [(scores, None)]
    first, second = node.inputs
    return [(first, second), (second, first)]


def _product(b: Builder, scores: Value) -> tuple[Value, Value, float] | None:
    """The q, k and scale of products, which nobody else reads."""
    products, scale = _unscaled(b, scores)
    node = b.producer(products, "matmul")
    if node is None or node.attributes["transpose_a"] or node.attributes["dtype"] is not None:
        return None
    if not b.read_once(scores) or not b.read_once(products):
        return None
    (q, first), (k, second) = (_unscaled(b, value) for value in node.inputs)
    if not node.attributes["transpose_b"]:
        moved = b.producer(without_views(b, k), "transpose")
        if moved is None or units(moved.output.shape) != units(k.shape):
            return None
        rank = k.type.rank
        k = b.add("transpose", k, axes=(*range(rank - 2), rank - 1, rank - 2))
    return q, k, scale * first * second


def _unscaled(b: Builder, value: Value) -> tuple[Value, float]:
    found = scaled(b, value)
    return (value, 1.0) if found is None or found[0].shape != value.shape else found


def _batched(q: Value, k: Value, v: Value) -> bool:
    """Whether all have the same leading dimensions, of which there are some."""
    leading = q.shape[:-2]
    return bool(leading) and k.shape[:-2] == v.shape[:-2] == leading


ATTENTION: Rules = {"matmul": [attention, blind_rows], "transpose": movement.RULES["transpose"]}
