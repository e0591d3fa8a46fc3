"""Work on constants is done ahead.

Scales and shifts of channels become part of the weights before them, which are computed in float64
and rounded once. Products with one-hot rows are lookups in tables, and what follows is done to the
table.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...base import dtypes
from ..builder import Builder, Rules
from ..ir import Constant, Node, Value
from ..operator import Array, Kind
from .rules import EPSILON, reshaped, without_views


class Affine(NamedTuple):
    """A product with constant weights, and the constant that is added to it, by channels."""

    node: Node
    bias: Constant | None

    @property
    def axis(self) -> int:
        """The dimension of channels, in the product."""
        return 1 if self.node.operator == "conv" else self.node.output.type.rank - 1

    def by_channels(self, value: Value) -> bool:
        """Whether a value has one element, or one for each channel."""
        shape = self.node.output.shape
        padded = [1] * (len(shape) - value.type.rank) + list(value.shape)
        wide = [d for d, e in enumerate(padded) if e != 1]
        return len(padded) == len(shape) and wide in ([], [self.axis])


def scale_into_weights(b: Builder, node: Node) -> Value | None:
    """(conv(x, w) + c) * s   ->   conv(x, w * s) + c * s, also without c, and of matmul"""
    for product, scale in (node.inputs, node.inputs[::-1]):
        affine = _affine(b, product)
        if affine is None or not isinstance(scale, Constant) or not affine.by_channels(scale):
            continue
        x, weights = affine.node.inputs
        assert isinstance(weights, Constant)
        scaled = _scaled(affine, weights, scale)
        if scaled is None:
            return None
        value = b.add(affine.node.operator, x, b.constant(scaled), **affine.node.attributes)
        if affine.bias is None:
            return value
        shift = _narrowed(_wide(affine.bias) * _wide(scale), affine.bias)
        return None if shift is None else b.add("add", value, b.constant(shift))
    return None


def shift_of_shift(b: Builder, node: Node) -> Value | None:
    """(conv(x, w) + c) + d   ->   conv(x, w) + (c + d), also of matmul"""
    for product, shift in (node.inputs, node.inputs[::-1]):
        affine = _affine(b, product)
        if affine is None or affine.bias is None or not isinstance(shift, Constant):
            continue
        if affine.by_channels(shift):
            total = _narrowed(_wide(affine.bias) + _wide(shift), affine.bias)
            return None if total is None else b.add("add", affine.node.output, b.constant(total))
    return None


def _narrowed(exact: Array, of: Constant) -> Array | None:
    """A shift in the dtype of another one; `None` where it would overflow, as results may not."""
    with np.errstate(over="ignore"):
        found = exact.astype(of.data.dtype)
    return found if np.isfinite(found).all() else None


def _affine(b: Builder, value: Value) -> Affine | None:
    """What a value is computed by, if only one node reads it."""
    node = b.producers.get(value)
    if node is None or not b.read_once(value) or value.dtype not in ("float32", "float64"):
        return None
    if node.operator in ("conv", "matmul"):
        weights = node.inputs[1]
        held = isinstance(weights, Constant) and b.read_once(weights)
        return Affine(node, None) if held and node.attributes["dtype"] is None else None
    if node.operator == "add":
        for product, bias in (node.inputs, node.inputs[::-1]):
            inner = b.producers.get(product)
            if inner is None or inner.operator == "add" or not isinstance(bias, Constant):
                continue
            affine = _affine(b, product)
            if affine is not None and affine.by_channels(bias):
                return Affine(affine.node, bias)
    return None


def _scaled(affine: Affine, weights: Constant, scale: Constant) -> Array | None:
    """The weights times a scale, or `None` where they would lose precision."""
    dims = weights.type.rank
    channels = dims - 1
    if affine.node.operator == "conv":
        channels = 0
    elif affine.node.attributes["transpose_b"]:
        channels = dims - 2
    shape = [-1 if d == channels else 1 for d in range(dims)]
    exact = _wide(weights) * _wide(scale).reshape(shape)
    with np.errstate(over="ignore", under="ignore"):
        rounded = exact.astype(weights.data.dtype)
    others = tuple(d for d in range(dims) if d != channels)
    error = np.abs(rounded - exact).max(others)
    fine = error <= np.abs(exact).max(others) * EPSILON[weights.dtype]
    return rounded if fine.all() else None


def _wide(value: Constant) -> Array:
    return value.data.astype(np.float64)


RULES: Rules = {"multiply": [scale_into_weights], "add": [shift_of_shift]}


def one_hot_product(b: Builder, node: Node) -> Value | None:
    """matmul(cast(equal(i, [0 .. n - 1])), w)   ->   take(w, i) along axis 0

    An index that is none of these has a row of zeros, which is the last one of the table.
    """
    rows, table = node.inputs
    cast = b.producer(rows, "cast")
    hit = None if cast is None else b.producer(cast.inputs[0], "equal")
    if hit is None or not isinstance(table, Constant) or table.type.rank != 2:
        return None
    if any(node.attributes.values()):
        return None
    count = table.shape[0]
    for index, numbers in (hit.inputs, hit.inputs[::-1]):
        if not _counts(numbers, count) or index.shape != (*rows.shape[:-1], 1):
            continue
        low, high = dtypes.int_limits(index.dtype)
        if low == 0 or high < count or not np.isfinite(table.data).all():
            return None
        # The sum of a row is 0 where the table has -0.0.
        held = b.constant(np.concatenate([table.data + 0, np.zeros_like(table.data[:1])]))
        kept = b.add("clip", without_views(b, index), low=-1, high=count)
        return b.add("take", held, reshaped(b, kept, rows.shape[:-1]), axis=0)
    return None


def _counts(value: Value, count: int) -> bool:
    """Whether it is the constant 0, 1, .. along its last dimension, which is its only one."""
    if not isinstance(value, Constant) or value.shape[-1:] != (count,):
        return False
    return dtypes.is_integer(value.dtype) and np.array_equal(value.data.reshape(-1), range(count))


def pointwise_of_lookup(b: Builder, node: Node) -> Value | None:
    """pointwise(take(table, i), c)   ->   take(pointwise(table, c), i) along axis 0

    If all but the indices is constant, and there are no fewer indices than rows. Of several tables
    all have as many rows and dimensions.
    """
    if len(node.outputs) > 1:
        return None
    lookups = [_lookup(b, value) for value in node.inputs]
    first = next((n for n in lookups if n is not None), None)
    if first is None or first.output.shape != node.output.shape:
        return None
    table, indices = first.inputs
    rows, *row = table.shape
    if indices.type.size < rows:
        return None
    negative, operands = True, list[Value]()
    for value, lookup in zip(node.inputs, lookups, strict=True):
        if lookup is not None and lookup.inputs[1] is indices:
            own = lookup.inputs[0]
            if own.shape[0] != rows or own.type.rank != table.type.rank:
                return None
            negative = negative and bool(lookup.attributes["negative"])
            operands.append(own)
            continue
        whole = [1] * (node.output.type.rank - value.type.rank) + list(value.shape)
        last = len(whole) - len(row)
        if not isinstance(value, Constant) or math.prod(whole[:last]) != 1:
            return None
        operands.append(reshaped(b, value, (1, *whole[last:])))
    made = b.add(node.operator, *operands, **node.attributes)
    if not isinstance(made, Constant) or made.shape != table.shape:
        return None
    return b.add("take", made, indices, axis=0, negative=negative)


def _lookup(b: Builder, value: Value) -> Node | None:
    """A lookup in a constant along axis 0."""
    node = b.producer(value, "take")
    if node is None or node.attributes["axis"] != 0 or not isinstance(node.inputs[0], Constant):
        return None
    return node


LOOKUPS: Rules = {"matmul": [one_hot_product], Kind.POINTWISE: [pointwise_of_lookup]}
