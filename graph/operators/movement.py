"""Operators that move elements: each element of the result is one of an operand, or a fill."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ... import ops
from ...base.errors import IRError
from ...ops import operands as broadcast
from ...tir import te
from ...tir.te import Expr, Tensor
from ..ir import TensorType
from ..operator import Array, Kind, one_float, operator


def _reshaped(x: TensorType, *, shape: Sequence[int]) -> TensorType:
    new = TensorType(x.dtype, tuple(shape))
    if new.size != x.size or min(shape, default=0) < 0:
        raise IRError("reshape: {0} elements do not fit into shape {1}", x.size, list(shape))
    return new


@operator(Kind.VIEW, reference=lambda x, *, shape: x.reshape(shape), infer=_reshaped)
def reshape(x: Tensor, *, shape: Sequence[int]) -> Tensor:
    """The elements in row-major order in another shape."""
    return ops.reshape(x, shape)


@operator(Kind.MOVEMENT, reference=lambda x, *, axes: x.transpose(axes))
def transpose(x: Tensor, *, axes: Sequence[int]) -> Tensor:
    """Dimension k of the result is dimension `axes[k]` of `x`."""
    return ops.transpose(x, tuple(axes))


@operator(Kind.MOVEMENT, reference=lambda x, *, shape: np.broadcast_to(x, shape))
def broadcast_to(x: Tensor, *, shape: Sequence[int]) -> Tensor:
    """`x` by numpy's broadcasting in `shape`."""
    if broadcast.shape("broadcast_to", x.extents, tuple(shape)) != tuple(shape):
        raise IRError("broadcast_to: {0} does not broadcast to {1}", x.extents, tuple(shape))
    return te.compute(shape, lambda *i: broadcast.element(x, i), name="broadcast")


def _concatenated(*arrays: Array, axis: int) -> Array:
    return np.concatenate(arrays, axis)


@operator(Kind.MOVEMENT, reference=_concatenated)
def concatenate(*tensors: Tensor, axis: int) -> Tensor:
    """The operands one after the other along `axis`."""
    one_float("concatenate", *tensors)
    return ops.concatenate(tensors, axis)


def _sliced(
    x: Array, *, starts: Sequence[int], steps: Sequence[int], shape: Sequence[int]
) -> Array:
    places = [s + t * np.arange(n) for s, t, n in zip(starts, steps, shape, strict=True)]
    return x[np.ix_(*places)] if places else x


@operator(Kind.MOVEMENT, reference=_sliced)
def slice_(
    x: Tensor, *, starts: Sequence[int], steps: Sequence[int], shape: Sequence[int]
) -> Tensor:
    """Element i along each dimension is element `start + i * step` of `x`."""
    for e, start, step, n in zip(x.extents, starts, steps, shape, strict=True):
        last = start + step * (n - 1)
        if n < 0 or (n > 0 and not (0 <= start < e and 0 <= last < e)):
            raise IRError("slice: elements {0} to {1} of a dimension of {2}", start, last, e)

    def element(*indices: Expr) -> Expr:
        return x[tuple(s + i * t for i, s, t in zip(indices, starts, steps, strict=True))]

    return te.compute(shape, element, name="slice")


def _windows(x: Array, *, axis: int, size: int, step: int) -> Array:
    count = (x.shape[axis] - size) // step + 1
    return np.take(x, step * np.arange(count)[:, None] + np.arange(size), axis)


@operator(Kind.MOVEMENT, reference=_windows)
def windows(x: Tensor, *, axis: int, size: int, step: int) -> Tensor:
    """Windows of `size` elements, `step` apart, along an axis, which becomes (count, size)."""
    extent = x.extents[axis]
    if not 0 <= size <= extent or step < 1:
        raise IRError("windows: {0} of {1} elements, {2} apart", size, extent, step)
    shape = (*x.extents[:axis], (extent - size) // step + 1, size, *x.extents[axis + 1 :])

    def element(*i: Expr) -> Expr:
        return x[(*i[:axis], i[axis] * step + i[axis + 1], *i[axis + 2 :])]

    return te.compute(shape, element, name="windows")


def _padded(
    x: Array, *, before: Sequence[int], after: Sequence[int], value: float, mode: str
) -> Array:
    widths = list(zip(before, after, strict=True))
    if not widths:
        return x
    if mode == "constant":
        return np.pad(x, widths, constant_values=x.dtype.type(value))
    return np.pad(x, widths, mode=mode)  # type: ignore[call-overload, no-any-return]


@operator(Kind.MOVEMENT, reference=_padded)
def pad(
    x: Tensor,
    *,
    before: Sequence[int],
    after: Sequence[int],
    value: bool | float = 0,
    mode: str = "constant",
) -> Tensor:
    """`x` with elements around it: `value`, or those that `mode` (reflect, edge, wrap) says."""
    if min((*before, *after), default=0) < 0:
        raise IRError("pad: widths {0} and {1} are negative", before, after)
    if mode not in ("constant", "reflect", "edge", "wrap"):
        raise IRError("pad: there is no mode {0}", mode)
    if mode == "constant":
        widths = list(zip(before, after, strict=True))
        return ops.pad(x, widths, te.const(value, x.dtype))
    shape = [b + e + a for b, e, a in zip(before, x.extents, after, strict=True)]

    def source(i: Expr, extent: int, b: int, a: int) -> Expr | int:
        if not b and not a:
            return i
        if not extent:
            raise IRError("pad: there is no element that {0} and {1} would repeat", b, a)
        place = i - b
        if mode == "edge":
            return te.minimum(te.maximum(place, 0), extent - 1)
        if mode == "wrap":
            return place % extent
        if max(b, a) >= extent:
            raise IRError("pad: {0} and {1} are no reflections of {2}", b, a, extent)
        place = te.abs(place) if b else place
        return extent - 1 - te.abs(extent - 1 - place) if a else place

    def element(*indices: Expr) -> Expr:
        zipped = zip(indices, x.extents, before, after, strict=True)
        return x[tuple(source(i, e, b, a) for i, e, b, a in zipped)]

    return te.compute(shape, element, name="pad")
