"""Operators on the elements at one place, activation functions among them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....base import dtypes
from ....graph.builder import Builder
from ....graph.compose.basics import cast_to, reshaped
from ....graph.compose.pointwise import clipped, is_infinite, power, prelu, shrink, threshold
from ....graph.ir import Value
from ...unsupported import Reason, Unsupported
from ..table import OnnxNode, onnx_op

_MICROSOFT = "com.microsoft"
_SAME = {
    "Add": "add",
    "Sub": "subtract",
    "Mul": "multiply",
    "Div": "divide",
    "Neg": "negative",
    "Abs": "abs",
    "Sign": "sign",
    "Exp": "exp",
    "Log": "log",
    "Sqrt": "sqrt",
    "Sin": "sin",
    "Cos": "cos",
    "Tan": "tan",
    "Asin": "asin",
    "Acos": "acos",
    "Atan": "atan",
    "Sinh": "sinh",
    "Cosh": "cosh",
    "Tanh": "tanh",
    "Asinh": "asinh",
    "Acosh": "acosh",
    "Atanh": "atanh",
    "Erf": "erf",
    "Sigmoid": "sigmoid",
    "Relu": "relu",
    "Softplus": "softplus",
    "Softsign": "softsign",
    "Mish": "mish",
    "Floor": "floor",
    "Ceil": "ceil",
    "Round": "round",
    "IsNaN": "is_nan",
    "Equal": "equal",
    "Less": "less",
    "LessOrEqual": "less_equal",
    "Not": "logical_not",
    "And": "logical_and",
    "Or": "logical_or",
    "Xor": "logical_xor",
    "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor",
    "BitwiseNot": "bitwise_not",
    "Where": "where",
}
"""ONNX operators without attributes that are operators of graphs."""


def _broadcasting(node: OnnxNode) -> None:
    """Refuse the broadcasting of the first operators, which is not numpy's."""
    if node.version < 7 and not node.domain and node.attribute("broadcast", 0):
        raise Unsupported(Reason.VERSION, f"{node.operator} with broadcast=1")


@onnx_op(*_SAME)
def same(b: Builder, node: OnnxNode) -> Value:
    _broadcasting(node)
    return b.add(_SAME[node.operator], *(node[n] for n in range(len(node.inputs))))


@onnx_op("Greater", "GreaterOrEqual")
def greater(b: Builder, node: OnnxNode) -> Value:
    _broadcasting(node)
    less = "less" if node.operator == "Greater" else "less_equal"
    return b.add(less, node[1], node[0])


_VARIADIC = {"Max": "maximum", "Min": "minimum", "Sum": "add", "Mean": "add"}


@onnx_op(*_VARIADIC)
def variadic(b: Builder, node: OnnxNode) -> Value:
    value = node[0]
    for n in range(1, len(node.inputs)):
        value = b.add(_VARIADIC[node.operator], value, node[n])
    if node.operator == "Mean" and len(node.inputs) > 1:
        value = b.add("divide", value, b.constant(len(node.inputs), value.dtype))
    return value


@onnx_op("Reciprocal")
def reciprocal(b: Builder, node: OnnxNode) -> Value:
    return b.add("divide", b.constant(1, node[0].dtype), node[0])


@onnx_op("Identity")
def identity(_b: Builder, node: OnnxNode) -> Value:
    return node[0]


@onnx_op("Clip")
def clip_by_attributes(b: Builder, node: OnnxNode) -> Value:
    low, high = node.attribute("min"), node.attribute("max")
    return clipped(
        b,
        node[0],
        None if low is None else b.constant(low, node[0].dtype),
        None if high is None else b.constant(high, node[0].dtype),
    )


@onnx_op("Clip", since=11)
def clip(b: Builder, node: OnnxNode) -> Value:
    return clipped(b, node[0], node.get(1), node.get(2))


@onnx_op("Pow")
def pow_(b: Builder, node: OnnxNode) -> Value:
    _broadcasting(node)
    return power(b, node[0], node[1])


@onnx_op("Mod")
def mod(b: Builder, node: OnnxNode) -> Value:
    return b.add("fmod" if node.attribute("fmod", 0) else "remainder", node[0], node[1])


@onnx_op("BitShift")
def bit_shift(b: Builder, node: OnnxNode) -> Value:
    node.require("direction", "LEFT", "RIGHT")
    left = node.attribute("direction") == "LEFT"
    return b.add("shift_left" if left else "shift_right", node[0], node[1])


@onnx_op("IsInf")
def is_inf(b: Builder, node: OnnxNode) -> Value:
    x = node[0]
    if x.dtype == "float8_e4m3fn":
        raise Unsupported(Reason.DTYPE, x.dtype)
    negative, positive = node.attribute("detect_negative", 1), node.attribute("detect_positive", 1)
    return is_infinite(b, x, negative=bool(negative), positive=bool(positive))


@onnx_op("Cast")
def cast(b: Builder, node: OnnxNode) -> Value:
    return _cast(b, node, dtype_of(node.attributes["to"]))


@onnx_op("CastLike")
def cast_like(b: Builder, node: OnnxNode) -> Value:
    return _cast(b, node, node[1].dtype)


def _cast(b: Builder, node: OnnxNode, dtype: str) -> Value:
    return cast_to(b, node[0], dtype, saturate=bool(node.attribute("saturate", 1)))


@onnx_op("BitCast")
def bit_cast(b: Builder, node: OnnxNode) -> Value:
    x, dtype = node[0], dtype_of(node.attributes["to"])
    if x.dtype == dtype:
        return x
    if dtype == "bool":
        raise Unsupported(Reason.DTYPE, "the bits of other numbers as bool")
    return b.add("bitcast", x, source=x.dtype, to=dtype)


@onnx_op("Dropout", since=7)
def dropout(b: Builder, node: OnnxNode) -> Sequence[Value]:
    """As a model is used: nothing is dropped."""
    return _kept(b, node)


def _kept(b: Builder, node: OnnxNode) -> Sequence[Value]:
    x = node[0]
    training = node.known(2) if len(node.inputs) > 2 else None
    if training is not None and training.any():
        ratio = node.known(1)
        if ratio is None or ratio.any():
            raise Unsupported(Reason.ATTRIBUTE, "training_mode")
    one = b.constant(1, "bool" if node.version >= 10 else x.dtype)
    return x, b.add("broadcast_to", one, shape=x.shape)


@onnx_op("Dropout")
def dropout_of_training(b: Builder, node: OnnxNode) -> Sequence[Value]:
    if not node.attribute("is_test", 0):
        raise Unsupported(Reason.ATTRIBUTE, "is_test=0")
    return _kept(b, node)


def dtype_of(number: int) -> str:
    """The dtype of an ONNX TensorProto.DataType. Raises `Unsupported`."""
    import onnx_ir

    try:
        return dtypes.from_numpy(np.dtype(onnx_ir.DataType(number).numpy()))
    except Exception as error:
        raise Unsupported(Reason.DTYPE, f"dtype {number}") from error


@onnx_op("Elu", "Celu")
def elu(b: Builder, node: OnnxNode) -> Value:
    alpha = node.attribute("alpha", 1.0)
    return b.add(node.operator.lower(), node[0], alpha=alpha)


@onnx_op("Selu")
def selu(b: Builder, node: OnnxNode) -> Value:
    """Before opset 6 the constants had fewer digits."""
    usual = (1.67326319217681884765625, 1.05070102214813232421875)
    alpha, gamma = usual if node.version >= 6 else (1.6732, 1.0507)
    return b.add(
        "selu", node[0], alpha=node.attribute("alpha", alpha), gamma=node.attribute("gamma", gamma)
    )


@onnx_op("LeakyRelu")
def leaky_relu(b: Builder, node: OnnxNode) -> Value:
    return b.add("leaky_relu", node[0], slope=node.attribute("alpha", 0.01))


@onnx_op("HardSigmoid")
def hard_sigmoid(b: Builder, node: OnnxNode) -> Value:
    alpha, beta = node.attribute("alpha", 0.2), node.attribute("beta", 0.5)
    return b.add("hard_sigmoid", node[0], alpha=alpha, beta=beta)


@onnx_op("HardSwish")
def hard_swish(b: Builder, node: OnnxNode) -> Value:
    return b.add("hard_swish", node[0], alpha=1 / 6, beta=0.5)


@onnx_op("Swish")
@onnx_op("QuickGelu", domain=_MICROSOFT)
def swish(b: Builder, node: OnnxNode) -> Value:
    return _swish(b, node, 1.702 if node.domain else 1.0)


def _swish(b: Builder, node: OnnxNode, usual: float = 1.0) -> Value:
    return b.add("swish", node[0], alpha=node.attribute("alpha", usual))


@onnx_op("SwiGLU")
def swiglu(b: Builder, node: OnnxNode) -> Value:
    return b.add("multiply", _swish(b, node), node[1])


@onnx_op("Gelu")
@onnx_op("Gelu", domain=_MICROSOFT)
def gelu(b: Builder, node: OnnxNode) -> Value:
    node.require("approximate", "none", "tanh")
    by_tanh = node.attribute("approximate") == "tanh"
    return b.add("gelu_by_tanh" if by_tanh else "gelu", node[0])


@onnx_op("FastGelu", "BiasGelu", domain=_MICROSOFT)
def bias_gelu(b: Builder, node: OnnxNode) -> Value:
    x, bias = node[0], node.get(1)
    x = x if bias is None else b.add("add", x, bias)
    return b.add("gelu" if node.operator == "BiasGelu" else "gelu_by_tanh", x)


@onnx_op("PRelu")
def parametric_relu(b: Builder, node: OnnxNode) -> Value:
    """Before opset 7 a slope for each channel is of one dimension."""
    x, slope = node[0], node[1]
    if node.version < 7 and slope.type.size > 1 and slope.shape != x.shape:
        if slope.type.rank != 1 or x.type.rank < 2:
            raise Unsupported(Reason.VERSION, "PRelu of opset 6")
        slope = reshaped(b, slope, (slope.type.size, *(1,) * (x.type.rank - 2)))
    return prelu(b, x, slope)


@onnx_op("ThresholdedRelu")
def thresholded_relu(b: Builder, node: OnnxNode) -> Value:
    return threshold(b, node[0], node.attribute("alpha", 1.0))


@onnx_op("Shrink")
def shrunk(b: Builder, node: OnnxNode) -> Value:
    return shrink(b, node[0], node.attribute("lambd", 0.5), node.attribute("bias", 0.0))
