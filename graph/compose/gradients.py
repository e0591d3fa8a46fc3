"""Gradients of convolutions and pooling, made of convolutions, products and sums."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..builder import Builder
from ..ir import Value
from ..operator import Array
from .basics import cast_to, part, reshaped, wide
from .contraction import Convolution
from .sampling import adaptive_bounds


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
    starts, ends = (places[:, None] for places in adaptive_bounds(extent, size))
    places = np.arange(extent)
    found: Array = ((places >= starts) & (places < ends)) / (ends - starts)
    return found
