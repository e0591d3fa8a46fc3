"""Operators on whole rows: softmax and normalisation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ... import ops
from ...base import dtypes
from ...base.errors import IRError
from ...tir import te
from ...tir.te import Expr, Operand, Tensor
from ..operator import Array, Kind, operator


def _softmax(x: Array, *, axis: int) -> Array:
    e = np.exp(x - x.max(axis, keepdims=True))
    return np.asarray(e / e.sum(axis, keepdims=True))


@operator(Kind.ROWS, reference=_softmax)
def softmax(x: Tensor, *, axis: int) -> Tensor:
    """`exp(x) / sum(exp(x))` along `axis`."""
    return ops.softmax(x, axis=axis)


def _log_softmax(x: Array, *, axis: int) -> Array:
    shifted = x - x.max(axis, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis, keepdims=True)))


@operator(Kind.ROWS, reference=_log_softmax)
def log_softmax(x: Tensor, *, axis: int) -> Tensor:
    """The logarithm of `softmax`."""
    return ops.log_softmax(x, axis=axis)


def _ranked(x: Array, *, axis: int, count: int, largest: bool) -> tuple[Array, Array]:
    # Stable, and NaN is the largest: the order of the negatives would turn NaN and small integers.
    if largest:
        order = np.flip(np.argsort(np.flip(x, axis), axis, kind="stable"), axis)
        order = x.shape[axis] - 1 - order
    else:
        order = np.argsort(x, axis, kind="stable")
    first = np.take(order, np.arange(count), axis).astype(np.int64)
    return np.take_along_axis(x, first, axis), first


@operator(Kind.ROWS, reference=_ranked)
def top(x: Tensor, *, axis: int, count: int, largest: bool = True) -> tuple[Tensor, Tensor]:
    """The `count` largest (or smallest) elements along `axis`, in their order, and their places.

    Of equal ones the first comes first. NaN is larger than all numbers.
    """
    extent = x.extents[axis]
    is_float = dtypes.is_float(x.dtype)
    if not 0 <= count <= extent:
        raise IRError("top: {0} of {1} elements", count, extent)

    def at(i: Sequence[Expr], k: Operand) -> Expr:
        return x[(*i[:axis], k, *i[axis + 1 :])]

    def rank(*i: Expr) -> Expr:
        """How many elements come before this one."""
        k = te.reduce_axis(extent, name="k")
        own, other = x[i], at(i, k)
        before = other > own if largest else other < own
        same = other == own
        if is_float:
            nan, its = te.isnan(own), te.isnan(other)
            before = before | ((its & ~nan) if largest else (nan & ~its))
            same = same | (nan & its)
        return te.sum(te.cast(before | (same & (k < i[axis])), "int32"), axis=k)

    ranks = te.compute(x.extents, rank, name="rank")
    shape = (*x.extents[:axis], count, *x.extents[axis + 1 :])

    def place(*i: Expr) -> Expr:
        k = te.reduce_axis(extent, name="p")
        its = ranks[(*i[:axis], k, *i[axis + 1 :])]
        chosen = te.select(
            its == te.cast(i[axis], "int32"), te.cast(k, "int64"), te.const(0, "int64")
        )
        return te.sum(chosen, axis=k)

    places = te.compute(shape, place, name="place")
    last = te.const(max(extent - 1, 0), "int64")
    values = te.compute(
        shape, lambda *i: at(i, te.minimum(te.maximum(places[i], te.const(0, "int64")), last)),
        name="top",
    )  # fmt: skip
    return values, places


def _normalized(x: Array, *, axis: int, epsilon: float, centered: bool) -> Array:
    axes = tuple(range(axis, x.ndim))
    wide = x.astype(np.float32) if x.itemsize < 4 else x
    distance = wide - wide.mean(axes, keepdims=True) if centered else wide
    variance = (distance * distance).mean(axes, keepdims=True)
    return np.asarray(distance / np.sqrt(variance + epsilon), x.dtype)


@operator(Kind.ROWS, reference=_normalized)
def normalize(x: Tensor, *, axis: int, epsilon: float, centered: bool = True) -> Tensor:
    """Rows, which all dimensions from `axis` on make up, with mean 0 and variance 1.

    It is `(x - mean) / sqrt(variance + epsilon)`; without `centered` the mean is taken as zero.
    """
    return ops.layer_norm(
        x, dims=x.ndim - axis, epsilon=epsilon, centered=centered, name="normalize"
    )
