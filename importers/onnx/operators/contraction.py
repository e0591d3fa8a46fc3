"""Products of matrices, convolutions, and Einstein summation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....base.errors import ModelError
from ....graph.builder import Builder
from ....graph.compose import linear
from ....graph.compose.basics import part, reshaped
from ....graph.compose.contraction import (
    biased,
    causal_conv,
    columns_to_image,
    product,
    transposed_conv,
)
from ....graph.compose.einsum import einsum
from ....graph.ir import Value
from ...unsupported import Reason, Unsupported
from ..table import OnnxNode, onnx_op
from .window import convolution

_MICROSOFT = "com.microsoft"


@onnx_op("MatMul")
def matmul(b: Builder, node: OnnxNode) -> Value:
    return product(b, node[0], node[1])


@onnx_op("Det")
def determinant(b: Builder, node: OnnxNode) -> Value:
    x = node[0]
    if x.type.rank < 2 or x.shape[-1] != x.shape[-2]:
        raise Unsupported(Reason.ATTRIBUTE, f"{x.type} is not square")
    factors, pivots = b.add_all("lu", linear.batched(b, x))
    return reshaped(b, linear.determinant(b, factors, pivots), x.shape[:-2])


@onnx_op("Gemm")
def gemm(b: Builder, node: OnnxNode) -> Value:
    turned = bool(node.attribute("transA", 0)), bool(node.attribute("transB", 0))
    z = b.add("matmul", node[0], node[1], transpose_a=turned[0], transpose_b=turned[1])
    alpha, beta, c = node.attribute("alpha", 1.0), node.attribute("beta", 1.0), node.get(2)
    if alpha != 1:
        z = b.add("multiply", z, b.constant(alpha, z.dtype))
    if c is not None:
        if np.broadcast_shapes(c.shape, z.shape) != z.shape:
            raise ModelError("C is {0}, of a product {1}", c.type, z.type)
        c = c if beta == 1 else b.add("multiply", c, b.constant(beta, z.dtype))
        z = z if beta == 0 else b.add("add", z, c)  # NaN in C is not seen
    return z


@onnx_op("Conv")
def conv(b: Builder, node: OnnxNode) -> Value:
    return biased(b, convolution(node, node[0], node[1]).of(b, node[0], node[1]), node.get(2))


@onnx_op("FusedMatMul", domain=_MICROSOFT)
def fused_matmul(b: Builder, node: OnnxNode) -> Value:
    x, y = node[0], node[1]
    if x.type.rank < 2 or y.type.rank < 2:
        raise Unsupported(Reason.ATTRIBUTE, "a product of vectors")
    x = _batch_last(b, x) if node.attribute("transBatchA", 0) else x
    y = _batch_last(b, y) if node.attribute("transBatchB", 0) else y
    turned = bool(node.attribute("transA", 0)), bool(node.attribute("transB", 0))
    value = b.add("matmul", x, y, transpose_a=turned[0], transpose_b=turned[1])
    alpha = node.attribute("alpha", 1.0)
    return value if alpha == 1 else b.add("multiply", value, b.constant(alpha, value.dtype))


def _batch_last(b: Builder, x: Value) -> Value:
    """A tensor (n, *batch, m) as (*batch, n, m)."""
    return b.add("transpose", x, axes=(*range(1, x.type.rank - 1), 0, x.type.rank - 1))


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
    return b.add(_FUSED[name], y, **dict(zip(names, given, strict=False)))


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


@onnx_op("ConvTranspose")
def conv_transpose(b: Builder, node: OnnxNode) -> Value:
    x, w, bias = node[0], node[1], node.get(2)
    rank = x.type.rank - 2
    strides = tuple(node.attribute("strides") or (1,) * rank)
    dilations = tuple(node.attribute("dilations") or (1,) * rank)
    spans = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]
    before, sizes = _transposed_edges(node, x.shape[2:], spans, strides)
    groups = node.attribute("group", 1)
    return biased(b, transposed_conv(b, x, w, strides, dilations, groups, before, sizes), bias)


def _transposed_edges(
    node: OnnxNode, extents: Sequence[int], spans: Sequence[int], strides: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """How many outputs are cut off before each dimension, and how many are left."""
    rank = len(extents)
    extra = node.attribute("output_padding") or (0,) * rank
    whole = [(e - 1) * s + k + o for e, s, k, o in zip(extents, strides, spans, extra, strict=True)]
    auto, wanted = node.attribute("auto_pad", "NOTSET"), node.attribute("output_shape")
    if wanted is None and auto.startswith("SAME"):
        wanted = [min(e * s, n) for e, s, n in zip(extents, strides, whole, strict=True)]
    if wanted is None:
        pads = (node.attribute("pads") if auto == "NOTSET" else None) or (0,) * (2 * rank)
        sizes = tuple(n - p - q for n, p, q in zip(whole, pads[:rank], pads[rank:], strict=True))
        return tuple(pads[:rank]), sizes
    sizes = tuple(wanted[-rank:])
    total = [max(n - size, 0) for n, size in zip(whole, sizes, strict=True)]
    return tuple(t // 2 if auto == "SAME_UPPER" else t - t // 2 for t in total), sizes


@onnx_op("CausalConvWithState")
def causal_conv_with_state(b: Builder, node: OnnxNode) -> Sequence[Value]:
    """The state is the last elements of what came before and the input."""
    x, w = node[0], node[1]
    activation = node.attribute("activation", "none")
    if activation not in ("none", "silu", "swish"):
        raise Unsupported(Reason.ATTRIBUTE, f"activation={activation!r}")
    y, whole = causal_conv(b, x, w, node.get(2), node.get(3))
    if activation != "none":
        y = b.add("multiply", y, b.add("sigmoid", y))
    rest = w.shape[2] - 1
    return y, part(b, whole, 2, whole.shape[2] - rest, rest)


@onnx_op("Einsum")
def einstein_sum(b: Builder, node: OnnxNode) -> Value:
    return einsum(b, node.attributes["equation"], [node[n] for n in range(len(node.inputs))])


@onnx_op("Col2Im", since=18)
def column_image(b: Builder, node: OnnxNode) -> Value:
    image, block = node.integers(1) or (), node.integers(2) or ()
    rank = len(block)
    pads = tuple(node.attribute("pads") or (0,) * (2 * rank))
    return columns_to_image(
        b,
        node[0],
        image,
        block,
        strides=tuple(node.attribute("strides") or (1,) * rank),
        dilations=tuple(node.attribute("dilations") or (1,) * rank),
        before=pads[:rank],
        after=pads[rank:],
    )
