"""Operators on the elements at one place."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....base import dtypes
from ....graph.builder import Builder
from ....graph.ir import Value
from ..table import OnnxNode, Reason, Unsupported, onnx_op

_SAME = {
    "Add": "add",
    "Sub": "subtract",
    "Mul": "multiply",
    "Div": "divide",
    "Neg": "negative",
    "Abs": "abs",
    "Exp": "exp",
    "Log": "log",
    "Sqrt": "sqrt",
    "Tanh": "tanh",
    "Erf": "erf",
    "Sigmoid": "sigmoid",
    "Relu": "relu",
    "Floor": "floor",
    "Ceil": "ceil",
    "Equal": "equal",
    "Less": "less",
    "LessOrEqual": "less_equal",
    "Not": "logical_not",
    "And": "logical_and",
    "Or": "logical_or",
    "Where": "where",
}
"""ONNX operators without attributes that are operators of graphs."""


@onnx_op(*_SAME)
def same(b: Builder, node: OnnxNode) -> Value:
    value: Value = b.add(_SAME[node.operator], *(node[n] for n in range(len(node.inputs))))
    return value


@onnx_op("Greater", "GreaterOrEqual")
def greater(b: Builder, node: OnnxNode) -> Value:
    less = "less" if node.operator == "Greater" else "less_equal"
    value: Value = b.add(less, node[1], node[0])
    return value


@onnx_op("Max", "Min")
def extremum(b: Builder, node: OnnxNode) -> Value:
    value = node[0]
    for n in range(1, len(node.inputs)):
        value = b.add("maximum" if node.operator == "Max" else "minimum", value, node[n])
    return value


@onnx_op("Reciprocal")
def reciprocal(b: Builder, node: OnnxNode) -> Value:
    value: Value = b.add("divide", b.constant(1, node[0].dtype), node[0])
    return value


@onnx_op("Cast")
def cast(b: Builder, node: OnnxNode) -> Value:
    value: Value = b.add("cast", node[0], dtype=dtype_of(node.attributes["to"]))
    return value


@onnx_op("Identity")
def identity(_b: Builder, node: OnnxNode) -> Value:
    return node[0]


@onnx_op("Clip")
def clip_by_attributes(b: Builder, node: OnnxNode) -> Value:
    low, high = node.attribute("min"), node.attribute("max")
    return _clipped(
        b,
        node[0],
        None if low is None else b.constant(low, node[0].dtype),
        None if high is None else b.constant(high, node[0].dtype),
    )


@onnx_op("Clip", since=11)
def clip(b: Builder, node: OnnxNode) -> Value:
    return _clipped(b, node[0], node.get(1), node.get(2))


def _clipped(b: Builder, x: Value, low: Value | None, high: Value | None) -> Value:
    x = x if low is None else b.add("maximum", x, low)
    return x if high is None else b.add("minimum", x, high)


@onnx_op("Pow")
def power(b: Builder, node: OnnxNode) -> Value:
    exponent = node.get(1)
    data: Any = getattr(exponent, "data", None)
    if data is not None and data.size == 1 and data.reshape(-1)[0] == 2:
        value: Value = b.add("multiply", node[0], node[0])
        return value
    raise Unsupported(Reason.ATTRIBUTE, "an exponent other than 2")


@onnx_op("HardSigmoid")
def hard_sigmoid(b: Builder, node: OnnxNode) -> Value:
    x = node[0]
    alpha = b.constant(node.attribute("alpha", 0.2), x.dtype)
    beta = b.constant(node.attribute("beta", 0.5), x.dtype)
    y = b.add("add", b.add("multiply", x, alpha), beta)
    value: Value = b.add("clip", y, low=0.0, high=1.0)
    return value


def dtype_of(number: int) -> str:
    """The dtype of an ONNX TensorProto.DataType. Raises `Unsupported`."""
    import onnx_ir

    try:
        return dtypes.from_numpy(np.dtype(onnx_ir.DataType(number).numpy()))
    except Exception as error:
        raise Unsupported(Reason.DTYPE, f"dtype {number}") from error
