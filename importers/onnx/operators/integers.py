"""Products of integers of 8 bits less their zero points, as sums of uint8 times int8 in int32.

Processors have instructions for these. The zero points are taken off the sums afterwards, which
wraps around as the sums do:

    sum((a - p) * (b - q)) = sum(a * b) - p * sum(b) - q * sum(a) + count * p * q

Sums over constants fold, and zero points that are 0 cost nothing. Integers of the other sign get
their highest bit turned over, and zero points that are 128 away.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ....graph.builder import Builder
from ....graph.ir import Constant, Value
from ..table import OnnxNode, Reason, Unsupported
from .contraction import along_channels, convolution, edges
from .pointwise import cast_to


@dataclass(frozen=True)
class Whole:
    """Integers less a zero point, an int32 that broadcasts to them; `None` is 0."""

    data: Value
    zero: Value | None

    @staticmethod
    def of(b: Builder, data: Value, zero: Value | None) -> Whole:
        """With the zero point in a shape that broadcasts. Raises `Unsupported` for other dtypes."""
        if data.dtype not in ("int8", "uint8"):
            raise Unsupported(Reason.DTYPE, f"a product of {data.dtype}")
        if zero is None or (isinstance(zero, Constant) and not zero.data.any()):
            return Whole(data, None)
        return Whole(data, cast_to(b, zero, "int32"))

    def moved(self, b: Builder, dtype: str) -> Whole:
        """The same as integers of `dtype`."""
        if self.data.dtype == dtype:
            return self
        data = b.add("bitwise_xor", cast_to(b, self.data, "uint8"), b.constant(128, "uint8"))
        by = b.constant(128 if dtype == "uint8" else -128, "int32")
        zero = by if self.zero is None else b.add("add", self.zero, by)
        return Whole.of(b, cast_to(b, data, dtype), zero)

    def signed(self, b: Builder) -> Whole:
        """The same as int8; if it is known and in reach without a zero point."""
        if isinstance(self.data, Constant) and isinstance(self.zero, Constant):
            centred = self.data.data - self.zero.data
            if centred.min(initial=0) >= -128 and centred.max(initial=0) <= 127:
                return Whole(b.constant(centred, "int8"), None)
        return self.moved(b, "int8")


def holds(w: Whole, *axes: int) -> bool:
    """Whether int32 holds all sums, over these axes of `w`, of products with 8 bits."""
    if isinstance(w.data, Constant) and (w.zero is None or isinstance(w.zero, Constant)):
        zero = np.int32(0) if w.zero is None else w.zero.data
        largest = int(np.abs(w.data.data - zero).sum(axes, np.int64).max(initial=0))
    else:
        largest = 255 * math.prod(w.data.shape[a] for a in axes)
    return 255 * largest < 1 << 31


def of_outputs(b: Builder, values: Value, w: Value) -> Value:
    """A value for all, or for each output of the weights of a convolution, to broadcast."""
    size = values.type.size
    shape = (size, *(1,) * (w.type.rank - 1)) if size > 1 else ()
    value: Value = b.add("reshape", values, shape=shape)
    return value


def matrix_product(b: Builder, x: Whole, y: Whole) -> Value:
    """The product of matrices; the zero points broadcast to its rows and its columns."""
    x, y = x.moved(b, "uint8"), y.signed(b)
    total = b.add("matmul", x.data, y.data, dtype="int32")
    if x.zero is not None:
        columns = sums(b, y.data, y.data.type.rank - 2)
        if y.zero is not None:
            count = b.constant(y.data.shape[-2], "int32")
            columns = b.add("subtract", columns, b.add("multiply", count, y.zero))
        total = b.add("subtract", total, b.add("multiply", x.zero, columns))
    if y.zero is not None:
        rows = sums(b, x.data, x.data.type.rank - 1)
        total = b.add("subtract", total, b.add("multiply", y.zero, rows))
    result: Value = total
    return result


def sums(b: Builder, x: Value, *axes: int) -> Value:
    """The int32 sum; at once if `x` is known, whose cast may be too large to fold."""
    if isinstance(x, Constant):
        return b.constant(x.data.sum(axes, np.int32, keepdims=True))
    value: Value = b.add("sum", cast_to(b, x, "int32"), axes=axes, keepdims=True)
    return value


def convolved(b: Builder, node: OnnxNode, x: Whole, w: Whole) -> Value:
    """The convolution with the attributes of `node`; `x` is padded by its zero point.

    The zero point of `x` is one for all, that of `w` one or (o, 1, ..).
    """
    x, w = x.moved(b, "uint8"), w.signed(b)
    rank = x.data.type.rank - 2
    if w.zero is not None and w.data.shape[1] == 1:  # no sums over channels to gain from
        centred = b.add("subtract", cast_to(b, w.data, "int16"), cast_to(b, w.zero, "int16"))
        w = Whole(centred, None)
    if x.zero is not None or w.zero is not None:
        x, node = _padded(b, node, x, w.data.shape[2:])
    total = convolution(b, node, x.data, w.data, "int32")
    count = b.constant(math.prod(w.data.shape[1:]), "int32")
    if x.zero is not None:
        weights: Any = sums(b, w.data, *range(1, rank + 2))
        if w.zero is not None:
            weights = b.add("subtract", weights, b.add("multiply", count, w.zero))
        taken = b.add("multiply", along_channels(b, weights, total), x.zero)
        total = b.add("subtract", total, taken)
    if w.zero is not None:
        total = b.add("subtract", total, _times_windows(b, node, x.data, w, total))
    return total


def _padded(b: Builder, node: OnnxNode, x: Whole, kernel: Sequence[int]) -> tuple[Whole, OnnxNode]:
    """The input with its zero point around it, and the node without padding."""
    rank = len(kernel)
    ones = (1,) * rank
    strides, dilations = node.attribute("strides") or ones, node.attribute("dilations") or ones
    before, after = edges(node, x.data.shape[2:], kernel, strides, dilations)
    attributes = {**node.attributes, "pads": (0,) * (2 * rank), "auto_pad": "NOTSET"}
    data, widths = x.data, {"before": (0, 0, *before), "after": (0, 0, *after)}
    if any((*before, *after)):
        known = x.zero.data.item() if isinstance(x.zero, Constant) else 0
        data = b.add("pad", data, value=known, **widths)
        if x.zero is not None and not isinstance(x.zero, Constant):
            whole = b.constant(np.ones((1, 1, *x.data.shape[2:]), bool))
            inside = b.add("pad", whole, value=False, **widths)
            data = b.add("where", inside, data, cast_to(b, x.zero, data.dtype))
    return Whole(data, x.zero), replace(node, attributes=attributes)


def _times_windows(b: Builder, node: OnnxNode, x: Value, w: Whole, total: Value) -> Value:
    """The sums over the windows of each output, times the zero points of its weights."""
    groups, rank = node.attribute("group", 1), x.type.rank - 2
    split = b.add("reshape", x, shape=(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:]))
    channels = b.add("reshape", sums(b, split, 2), shape=(x.shape[0], groups, *x.shape[2:]))
    ones, none = (1,) * rank, (0,) * rank
    window = {"kernel": w.data.shape[2:], "strides": node.attribute("strides") or ones}
    windows: Any = channels
    if any(n != 1 for steps in window.values() for n in steps):
        dilations = node.attribute("dilations") or ones
        windows = b.add(
            "sum_pool", channels, **window, before=none, after=none, dilations=dilations
        )
    assert w.zero is not None
    # A group's sums are those of its outputs.
    zeros = b.add("reshape", w.zero, shape=(w.zero.type.size,))
    zeros = b.add("broadcast_to", zeros, shape=(total.shape[1],))
    zeros = b.add("reshape", zeros, shape=(groups, total.shape[1] // groups, *ones))
    windows = b.add("reshape", windows, shape=(x.shape[0], groups, 1, *total.shape[2:]))
    value: Value = b.add("reshape", b.add("multiply", windows, zeros), shape=total.shape)
    return value
