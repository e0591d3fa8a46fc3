"""Attention becomes one operator, whose kernel keeps no scores in memory."""

from __future__ import annotations

from ..builder import Builder, Rules
from ..ir import Node, Value
from . import movement
from .rules import new, scaled, units, without_views


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
        return new(b, "attention", q, k, v, *([] if mask is None else [mask]), scale=scale)
    return None


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
        k = new(b, "transpose", k, axes=(*range(rank - 2), rank - 1, rank - 2))
    return q, k, scale * first * second


def _unscaled(b: Builder, value: Value) -> tuple[Value, float]:
    found = scaled(b, value)
    return (value, 1.0) if found is None or found[0].shape != value.shape else found


def _batched(q: Value, k: Value, v: Value) -> bool:
    """Whether all have the same leading dimensions, of which there are some."""
    leading = q.shape[:-2]
    return bool(leading) and k.shape[:-2] == v.shape[:-2] == leading


RULES: Rules = {"matmul": [attention], "transpose": movement.RULES["transpose"]}
