"""Softmax, and the logarithms of softmax and of a sum of exponentials, along an axis."""

from __future__ import annotations

from collections.abc import Callable

from ..base import dtypes
from ..base.errors import IRError
from ..tir import te
from ..tir.te import Expr, Func, Operand, Tensor
from . import operands
from .operands import accumulator


class _Rows:
    """The rows of floats of `x` along `axis`, and stages that have a value for each row."""

    def __init__(self, x: Tensor, axis: int, name: str) -> None:
        if not dtypes.is_float(x.dtype):
            raise IRError("{0} takes floats, found {1}", name, x.dtype, hint="cast the input")
        self.x, self.name = x, name
        self.place = operands.axis(name, axis, x.ndim)
        self.wide = accumulator(x.dtype)
        self.names = [f"i{d}" for d in range(x.ndim)]
        self.r = te.reduce_axis(x.extents[self.place], name="r")
        self.largest = self.stage("max", lambda i: te.max(x[self.along(i)], axis=self.r))

    def along(self, row: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return (*row[: self.place], self.r, *row[self.place :])

    def row(self, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return indices[: self.place] + indices[self.place + 1 :]

    def widened(self, value: Operand) -> Expr:
        return te.cast(value, self.wide)

    def stage(self, suffix: str, value: Callable[[tuple[Expr, ...]], Operand]) -> Tensor:
        rest, outer = (
            [*of[: self.place], *of[self.place + 1 :]] for of in (self.x.extents, self.names)
        )
        name = f"{self.name}_{suffix}" if suffix else self.name
        return te.compute(rest, lambda *i: value(i), name=name, axes=outer)


def softmax(x: Tensor, *, axis: int = -1, name: str = "softmax") -> Tensor:
    """exp(x - max) / sum(exp(x - max)) of floats along `axis`, in the dtype of `x`.

    Four stages: `<name>_max`, `<name>_exp`, `<name>_sum` (in float32 for narrower dtypes) and the
    quotient. A row that is -inf throughout returns NaN.
    """
    rows = _Rows(x, axis, name)
    exps = te.compute(
        x.extents,
        lambda *i: te.exp(rows.widened(x[i]) - rows.widened(rows.largest[rows.row(i)])),
        name=f"{name}_exp",
        axes=rows.names,
    )
    total = rows.stage("sum", lambda i: te.sum(exps[rows.along(i)], axis=rows.r))

    def share(*i: Expr) -> Expr:
        # The sum is at least 1, so its inverse is harmless: one division for a row.
        return te.cast(exps[i] * (te.const(1, rows.wide) / total[rows.row(i)]), x.dtype)

    return te.compute(x.extents, share, name=name, axes=rows.names)


def log_softmax(x: Tensor, *, axis: int = -1, name: str = "log_softmax") -> Tensor:
    """x - max - log(sum(exp(x - max))) of floats along `axis`, in the dtype of `x`.

    Four stages: `<name>_max`, `<name>_sum` and `<name>_log` (in float32 for narrower dtypes) and
    the difference. A row that is -inf throughout returns NaN.
    """
    rows = _Rows(x, axis, name)

    def below(i: tuple[Expr, ...]) -> Expr:
        return rows.widened(x[i]) - rows.widened(rows.largest[rows.row(i)])

    total = rows.stage("sum", lambda i: te.sum(te.exp(below(rows.along(i))), axis=rows.r))
    logs = rows.stage("log", lambda i: te.log(total[i]))
    return te.compute(
        x.extents,
        lambda *i: te.cast(below(i) - logs[rows.row(i)], x.dtype),
        name=name,
        axes=rows.names,
    )


def logsumexp(x: Tensor, *, axis: int = -1, name: str = "logsumexp") -> Tensor:
    """max + log(sum(exp(x - max))) of floats along `axis`, in the dtype of `x`.

    Three stages: `<name>_max`, `<name>_sum` (in float32 for narrower dtypes) and the result, which
    is -inf for a row that is -inf throughout, and inf for one with inf.
    """
    rows = _Rows(x, axis, name)

    def shift(i: tuple[Expr, ...]) -> Expr:
        largest = rows.widened(rows.largest[i])
        return te.select(te.isfinite(largest), largest, 0)

    total = rows.stage(
        "sum",
        lambda i: te.sum(te.exp(rows.widened(x[rows.along(i)]) - shift(i)), axis=rows.r),
    )
    return rows.stage("", lambda i: te.cast(shift(i) + te.log(total[i]), x.dtype))


def softmax_func(n: int = 1024, m: int = 1024, dtype: str = "float32") -> Func:
    """Softmax of the rows of a matrix."""
    x = te.placeholder((n, m), dtype, name="X")
    return te.func([x, softmax(x, name="Y")], name="softmax")


def log_softmax_func(n: int = 1024, m: int = 1024, dtype: str = "float32") -> Func:
    """The logarithm of the softmax of the rows of a matrix."""
    x = te.placeholder((n, m), dtype, name="X")
    return te.func([x, log_softmax(x, name="Y")], name="log_softmax")


def logsumexp_func(n: int = 1024, m: int = 1024, dtype: str = "float32") -> Func:
    """The logarithms of the sums of the exponentials of the rows of a matrix."""
    x = te.placeholder((n, m), dtype, name="X")
    return te.func([x, logsumexp(x, name="Y")], name="logsumexp")
