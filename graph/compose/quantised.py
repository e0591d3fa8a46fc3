"""Quantised tensors, integers `q` that stand for `(q - zero) * scale`, and products of them.

Products of integers of 8 bits less their zero points are sums of uint8 times int8 in int32, for
which processors have instructions. The zero points are taken off the sums afterwards, which wraps
around as the sums do:

    sum((a - p) * (b - q)) = sum(a * b) - p * sum(b) - q * sum(a) + count * p * q

Sums over constants fold, and zero points that are 0 cost nothing. Integers of the other sign get
their highest bit turned over, and zero points that are 128 away.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ...base.errors import ModelError, UnsupportedError
from ..builder import Builder
from ..ir import Constant, Value
from .basics import cast_to, in_rank, part, reshaped
from .contraction import Convolution, along_channels

_TO = {"uint8", "int8", "uint16", "int16"}


def centred(b: Builder, x: Value, zero: Value | None) -> Value:
    """`x - zero` in float32."""
    if x.dtype in _TO:
        return b.add("dequantize", x, *_zeros(zero))
    wide = cast_to(b, x, "float32")
    if zero is not None and not is_zero(zero):
        wide = b.add("subtract", wide, cast_to(b, zero, "float32"))
    return wide


def dequantised(
    b: Builder, x: Value, scale: Value, zero: Value | None, dtype: str | None = None
) -> Value:
    """`(x - zero) * scale`, computed in float32, as the dtype of `scale` or another one."""
    value = centred(b, x, zero)
    if not is_one(scale):
        value = b.add("multiply", value, cast_to(b, scale, "float32"))
    return cast_to(b, value, dtype or scale.dtype)


def quantised(b: Builder, scaled: Value, zero: Value | None, dtype: str) -> Value:
    """The nearest integers plus `zero`, within the limits of `dtype`. Of two the even one."""
    if dtype not in _TO:
        raise UnsupportedError("quantised to {0}", dtype)
    return b.add("quantize", scaled, *_zeros(zero), dtype=dtype)


def by_range(b: Builder, x: Value) -> tuple[Value, Value, Value]:
    """`x` as uint8, and scale and zero point by its least and largest element."""
    axes = tuple(range(x.type.rank))
    nothing = b.constant(0, x.dtype)
    low = b.add("minimum", b.add("min", x, axes=axes), nothing)
    high = b.add("maximum", b.add("max", x, axes=axes), nothing)
    scale = b.add("divide", b.add("subtract", high, low), b.constant(255, x.dtype))
    place = b.add("divide", b.add("subtract", nothing, low), scale)
    place = b.add("clip", place, low=0.0, high=255.0)
    zero = cast_to(b, b.add("round", place), "uint8")
    return quantised(b, b.add("divide", x, scale), zero, "uint8"), scale, zero


def _zeros(zero: Value | None) -> tuple[Value, ...]:
    return () if zero is None or is_zero(zero) else (zero,)


def is_zero(value: Value) -> bool:
    return isinstance(value, Constant) and not value.data.any()


def is_one(value: Value) -> bool:
    return isinstance(value, Constant) and bool((value.data == 1).all())


def along(b: Builder, values: Value, x: Value, axis: int, block: int = 0) -> Value:
    """Values for a tensor, for each place of an axis, or for each block of it, to broadcast."""
    if values.type.rank <= 1 and values.type.size == 1 and not block:
        return reshaped(b, values, ())
    axis = in_rank(axis, x.type.rank)
    if values.type.rank == 1:
        if values.type.size != x.shape[axis]:
            raise ModelError("{0} scales for an axis of {1}", values.type.size, x.shape[axis])
        return reshaped(b, values, [e if d == axis else 1 for d, e in enumerate(x.shape)])
    if values.type.rank != x.type.rank or block < 1:
        raise ModelError("scales {0} do not go with {1}", values.type, x.type)
    lead, count, rest = values.shape[:axis], values.shape[axis], values.shape[axis + 1 :]
    value = reshaped(b, values, (*lead, count, 1, *rest))
    value = b.add("broadcast_to", value, shape=(*lead, count, block, *rest))
    value = reshaped(b, value, (*lead, count * block, *rest))
    if count * block < x.shape[axis]:
        raise ModelError("{0} blocks of {1} for an axis of {2}", count, block, x.shape[axis])
    return value if value.shape == x.shape else part(b, value, axis, 0, x.shape[axis])


@dataclass(frozen=True)
class Whole:
    """Integers less a zero point, an int32 that broadcasts to them; `None` is 0."""

    data: Value
    zero: Value | None

    @staticmethod
    def of(b: Builder, data: Value, zero: Value | None) -> Whole:
        """With the zero point in a shape that broadcasts.

        Raises `UnsupportedError` for other dtypes.
        """
        if data.dtype not in ("int8", "uint8"):
            raise UnsupportedError("a product of {0}", data.dtype)
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
    return b.add("reshape", values, shape=shape)


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
    return total


def sums(b: Builder, x: Value, *axes: int) -> Value:
    """The int32 sum; at once if `x` is known, whose cast may be too large to fold."""
    if isinstance(x, Constant):
        return b.constant(x.data.sum(axes, np.int32, keepdims=True))
    return b.add("sum", cast_to(b, x, "int32"), axes=axes, keepdims=True)


def convolved(b: Builder, conv: Convolution, x: Whole, w: Whole) -> Value:
    """The int32 convolution; `x` is padded by its zero point.

    The zero point of `x` is one for all, that of `w` one or (o, 1, ..).
    """
    x, w = x.moved(b, "uint8"), w.signed(b)
    rank = x.data.type.rank - 2
    if w.zero is not None and w.data.shape[1] == 1:  # no sums over channels to gain from
        centres = b.add("subtract", cast_to(b, w.data, "int16"), cast_to(b, w.zero, "int16"))
        w = Whole(centres, None)
    if x.zero is not None or w.zero is not None:
        x = _padded(b, conv, x)
        conv = replace(conv, before=(0,) * rank, after=(0,) * rank)
    total = conv.of(b, x.data, w.data, "int32")
    count = b.constant(math.prod(w.data.shape[1:]), "int32")
    if x.zero is not None:
        weights = sums(b, w.data, *range(1, rank + 2))
        if w.zero is not None:
            weights = b.add("subtract", weights, b.add("multiply", count, w.zero))
        taken = b.add("multiply", along_channels(b, weights, total), x.zero)
        total = b.add("subtract", total, taken)
    if w.zero is not None:
        total = b.add("subtract", total, _times_windows(b, conv, x.data, w, total))
    return total


def _padded(b: Builder, conv: Convolution, x: Whole) -> Whole:
    """The input with its zero point around it."""
    widths = {"before": (0, 0, *conv.before), "after": (0, 0, *conv.after)}
    if not any((*conv.before, *conv.after)):
        return x
    known = x.zero.data.item() if isinstance(x.zero, Constant) else 0
    data = b.add("pad", x.data, value=known, **widths)
    if x.zero is not None and not isinstance(x.zero, Constant):
        whole = b.constant(np.ones((1, 1, *x.data.shape[2:]), bool))
        inside = b.add("pad", whole, value=False, **widths)
        data = b.add("where", inside, data, cast_to(b, x.zero, data.dtype))
    return Whole(data, x.zero)


def _times_windows(b: Builder, conv: Convolution, x: Value, w: Whole, total: Value) -> Value:
    """The sums over the windows of each output, times the zero points of its weights."""
    groups = conv.groups
    split = reshaped(b, x, (x.shape[0], groups, x.shape[1] // groups, *x.shape[2:]))
    windows = reshaped(b, sums(b, split, 2), (x.shape[0], groups, *x.shape[2:]))
    kernel = w.data.shape[2:]
    if any(n != 1 for n in (*kernel, *conv.strides)):
        window = {name: steps for name, steps in vars(conv).items() if name != "groups"}
        windows = b.add("sum_pool", windows, kernel=kernel, **window)
    assert w.zero is not None
    # A group's sums are those of its outputs.
    zeros = reshaped(b, w.zero, (w.zero.type.size,))
    zeros = b.add("broadcast_to", zeros, shape=(total.shape[1],))
    zeros = reshaped(b, zeros, (groups, total.shape[1] // groups, *(1,) * len(kernel)))
    windows = reshaped(b, windows, (x.shape[0], groups, 1, *total.shape[2:]))
    return reshaped(b, b.add("multiply", windows, zeros), total.shape)
