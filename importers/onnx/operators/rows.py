"""Reductions, softmax, normalisations and losses."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ....graph.builder import Builder
from ....graph.compose import rows
from ....graph.compose.basics import cast_to, in_rank, reshaped, times, wide
from ....graph.ir import Value
from ...unsupported import Reason, Unsupported
from ..table import OnnxNode, onnx_op

_REDUCTIONS = {
    "ReduceSum": "sum",
    "ReduceMean": "mean",
    "ReduceMax": "max",
    "ReduceMin": "min",
    "ReduceProd": "prod",
    "ReduceL1": "sum",
    "ReduceL2": "sum",
    "ReduceSumSquare": "sum",
    "ReduceLogSum": "sum",
    "ReduceLogSumExp": "sum",
}


@onnx_op(*_REDUCTIONS)
def reduction(b: Builder, node: OnnxNode) -> Value:
    x, keep = node[0], bool(node.attribute("keepdims", 1))
    axes = node.integers(1) if len(node.inputs) > 1 else node.attribute("axes")
    if not axes:
        rest = () if node.attribute("noop_with_empty_axes", 0) else range(x.type.rank)
        places = tuple(rest)
    else:
        places = tuple(sorted(in_rank(a, x.type.rank) for a in axes))
    return _reduced(b, node.operator, x, places, keep)


def _reduced(b: Builder, operator: str, x: Value, axes: tuple[int, ...], keep: bool) -> Value:
    if x.dtype == "bool":
        whole = _reduced(b, operator, b.add("cast", x, dtype="uint8"), axes, keep)
        return b.add("cast", whole, dtype="bool")
    if operator == "ReduceL1":
        x = b.add("abs", x)
    elif operator in ("ReduceL2", "ReduceSumSquare"):
        x = b.add("multiply", x, x)
    elif operator == "ReduceLogSumExp":
        return rows.log_sum_exp(b, x, axes, keepdims=keep)
    value = rows.reduced(b, _REDUCTIONS[operator], x, axes, keepdims=keep)
    if operator in ("ReduceL2", "ReduceLogSum"):
        value = rows.in_float(b, "sqrt" if operator == "ReduceL2" else "log", value)
    return value


@onnx_op("ArgMax", "ArgMin")
def place(b: Builder, node: OnnxNode) -> Value:
    x, keep = node[0], bool(node.attribute("keepdims", 1))
    axis = in_rank(node.attribute("axis", 0), x.type.rank)
    operator = node.operator.lower()
    if node.attribute("select_last_index", 0):
        return rows.last_place(b, operator, x, axis, keepdims=keep)
    return b.add(operator, x, axis=axis, keepdims=keep)


@onnx_op("GlobalAveragePool", "GlobalMaxPool")
def global_pool(b: Builder, node: OnnxNode) -> Value:
    operator = "mean" if node.operator == "GlobalAveragePool" else "max"
    axes = tuple(range(2, node[0].type.rank))
    return b.add(operator, node[0], axes=axes, keepdims=True)


@onnx_op("Softmax", "LogSoftmax", "Hardmax", since=13)
def softmax(b: Builder, node: OnnxNode) -> Value:
    return _along(b, node.operator, node[0], in_rank(node.attribute("axis", -1), node[0].type.rank))


@onnx_op("Softmax", "LogSoftmax", "Hardmax")
def softmax_of_matrix(b: Builder, node: OnnxNode) -> Value:
    """Before opset 13 all dimensions from `axis` on are one row."""
    x = node[0]
    axis = in_rank(node.attribute("axis", 1), x.type.rank)
    count = math.prod(x.shape[:axis])
    flat = reshaped(b, x, (count, x.type.size // max(count, 1)))
    return reshaped(b, _along(b, node.operator, flat, 1), x.shape)


def _along(b: Builder, operator: str, x: Value, axis: int) -> Value:
    if operator == "Hardmax":
        return rows.hardmax(b, x, axis)
    return b.add("softmax" if operator == "Softmax" else "log_softmax", x, axis=axis)


@onnx_op("BatchNormalization", since=7)
def batch_normalization(b: Builder, node: OnnxNode) -> Value | Sequence[Value]:
    """In training it is by the moments of the batch, and the running ones are outputs."""
    x, scale, bias, mean, variance = (node[n] for n in range(5))
    epsilon = node.attribute("epsilon", 1e-5)
    if not node.attribute("training_mode", 0):
        if any(node.outputs[1:]):
            raise Unsupported(Reason.ATTRIBUTE, "outputs of training")
        return rows.batch_norm(b, x, scale, bias, mean, variance, epsilon)
    new = rows.of_batch(b, x, mean.dtype)
    momentum = node.attribute("momentum", 0.9)
    running = [
        b.add("add", times(b, old, momentum), times(b, now, 1 - momentum))
        for old, now in zip((mean, variance), new, strict=True)
    ]
    return (rows.batch_norm(b, x, scale, bias, *new, epsilon), *running)


@onnx_op("LayerNormalization")
def layer_normalization(b: Builder, node: OnnxNode) -> Sequence[Value]:
    """The result, and the mean and one over the deviation where they are read."""
    x, epsilon = node[0], node.attribute("epsilon", 1e-5)
    axis = in_rank(node.attribute("axis", -1), x.type.rank)
    value = rows.layer_norm(b, x, node[1], node.get(2), axis=axis, epsilon=epsilon)
    if not any(node.outputs[1:3]):
        return (value,)
    return value, *rows.mean_and_inverse(b, x, range(axis, x.type.rank), epsilon)


@onnx_op("RMSNormalization", "SimplifiedLayerNormalization")
def rms_normalization(b: Builder, node: OnnxNode) -> Value:
    if any(node.outputs[1:]):
        raise Unsupported(Reason.ATTRIBUTE, "the output of the deviation")
    axis, epsilon = node.attribute("axis", -1), node.attribute("epsilon", 1e-5)
    return rows.rms_norm(b, node[0], node[1], axis=axis, epsilon=epsilon)


@onnx_op("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain="com.microsoft")
def skip_layer_normalization(b: Builder, node: OnnxNode) -> Sequence[Value]:
    """Normalisation of the sum of an input, a skipped one and a bias; the sum is output 3."""
    simple = node.operator.startswith("SkipSimplified")
    bias = node.get(3 if simple else 4)
    total = b.add("add", node[0], node[1])
    total = total if bias is None else b.add("add", total, bias)
    if any(node.outputs[1:3]):
        raise Unsupported(Reason.ATTRIBUTE, "the outputs of the mean and the deviation")
    epsilon = node.attribute("epsilon", 1e-5)
    if simple:
        value = rows.rms_norm(b, total, node[2], axis=-1, epsilon=epsilon)
    else:
        axis = in_rank(node.attribute("axis", -1), total.type.rank)
        value = rows.layer_norm(b, total, node[2], node.get(3), axis=axis, epsilon=epsilon)
    return value, value, value, total


@onnx_op("InstanceNormalization")
def instance_normalization(b: Builder, node: OnnxNode) -> Value:
    return rows.instance_norm(b, node[0], node[1], node[2], node.attribute("epsilon", 1e-5))


@onnx_op("GroupNormalization", since=18)
def group_normalization_of_groups(b: Builder, node: OnnxNode) -> Value:
    """Scale and bias have an element for each group."""
    return _group_norm(b, node, by_groups=True)


@onnx_op("GroupNormalization", since=21)
def group_normalization(b: Builder, node: OnnxNode) -> Value:
    """Scale and bias have an element for each channel."""
    return _group_norm(b, node, by_groups=False)


def _group_norm(b: Builder, node: OnnxNode, *, by_groups: bool) -> Value:
    groups, epsilon = node.attributes["num_groups"], node.attribute("epsilon", 1e-5)
    return rows.group_norm(b, node[0], groups, node[1], node[2], epsilon, by_groups=by_groups)


@onnx_op("MeanVarianceNormalization")
def mean_variance_normalization(b: Builder, node: OnnxNode) -> Value:
    return rows.mean_variance_norm(b, node[0], node.attribute("axes") or (0, 2, 3), 1e-9)


@onnx_op("LpNormalization")
def lp_normalization(b: Builder, node: OnnxNode) -> Value:
    node.require("p", 2, 1)
    return rows.lp_norm(b, node[0], node.attribute("p", 2), (node.attribute("axis", -1),))


@onnx_op("LRN")
def local_response_normalization(b: Builder, node: OnnxNode) -> Value:
    return rows.local_response_norm(
        b,
        node[0],
        node.attributes["size"],
        alpha=node.attribute("alpha", 1e-4),
        beta=node.attribute("beta", 0.75),
        bias=node.attribute("bias", 1.0),
    )


@onnx_op("NegativeLogLikelihoodLoss")
def negative_log_likelihood(b: Builder, node: OnnxNode) -> Value:
    return _loss(b, node, cast_to(b, node[0], wide(node[0])))


@onnx_op("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(b: Builder, node: OnnxNode) -> Sequence[Value]:
    logarithms = rows.log_softmax_of_classes(b, node[0])
    return _loss(b, node, logarithms), cast_to(b, logarithms, node[0].dtype)


def _loss(b: Builder, node: OnnxNode, logarithms: Value) -> Value:
    ignored, reduction = node.attribute("ignore_index"), node.attribute("reduction", "mean")
    loss = rows.likelihood_loss(
        b, logarithms, node[1], node.get(2), ignored=ignored, reduction=reduction
    )
    return cast_to(b, loss, node[0].dtype)
