"""Gradients of convolutions, pooling and sampling, made of convolutions, products and sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import product

import numpy as np

from ..builder import Builder
from ..ir import Value
from ..operator import Array
from .basics import cast_to, part, reshaped, row, stacked, times, wide
from .contraction import Convolution
from .pointwise import clipped
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


def grid_gradients(
    b: Builder, gradient: Value, x: Value, grid: Value, *, mode: str, padding: str, align: bool
) -> tuple[Value, Value]:
    """Those of `x` and of `grid` in `grid_sample`, nearest or linear, beyond zeros or a border."""
    rank, own = x.type.rank - 2, wide(x)
    images, extents, count = x.shape[:2], x.shape[2:], math.prod(grid.shape[1:-1])
    places = reshaped(b, cast_to(b, grid, own), (images[0], count, rank))
    sides = [
        _taps(b, row(b, places, 2, rank - 1 - d), extent, mode, padding, align=align)
        for d, extent in enumerate(extents)
    ]
    arriving = reshaped(b, cast_to(b, gradient, own), (*images, count))
    flat = reshaped(b, cast_to(b, x, own), (*images, math.prod(extents)))
    multiplied, added = (partial(reduce, partial(b.add, name)) for name in ("multiply", "add"))
    elements, updates, slopes = list[Value](), list[Value](), [list[Value]() for _ in extents]
    for taps in product(*sides):
        place = taps[0].place
        for tap, extent in zip(taps[1:], extents[1:], strict=True):
            scaled = b.add("multiply", place, b.constant(extent, "int64"))
            place = b.add("add", scaled, tap.place)
        place = reshaped(b, place, (images[0], 1, count))
        elements.append(b.add("broadcast_to", place, shape=arriving.shape))
        weights = [tap.weight for tap in taps]
        weight = reshaped(b, multiplied(weights), (images[0], 1, count))
        updates.append(b.add("multiply", arriving, weight))
        read = b.add("take_along", flat, elements[-1], axis=2)
        growth = b.add("sum", b.add("multiply", arriving, read), axes=(1,))
        for d, tap in enumerate(taps):
            slopes[d].append(multiplied([growth, tap.slope, *weights[:d], *weights[d + 1 :]]))
    zeros = b.add("broadcast_to", b.constant(0, own), shape=flat.shape)
    written = (b.add("concatenate", *values, axis=2) for values in (elements, updates))
    of_x = b.add("scatter", zeros, *written, axis=2, reduction="add")
    if mode == "nearest":
        of_grid = b.add("broadcast_to", b.constant(0, own), shape=grid.shape)
    else:
        of_grid = reshaped(b, stacked(b, [added(s) for s in reversed(slopes)], 2), grid.shape)
    return cast_to(b, reshaped(b, of_x, x.shape), x.dtype), cast_to(b, of_grid, grid.dtype)


@dataclass(frozen=True)
class _Tap:
    """Elements beside the places of a grid, along one dimension.

    `weight` is how much of them is read, `slope` by how much this grows with the coordinate.
    """

    place: Value
    weight: Value
    slope: Value


def _taps(
    b: Builder, own: Value, extent: int, mode: str, padding: str, *, align: bool
) -> list[_Tap]:
    """Those of coordinates from -1 to 1; of elements that are outside, weight and slope are 0."""

    def number(value: float) -> Value:
        return b.constant(value, own.dtype)

    above = b.add("add", own, number(1))
    if align:
        at = b.add("multiply", times(b, above, 0.5), number(extent - 1))
    else:
        at = times(b, b.add("subtract", times(b, above, extent), number(1)), 0.5)
    at = b.add("where", b.add("is_nan", at), number(0), at)
    slope = number((extent - 1 if align else extent) / 2)
    if padding == "border":
        ends = number(0), number(extent - 1)
        inner = b.add("logical_and", b.add("less", ends[0], at), b.add("less", at, ends[1]))
        at, slope = clipped(b, at, *ends), b.add("where", inner, slope, number(0))
    at = clipped(b, at, number(-4), number(extent + 4))
    first = b.add("round" if mode == "nearest" else "floor", at)
    ratio = b.add("subtract", at, first)
    weights = [(b.add("subtract", number(1), ratio), -1), (ratio, 1)]
    taps = list[_Tap]()
    for tap, (weight, sign) in enumerate([(number(1), 0)] if mode == "nearest" else weights):
        place = b.add("add", cast_to(b, first, "int64"), b.constant(tap, "int64"))
        inside = clipped(b, place, b.constant(0, "int64"), b.constant(extent - 1, "int64"))
        exists = b.add("equal", place, inside)
        held = (b.add("where", exists, v, number(0)) for v in (weight, times(b, slope, sign)))
        taps.append(_Tap(inside, *held))
    return taps
