"""Activation functions."""

from __future__ import annotations

from ....graph.builder import Builder
from ....graph.ir import Value
from ..table import OnnxNode, Reason, Unsupported, onnx_op

_MICROSOFT = "com.microsoft"


@onnx_op("Elu", "Celu")
def elu(b: Builder, node: OnnxNode) -> Value:
    alpha = node.attribute("alpha", 1.0)
    value: Value = b.add(node.operator.lower(), node[0], alpha=alpha)
    return value


@onnx_op("Selu")
def selu(b: Builder, node: OnnxNode) -> Value:
    """Before opset 6 the constants had fewer digits."""
    usual = (1.67326319217681884765625, 1.05070102214813232421875)
    alpha, gamma = usual if node.version >= 6 else (1.6732, 1.0507)
    value: Value = b.add(
        "selu", node[0], alpha=node.attribute("alpha", alpha), gamma=node.attribute("gamma", gamma)
    )
    return value


@onnx_op("LeakyRelu")
def leaky_relu(b: Builder, node: OnnxNode) -> Value:
    value: Value = b.add("leaky_relu", node[0], slope=node.attribute("alpha", 0.01))
    return value


@onnx_op("HardSigmoid")
def hard_sigmoid(b: Builder, node: OnnxNode) -> Value:
    alpha, beta = node.attribute("alpha", 0.2), node.attribute("beta", 0.5)
    value: Value = b.add("hard_sigmoid", node[0], alpha=alpha, beta=beta)
    return value


@onnx_op("HardSwish")
def hard_swish(b: Builder, node: OnnxNode) -> Value:
    value: Value = b.add("hard_swish", node[0], alpha=1 / 6, beta=0.5)
    return value


@onnx_op("Swish")
@onnx_op("QuickGelu", domain=_MICROSOFT)
def swish(b: Builder, node: OnnxNode) -> Value:
    return _swish(b, node, 1.702 if node.domain else 1.0)


def _swish(b: Builder, node: OnnxNode, usual: float = 1.0) -> Value:
    value: Value = b.add("swish", node[0], alpha=node.attribute("alpha", usual))
    return value


@onnx_op("SwiGLU")
def swiglu(b: Builder, node: OnnxNode) -> Value:
    value: Value = b.add("multiply", _swish(b, node), node[1])
    return value


@onnx_op("Gelu")
@onnx_op("Gelu", domain=_MICROSOFT)
def gelu(b: Builder, node: OnnxNode) -> Value:
    node.require("approximate", "none", "tanh")
    by_tanh = node.attribute("approximate") == "tanh"
    value: Value = b.add("gelu_by_tanh" if by_tanh else "gelu", node[0])
    return value


@onnx_op("FastGelu", "BiasGelu", domain=_MICROSOFT)
def bias_gelu(b: Builder, node: OnnxNode) -> Value:
    x, bias = node[0], node.get(1)
    x = x if bias is None else b.add("add", x, bias)
    value: Value = b.add("gelu" if node.operator == "BiasGelu" else "gelu_by_tanh", x)
    return value


@onnx_op("PRelu")
def prelu(b: Builder, node: OnnxNode) -> Value:
    """Before opset 7 a slope for each channel is of one dimension."""
    x, slope = node[0], node[1]
    if node.version < 7 and slope.type.size > 1 and slope.shape != x.shape:
        if slope.type.rank != 1 or x.type.rank < 2:
            raise Unsupported(Reason.VERSION, "PRelu of opset 6")
        slope = b.add("reshape", slope, shape=(slope.type.size, *(1,) * (x.type.rank - 2)))
    negative = b.add("less", x, b.constant(0, x.dtype))
    value: Value = b.add("where", negative, b.add("multiply", x, slope), x)
    return value


@onnx_op("ThresholdedRelu")
def thresholded_relu(b: Builder, node: OnnxNode) -> Value:
    x = node[0]
    above = b.add("less", b.constant(node.attribute("alpha", 1.0), x.dtype), x)
    value: Value = b.add("where", above, x, b.constant(0, x.dtype))
    return value


@onnx_op("Shrink")
def shrink(b: Builder, node: OnnxNode) -> Value:
    """`x + bias` below `-lambd`, `x - bias` above `lambd`, 0 between them."""
    x = node[0]
    bias = b.constant(node.attribute("bias", 0.0), x.dtype)
    lambd = node.attribute("lambd", 0.5)
    below = b.add("less", x, b.constant(-lambd, x.dtype))
    above = b.add("less", b.constant(lambd, x.dtype), x)
    upper = b.add("where", above, b.add("subtract", x, bias), b.constant(0, x.dtype))
    value: Value = b.add("where", below, b.add("add", x, bias), upper)
    return value
