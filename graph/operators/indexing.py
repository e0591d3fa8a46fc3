"""Operators that read elements at places that data decide."""

from __future__ import annotations

import numpy as np

from ...base.errors import IRError
from ...tir import te
from ...tir.te import Expr, Tensor
from ..ir import TensorType
from ..operator import Array, Kind, Limits, operator, within


def clipped(index: Expr, extent: int) -> Expr:
    """An index that counts from the end if it is negative, kept within the dimension."""
    wide = te.cast(index, "int64")
    counted = te.select(wide < 0, wide + extent, wide)
    return te.minimum(te.maximum(counted, te.const(0, "int64")), te.const(extent - 1, "int64"))


def _taken(x: Array, indices: Array, *, axis: int) -> Array:
    return np.take(x, indices.astype(np.int64), axis)


def _along(x: TensorType, _: TensorType, *, axis: int) -> list[Limits]:
    return [within(1, x.shape[axis])]


@operator(Kind.INDEXING, reference=_taken, limits=_along)
def take(x: Tensor, indices: Tensor, *, axis: int) -> Tensor:
    """The slices of `x` at `indices` along `axis`; negative indices count from the end."""
    if x.extents[axis] == 0:
        raise IRError("take: there is no element along axis {0} of {1}", axis, x.extents)
    last = axis + indices.ndim

    def element(*i: Expr) -> Expr:
        place = clipped(indices[i[axis:last]], x.extents[axis])
        return x[(*i[:axis], place, *i[last:])]

    extents = x.extents[:axis] + indices.extents + x.extents[axis + 1 :]
    return te.compute(extents, element, name="take")


def _taken_along(x: Array, indices: Array, *, axis: int) -> Array:
    places = list(np.ogrid[tuple(slice(e) for e in indices.shape)])
    places[axis] = indices.astype(np.int64)
    return np.asarray(x[tuple(places)])


@operator(Kind.INDEXING, reference=_taken_along, limits=_along)
def take_along(x: Tensor, indices: Tensor, *, axis: int) -> Tensor:
    """Element i of the result is that of `x` at i, but along `axis` at `indices[i]`."""
    if x.ndim != indices.ndim or x.extents[axis] == 0:
        raise IRError("take_along: {0} at {1}", x.extents, indices.extents)
    for d, (e, n) in enumerate(zip(x.extents, indices.extents, strict=True)):
        if d != axis and n > e:
            raise IRError("take_along: {0} at {1}", x.extents, indices.extents)

    def element(*i: Expr) -> Expr:
        return x[(*i[:axis], clipped(indices[i], x.extents[axis]), *i[axis + 1 :])]

    return te.compute(indices.extents, element, name="take_along")


def _taken_nd(x: Array, indices: Array, *, batch: int) -> Array:
    shape = indices.shape[:-1]
    own = [
        np.arange(e).reshape((1,) * d + (e,) + (1,) * (len(shape) - d - 1))
        for d, e in enumerate(shape[:batch])
    ]
    places = tuple(indices[..., k].astype(np.int64) for k in range(indices.shape[-1]))
    return np.asarray(x[(*own, *places)])


def _at(x: TensorType, indices: TensorType, *, batch: int) -> list[Limits]:
    return [within(1, x.shape[batch + k], k) for k in range(indices.shape[-1])]


@operator(Kind.INDEXING, reference=_taken_nd, limits=_at)
def take_nd(x: Tensor, indices: Tensor, *, batch: int = 0) -> Tensor:
    """The slices of `x` at tuples of indices, which are the last dimension of `indices`.

    The first `batch` dimensions of both are the same, and are not indexed.
    """
    depth = indices.extents[-1]
    rank = indices.ndim - 1
    end = batch + depth
    if not 0 <= batch <= rank or end > x.ndim or x.extents[:batch] != indices.extents[:batch]:
        raise IRError("take_nd: {0} at {1}, batch {2}", x.extents, indices.extents, batch)
    if 0 in x.extents[batch:end]:
        raise IRError("take_nd: there is no element in {0}", x.extents)

    def element(*i: Expr) -> Expr:
        places = [clipped(indices[(*i[:rank], k)], x.extents[batch + k]) for k in range(depth)]
        return x[(*i[:batch], *places, *i[rank:])]

    return te.compute(indices.extents[:-1] + x.extents[end:], element, name="take_nd")
