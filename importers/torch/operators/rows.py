"""Reductions, normalisations, sums along an axis, and what is the largest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from ....base import dtypes
from ....graph.builder import Builder
from ....graph.compose import rows
from ....graph.compose.basics import cast_to, in_rank, reshaped, times, wide
from ....graph.ir import TensorType, Value
from ...unsupported import Reason, Unsupported
from ..table import Number, aten, axes_of, in_wide

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


def _moments(
    b: Builder, out: TensorType, x: Value, dim: Dims, correction: Number, keepdim: bool
) -> tuple[Value, Value]:
    axes = axes_of(dim, x.type.rank)
    count = math.prod(x.shape[a] for a in axes)
    if count <= correction:
        raise Unsupported(Reason.ATTRIBUTE, f"the variance of {count} elements")
    own = cast_to(b, x, wide(x))
    _, mean, variance = rows.moments(b, own, axes)
    if correction:
        variance = times(b, variance, count / (count - correction))
    shape = [1 if d in axes else e for d, e in enumerate(x.shape) if keepdim or d not in axes]
    found = (cast_to(b, reshaped(b, v, shape), out.dtype) for v in (variance, mean))
    return next(found), next(found)


@aten("var.correction")
def variance(
    b: Builder,
    out: TensorType,
    x: Value,
    dim: Dims = None,
    *,
    correction: Number | None = 1,
    keepdim: bool = False,
) -> Value:
    given = 1 if correction is None else correction
    return _moments(b, out, x, dim, given, keepdim)[0]


@aten("var_mean.correction")
def variance_and_mean(
    b: Builder,
    out: TensorType,
    x: Value,
    dim: Dims = None,
    *,
    correction: Number | None = 1,
    keepdim: bool = False,
) -> Sequence[Value]:
    return _moments(b, out, x, dim, 1 if correction is None else correction, keepdim)


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
    del dtype
    if order not in (1, 2, math.inf):
        raise Unsupported(Reason.ATTRIBUTE, f"ord={order}")
    axes = axes_of(dim, x.type.rank)

    def compute(v: Value) -> Value:
        if order == 2:
            square = rows.reduced(b, "sum", b.add("multiply", v, v), axes, keepdims=keepdim)
            return b.add("sqrt", square)
        operator = "sum" if order == 1 else "max"
        return rows.reduced(b, operator, b.add("abs", v), axes, keepdims=keepdim)

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
    _out: TensorType,
    x: Value,
    shape: Sequence[int],
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    _cudnn: bool = True,
) -> Value:
    axis = x.type.rank - len(shape)
    scale = _ones(b, x.dtype) if weight is None else weight
    return rows.layer_norm(b, x, scale, bias, axis=axis, epsilon=eps)


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
    _out: TensorType,
    x: Value,
    groups: int,
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    _cudnn: bool = True,
) -> Value:
    channels = x.shape[1]
    scale = _ones(b, x.dtype, channels) if weight is None else weight
    shift = b.constant(np.zeros(channels), x.dtype) if bias is None else bias
    return rows.group_norm(b, x, groups, scale, shift, eps)


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
    """By the mean and variance of what is given: each image of an instance norm is a channel."""
    if not training:
        raise Unsupported(Reason.ATTRIBUTE, "training=False without statistics")
    mean, variance = rows.of_batch(b, x, wide(x))
    channels = x.shape[1]
    scale = _ones(b, mean.dtype, channels) if weight is None else weight
    shift = b.constant(np.zeros(channels), mean.dtype) if bias is None else bias
    return (rows.batch_norm(b, x, scale, shift, mean, variance, eps),)
