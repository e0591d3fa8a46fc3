"""Windows that slide over the spatial dimensions of (n, c, *extents), and resizing along one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...base import dtypes
from ...base.errors import IRError
from ...ops.operands import widened
from ...ops.pooling import pooled
from ...ops.window import Window
from ...tir import te
from ...tir.te import Axis, Expr, Tensor
from ..operator import Array, Kind, Operator, one_float, operator, register
from .contraction import windows
from .indexing import clipped


def _pooling(
    name: str,
    reduce: Callable[[Expr, list[Axis]], Expr],
    reference: Callable[..., Any],
    *,
    lowest: bool = False,
) -> None:
    """Register a reduction over windows of what is around `x` too: the lowest value, or zeros."""

    def tensors(
        x: Tensor,
        *,
        kernel: Sequence[int],
        strides: Sequence[int],
        before: Sequence[int],
        after: Sequence[int],
        dilations: Sequence[int],
    ) -> Tensor:
        zipped = zip(x.extents[2:], kernel, strides, before, after, dilations, strict=True)
        along = [Window(*facts) for facts in zipped]
        for w in along:
            if min(w.kernel, w.stride, w.dilation, w.outputs) < 1 or min(w.before, w.after) < 0:
                raise IRError("{0}: a window of {1} in {2}", name, w.span, w.extent)
        fill = te.lowest(x.dtype) if lowest else te.const(0, x.dtype)

        def element(value: Expr, axes: list[Axis], *_: Expr) -> Expr:
            return te.cast(reduce(value, axes), x.dtype)

        return pooled(x, fill, along, range(2, x.ndim), element, name)

    def arrays(
        x: Array,
        *,
        kernel: Sequence[int],
        strides: Sequence[int],
        before: Sequence[int],
        after: Sequence[int],
        dilations: Sequence[int],
    ) -> Array:
        is_float = dtypes.is_float(dtypes.from_numpy(x.dtype))
        wide = x.astype(np.float32) if is_float and x.itemsize < 4 else x
        least = -np.inf if is_float else np.iinfo(x.dtype).min
        widths = [(0, 0), (0, 0), *zip(before, after, strict=True)]
        padded = np.pad(wide, widths, constant_values=least if lowest else 0)
        seen = windows(np.ascontiguousarray(padded), kernel, strides, dilations)
        return np.asarray(reference(seen, axis=tuple(range(x.ndim, seen.ndim))), x.dtype)

    register(Operator(name, Kind.WINDOW, arrays, tensors, None, tensors))


_pooling("max_pool", te.max, np.max, lowest=True)
_pooling("sum_pool", te.sum, np.sum)


def _resampled(x: Array, places: Array, weights: Array, *, axis: int) -> Array:
    narrow = x.itemsize < 4
    last = np.moveaxis(x.astype(np.float32) if narrow else x, axis, -1)
    taken = last[..., places] * weights
    return np.asarray(np.moveaxis(taken.sum(-1), -1, axis), x.dtype)


_UNROLLED = 4
"""Weights of an element that are written out; more are a loop."""


@operator(Kind.WINDOW, reference=_resampled)
def resample(x: Tensor, places: Tensor, weights: Tensor, *, axis: int) -> Tensor:
    """Element i along `axis` is the sum over k of `x` at `places[i, k]` times `weights[i, k]`."""
    one_float("resample", x, weights)
    if places.ndim != 2 or weights.extents != places.extents or x.extents[axis] == 0:
        raise IRError(
            "resample: {0} at places {1}, weights {2}",
            x.extents, places.extents, weights.extents,
        )  # fmt: skip
    size, count = places.extents
    extents = (*x.extents[:axis], size, *x.extents[axis + 1 :])

    def element(*i: Expr) -> Expr:
        def term(k: Expr | int) -> Expr:
            at = clipped(places[i[axis], k], x.extents[axis])
            return widened(x[(*i[:axis], at, *i[axis + 1 :])]) * widened(weights[i[axis], k])

        if count > _UNROLLED:
            axes = te.reduce_axis(count, name="k")
            return te.cast(te.sum(term(axes), axis=[axes]), x.dtype)
        total = term(0)
        for k in range(1, count):
            total = total + term(k)
        return te.cast(total, x.dtype)

    return te.compute(extents, element, name="resample")


def _nearest(x: Array, *, scales: Sequence[tuple[int, int, int]], shape: Sequence[int]) -> Array:
    places = [(m * np.arange(n) + s) // d for (m, s, d), n in zip(scales, shape, strict=True)]
    return x[np.ix_(*(np.clip(p, 0, e - 1) for p, e in zip(places, x.shape, strict=True)))]


@operator(Kind.MOVEMENT, reference=_nearest)
def resize_nearest(
    x: Tensor, *, scales: Sequence[tuple[int, int, int]], shape: Sequence[int]
) -> Tensor:
    """Element i along each dimension is element `(i * m + s) // d` of `x`, for its (m, s, d)."""

    def place(i: Expr, extent: int, size: int, scale: tuple[int, int, int]) -> Expr | int:
        m, s, d = scale
        if min(m, s) < 0 or d < 1 or ((size - 1) * m + s) // d >= extent:
            raise IRError("resize_nearest: {0} elements of {1} by {2}", size, extent, scale)
        return (i * m + s) // d

    def element(*indices: Expr) -> Expr:
        zipped = zip(indices, x.extents, shape, scales, strict=True)
        return x[tuple(place(*facts) for facts in zipped)]

    return te.compute(shape, element, name="resize")


def _interleaved(
    x: Array, *, factors: Sequence[int], starts: Sequence[int], shape: Sequence[int]
) -> Array:
    rank = len(factors)
    channels = x.shape[1] // int(np.prod(factors))
    split = x.reshape(x.shape[0], channels, *factors, *x.shape[2:])
    order = [0, 1, *(d for p in range(rank) for d in (2 + rank + p, 2 + p))]
    whole = split.transpose(order).reshape(
        x.shape[0], channels, *(e * f for e, f in zip(x.shape[2:], factors, strict=True))
    )
    cut = [slice(s, s + n) for s, n in zip(starts, shape, strict=True)]
    return whole[(slice(None), slice(None), *cut)]


@operator(Kind.MOVEMENT, reference=_interleaved)
def interleave(
    x: Tensor, *, factors: Sequence[int], starts: Sequence[int], shape: Sequence[int]
) -> Tensor:
    """Channels to space: (n, c * prod(factors), *extents) to (n, c, *shape).

    The last digits of a channel, in the base `factors`, are places within an element of `extents`;
    the first place of the result is `starts`.
    """
    count = 1
    for factor in factors:
        count *= factor
    n, channels, *extents = x.extents
    for e, f, s, size in zip(extents, factors, starts, shape, strict=True):
        if s < 0 or s + size > e * f:
            raise IRError("interleave: {0} from {1} of {2} times {3}", size, s, e, f)
    if channels % count:
        raise IRError("interleave: {0} channels by {1}", channels, tuple(factors))

    def element(b: Expr, c: Expr, *places: Expr) -> Expr:
        read = list[Expr]()
        for place, start, factor in zip(places, starts, factors, strict=True):
            c = c * factor + (place + start) % factor
            read.append((place + start) // factor)
        return x[(b, c, *read)]

    return te.compute((n, channels // count, *shape), element, name="interleave")
