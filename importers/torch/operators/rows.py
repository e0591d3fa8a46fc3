"""Reductions, normalisations, sums along an axis, and what is the largest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from ....base import dtypes
from ....graph.builder import Builder
from ....graph.compose import rows
from ....graph.compose.basics import cast_to, in_rank, part, reshaped, room, row, times, wide
from ....graph.compose.pointwise import power
from ....graph.ir import TensorType, Value
from ...unsupported import Reason, Unsupported
from ..table import Number, aten, axes_of, in_wide, narrowed

Dims = Sequence[int] | int | None


def _reduced(
    operator: str,
    b: Builder,
    out: TensorType,
    x: Value,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: object = None,
) -> Value:
    del dtype
    if operator in ("max", "min") and out.size and not x.type.size:
        raise Unsupported(Reason.ATTRIBUTE, f"the {operator} of no elements")
    own = cast_to(b, x, out.dtype)
    axes = axes_of(dim, x.type.rank)
    return rows.reduced(b, operator, own, axes, keepdims=keepdim)


for _name, _operator in (
    ("sum", "sum"),
    ("sum.dim_IntList", "sum"),
    ("mean", "mean"),
    ("mean.dim", "mean"),
    ("prod", "prod"),
    ("prod.dim_int", "prod"),
    ("amax", "max"),
    ("amin", "min"),
    ("max", "max"),
    ("min", "min"),
):
    aten(_name)(partial(_reduced, _operator))


@aten("any", "any.dim", "any.dims")
def any_(b: Builder, _out: TensorType, x: Value, dim: Dims = None, keepdim: bool = False) -> Value:
    """Of an empty list of axes, unlike sums, along none."""
    own = cast_to(b, cast_to(b, x, "bool"), "int32")
    axes = () if dim == [] else axes_of(dim, x.type.rank)
    found = rows.reduced(b, "sum", own, axes, keepdims=keepdim)
    return cast_to(b, found, "bool")


def _chosen(
    operator: str, b: Builder, _out: TensorType, x: Value, dim: int, keepdim: bool = False
) -> Sequence[Value]:
    """The largest elements along an axis, and the places of the first of them."""
    if not x.type.rank:
        return x, b.constant(0, "int64")
    axis = in_rank(dim, x.type.rank)
    value = b.add(operator, x, axes=(axis,), keepdims=keepdim)
    return value, b.add(f"arg{operator}", x, axis=axis, keepdims=keepdim)


aten("max.dim")(partial(_chosen, "max"))
aten("min.dim")(partial(_chosen, "min"))


def _place(
    operator: str,
    b: Builder,
    out: TensorType,
    x: Value,
    dim: int | None = None,
    keepdim: bool = False,
) -> Value:
    if dim is None or not x.type.rank:
        x, dim = reshaped(b, x, (x.type.size,)), 0
    axis = in_rank(dim, x.type.rank)
    return reshaped(b, b.add(operator, x, axis=axis, keepdims=keepdim), out.shape)


aten("argmax")(partial(_place, "argmax"))
aten("argmin")(partial(_place, "argmin"))


def _ranked(b: Builder, x: Value, dim: int, count: int | None, largest: bool) -> Sequence[Value]:
    """The largest elements along an axis in their order, without a count all, and their places."""
    if not x.type.rank:
        return x, b.constant(0, "int64")
    axis = in_rank(dim, x.type.rank)
    number = x.shape[axis] if count is None else count
    return b.add_all("top", x, axis=axis, count=number, largest=largest)


@aten("topk")
def top(
    b: Builder,
    _out: TensorType,
    x: Value,
    k: int,
    dim: int = -1,
    largest: bool = True,
    _in_order: bool = True,
) -> Sequence[Value]:
    return _ranked(b, x, dim, k, largest)


@aten("sort")
def sort(
    b: Builder, _out: TensorType, x: Value, dim: int = -1, descending: bool = False
) -> Sequence[Value]:
    return _ranked(b, x, dim, None, descending)


@aten("sort.stable")
def stable_sort(
    b: Builder,
    _out: TensorType,
    x: Value,
    *,
    stable: bool = True,
    dim: int = -1,
    descending: bool = False,
) -> Sequence[Value]:
    del stable  # equal elements always keep their order
    return _ranked(b, x, dim, None, descending)


def _accumulated(
    product: bool, b: Builder, out: TensorType, x: Value, dim: int, *, dtype: object = None
) -> Value:
    del dtype
    own = cast_to(b, x, out.dtype)
    if not x.type.rank or not x.type.size:
        return own
    return b.add("accumulate", own, axis=in_rank(dim, x.type.rank), product=product)


aten("cumsum")(partial(_accumulated, False))
aten("cumprod")(partial(_accumulated, True))


def _until(b: Builder, x: Value, axis: int, fill: float) -> Value:
    """For each element those up to it along an axis, which are a last dimension; others `fill`."""
    extent = x.shape[axis]
    room(x.type.size, extent)
    last = b.add("transpose", x, axes=(*(d for d in range(x.type.rank) if d != axis), axis))
    last = reshaped(b, last, (*last.shape[:-1], 1, extent))
    until = b.constant(np.tri(extent, dtype=bool))
    return b.add("where", until, last, b.constant(fill, x.dtype))


def _back(b: Builder, x: Value, axis: int) -> Value:
    """The last dimension as that at `axis`."""
    order = list(range(x.type.rank - 1))
    order.insert(axis, x.type.rank - 1)
    return b.add("transpose", x, axes=tuple(order))


def _extreme(operator: str, b: Builder, _out: TensorType, x: Value, dim: int) -> Sequence[Value]:
    """The largest elements up to each, and the places of the last of them."""
    if not x.type.rank:
        return x, b.constant(0, "int64")
    if not x.type.size:
        return x, cast_to(b, x, "int64")
    axis = in_rank(dim, x.type.rank)
    own = cast_to(b, x, "int32") if x.dtype == "bool" else x
    low, high = dtypes.extremes(own.dtype)
    seen = _until(b, own, axis, low if operator == "max" else high)
    value = b.add(operator, seen, axes=(seen.type.rank - 1,), keepdims=True)
    # Of equal elements the last one that is seen: no later one has a place.
    same = b.add("equal", seen, value)
    if dtypes.is_float(own.dtype):
        both = b.add("logical_and", b.add("is_nan", seen), b.add("is_nan", value))
        same = b.add("logical_or", same, both)
    places = b.constant(np.where(np.tri(x.shape[axis], dtype=bool), np.arange(x.shape[axis]), -1))
    chosen = b.add("where", same, cast_to(b, places, "int64"), b.constant(-1, "int64"))
    place = b.add("max", chosen, axes=(seen.type.rank - 1,))
    value = cast_to(b, reshaped(b, value, value.shape[:-1]), x.dtype)
    return _back(b, value, axis), _back(b, place, axis)


aten("cummax")(partial(_extreme, "max"))
aten("cummin")(partial(_extreme, "min"))


@aten("logcumsumexp")
def log_sums_of_exp(b: Builder, out: TensorType, x: Value, dim: int) -> Value:
    if not x.type.rank or not x.type.size:
        return x
    axis = in_rank(dim, x.type.rank)

    def compute(v: Value) -> Value:
        seen = _until(b, v, axis, -math.inf)
        found = rows.log_sum_exp(b, seen, (seen.type.rank - 1,), keepdims=False)
        return _back(b, found, axis)

    return in_wide(b, x, out, compute)


def _nth(
    b: Builder, out: TensorType, x: Value, n: int, dim: int, keepdim: bool
) -> tuple[Value, Value]:
    """The nth element from the smallest on, counted from 0, and its place."""
    if not x.type.rank:
        return x, b.constant(0, "int64")
    axis = in_rank(dim, x.type.rank)
    if not dtypes.is_float(x.dtype):
        raise Unsupported(Reason.DTYPE, f"the places of {x.dtype}, of which many are equal")
    found = b.add_all("top", x, axis=axis, count=n + 1, largest=False)
    value, place = (part(b, v, axis, n, 1) if keepdim else row(b, v, axis, n) for v in found)
    return reshaped(b, value, out.shape), reshaped(b, place, out.shape)


@aten("kthvalue")
def smallest(
    b: Builder, out: TensorType, x: Value, k: int, dim: int = -1, keepdim: bool = False
) -> Sequence[Value]:
    return _nth(b, out, x, k - 1, dim, keepdim)


@aten("median.dim")
def median_along(
    b: Builder, out: TensorType, x: Value, dim: int, keepdim: bool = False
) -> Sequence[Value]:
    """The lower one of two in the middle of each row; NaN, and its place, if there is one."""
    if not x.type.rank:
        return x, b.constant(0, "int64")
    axis = in_rank(dim, x.type.rank)
    value, place = _nth(b, out, x, (x.shape[axis] - 1) // 2, dim, keepdim)
    missing = cast_to(b, b.add("is_nan", x), "int32")
    first = reshaped(b, b.add("argmax", missing, axis=axis), out.shape)
    some = b.add("equal", b.add("max", missing, axes=(axis,)), b.constant(1, "int32"))
    some = reshaped(b, some, out.shape)
    return (
        b.add("where", some, b.constant(math.nan, x.dtype), value),
        b.add("where", some, first, place),
    )


@aten("nanmedian.dim")
def median_of_numbers(
    b: Builder, out: TensorType, x: Value, dim: int, keepdim: bool = False
) -> Sequence[Value]:
    """The lower one of two in the middle of the numbers of each row."""
    del keepdim
    if not x.type.rank:
        return x, b.constant(0, "int64")
    if not dtypes.is_float(x.dtype):
        raise Unsupported(Reason.DTYPE, f"the places of {x.dtype}, of which many are equal")
    axis = in_rank(dim, x.type.rank)
    found = b.add_all("top", x, axis=axis, count=x.shape[axis], largest=False)
    numbers = cast_to(b, b.add("logical_not", b.add("is_nan", x)), "int64")
    count = b.add("sum", numbers, axes=(axis,), keepdims=True)
    last = b.add(
        "maximum", b.add("subtract", count, b.constant(1, "int64")), b.constant(0, "int64")
    )
    middle = b.add("shift_right", last, b.constant(1, "int64"))
    value, place = (
        reshaped(b, b.add("take_along", v, middle, axis=axis), out.shape) for v in found
    )
    return value, place


@aten("nanmedian")
def median_of_all_numbers(b: Builder, out: TensorType, x: Value) -> Value:
    if not dtypes.is_float(x.dtype):
        return median(b, out, x)
    return median_of_numbers(b, out, reshaped(b, x, (x.type.size,)), 0)[0]


@aten("median")
def median(b: Builder, out: TensorType, x: Value) -> Value:
    """The lower one of two in the middle; NaN if there is one."""
    if not x.type.size:
        raise Unsupported(Reason.ATTRIBUTE, "the median of no elements")
    flat = reshaped(b, x, (x.type.size,))
    count = (x.type.size - 1) // 2 + 1
    value = b.add_all("top", flat, axis=0, count=count, largest=False)[0]
    value = row(b, value, 0, count - 1)
    if dtypes.is_float(x.dtype):
        bad = rows.reduced(
            b, "max", cast_to(b, b.add("is_nan", flat), "int32"), (0,), keepdims=False
        )
        value = b.add("where", cast_to(b, bad, "bool"), b.constant(math.nan, x.dtype), value)
    return reshaped(b, value, out.shape)


def _moments(
    b: Builder, out: TensorType, x: Value, dim: Dims, given: Number | None, keepdim: bool
) -> tuple[Value, Value]:
    """The variance and the mean; without a correction given it is 1."""
    correction = 1 if given is None else given
    axes = axes_of(dim, x.type.rank)
    count = math.prod(x.shape[a] for a in axes)
    if not count:
        missing = b.add("broadcast_to", b.constant(math.nan, out.dtype), shape=out.shape)
        return missing, missing
    own = cast_to(b, x, wide(x))
    _, mean, variance = rows.moments(b, own, axes)
    if correction:
        rest = b.constant(max(count - correction, 0), variance.dtype)
        variance = b.add("divide", times(b, variance, count), rest)
    shape = [1 if d in axes else e for d, e in enumerate(x.shape) if keepdim or d not in axes]
    variance, mean = (cast_to(b, reshaped(b, v, shape), out.dtype) for v in (variance, mean))
    return variance, mean


@aten("var.correction")
def variance(
    b: Builder,
    out: TensorType,
    x: Value,
    dim: Dims = None,
    *,
    correction: Number | None = None,
    keepdim: bool = False,
) -> Value:
    return _moments(b, out, x, dim, correction, keepdim)[0]


@aten("var_mean.correction")
def variance_and_mean(
    b: Builder,
    out: TensorType,
    x: Value,
    dim: Dims = None,
    *,
    correction: Number | None = None,
    keepdim: bool = False,
) -> Sequence[Value]:
    return _moments(b, out, x, dim, correction, keepdim)


@aten("linalg_vector_norm")
def vector_norm(
    b: Builder,
    out: TensorType,
    x: Value,
    order: Number = 2,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: object = None,
) -> Value:
    """The largest or smallest absolute value, their number, or the root of a sum of powers."""
    del dtype
    axes = axes_of(dim, x.type.rank)

    def compute(v: Value) -> Value:
        size = b.add("abs", v)
        if abs(order) == math.inf:
            return rows.reduced(b, "max" if order > 0 else "min", size, axes, keepdims=keepdim)
        if order == 0:
            nothing = b.add("equal", v, b.constant(0, v.dtype))
            terms = cast_to(b, b.add("logical_not", nothing), v.dtype)
            return rows.reduced(b, "sum", terms, axes, keepdims=keepdim)
        if order == 1:
            return rows.reduced(b, "sum", size, axes, keepdims=keepdim)
        terms = power(b, size, b.constant(order, v.dtype))
        total = rows.reduced(b, "sum", terms, axes, keepdims=keepdim)
        if order == 2:
            return b.add("sqrt", total)
        return b.add("power", total, b.constant(1 / order, v.dtype))

    return in_wide(b, x, out, compute)


def _softmax(
    operator: str, b: Builder, out: TensorType, x: Value, dim: int, _dtype: object = None
) -> Value:
    own = cast_to(b, x, out.dtype)
    if not x.type.rank:
        return reshaped(b, b.add(operator, reshaped(b, own, (1,)), axis=0), ())
    return b.add(operator, own, axis=in_rank(dim, x.type.rank))


aten("softmax.int", "_softmax")(partial(_softmax, "softmax"))
aten("log_softmax.int", "_log_softmax")(partial(_softmax, "log_softmax"))


def _ones(b: Builder, dtype: str, *shape: int) -> Value:
    return b.constant(np.ones(shape), dtype)


@aten("layer_norm")
def layer_norm(
    b: Builder,
    out: TensorType,
    x: Value,
    shape: Sequence[int],
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    _cudnn: bool = True,
) -> Value:
    axis = x.type.rank - len(shape)
    x = _like_weights(b, x, weight, bias)
    scale = _ones(b, x.dtype) if weight is None else weight
    return narrowed(b, rows.layer_norm(b, x, scale, bias, axis=axis, epsilon=eps), out)


def _like_weights(b: Builder, x: Value, *weights: Value | None) -> Value:
    """`x` in the dtype of its weights, which for narrow floats may be float32."""
    return cast_to(b, x, next((w.dtype for w in weights if w is not None), x.dtype))


@aten("rms_norm")
def rms_norm(
    b: Builder,
    out: TensorType,
    x: Value,
    shape: Sequence[int],
    weight: Value | None = None,
    eps: float | None = None,
) -> Value:
    axis = x.type.rank - len(shape)
    scale = _ones(b, x.dtype) if weight is None else cast_to(b, weight, out.dtype)
    epsilon = 2.0 ** -dtypes.info(wide(x)).mantissa if eps is None else eps
    return rows.rms_norm(b, x, scale, axis=axis, epsilon=epsilon)


@aten("group_norm")
def group_norm(
    b: Builder,
    out: TensorType,
    x: Value,
    groups: int,
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    _cudnn: bool = True,
) -> Value:
    channels = x.shape[1]
    x = _like_weights(b, x, weight, bias)
    scale = _ones(b, x.dtype, channels) if weight is None else weight
    shift = b.constant(np.zeros(channels), x.dtype) if bias is None else bias
    return narrowed(b, rows.group_norm(b, x, groups, scale, shift, eps), out)


@aten("_native_batch_norm_legit_no_training")
def batch_norm(
    b: Builder,
    _out: TensorType,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value,
    variance: Value,
    _momentum: float,
    eps: float,
) -> Sequence[Value]:
    """The normalised tensor only: what else it returns is for training."""
    scale = _ones(b, mean.dtype, x.shape[1]) if weight is None else weight
    shift = b.constant(np.zeros(x.shape[1]), mean.dtype) if bias is None else bias
    return (rows.batch_norm(b, x, scale, shift, mean, variance, eps),)


@aten("_native_batch_norm_legit.no_stats")
def instance_norm(
    b: Builder,
    _out: TensorType,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    training: bool,
    _momentum: float,
    eps: float,
) -> Sequence[Value]:
    """By the mean and variance of what is given: each image of an instance norm is a channel.

    Returns the mean and one over the deviation too.
    """
    if not training:
        raise Unsupported(Reason.ATTRIBUTE, "training=False without statistics")
    mean, variance = rows.of_batch(b, x, wide(x))
    channels = x.shape[1]
    scale = _ones(b, mean.dtype, channels) if weight is None else weight
    shift = b.constant(np.zeros(channels), mean.dtype) if bias is None else bias
    value = rows.batch_norm(b, x, scale, shift, mean, variance, eps)
    return value, mean, rows.inverse_deviation(b, variance, eps)
