"""Pooling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....graph.builder import Builder
from ....graph.ir import Value
from ..table import OnnxNode, Reason, Unsupported, onnx_op
from .common import room, wide
from .contraction import edges
from .pointwise import cast_to


def _window(node: OnnxNode) -> tuple[dict[str, tuple[int, ...]], tuple[int, ...]]:
    """The attributes of a pooling operator of graphs, and the padding after that is declared.

    With `ceil_mode` there is more of it, so that a last window that starts inside fits.
    """
    extents = node[0].shape[2:]
    kernel = tuple(node.attributes["kernel_shape"])
    strides = tuple(node.attribute("strides") or (1,) * len(kernel))
    dilations = tuple(node.attribute("dilations") or (1,) * len(kernel))
    before, declared = edges(node, extents, kernel, strides, dilations)
    after = list(declared)
    if node.attribute("ceil_mode", 0):
        for n, (e, k, s, d) in enumerate(zip(extents, kernel, strides, dilations, strict=True)):
            span = (k - 1) * d + 1
            last = -(-(e + before[n] + declared[n] - span) // s)
            last -= last * s >= e + before[n]
            after[n] = max(last * s + span - e - before[n], 0)
    found = {
        "kernel": kernel,
        "strides": strides,
        "before": before,
        "after": tuple(after),
        "dilations": dilations,
    }
    return found, declared


def _counts(
    extents: Sequence[int],
    window: dict[str, tuple[int, ...]],
    low: Sequence[int],
    high: Sequence[int],
) -> np.ndarray[Any, Any]:
    """How many elements from `low` to `high` of the padded extents each window holds."""
    result = np.ones((), np.float64)
    for n, e in enumerate(extents):
        k, s, d = window["kernel"][n], window["strides"][n], window["dilations"][n]
        b, a = window["before"][n], window["after"][n]
        outputs = (b + e + a - (k - 1) * d - 1) // s + 1
        room(outputs, k)
        places = np.arange(outputs)[:, None] * s + np.arange(k) * d
        inside = ((places >= low[n]) & (places < high[n])).sum(1)
        room(result.size, outputs)
        result = result[..., None] * inside
    return result


@onnx_op("MaxPool")
def max_pool(b: Builder, node: OnnxNode) -> Value:
    if any(node.outputs[1:]):
        raise Unsupported(Reason.ATTRIBUTE, "the output Indices")
    value: Value = b.add("max_pool", node[0], **_window(node)[0])
    return value


@onnx_op("AveragePool")
def average_pool(b: Builder, node: OnnxNode) -> Value:
    """Sums of windows times one over the counts, which are known."""
    x, (window, declared) = node[0], _window(node)
    before, extents = window["before"], x.shape[2:]
    if node.attribute("count_include_pad", 0):
        low: Sequence[int] = (0,) * len(extents)
        high = [p + e + a for p, e, a in zip(before, extents, declared, strict=True)]
    else:
        low, high = before, [p + e for p, e in zip(before, extents, strict=True)]
    counts = _counts(extents, window, low, high)
    total = b.add("sum_pool", cast_to(b, x, wide(x)), **window)
    if counts.min() == counts.max():
        counts = counts.reshape(-1)[:1].reshape(())
    mean = b.add("multiply", total, b.constant(1 / counts, wide(x)))
    return cast_to(b, mean, x.dtype)


@onnx_op("LpPool")
def lp_pool(b: Builder, node: OnnxNode) -> Value:
    """`sum(abs(x) ** p) ** (1 / p)` of each window."""
    return _norm(b, node, lambda x: b.add("sum_pool", x, **_window(node)[0]))


@onnx_op("GlobalLpPool")
def global_lp_pool(b: Builder, node: OnnxNode) -> Value:
    axes = tuple(range(2, node[0].type.rank))
    return _norm(b, node, lambda x: b.add("sum", x, axes=axes, keepdims=True))


def _norm(b: Builder, node: OnnxNode, total: Callable[[Value], Value]) -> Value:
    x, p = node[0], node.attribute("p", 2)
    own = b.add("abs", cast_to(b, x, wide(x)))
    if p == 1:
        return cast_to(b, total(own), x.dtype)
    if p == 2:
        return cast_to(b, b.add("sqrt", total(b.add("multiply", own, own))), x.dtype)
    powers = total(b.add("power", own, b.constant(p, wide(x))))
    return cast_to(b, b.add("power", powers, b.constant(1 / p, wide(x))), x.dtype)
