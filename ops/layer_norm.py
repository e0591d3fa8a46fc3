"""Layer normalisation over the last dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..base import dtypes
from ..base.errors import IRError
from ..tir import te
from ..tir.te import Expr, Func, Tensor
from .operands import accumulator, widened


def layer_norm(
    x: Tensor,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    *,
    dims: int = 1,
    epsilon: float = 1e-5,
    centered: bool = True,
    name: str = "layer_norm",
) -> Tensor:
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta over the last `dims` dimensions.

    Without `centered` the mean is taken as zero: x / sqrt(mean(x * x) + epsilon) * gamma + beta.

    Floats only; gamma and beta have the shape of those dimensions. The variance is the mean of
    squared distances from the mean: a second pass, because the difference of two sums would lose
    the digits of data far from zero. Stages: `<name>_sum`, `<name>_mean`, `<name>_square`,
    `<name>_scale` (1 / sqrt) and the result; in float32 for narrower dtypes.
    """
    if not dtypes.is_float(x.dtype):
        raise IRError("{0} takes floats, found {1}", name, x.dtype, hint="cast the input")
    if not 1 <= dims <= x.ndim:
        raise IRError("{0}: dims is {1}, expected 1 to {2}", name, dims, x.ndim)
    outer, inner = x.extents[: x.ndim - dims], x.extents[x.ndim - dims :]
    for t in (gamma, beta):
        if t is not None and t.extents != inner:
            raise IRError("{0}: {1} has shape {2}, expected {3}", name, t.name, t.extents, inner)
    rest = x.ndim - dims
    names = [f"i{d}" for d in range(x.ndim)]
    axes = [te.reduce_axis(e, name=f"r{d}") for d, e in enumerate(inner)]
    count = float(math.prod(inner))

    def stage(suffix: str, fn: Callable[..., Expr]) -> Tensor:
        return te.compute(outer, fn, name=f"{name}_{suffix}", axes=names[:rest])

    mean: Tensor | None = None
    if centered:
        total = stage("sum", lambda *i: te.sum(x[(*i, *axes)], axis=axes))
        mean = stage("mean", lambda *i: total[i] / count)

    def distance_at(*i: Expr) -> Expr:
        value = widened(x[i])
        return value if mean is None else value - mean[i[:rest]]

    def square(*i: Expr) -> Expr:
        distance = distance_at(*i, *axes)
        return te.sum(distance * distance, axis=axes)

    squares = stage("square", square)
    scale = stage("scale", lambda *i: te.rsqrt(squares[i] / count + epsilon))
    wide = accumulator(x.dtype)

    def element(*i: Expr) -> Expr:
        value = distance_at(*i) * scale[i[:rest]]
        if gamma is not None:
            value = value * te.cast(gamma[i[rest:]], wide)
        if beta is not None:
            value = value + te.cast(beta[i[rest:]], wide)
        return te.cast(value, x.dtype)

    return te.compute(x.extents, element, name=name, axes=names)


def layer_norm_func(
    n: int = 512, m: int = 768, dtype: str = "float32", *, epsilon: float = 1e-5
) -> Func:
    """Layer normalisation of the rows of a matrix, with gamma and beta."""
    x = te.placeholder((n, m), dtype, name="X")
    gamma = te.placeholder((m,), dtype, name="gamma")
    beta = te.placeholder((m,), dtype, name="beta")
    y = layer_norm(x, gamma, beta, epsilon=epsilon, name="Y")
    return te.func([x, gamma, beta, y], name="layer_norm")
