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
