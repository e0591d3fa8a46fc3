"""Operators that read elements at places that data decide."""

from __future__ import annotations

import numpy as np

from ...base.errors import IRError
from ...tir import te
from ...tir.te import Expr, Tensor
from ..operator import Array, Kind, operator


def clipped(index: Expr, extent: int) -> Expr:
    """An index that counts from the end if it is negative, kept within the dimension."""
    wide = te.cast(index, "int64")
    counted = te.select(wide < 0, wide + extent, wide)
    return te.minimum(te.maximum(counted, te.const(0, "int64")), te.const(extent - 1, "int64"))


def _taken(x: Array, indices: Array, *, axis: int) -> Array:
    return np.take(x, indices.astype(np.int64), axis)


@operator(Kind.INDEXING, reference=_taken)
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
