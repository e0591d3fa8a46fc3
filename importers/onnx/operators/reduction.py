"""Reductions over axes, and softmax."""

from __future__ import annotations

from ....graph.builder import Builder
from ....graph.ir import Value
from ..table import OnnxNode, onnx_op

_REDUCTIONS = {
    "ReduceSum": "sum",
    "ReduceMean": "mean",
    "ReduceMax": "max",
    "ReduceMin": "min",
    "ReduceProd": "prod",
}


@onnx_op(*_REDUCTIONS)
def reduction(b: Builder, node: OnnxNode) -> Value:
    axes = node.integers(1) if len(node.inputs) > 1 else node.attribute("axes")
    if not axes and node.attribute("noop_with_empty_axes", 0):
        return node[0]
    rank = node[0].type.rank
    places = tuple(sorted(a % rank for a in axes)) if axes else tuple(range(rank))
    keep = bool(node.attribute("keepdims", 1))
    value: Value = b.add(_REDUCTIONS[node.operator], node[0], axes=places, keepdims=keep)
    return value


@onnx_op("GlobalAveragePool", "GlobalMaxPool")
def global_pool(b: Builder, node: OnnxNode) -> Value:
    operator = "mean" if node.operator == "GlobalAveragePool" else "max"
    axes = tuple(range(2, node[0].type.rank))
    value: Value = b.add(operator, node[0], axes=axes, keepdims=True)
    return value


@onnx_op("BatchNormalization", since=7)
def batch_normalization(b: Builder, node: OnnxNode) -> Value:
    """By the running mean and variance: one product and one sum, whose factors fold."""
    node.require("training_mode", 0)
    x, scale, bias, mean, variance = (node[n] for n in range(5))
    epsilon = b.constant(node.attribute("epsilon", 1e-5), variance.dtype)
    factor = b.add("divide", scale, b.add("sqrt", b.add("add", variance, epsilon)))
    shift = b.add("subtract", bias, b.add("multiply", mean, factor))
    shape = (x.shape[1] if x.type.rank > 1 else 1, *(1,) * (x.type.rank - 2))
    product = b.add("multiply", x, b.add("reshape", factor, shape=shape))
    value: Value = b.add("add", product, b.add("reshape", shift, shape=shape))
    return value


@onnx_op("LayerNormalization")
def layer_normalization(b: Builder, node: OnnxNode) -> Value:
    x, scale, bias = node[0], node[1], node.get(2)
    axis = node.attribute("axis", -1) % x.type.rank
    axes = tuple(range(axis, x.type.rank))
    centred = b.add("subtract", x, b.add("mean", x, axes=axes, keepdims=True))
    variance = b.add("mean", b.add("multiply", centred, centred), axes=axes, keepdims=True)
    epsilon = b.constant(node.attribute("epsilon", 1e-5), x.dtype)
    normal = b.add("divide", centred, b.add("sqrt", b.add("add", variance, epsilon)))
    value: Value = b.add("multiply", normal, scale)
    return value if bias is None else b.add("add", value, bias)


@onnx_op("Softmax", since=13)
def softmax(b: Builder, node: OnnxNode) -> Value:
    axis = node.attribute("axis", -1) % node[0].type.rank
    value: Value = b.add("softmax", node[0], axis=axis)
    return value


@onnx_op("Softmax")
def softmax_of_matrix(b: Builder, node: OnnxNode) -> Value:
    """Before opset 13 all dimensions from `axis` on are one row."""
    x = node[0]
    axis = node.attribute("axis", 1) % max(x.type.rank, 1)
    rows = 1
    for extent in x.shape[:axis]:
        rows *= extent
    flat = b.add("reshape", x, shape=(rows, x.type.size // max(rows, 1)))
    value: Value = b.add("reshape", b.add("softmax", flat, axis=1), shape=x.shape)
    return value
