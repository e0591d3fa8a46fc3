"""Reductions over axes, and operators on whole rows: softmax, normalisation, attention.

Sums of narrow floats are in float32, and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import ops
from ...base import dtypes
from ...base.errors import IRError
from ...ops import operands
from ...tir import te
from ...tir.te import Tensor
from ..ir import TensorType
from ..operator import Array, Kind, Operator, one_float, operator, register


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


def _reduction(name: str, lower: Callable[..., Tensor], reference: Callable[..., Any]) -> None:
    def tensors(x: Tensor, *, axes: Sequence[int], keepdims: bool = False) -> Tensor:
        made = lower(x, tuple(axes), keepdims=keepdims)
        if made.dtype == x.dtype:
            return made
        return te.compute(made.extents, lambda *i: te.cast(made[i], x.dtype), name=name)

    def arrays(x: Array, *, axes: Sequence[int], keepdims: bool = False) -> Array:
        is_float = dtypes.is_float(dtypes.from_numpy(x.dtype))
        wide = x.astype(np.float32) if is_float and x.itemsize < 4 else x
        return np.asarray(reference(wide, tuple(axes), keepdims=keepdims), x.dtype)

    def infer(x: TensorType, *, axes: Sequence[int], keepdims: bool = False) -> TensorType:
        places = operands.axes(name, axes, x.rank)
        shape = (
            1 if d in places else e for d, e in enumerate(x.shape) if keepdims or d not in places
        )
        made = TensorType(x.dtype, tuple(shape))
        if name == "mean" and made.size > x.size and not dtypes.is_float(x.dtype):
            raise IRError("mean: there is none of no integers, {0} along {1}", x, axes)
        return made

    register(Operator(name, Kind.REDUCTION, arrays, tensors, infer, tensors))


def _numpy(function: Callable[..., Any]) -> Callable[..., Any]:
    def reduce(x: Array, axes: tuple[int, ...], *, keepdims: bool) -> Array:
        options = {"dtype": x.dtype} if function in (np.sum, np.prod) else {}
        return np.asarray(function(x, axis=axes, keepdims=keepdims, **options))

    return reduce


def _mean(x: Array, axes: tuple[int, ...], *, keepdims: bool) -> Array:
    """That of no element is NaN, of which `np.mean` would warn."""
    wide = x.dtype if dtypes.is_float(dtypes.from_numpy(x.dtype)) else np.float64
    total = np.sum(x, axis=axes, dtype=wide, keepdims=keepdims)
    with np.errstate(all="ignore"):
        return np.asarray(total / total.dtype.type(math.prod(x.shape[axis] for axis in axes)))


def _limits(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """What the largest and the smallest of no element are."""
    return dtypes.extremes(dtypes.from_numpy(dtype))


def _largest(x: Array, axes: tuple[int, ...], *, keepdims: bool) -> Array:
    return np.asarray(np.max(x, axes, keepdims=keepdims, initial=_limits(x.dtype)[0]))


def _smallest(x: Array, axes: tuple[int, ...], *, keepdims: bool) -> Array:
    return np.asarray(np.min(x, axes, keepdims=keepdims, initial=_limits(x.dtype)[1]))


_reduction("sum", ops.sum, _numpy(np.sum))
_reduction("prod", ops.prod, _numpy(np.prod))
_reduction("mean", ops.mean, _mean)
_reduction("max", ops.max, _largest)
_reduction("min", ops.min, _smallest)


def _arg(name: str, lower: Callable[..., Tensor], reference: Callable[..., Any]) -> None:
    def tensors(x: Tensor, *, axis: int, keepdims: bool = False) -> Tensor:
        if x.extents[operands.axis(name, axis, x.ndim)] == 0:
            raise IRError("{0}: there is no element along axis {1} of {2}", name, axis, x.extents)
        if x.dtype == "bool":  # of which no order is known
            x = te.compute(x.extents, lambda *i, bits=x: te.cast(bits[i], "uint8"), name="whole")
        return lower(x, axis, keepdims=keepdims)

    def arrays(x: Array, *, axis: int, keepdims: bool = False) -> Array:
        return np.asarray(reference(x, axis=axis, keepdims=keepdims), np.int64)

    register(Operator(name, Kind.REDUCTION, arrays, tensors, None, tensors))


_arg("argmax", ops.argmax, np.argmax)
_arg("argmin", ops.argmin, np.argmin)


def _attended(
    q: Array, k: Array, v: Array, *masks: Array, scale: float, dtype: str | None
) -> Array:
    wide = np.promote_types(q.dtype, np.float32)
    scores = np.matmul(q.astype(wide), np.swapaxes(k, -1, -2).astype(wide)) * wide.type(scale)
    for mask in masks:
        scores = scores + mask.astype(wide)
    return np.asarray(
        np.matmul(_softmax(scores, axis=-1), v.astype(wide)),
        dtypes.to_numpy(dtype) if dtype else q.dtype,
    )


@operator(Kind.OPAQUE, reference=_attended)
def attention(
    q: Tensor, k: Tensor, v: Tensor, *masks: Tensor, scale: float, dtype: str | None = None
) -> Tensor:
    """`softmax(q @ k^T * scale + mask) @ v`; q (.., s, d), k (.., t, d), v (.., t, e).

    The mask, if there is one, broadcasts to (.., s, t). Scores of narrow floats are in float32. The
    result is of `dtype`, by default that of `q`.
    """
    one_float("attention", q, k, v, *masks)
    if len(masks) > 1:
        raise IRError("attention: {0} masks, expected one or none", len(masks))
    mask = masks[0] if masks else None
    return ops.attention(q, k, v, mask=mask, scale=scale, dtype=dtype)
