"""Normalisations: rows by `normalize`, scales and biases as pointwise operators behind it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ....base.errors import ModelError
from ....graph.builder import Builder
from ....graph.ir import Value
from ..table import OnnxNode, Reason, Unsupported, onnx_op
from .common import in_rank, wide
from .pointwise import cast_to


@onnx_op("BatchNormalization", since=7)
def batch_normalization(b: Builder, node: OnnxNode) -> Value | Sequence[Value]:
    """By the running mean and variance: one product and one sum, whose factors fold.

    In training it is by those of the batch, and the running ones are outputs.
    """
    x, scale, bias, mean, variance = (node[n] for n in range(5))
    if not node.attribute("training_mode", 0):
        if any(node.outputs[1:]):
            raise Unsupported(Reason.ATTRIBUTE, "outputs of training")
        return _by_statistics(b, node, x, (scale, bias, mean, variance))
    axes = (0, *range(2, x.type.rank))
    own = cast_to(b, x, wide(x))
    seen = b.add("mean", own, axes=axes, keepdims=True)
    centred = b.add("subtract", own, seen)
    spread = b.add("mean", b.add("multiply", centred, centred), axes=axes, keepdims=True)
    channel = (x.shape[1],)
    new = [cast_to(b, b.add("reshape", v, shape=channel), mean.dtype) for v in (seen, spread)]
    momentum = node.attribute("momentum", 0.9)
    running = [
        b.add("add", _times(b, old, momentum), _times(b, now, 1 - momentum))
        for old, now in zip((mean, variance), new, strict=True)
    ]
    return (_by_statistics(b, node, x, (scale, bias, *new)), *running)


def _by_statistics(b: Builder, node: OnnxNode, x: Value, given: Sequence[Value]) -> Value:
    scale, bias, mean, variance = (cast_to(b, v, wide(x)) for v in given)
    epsilon = b.constant(node.attribute("epsilon", 1e-5), variance.dtype)
    factor = b.add("divide", scale, b.add("sqrt", b.add("add", variance, epsilon)))
    shift = b.add("subtract", bias, b.add("multiply", mean, factor))
    product = b.add("multiply", cast_to(b, x, wide(x)), _channels(b, factor, x))
    return cast_to(b, b.add("add", product, _channels(b, shift, x)), x.dtype)


def _channels(b: Builder, value: Value, x: Value) -> Value:
    """A value of each channel, so that it broadcasts over what (n, c, *extents) holds."""
    shape = (x.shape[1] if x.type.rank > 1 else 1, *(1,) * (x.type.rank - 2))
    result: Value = b.add("reshape", value, shape=shape)
    return result


def _times(b: Builder, x: Value, factor: float) -> Value:
    value: Value = b.add("multiply", x, b.constant(factor, x.dtype))
    return value


@onnx_op("LayerNormalization")
def layer_normalization(b: Builder, node: OnnxNode) -> Sequence[Value]:
    return _layer_norm(b, node, node[0], node[1], node.get(2))


def _layer_norm(
    b: Builder, node: OnnxNode, x: Value, scale: Value, bias: Value | None
) -> Sequence[Value]:
    """The result, and the mean and one over the deviation where they are read."""
    axis = in_rank(node.attribute("axis", -1), x.type.rank)
    epsilon = node.attribute("epsilon", 1e-5)
    value = b.add("multiply", b.add("normalize", x, axis=axis, epsilon=epsilon), scale)
    value = value if bias is None else b.add("add", value, bias)
    if not any(node.outputs[1:3]):
        return (value,)
    axes = tuple(range(axis, x.type.rank))
    own = cast_to(b, x, wide(x))
    mean = b.add("mean", own, axes=axes, keepdims=True)
    centred = b.add("subtract", own, mean)
    variance = b.add("mean", b.add("multiply", centred, centred), axes=axes, keepdims=True)
    deviation = b.add("sqrt", b.add("add", variance, b.constant(epsilon, own.dtype)))
    return value, mean, b.add("divide", b.constant(1, own.dtype), deviation)


@onnx_op("RMSNormalization")
def rms_normalization(b: Builder, node: OnnxNode) -> Value:
    x, scale = node[0], node[1]
    return _rms(b, node, x, scale, node.attribute("axis", -1))


@onnx_op("SimplifiedLayerNormalization")
def simplified_layer_normalization(b: Builder, node: OnnxNode) -> Value:
    if any(node.outputs[1:]):
        raise Unsupported(Reason.ATTRIBUTE, "the output of the deviation")
    return _rms(b, node, node[0], node[1], node.attribute("axis", -1))


def _rms(b: Builder, node: OnnxNode, x: Value, scale: Value, axis: int) -> Value:
    epsilon = node.attribute("epsilon", 1e-5)
    normal = b.add("normalize", x, axis=axis, epsilon=epsilon, centered=False)
    return cast_to(b, b.add("multiply", cast_to(b, normal, scale.dtype), scale), scale.dtype)


@onnx_op("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain="com.microsoft")
def skip_layer_normalization(b: Builder, node: OnnxNode) -> Sequence[Value]:
    """Normalisation of the sum of an input, a skipped one and a bias; the sum is output 3."""
    simple = node.operator.startswith("SkipSimplified")
    bias = node.get(3 if simple else 4)
    total = b.add("add", node[0], node[1])
    total = total if bias is None else b.add("add", total, bias)
    if any(node.outputs[1:3]):
        raise Unsupported(Reason.ATTRIBUTE, "the outputs of the mean and the deviation")
    if simple:
        value = _rms(b, node, total, node[2], -1)
    else:
        (value,) = _layer_norm(b, node, total, node[2], node.get(3))
    return value, value, value, total


@onnx_op("InstanceNormalization")
def instance_normalization(b: Builder, node: OnnxNode) -> Value:
    x = node[0]
    normal = b.add("normalize", x, axis=2, epsilon=node.attribute("epsilon", 1e-5))
    scaled = b.add("multiply", normal, _channels(b, node[1], x))
    value: Value = b.add("add", scaled, _channels(b, node[2], x))
    return value


@onnx_op("GroupNormalization", since=18)
def group_normalization_of_groups(b: Builder, node: OnnxNode) -> Value:
    """Scale and bias have an element for each group."""
    return _group_norm(b, node, node.attributes["num_groups"], grouped=True)


@onnx_op("GroupNormalization", since=21)
def group_normalization(b: Builder, node: OnnxNode) -> Value:
    """Scale and bias have an element for each channel."""
    return _group_norm(b, node, node.attributes["num_groups"], grouped=False)


def _group_norm(b: Builder, node: OnnxNode, groups: int, *, grouped: bool) -> Value:
    x = node[0]
    if x.shape[1] % groups:
        raise ModelError("{0} channels do not divide into {1} groups", x.shape[1], groups)
    shape = (x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    normal = b.add(
        "normalize", b.add("reshape", x, shape=shape), axis=2,
        epsilon=node.attribute("epsilon", 1e-5),
    )  # fmt: skip
    factors: tuple[int, ...] = (groups, 1) if grouped else (groups, x.shape[1] // groups)
    factors = (*factors, *(1,) * (x.type.rank - 2))
    scaled = b.add("multiply", normal, b.add("reshape", node[1], shape=factors))
    moved = b.add("add", scaled, b.add("reshape", node[2], shape=factors))
    value: Value = b.add("reshape", moved, shape=x.shape)
    return value


@onnx_op("MeanVarianceNormalization")
def mean_variance_normalization(b: Builder, node: OnnxNode) -> Value:
    x = cast_to(b, node[0], wide(node[0]))
    axes = node.attribute("axes") or (0, 2, 3)
    centred = b.add("subtract", x, b.add("mean", x, axes=axes, keepdims=True))
    variance = b.add("mean", b.add("multiply", centred, centred), axes=axes, keepdims=True)
    deviation = b.add("add", b.add("sqrt", variance), b.constant(1e-9, x.dtype))
    return cast_to(b, b.add("divide", centred, deviation), node[0].dtype)


@onnx_op("LpNormalization")
def lp_normalization(b: Builder, node: OnnxNode) -> Value:
    """`x / norm(x)` along an axis; zeros stay zeros."""
    node.require("p", 2, 1)
    x = cast_to(b, node[0], wide(node[0]))
    axes = (node.attribute("axis", -1),)
    if node.attribute("p", 2) == 1:
        norm = b.add("sum", b.add("abs", x), axes=axes, keepdims=True)
    else:
        norm = b.add("sqrt", b.add("sum", b.add("multiply", x, x), axes=axes, keepdims=True))
    none = b.add("equal", norm, b.constant(0, x.dtype))
    safe = b.add("where", none, b.constant(1, x.dtype), norm)
    return cast_to(b, b.add("divide", x, safe), node[0].dtype)


@onnx_op("LRN")
def local_response_normalization(b: Builder, node: OnnxNode) -> Value:
    """`x / (bias + alpha / size * sum(x * x)) ** beta`, of sums over neighbouring channels."""
    x = cast_to(b, node[0], wide(node[0]))
    size, beta = node.attributes["size"], node.attribute("beta", 0.75)
    n, channels, *extents = x.shape
    # Channels as the spatial dimension of a pooling whose other one is all the places of an image.
    flat = b.add("reshape", b.add("multiply", x, x), shape=(n, 1, channels, math.prod(extents)))
    total = b.add(
        "sum_pool", flat, kernel=(size, 1), strides=(1, 1), before=((size - 1) // 2, 0),
        after=(size - 1 - (size - 1) // 2, 0), dilations=(1, 1),
    )  # fmt: skip
    scaled = _times(b, b.add("reshape", total, shape=x.shape), node.attribute("alpha", 1e-4) / size)
    base = b.add("add", scaled, b.constant(node.attribute("bias", 1.0), x.dtype))
    factor: Any = b.add("power", base, b.constant(-beta, x.dtype))
    return cast_to(b, b.add("multiply", x, factor), node[0].dtype)
