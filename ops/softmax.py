"""Softmax along an axis."""

from __future__ import annotations

from ..base import dtypes
from ..base.errors import IRError
from ..tir import te
from ..tir.te import Expr, Func, Tensor
from . import broadcast
from .precision import accumulator


def softmax(x: Tensor, *, axis: int = -1, name: str = "softmax") -> Tensor:
    """exp(x - max) / sum(exp(x - max)) of floats along `axis`, in the dtype of `x`.

    Four stages: `<name>_max`, `<name>_exp`, `<name>_sum` (in float32 for narrower dtypes) and the
    quotient. A row that is -inf throughout returns NaN.
    """
    if not dtypes.is_float(x.dtype):
        raise IRError("{0} takes floats, found {1}", name, x.dtype, hint="cast the input")
    place = broadcast.axis(name, axis, x.ndim)
    rest = x.extents[:place] + x.extents[place + 1 :]
    wide = accumulator(x.dtype)
    names = [f"i{d}" for d in range(x.ndim)]
    outer = names[:place] + names[place + 1 :]
    r = te.reduce_axis(x.extents[place], name="r")

    def along(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return (*indices[:place], r, *indices[place:])

    def row(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return indices[:place] + indices[place + 1 :]

    largest = te.compute(
        rest, lambda *i: te.max(x[along(i)], axis=r), name=f"{name}_max", axes=outer
    )
    exps = te.compute(
        x.extents,
        lambda *i: te.exp(te.cast(x[i], wide) - te.cast(largest[row(i)], wide)),
        name=f"{name}_exp",
        axes=names,
    )
    total = te.compute(
        rest, lambda *i: te.sum(exps[along(i)], axis=r), name=f"{name}_sum", axes=outer
    )

    def share(*i: Expr) -> Expr:
        # The sum is at least 1, so its inverse is harmless: one division for a row.
        return te.cast(exps[i] * (te.const(1, wide) / total[row(i)]), x.dtype)

    return te.compute(x.extents, share, name=name, axes=names)


def softmax_func(n: int = 1024, m: int = 1024, dtype: str = "float32") -> Func:
    """Softmax of the rows of a matrix."""
    x = te.placeholder((n, m), dtype, name="X")
    return te.func([x, softmax(x, name="Y")], name="softmax")
