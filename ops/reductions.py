"""Reductions over some or all axes of a tensor."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from ..base import dtypes
from ..tir import te
from ..tir.te import Axis, Expr, Func, Tensor
from . import operands

AxesLike: TypeAlias = int | Sequence[int] | None
"""One axis, several, or all of them (`None`); negative ones count from the end."""


def sum(
    x: Tensor,
    axis: AxesLike = None,
    *,
    keepdims: bool = False,
    dtype: str | None = None,
    name: str = "sum",
) -> Tensor:
    """The sum, in `dtype`: by default float32 (int32) for narrower elements, else their own."""
    return _reduce(x, axis, keepdims, lambda e, axes: te.sum(e, axes, dtype), name)


def prod(
    x: Tensor,
    axis: AxesLike = None,
    *,
    keepdims: bool = False,
    dtype: str | None = None,
    name: str = "prod",
) -> Tensor:
    """The product; dtypes as for `sum`."""
    return _reduce(x, axis, keepdims, lambda e, axes: te.prod(e, axes, dtype), name)


def mean(x: Tensor, axis: AxesLike = None, *, keepdims: bool = False, name: str = "mean") -> Tensor:
    """The mean: of floats in their own dtype, of integers in float64. NaN over no element."""

    def value(element: Expr, axes: list[Axis]) -> Expr:
        count = float(math.prod(a.extent for a in axes))
        if not dtypes.is_float(x.dtype):
            return te.sum(te.cast(element, "float64"), axes) / count
        return te.cast(te.sum(element, axes) / count, x.dtype)

    return _reduce(x, axis, keepdims, value, name)


def max(x: Tensor, axis: AxesLike = None, *, keepdims: bool = False, name: str = "max") -> Tensor:
    """The largest element; NaN if there is one."""
    return _reduce(x, axis, keepdims, te.max, name)


def min(x: Tensor, axis: AxesLike = None, *, keepdims: bool = False, name: str = "min") -> Tensor:
    """The smallest element; NaN if there is one."""
    return _reduce(x, axis, keepdims, te.min, name)


def argmax(
    x: Tensor,
    axis: AxesLike = None,
    *,
    keepdims: bool = False,
    dtype: str = "int64",
    name: str = "argmax",
) -> Tensor:
    """The index, as `dtype`, of the largest element; the first of equal ones; NaN is largest."""
    return _reduce(x, axis, keepdims, lambda e, axes: te.argmax(e, axes, dtype)[0], name)


def argmin(
    x: Tensor,
    axis: AxesLike = None,
    *,
    keepdims: bool = False,
    dtype: str = "int64",
    name: str = "argmin",
) -> Tensor:
    """The index of the smallest element; otherwise as `argmax`."""
    return _reduce(x, axis, keepdims, lambda e, axes: te.argmin(e, axes, dtype)[0], name)


def _reduce(
    x: Tensor,
    axis: AxesLike,
    keepdims: bool,
    value: Callable[[Expr, list[Axis]], Expr],
    name: str,
) -> Tensor:
    """The tensor of `value` of an element and of the axes it runs over."""
    over = operands.axes(name, axis, x.ndim)
    inner = {d: te.reduce_axis(x.extents[d], name=f"r{d}") for d in over}
    kept = [d for d in range(x.ndim) if keepdims or d not in inner]
    shape = [1 if d in inner else x.extents[d] for d in kept]

    def element(*indices: Expr) -> Expr:
        place: dict[int, Expr] = {**dict(zip(kept, indices, strict=True)), **inner}
        read = x[tuple(place[d] for d in range(x.ndim))]
        return value(read, list(inner.values())) if inner else read

    return te.compute(shape, element, name=name, axes=[f"i{d}" for d in kept])


KINDS = {kind.__name__: kind for kind in (sum, prod, mean, max, min, argmax, argmin)}


def reduction_func(
    kind: Literal["sum", "prod", "mean", "max", "min", "argmax", "argmin"] = "sum",
    n: int = 4096,
    m: int = 4096,
    axis: int = 1,
    dtype: str = "float32",
) -> Func:
    """A reduction of a matrix over one axis."""
    x = te.placeholder((n, m), dtype, name="X")
    return te.func([x, KINDS[kind](x, axis, name="Y")], name=kind)
