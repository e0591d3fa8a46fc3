"""Operators that read or write at places that data decide."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ....base.errors import ModelError
from ....graph.builder import Builder
from ....graph.ir import Constant, Value
from ..table import OnnxNode, Reason, Unsupported, onnx_op
from .common import in_rank, room


@onnx_op("Gather")
def gather(b: Builder, node: OnnxNode) -> Value:
    x, indices = node[0], node[1]
    axis = in_rank(node.attribute("axis", 0), x.type.rank)
    if isinstance(indices, Constant):
        part = _as_slice(b, x, indices, axis)
        if part is not None:
            return part
    value: Value = b.add("take", x, indices, axis=axis)
    return value


def _as_slice(b: Builder, x: Value, indices: Constant, axis: int) -> Value | None:
    """Elements at known indices that are a slice, as one."""
    extent = x.shape[axis]
    if not all(-extent <= i < extent for i in indices.data.reshape(-1)):
        return None  # for the operator to refuse
    flat = [int(i) % extent for i in indices.data.reshape(-1)]
    steps = {q - p for p, q in pairwise(flat)} or {1}
    if len(steps) > 1 or not flat or steps == {0}:
        return None
    starts, strides, shape = [0] * x.type.rank, [1] * x.type.rank, list(x.shape)
    starts[axis], strides[axis], shape[axis] = flat[0], steps.pop(), len(flat)
    part = b.add("slice", x, starts=tuple(starts), steps=tuple(strides), shape=tuple(shape))
    final = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    value: Value = b.add("reshape", part, shape=final)
    return value


@onnx_op("GatherElements")
def gather_elements(b: Builder, node: OnnxNode) -> Value:
    axis = in_rank(node.attribute("axis", 0), node[0].type.rank)
    value: Value = b.add("take_along", node[0], node[1], axis=axis)
    return value


@onnx_op("GatherND")
def gather_nd(b: Builder, node: OnnxNode) -> Value:
    value: Value = b.add("take_nd", node[0], node[1], batch=node.attribute("batch_dims", 0))
    return value


@onnx_op("Scatter", "ScatterElements")
def scatter_elements(b: Builder, node: OnnxNode) -> Value:
    x, indices, updates = node[0], node[1], node[2]
    if not updates.type.size:
        return x
    axis = in_rank(node.attribute("axis", 0), x.type.rank)
    reduction = _reduction(node, x)
    value: Value = b.add("scatter", x, indices, updates, axis=axis, reduction=reduction)
    return value


@onnx_op("ScatterND")
def scatter_nd(b: Builder, node: OnnxNode) -> Value:
    x, indices, updates = node[0], node[1], node[2]
    if not updates.type.size:
        return x
    value: Value = b.add("scatter_nd", x, indices, updates, reduction=_reduction(node, x))
    return value


def _reduction(node: OnnxNode, x: Value) -> str:
    reduction: str = node.attribute("reduction", "none")
    if x.dtype == "bool" and reduction != "none":
        raise Unsupported(Reason.DTYPE, f"{reduction} of bool")
    return reduction


@onnx_op("TensorScatter")
def tensor_scatter(b: Builder, node: OnnxNode) -> Value:
    """Updates of each sequence of a batch from its own place on along `axis`."""
    past, update, first = node[0], node[1], node.get(2)
    axis = in_rank(node.attribute("axis", -2), past.type.rank)
    circular = node.attribute("mode", "linear") == "circular"
    shape = [1] * past.type.rank
    shape[axis] = update.shape[axis]
    places = b.constant(np.arange(update.shape[axis]).reshape(shape), "int64")
    if first is not None:
        batch = (past.shape[0], *(1 for _ in past.shape[1:]))
        begin = b.add("reshape", b.add("cast", first, dtype="int64"), shape=batch)
        places = b.add("add", places, begin)
    if circular:
        extent = b.constant(past.shape[axis], "int64")
        laps = b.add("multiply", b.add("divide", places, extent), extent)
        places = b.add("subtract", places, laps)
    at = b.add("broadcast_to", places, shape=update.shape)
    value: Value = b.add("scatter", past, at, update, axis=axis, reduction="none")
    return value


@onnx_op("OneHot", since=9)
def one_hot(b: Builder, node: OnnxNode) -> Value:
    """Indices that are out of range have no `on`; they may be floats."""
    indices, depth, values = node[0], int(node.number(1)), node[2]
    rank = indices.type.rank + 1
    axis = in_rank(node.attribute("axis", -1), rank)
    room(depth)
    wide = indices.dtype if indices.dtype in ("float32", "float64") else "int64"
    own = b.add("cast", indices, dtype=wide)
    counted = b.add("add", own, b.constant(depth, wide))
    own = b.add("where", b.add("less", own, b.constant(0, wide)), counted, own)
    spread = b.add("reshape", own, shape=(*indices.shape[:axis], 1, *indices.shape[axis:]))
    places = np.arange(depth).reshape(depth, *(1 for _ in range(rank - axis - 1)))
    off, on = (
        b.add("reshape", b.add("slice", values, starts=(k,), steps=(1,), shape=(1,)), shape=())
        for k in range(2)
    )
    value: Value = b.add("where", b.add("equal", spread, b.constant(places, wide)), on, off)
    return value


@onnx_op("Compress", since=9)
def compress(b: Builder, node: OnnxNode) -> Value:
    """What is kept has to be known."""
    x, kept = node[0], node.known(1)
    assert kept is not None
    axis = node.attribute("axis")
    if axis is None:
        x, axis = b.add("reshape", x, shape=(x.type.size,)), 0
    places = np.flatnonzero(np.asarray(kept))
    if not len(places):
        raise Unsupported(Reason.DATA_DEPENDENT, "nothing is kept")
    value: Value = b.add("take", x, b.constant(places, "int64"), axis=in_rank(axis, x.type.rank))
    return value


@onnx_op("NonZero", since=9)
def nonzero(b: Builder, node: OnnxNode) -> Value:
    data = node.known(0)
    assert data is not None
    return b.constant(np.array(np.nonzero(data)), "int64")


@onnx_op("Unique")
def unique(_b: Builder, _node: OnnxNode) -> Value:
    raise Unsupported(Reason.DATA_DEPENDENT, "how many elements are unique")


@onnx_op("NonMaxSuppression", since=10)
def non_max_suppression(_b: Builder, _node: OnnxNode) -> Value:
    raise Unsupported(Reason.DATA_DEPENDENT, "how many boxes are kept")


@onnx_op("TopK")
def top_k(b: Builder, node: OnnxNode) -> tuple[Value, Value]:
    """Before opset 10 the count is an attribute."""
    x = node[0]
    count = node.number(1) if len(node.inputs) > 1 else node.attribute("k")
    axis = in_rank(node.attribute("axis", -1), x.type.rank)
    if count > x.shape[axis]:
        raise ModelError("the {0} largest of {1} elements", count, x.shape[axis])
    largest = bool(node.attribute("largest", 1))
    found: tuple[Value, Value] = b.add("top", x, axis=axis, count=count, largest=largest)
    return found


@onnx_op("CumSum", "CumProd")
def accumulate(b: Builder, node: OnnxNode) -> Value:
    x = node[0]
    value: Value = b.add(
        "accumulate",
        x,
        axis=in_rank(node.number(1), x.type.rank),
        product=node.operator == "CumProd",
        exclusive=bool(node.attribute("exclusive", 0)),
        reverse=bool(node.attribute("reverse", 0)),
    )
    return value
