"""Gradients of convolutions and pooling, made of convolutions, products and sums."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from ...base import dtypes
from ..builder import Builder
from ..ir import Value
from ..operator import Array
from .basics import cast_to, part, reshaped, wide
from .contraction import Convolution
from .movement import padded
from .sampling import Window


def weight_gradient(
    b: Builder, x: Value, gradient: Value, shape: Sequence[int], conv: Convolution
) -> Value:
    """The gradient of the weights, of that shape, of a convolution of `x`.

    It is a convolution of `x` with the gradient of the result, where images are channels and
    channels are images, and strides and dilations change places.
    """
    rank = x.type.rank - 2
    taps = shape[2:]
    after = []
    for d in range(rank):
        reach = (
            (taps[d] - 1) * conv.dilations[d] + (gradient.shape[2 + d] - 1) * conv.strides[d] + 1
        )
        left = reach - x.shape[2 + d] - conv.before[d]
        if left < 0:  # the last elements, which no window has reached
            x = part(b, x, 2 + d, 0, x.shape[2 + d] + left)
        after.append(max(left, 0))
    images, groups = x.shape[0], conv.groups
    own = reshaped(b, x, (images, groups, x.shape[1] // groups, *x.shape[2:]))
    own = b.add("transpose", own, axes=(2, 1, 0, *range(3, rank + 3)))
    own = reshaped(b, own, (own.shape[0], groups * images, *own.shape[3:]))
    kernel = b.add("transpose", gradient, axes=(1, 0, *range(2, rank + 2)))
    turned = Convolution(conv.dilations, conv.before, tuple(after), conv.strides, groups)
    found = turned.of(b, own, kernel)
    return b.add("transpose", found, axes=(1, 0, *range(2, rank + 2)))


def largest_of_windows(b: Builder, x: Value, window: Window) -> tuple[Value, Value]:
    """Of (n, c, *extents), the largest element of each window, and its place in the extents.

    Of equal ones it is the first; NaN is larger than all. Places are int64.
    """
    extents = x.shape[2:]
    lowest = -math.inf if dtypes.is_float(x.dtype) else dtypes.int_limits(x.dtype)[0]
    around = padded(b, x, [0, 0, *window.before, 0, 0, *window.after], fill=lowest)
    steps = list(itertools.accumulate(extents[:0:-1], lambda a, e: a * e, initial=1))[::-1]
    counts = tuple(
        (a - (k - 1) * d - 1) // s + 1
        for a, k, d, s in zip(
            around.shape[2:], window.kernel, window.dilations, window.strides, strict=True
        )
    )
    found: tuple[Value, Value] | None = None
    for taps in itertools.product(*map(range, window.kernel)):
        starts = [k * d for k, d in zip(taps, window.dilations, strict=True)]
        own = b.add(
            "slice", around, starts=(0, 0, *starts), steps=(1, 1, *window.strides),
            shape=(*x.shape[:2], *counts),
        )  # fmt: skip
        place = b.constant(sum(s * w for s, w in zip(starts, steps, strict=True)), "int64")
        found = (own, place) if found is None else _larger(b, found, (own, place))
    assert found is not None, "a window has an element"
    best, offset = found
    first = np.zeros((1,) * len(extents), np.int64)
    for d, count in enumerate(counts):
        along = [-1 if e == d else 1 for e in range(len(extents))]
        origins = np.arange(count) * window.strides[d] - window.before[d]
        first = first + (origins * steps[d]).reshape(along)
    places = b.add("add", offset, b.constant(first, "int64"))
    return best, b.add("broadcast_to", places, shape=best.shape)


def _larger(
    b: Builder, best: tuple[Value, Value], other: tuple[Value, Value]
) -> tuple[Value, Value]:
    """Of elements with their places, the larger ones; NaN is larger than all."""
    larger = b.add("less", best[0], other[0])
    if dtypes.is_float(best[0].dtype):
        known = b.add("logical_not", b.add("is_nan", best[0]))
        missing = b.add("logical_and", known, b.add("is_nan", other[0]))
        larger = b.add("logical_or", larger, missing)
    return b.add("where", larger, other[0], best[0]), b.add("where", larger, other[1], best[1])


def along_axis(b: Builder, x: Value, axis: int, matrix: Array) -> Value:
    """The product of a known matrix of (extent, size) with each line along an axis."""
    last = x.type.rank - 1
    order = [*(d for d in range(last + 1) if d != axis), axis]
    rows = cast_to(b, b.add("transpose", x, axes=tuple(order)), wide(x))
    count = math.prod(rows.shape[:-1])
    flat = reshaped(b, rows, (count, rows.shape[-1]))
    made = b.add("matmul", flat, b.constant(matrix, wide(x)))
    back = [order.index(d) for d in range(last + 1)]
    made = reshaped(b, made, (*rows.shape[:-1], matrix.shape[1]))
    return cast_to(b, b.add("transpose", made, axes=tuple(back)), x.dtype)


def mean_window_matrix(extent: int, size: int) -> Array:
    """Adaptive means: (size, extent) weights, whose rows are means of parts of the extent."""
    found = np.zeros((size, extent))
    for i in range(size):
        start, end = i * extent // size, -(-(i + 1) * extent // size)
        found[i, start:end] = 1 / (end - start)
    return found
