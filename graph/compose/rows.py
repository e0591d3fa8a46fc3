"""Reductions and normalisations, and losses, which are reductions of logarithms."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...base import dtypes
from ...base.errors import ModelError, UnsupportedError
from ..builder import Builder
from ..ir import Value
from .basics import cast_to, reshaped, times, wide


def reduced(b: Builder, operator: str, x: Value, axes: tuple[int, ...], *, keepdims: bool) -> Value:
    """A reduction, which is its unit element over no elements; over no axes it is `x`."""
    if not axes:
        return x
    if x.type.size:
        return b.add(operator, x, axes=axes, keepdims=keepdims)
    shape = [1 if d in axes else e for d, e in enumerate(x.shape) if keepdims or d not in axes]
    if not dtypes.is_float(x.dtype) and operator == "mean":
        raise UnsupportedError("the mean of no elements of {0}", x.dtype)
    return b.add("broadcast_to", b.constant(unit(operator, x.dtype), x.dtype), shape=tuple(shape))


def unit(operator: str, dtype: str) -> float:
    """What a reduction of no elements is."""
    lowest, highest = dtypes.extremes(dtype)
    return {"sum": 0, "prod": 1, "max": lowest, "min": highest, "mean": math.nan}[operator]


def in_float(b: Builder, operator: str, x: Value) -> Value:
    """A function of floats, of integers in float64."""
    if dtypes.is_float(x.dtype):
        return b.add(operator, x)
    return b.add("cast", b.add(operator, b.add("cast", x, dtype="float64")), dtype=x.dtype)


def log_sum_exp(b: Builder, x: Value, axes: tuple[int, ...], *, keepdims: bool) -> Value:
    """The largest element is taken out of the sum, so that no term overflows."""
    if not dtypes.is_float(x.dtype):
        exact = log_sum_exp(b, b.add("cast", x, dtype="float64"), axes, keepdims=keepdims)
        return b.add("cast", exact, dtype=x.dtype)
    if not axes:
        return x
    if not x.type.size:
        return b.add("log", reduced(b, "sum", b.add("exp", x), axes, keepdims=keepdims))
    highest = b.add("max", x, axes=axes, keepdims=True)
    limit = dtypes.largest_float(x.dtype)
    highest = b.add("clip", highest, low=-limit, high=limit)
    total = b.add("sum", b.add("exp", b.add("subtract", x, highest)), axes=axes, keepdims=True)
    value = b.add("add", b.add("log", total), highest)
    return value if keepdims else reshaped(b, value, _rest(x, axes))


def _rest(x: Value, axes: Sequence[int]) -> list[int]:
    return [e for d, e in enumerate(x.shape) if d not in axes]


def last_place(b: Builder, operator: str, x: Value, axis: int, *, keepdims: bool) -> Value:
    """`argmax` or `argmin`: of equal elements the last, which is the first in the reverse order."""
    last = x.shape[axis] - 1
    starts, steps = [0] * x.type.rank, [1] * x.type.rank
    starts[axis], steps[axis] = last, -1
    turned = b.add("slice", x, starts=tuple(starts), steps=tuple(steps), shape=x.shape)
    found = b.add(operator, turned, axis=axis, keepdims=keepdims)
    return b.add("subtract", b.constant(last, "int64"), found)


def hardmax(b: Builder, x: Value, axis: int) -> Value:
    """1 at the first of the largest elements along an axis, else 0."""
    first = b.add("argmax", x, axis=axis, keepdims=True)
    shape = [1] * x.type.rank
    shape[axis] = x.shape[axis]
    places = b.constant(np.arange(x.shape[axis]).reshape(shape), "int64")
    return b.add("cast", b.add("equal", places, first), dtype=x.dtype)


def moments(b: Builder, x: Value, axes: Sequence[int]) -> tuple[Value, Value, Value]:
    """Distances from the mean, the mean, and the variance, whose dimensions are kept."""
    mean = b.add("mean", x, axes=tuple(axes), keepdims=True)
    centred = b.add("subtract", x, mean)
    square = b.add("multiply", centred, centred)
    return centred, mean, b.add("mean", square, axes=tuple(axes), keepdims=True)


def batch_norm(
    b: Builder, x: Value, scale: Value, bias: Value, mean: Value, variance: Value, epsilon: float
) -> Value:
    """By a mean and variance of each channel: one product and one sum, whose factors fold."""
    scale, bias, mean, variance = (cast_to(b, v, wide(x)) for v in (scale, bias, mean, variance))
    root = b.add("sqrt", b.add("add", variance, b.constant(epsilon, variance.dtype)))
    factor = b.add("divide", scale, root)
    shift = b.add("subtract", bias, b.add("multiply", mean, factor))
    product = b.add("multiply", cast_to(b, x, wide(x)), of_channels(b, factor, x))
    return cast_to(b, b.add("add", product, of_channels(b, shift, x)), x.dtype)


def of_batch(b: Builder, x: Value, dtype: str) -> tuple[Value, Value]:
    """The mean and variance of each channel of a batch."""
    axes = (0, *range(2, x.type.rank))
    _, *found = moments(b, cast_to(b, x, wide(x)), axes)
    mean, variance = (cast_to(b, reshaped(b, v, (x.shape[1],)), dtype) for v in found)
    return mean, variance


def of_channels(b: Builder, value: Value, x: Value) -> Value:
    """A value of each channel, so that it broadcasts over what (n, c, *extents) holds."""
    return reshaped(b, value, (x.shape[1] if x.type.rank > 1 else 1, *(1,) * (x.type.rank - 2)))


def layer_norm(
    b: Builder, x: Value, scale: Value, bias: Value | None, *, axis: int, epsilon: float
) -> Value:
    """All dimensions from `axis` on are one row."""
    value = b.add("multiply", b.add("normalize", x, axis=axis, epsilon=epsilon), scale)
    return value if bias is None else b.add("add", value, bias)


def mean_and_inverse(
    b: Builder, x: Value, axes: Sequence[int], epsilon: float
) -> tuple[Value, Value]:
    """The mean, and one over the deviation, in the dtype that norms compute in."""
    own = cast_to(b, x, wide(x))
    _, mean, variance = moments(b, own, axes)
    return mean, inverse_deviation(b, variance, epsilon)


def inverse_deviation(b: Builder, variance: Value, epsilon: float) -> Value:
    """`1 / sqrt(variance + epsilon)`."""
    deviation = b.add("sqrt", b.add("add", variance, b.constant(epsilon, variance.dtype)))
    return b.add("divide", b.constant(1, variance.dtype), deviation)


def rms_norm(b: Builder, x: Value, scale: Value, *, axis: int, epsilon: float) -> Value:
    """`x / sqrt(mean(x * x) + epsilon)` as the dtype of `scale`, times it."""
    normal = b.add("normalize", x, axis=axis, epsilon=epsilon, centered=False)
    return cast_to(b, b.add("multiply", cast_to(b, normal, scale.dtype), scale), scale.dtype)


def instance_norm(b: Builder, x: Value, scale: Value, bias: Value, epsilon: float) -> Value:
    normal = b.add("normalize", x, axis=2, epsilon=epsilon)
    scaled = b.add("multiply", normal, of_channels(b, scale, x))
    return b.add("add", scaled, of_channels(b, bias, x))


def group_norm(
    b: Builder,
    x: Value,
    groups: int,
    scale: Value,
    bias: Value,
    epsilon: float,
    *,
    by_groups: bool = False,
) -> Value:
    """Scale and bias have an element for each channel, or for each group if `by_groups`."""
    if x.shape[1] % groups:
        raise ModelError("{0} channels do not divide into {1} groups", x.shape[1], groups)
    split = reshaped(b, x, (x.shape[0], groups, x.shape[1] // groups, *x.shape[2:]))
    normal = b.add("normalize", split, axis=2, epsilon=epsilon)
    own = (groups, 1 if by_groups else x.shape[1] // groups, *(1,) * (x.type.rank - 2))
    scaled = b.add("multiply", normal, reshaped(b, scale, own))
    return reshaped(b, b.add("add", scaled, reshaped(b, bias, own)), x.shape)


def mean_variance_norm(b: Builder, x: Value, axes: Sequence[int], epsilon: float) -> Value:
    """`(x - mean) / (deviation + epsilon)`."""
    own = cast_to(b, x, wide(x))
    centred, _, variance = moments(b, own, axes)
    deviation = b.add("add", b.add("sqrt", variance), b.constant(epsilon, own.dtype))
    return cast_to(b, b.add("divide", centred, deviation), x.dtype)


def lp_norm(b: Builder, x: Value, p: int, axes: Sequence[int]) -> Value:
    """`x / norm(x)` along axes, where p is 1 or 2; zeros stay zeros."""
    own = cast_to(b, x, wide(x))
    terms = b.add("abs", own) if p == 1 else b.add("multiply", own, own)
    norm = b.add("sum", terms, axes=tuple(axes), keepdims=True)
    norm = norm if p == 1 else b.add("sqrt", norm)
    none = b.add("equal", norm, b.constant(0, own.dtype))
    safe = b.add("where", none, b.constant(1, own.dtype), norm)
    return cast_to(b, b.add("divide", own, safe), x.dtype)


def local_response_norm(
    b: Builder, x: Value, size: int, *, alpha: float, beta: float, bias: float
) -> Value:
    """`x / (bias + alpha / size * sum(x * x)) ** beta`, of sums over neighbouring channels."""
    own = cast_to(b, x, wide(x))
    n, channels, *extents = x.shape
    # Channels as the spatial dimension of a pooling whose other one is all the places of an image.
    flat = reshaped(b, b.add("multiply", own, own), (n, 1, channels, math.prod(extents)))
    total = b.add(
        "sum_pool", flat, kernel=(size, 1), strides=(1, 1), before=((size - 1) // 2, 0),
        after=(size - 1 - (size - 1) // 2, 0), dilations=(1, 1),
    )  # fmt: skip
    scaled = times(b, reshaped(b, total, x.shape), alpha / size)
    base = b.add("add", scaled, b.constant(bias, own.dtype))
    factor = b.add("power", base, b.constant(-beta, own.dtype))
    return cast_to(b, b.add("multiply", own, factor), x.dtype)


def log_softmax_of_classes(b: Builder, x: Value) -> Value:
    """Logarithms of probabilities, whose classes are axis 1, in the dtype that losses take."""
    own = cast_to(b, x, wide(x))
    centred = b.add("subtract", own, b.add("max", own, axes=(1,), keepdims=True))
    total = b.add("sum", b.add("exp", centred), axes=(1,), keepdims=True)
    return b.add("subtract", centred, b.add("log", total))


def likelihood_loss(
    b: Builder,
    logarithms: Value,
    target: Value,
    weights: Value | None,
    *,
    ignored: int | None,
    reduction: str,
) -> Value:
    """Minus the logarithms at the targets, weighted. Classes are axis 1, and are compared.

    Targets that are `ignored` count nothing; `reduction` is mean, sum or none.
    """
    rest = (1,) * (target.type.rank - 1)
    classes = np.arange(logarithms.shape[1]).reshape(-1, *rest)
    place = reshaped(b, target, (target.shape[0], 1, *target.shape[1:]))
    chosen = b.add("equal", place, b.constant(classes, target.dtype))
    dtype = logarithms.dtype
    zero, one = b.constant(0, dtype), b.constant(1, dtype)
    factors = None
    if weights is not None:
        own = reshaped(b, cast_to(b, weights, dtype), (weights.type.size, *rest))
        factors = b.add("sum", b.add("where", chosen, own, zero), axes=(1,))
    if ignored is not None:
        known = b.constant(ignored, target.dtype)
        factors = b.add("where", b.add("equal", target, known), zero, factors or one)
    picked = b.add("sum", b.add("where", chosen, logarithms, zero), axes=(1,))
    loss = b.add("negative", picked)
    loss = loss if factors is None else b.add("multiply", loss, factors)
    axes = tuple(range(target.type.rank))
    if reduction == "mean" and factors is not None:
        return b.add("divide", b.add("sum", loss, axes=axes), b.add("sum", factors, axes=axes))
    return loss if reduction == "none" else b.add(reduction, loss, axes=axes)
