"""Operators on whole rows: softmax and normalisation."""

from __future__ import annotations

import numpy as np

from ... import ops
from ...tir.te import Tensor
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
