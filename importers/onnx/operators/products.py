"""Matrix products and convolutions: of integers, where both operands were dequantised.

The sums of integers are exact, and are scaled once, where floats round each term and each sum.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....base.errors import ModelError
from ....graph.builder import Builder
from ....graph.ir import Value
from ..table import OnnxNode, Reason, Unsupported, onnx_op
from .contraction import along_channels, biased, convolution, product
from .integers import Whole, convolved, holds, matrix_product, of_outputs
from .pointwise import cast_to
from .quantised import Dequantised, reshaped

_MICROSOFT = "com.microsoft"


@onnx_op("MatMul")
def matmul(b: Builder, node: OnnxNode) -> Value:
    found = _product_of_integers(b, node, (False, False))
    return product(b, node[0], node[1]) if found is None else found


@onnx_op("Gemm")
def gemm(b: Builder, node: OnnxNode) -> Value:
    turned = bool(node.attribute("transA", 0)), bool(node.attribute("transB", 0))
    z = _product_of_integers(b, node, turned)
    if z is None:
        z = b.add("matmul", node[0], node[1], transpose_a=turned[0], transpose_b=turned[1])
    alpha, beta, c = node.attribute("alpha", 1.0), node.attribute("beta", 1.0), node.get(2)
    if alpha != 1:
        z = b.add("multiply", z, b.constant(alpha, z.dtype))
    if c is not None:
        if np.broadcast_shapes(c.shape, z.shape) != z.shape:
            raise ModelError("C is {0}, of a product {1}", c.type, z.type)
        c = c if beta == 1 else b.add("multiply", c, b.constant(beta, z.dtype))
        z = b.add("add", z, c)
    value: Value = z
    return value


@onnx_op("Conv")
def conv(b: Builder, node: OnnxNode) -> Value:
    found = _convolution_of_integers(b, node)
    y = convolution(b, node, node[0], node[1]) if found is None else found
    return biased(b, y, node.get(2))


def _product_of_integers(b: Builder, node: OnnxNode, turned: tuple[bool, bool]) -> Value | None:
    """The scaled product, if both operands were integers, and int32 holds the sums."""
    rank = node[1].type.rank
    if min(rank, node[0].type.rank) < 2:
        return None
    found = _integers(node, rank - (2 if turned[1] else 1))
    if found is None:
        return None
    x, w = found
    rows, columns = (
        _matrices_turned(b, v.data) if t else v.data for v, t in zip(found, turned, strict=True)
    )
    own = Whole.of(b, columns, _scalar_or(b, w.zero))
    if not holds(own, rank - 2):
        return None
    total = matrix_product(b, Whole.of(b, rows, _scalar_or(b, x.zero)), own)
    return _scaled(b, total, x, reshaped(b, w.scale, ()) if w.axis is None else w.scale)


def _convolution_of_integers(b: Builder, node: OnnxNode) -> Value | None:
    """The scaled convolution, likewise. Of one channel each there are no sums to gain from."""
    found = _integers(node, 0)
    if found is None or node[1].shape[1] == 1:
        return None
    x, w = found
    zero = None if w.zero is None else of_outputs(b, w.zero, w.data)
    own = Whole.of(b, w.data, zero)
    if not holds(own, *range(1, w.data.type.rank)):
        return None
    total = convolved(b, node, Whole.of(b, x.data, _scalar_or(b, x.zero)), own)
    return _scaled(b, total, x, along_channels(b, w.scale, total))


def _integers(node: OnnxNode, axis: int) -> tuple[Dequantised, Dequantised] | None:
    """What the operands were, if the first has one scale, the second one for all or of `axis`."""
    x, w = (node.notes.get(node[n]) for n in range(2))
    if x is None or w is None or x.axis is not None or w.axis not in (None, axis):
        return None
    return x, w


def _scaled(b: Builder, total: Value, x: Dequantised, scales: Value) -> Value:
    scale = b.add("multiply", reshaped(b, x.scale, ()), scales)
    value: Value = b.add("multiply", cast_to(b, total, "float32"), scale)
    return value


def _scalar_or(b: Builder, zero: Value | None) -> Value | None:
    """A zero point for all as a scalar."""
    return zero if zero is None or zero.type.size > 1 else reshaped(b, zero, ())


def _matrices_turned(b: Builder, x: Value) -> Value:
    rank = x.type.rank
    value: Value = b.add("transpose", x, axes=(*range(rank - 2), rank - 1, rank - 2))
    return value


@onnx_op("FusedMatMul", domain=_MICROSOFT)
def fused_matmul(b: Builder, node: OnnxNode) -> Value:
    x, y = node[0], node[1]
    if x.type.rank < 2 or y.type.rank < 2:
        raise Unsupported(Reason.ATTRIBUTE, "a product of vectors")
    x = _batch_last(b, x) if node.attribute("transBatchA", 0) else x
    y = _batch_last(b, y) if node.attribute("transBatchB", 0) else y
    turned = bool(node.attribute("transA", 0)), bool(node.attribute("transB", 0))
    value: Value = b.add("matmul", x, y, transpose_a=turned[0], transpose_b=turned[1])
    alpha = node.attribute("alpha", 1.0)
    return value if alpha == 1 else b.add("multiply", value, b.constant(alpha, value.dtype))


def _batch_last(b: Builder, x: Value) -> Value:
    """A tensor (n, *batch, m) as (*batch, n, m)."""
    value: Value = b.add("transpose", x, axes=(*range(1, x.type.rank - 1), 0, x.type.rank - 1))
    return value


_FUSED = {"Relu": "relu", "Tanh": "tanh", "Sigmoid": "sigmoid", "LeakyRelu": "leaky_relu",
          "HardSigmoid": "hard_sigmoid", "Clip": "clip"}  # fmt: skip
_PARAMETERS = {"LeakyRelu": ("slope",), "HardSigmoid": ("alpha", "beta"), "Clip": ("low", "high")}


def _activated(b: Builder, node: OnnxNode, y: Value, given: Sequence[float]) -> Value:
    """What follows a fused product, by its name and parameters."""
    name = node.attribute("activation", "")
    if not name:
        return y
    names = _PARAMETERS.get(name, ())
    if name not in _FUSED or len(given) < len(names):
        raise Unsupported(Reason.ATTRIBUTE, f"activation={name!r}")
    value: Value = b.add(_FUSED[name], y, **dict(zip(names, given, strict=False)))
    return value


@onnx_op("FusedConv", domain=_MICROSOFT)
def fused_conv(b: Builder, node: OnnxNode) -> Value:
    """A convolution, another tensor added to it, and an activation."""
    y, other = conv(b, node), node.get(3)
    y = y if other is None else b.add("add", y, other)
    return _activated(b, node, y, node.attribute("activation_params", ()))


@onnx_op("FusedGemm", domain=_MICROSOFT)
def fused_gemm(b: Builder, node: OnnxNode) -> Value:
    return _activated(b, node, gemm(b, node), _given(node))


@onnx_op("FusedMatMulActivation", domain=_MICROSOFT)
def fused_matmul_activation(b: Builder, node: OnnxNode) -> Value:
    return _activated(b, node, fused_matmul(b, node), _given(node))


def _given(node: OnnxNode) -> list[float]:
    names = [f"activation_{n}" for n in ("alpha", "beta")]
    return [node.attributes[n] for n in names if n in node.attributes]
