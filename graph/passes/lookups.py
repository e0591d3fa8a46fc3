"""Products with one-hot rows are lookups in tables, and what follows is done to the table."""

from __future__ import annotations

import math

import numpy as np

from ...base import dtypes
from ..builder import Builder, Rules
from ..ir import Constant, Node, Value
from ..operator import Kind
from .rules import new, reshaped, without_views


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
        kept = new(b, "clip", without_views(b, index), low=-1, high=count)
        return new(b, "take", held, reshaped(b, kept, rows.shape[:-1]), axis=0)
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
    lookups = [_lookup(b, value) for value in node.inputs]
    first = next((n for n in lookups if n is not None), None)
    if first is None or first.output.shape != node.output.shape:
        return None
    table, indices = first.inputs
    rows, *row = table.shape
    if indices.type.size < rows:
        return None
    operands = list[Value]()
    for value, lookup in zip(node.inputs, lookups, strict=True):
        if lookup is not None and lookup.inputs[1] is indices:
            own = lookup.inputs[0]
            if own.shape[0] != rows or own.type.rank != table.type.rank:
                return None
            operands.append(own)
            continue
        whole = [1] * (node.output.type.rank - value.type.rank) + list(value.shape)
        last = len(whole) - len(row)
        if not isinstance(value, Constant) or math.prod(whole[:last]) != 1:
            return None
        operands.append(reshaped(b, value, (1, *whole[last:])))
    made = new(b, node.operator, *operands, **node.attributes)
    if not isinstance(made, Constant) or made.shape != table.shape:
        return None
    return new(b, "take", made, indices, axis=0)


def _lookup(b: Builder, value: Value) -> Node | None:
    """A lookup in a constant along axis 0."""
    node = b.producer(value, "take")
    if node is None or node.attributes["axis"] != 0 or not isinstance(node.inputs[0], Constant):
        return None
    return node


RULES: Rules = {"matmul": [one_hot_product], Kind.POINTWISE: [pointwise_of_lookup]}
