"""Products, convolutions, windows, reductions and whole rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....base import dtypes
from ....graph.ir import Node
from ...unsupported import Reason, Unsupported
from ..writer import Writer, known, writes

_BYTES = ("int8", "uint8")


def _are_bytes(node: Node) -> bool:
    return node.output.dtype == "int32" and all(v.dtype in _BYTES for v in node.inputs)


@writes("matmul")
def matmul(w: Writer, node: Node, a: str, b: str) -> str:
    if node.attributes["transpose_a"]:
        a = _turned(w, a, node.inputs[0].type.rank)
    if node.attributes["transpose_b"]:
        b = _turned(w, b, node.inputs[1].type.rank)
    if _are_bytes(node):
        return w.add("MatMulInteger", a, b)
    dtype = node.output.dtype
    a, b = w.wide(*(w.cast(v, dtype) for v in (a, b)))
    return w.cast(w.add("MatMul", a, b), dtype)


@writes("attention")
def attention(w: Writer, node: Node, q: str, k: str, v: str, *masks: str) -> str:
    dtype = node.output.dtype
    q, k, v, *masks = w.wide(*(w.cast(x, dtype) for x in (q, k, v, *masks)))  # type: ignore[assignment]
    turned = _turned(w, k, node.inputs[1].type.rank)
    scores = w.add("MatMul", q, turned)
    scores = w.add("Mul", scores, w.like(scores, node.attributes["scale"]))
    for mask in masks:
        scores = w.add("Add", scores, mask)
    return w.cast(w.add("MatMul", w.add("Softmax", scores, axis=-1), v), dtype)


def _turned(w: Writer, x: str, rank: int) -> str:
    return w.transpose(x, (*range(rank - 2), rank - 1, rank - 2))


def _pads(node: Node) -> list[int]:
    before: Any = node.attributes["before"]
    after: Any = node.attributes["after"]
    return [*before, *after]


@writes("conv")
def conv(w: Writer, node: Node, x: str, weights: str) -> str:
    a: Any = node.attributes
    dtype = node.output.dtype
    name = "ConvInteger" if _are_bytes(node) else "Conv"
    if name == "Conv":
        wide = dtype if dtypes.is_float(dtype) else _holding(node)
        x, weights = (w.cast(v, wide) for v in (x, weights))
    found = w.add(
        name, x, weights, strides=a["strides"], pads=_pads(node), dilations=a["dilations"],
        group=a["groups"], kernel_shape=node.inputs[1].shape[2:],
    )  # fmt: skip
    return w.whole(found, dtype)


def _holding(node: Node) -> str:
    """The floats that hold all sums of a convolution of integers. Raises `Unsupported`."""
    x, weights = node.inputs
    data = known(weights)
    if data is None:
        sums = math.prod(weights.shape[1:]) << 8 * dtypes.nbytes(weights.dtype)
    else:
        axes = tuple(range(1, data.ndim))
        sums = int(np.abs(data.astype(np.float64)).sum(axes).max(initial=0))
    largest = sums << 8 * dtypes.nbytes(x.dtype)
    if dtypes.is_float(x.dtype) or largest >= 1 << 53:
        kinds = ", ".join(v.dtype for v in node.inputs)
        raise Unsupported(Reason.DTYPE, f"a convolution of {kinds} to {node.output.dtype}")
    return "float32" if largest < 1 << 24 else "float64"


def _surrounded(w: Writer, node: Node, x: str, fill: Any) -> str:
    a: Any = node.attributes
    widths = (0, 0, *a["before"], 0, 0, *a["after"])
    return w.add("Pad", x, w.integers(widths), w.constant(fill, w.dtypes[x]))


@writes("max_pool")
def max_pool(w: Writer, node: Node, x: str) -> str:
    """What is around `x` is written out where a window may lie outside, or between, elements."""
    a: Any = node.attributes
    dtype = node.output.dtype
    own = x
    if dtypes.is_integer(dtype) and dtype not in _BYTES:
        own = w.cast(x, "float32" if dtypes.nbytes(dtype) == 2 else "float64")
        if dtypes.nbytes(dtype) > 4:
            raise Unsupported(Reason.DTYPE, f"MaxPool of {dtype}")
    pads = _pads(node)
    holds = all(p < k for p, k in zip(pads, a["kernel"] * 2, strict=True))
    if any(pads) and not (holds and set(a["dilations"]) == {1}):
        least = dtypes.extremes(w.dtypes[own])[0]
        own, pads = _surrounded(w, node, own, least), [0] * len(pads)
    found = w.add(
        "MaxPool", own, kernel_shape=a["kernel"], strides=a["strides"], pads=pads,
        dilations=a["dilations"],
    )  # fmt: skip
    return w.cast(found, dtype)


@writes("sum_pool")
def sum_pool(w: Writer, node: Node, x: str) -> str:
    """A convolution of each channel with ones, as a mean would be rounded otherwise."""
    a: Any = node.attributes
    dtype = node.output.dtype
    wide = dtype
    if not dtypes.is_float(dtype):
        bits = 8 * dtypes.nbytes(dtype)
        if bits > 32:
            raise Unsupported(Reason.DTYPE, f"sums of windows of {dtype}")
        wide = "float32" if math.prod(a["kernel"]) << bits <= 1 << 24 else "float64"
    channels = node.output.shape[1]
    ones: Sequence[int] = (channels, 1, *a["kernel"])
    total = w.add(
        "Conv", w.cast(x, wide), w.constant(np.ones(ones), wide), kernel_shape=a["kernel"],
        strides=a["strides"], pads=_pads(node), dilations=a["dilations"], group=channels,
    )  # fmt: skip
    return w.whole(total, dtype)


_REDUCTIONS = {
    "sum": "ReduceSum", "prod": "ReduceProd", "mean": "ReduceMean", "max": "ReduceMax",
    "min": "ReduceMin",
}  # fmt: skip


@writes(*_REDUCTIONS)
def reduction(w: Writer, node: Node, x: str) -> str:
    axes: Any = node.attributes["axes"]
    dtype = node.output.dtype
    if not axes:
        return x  # ONNX would reduce all of them
    if node.operator == "mean" and not dtypes.is_float(dtype):
        raise Unsupported(Reason.DTYPE, f"ReduceMean of {dtype}")
    (own,) = w.wide(x)
    keep = int(bool(node.attributes["keepdims"]))
    return w.cast(w.add(_REDUCTIONS[node.operator], own, w.integers(axes), keepdims=keep), dtype)


@writes("argmax", "argmin")
def arg(w: Writer, node: Node, x: str) -> str:
    return w.add(
        "ArgMax" if node.operator == "argmax" else "ArgMin", *w.wide(x),
        axis=node.attributes["axis"], keepdims=int(bool(node.attributes["keepdims"])),
    )  # fmt: skip


@writes("softmax", "log_softmax")
def softmax(w: Writer, node: Node, x: str) -> str:
    return w.add(
        "Softmax" if node.operator == "softmax" else "LogSoftmax", x, axis=node.attributes["axis"]
    )


@writes("top")
def top(w: Writer, node: Node, x: str) -> tuple[str, str]:
    a: Any = node.attributes
    values, places = w.add_of(
        2, "TopK", *w.wide(x), w.integers([a["count"]]),
        axis=a["axis"], largest=int(a["largest"]),
    )  # fmt: skip
    return w.cast(values, node.outputs[0].dtype), places


@writes("normalize")
def normalize(w: Writer, node: Node, x: str) -> str:
    """Written out, as the scale that a norm of ONNX needs would be as large as a row."""
    a: Any = node.attributes
    dtype = node.output.dtype
    axes = w.integers(range(a["axis"], node.output.type.rank))
    own = w.cast(x, dtype if dtype in ("float32", "float64") else "float32")
    if a["centered"]:
        own = w.add("Sub", own, w.add("ReduceMean", own, axes))
    variance = w.add("ReduceMean", w.add("Mul", own, own), axes)
    deviation = w.add("Sqrt", w.add("Add", variance, w.like(own, a["epsilon"])))
    return w.cast(w.add("Div", own, deviation), dtype)


@writes("fourier")
def fourier(w: Writer, node: Node, x: str, _factors: str) -> str:
    a: Any = node.attributes
    real, half = a["form"] == "of_real", a["form"] == "to_real"
    (own,) = w.wide(x)
    own = w.add("Unsqueeze", own, w.integers([1])) if real else own
    own = w.add("Transpose", own, perm=(2, 0, 1))  # (lanes, length, parts)
    turned = a["inverse"] or half
    y = w.add(
        "DFT", own, w.constant(a["length"], "int64") if half else "", w.constant(1, "int64"),
        inverse=int(turned), onesided=int(real or half), since=20,
    )  # fmt: skip
    scale = a["scale"] * (a["length"] if turned else 1)
    y = w.add("Mul", y, w.like(y, scale)) if scale != 1 else y
    y = w.add("Transpose", y, perm=(1, 2, 0))
    y = w.add("Squeeze", y, w.integers([1])) if half else y
    return w.cast(y, node.output.dtype)


@writes("accumulate")
def accumulate(w: Writer, node: Node, x: str) -> str:
    a: Any = node.attributes
    (own,) = w.wide(x)
    name = w.add(
        "CumProd" if a["product"] else "CumSum", own, w.constant(a["axis"], "int64"),
        since=26 if a["product"] else 0,
        exclusive=int(a["exclusive"]), reverse=int(a["reverse"]),
    )  # fmt: skip
    return w.cast(name, node.output.dtype)
