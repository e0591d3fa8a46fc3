"""Operators that read or write at places that data decide."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....base.errors import ModelError
from ....graph.builder import Builder
from ....graph.compose.basics import in_rank
from ....graph.compose.movement import one_hot, taken, written
from ....graph.ir import Value
from ...unsupported import Reason, Unsupported
from ..table import OnnxNode, onnx_op


@onnx_op("Gather")
def gather(b: Builder, node: OnnxNode) -> Value:
    axis = in_rank(node.attribute("axis", 0), node[0].type.rank)
    return taken(b, node[0], node[1], axis)


@onnx_op("GatherElements")
def gather_elements(b: Builder, node: OnnxNode) -> Value:
    axis = in_rank(node.attribute("axis", 0), node[0].type.rank)
    return b.add("take_along", node[0], node[1], axis=axis)


@onnx_op("GatherND")
def gather_nd(b: Builder, node: OnnxNode) -> Value:
    return b.add("take_nd", node[0], node[1], batch=node.attribute("batch_dims", 0))


@onnx_op("Scatter", "ScatterElements")
def scatter_elements(b: Builder, node: OnnxNode) -> Value:
    x, indices, updates = node[0], node[1], node[2]
    if not updates.type.size:
        return x
    axis = in_rank(node.attribute("axis", 0), x.type.rank)
    reduction = _reduction(node, x)
    return b.add("scatter", x, indices, updates, axis=axis, reduction=reduction)


@onnx_op("ScatterND")
def scatter_nd(b: Builder, node: OnnxNode) -> Value:
    x, indices, updates = node[0], node[1], node[2]
    if not updates.type.size:
        return x
    return b.add("scatter_nd", x, indices, updates, reduction=_reduction(node, x))


def _reduction(node: OnnxNode, x: Value) -> str:
    reduction: str = node.attribute("reduction", "none")
    if x.dtype == "bool" and reduction != "none":
        raise Unsupported(Reason.DTYPE, f"{reduction} of bool")
    return reduction


@onnx_op("TensorScatter")
def tensor_scatter(b: Builder, node: OnnxNode) -> Value:
    axis = in_rank(node.attribute("axis", -2), node[0].type.rank)
    circular = node.attribute("mode", "linear") == "circular"
    return written(b, node[0], node[1], node.get(2), axis, circular=circular)


@onnx_op("OneHot", since=9)
def one_hot_(b: Builder, node: OnnxNode) -> Value:
    axis = in_rank(node.attribute("axis", -1), node[0].type.rank + 1)
    return one_hot(b, node[0], int(node.number(1)), node[2], axis)


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
    return b.add("take", x, b.constant(places, "int64"), axis=in_rank(axis, x.type.rank))


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
def top_k(b: Builder, node: OnnxNode) -> Sequence[Value]:
    """Before opset 10 the count is an attribute."""
    x = node[0]
    count = node.number(1) if len(node.inputs) > 1 else node.attribute("k")
    axis = in_rank(node.attribute("axis", -1), x.type.rank)
    if count > x.shape[axis]:
        raise ModelError("the {0} largest of {1} elements", count, x.shape[axis])
    largest = bool(node.attribute("largest", 1))
    return b.add_all("top", x, axis=axis, count=count, largest=largest)


@onnx_op("CumSum", "CumProd")
def accumulate(b: Builder, node: OnnxNode) -> Value:
    x = node[0]
    return b.add(
        "accumulate",
        x,
        axis=in_rank(node.number(1), x.type.rank),
        product=node.operator == "CumProd",
        exclusive=bool(node.attribute("exclusive", 0)),
        reverse=bool(node.attribute("reverse", 0)),
    )
