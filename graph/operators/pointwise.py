"""Operators on the elements at one place, which broadcast by numpy's rules.

Floats narrower than float32 are computed in float32 and rounded once. Operands of one operator have
one dtype, but for conditions, which are bool. Arithmetic on integers wraps around.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...base import dtypes
from ...base.errors import IRError
from ...ops import broadcast
from ...ops.precision import widened
from ...tir import te
from ...tir.te import Expr, Operand, Tensor
from ..ir import TensorType
from ..operator import Array, Kind, Operator, register


def pointwise(
    name: str,
    lower: Callable[..., Operand],
    reference: Callable[..., Any],
    *,
    result: str | None = None,
    conditions: int = 0,
) -> None:
    """Register an operator of expressions; keywords of `lower` are its attributes.

    The first `conditions` operands are bool, the others have one dtype, which is that of the result
    unless `result` says another one.
    """

    def infer(*types: TensorType, **_attributes: Any) -> TensorType:
        shape = broadcast.shape(name, *(t.shape for t in types))
        for k, type in enumerate(types[:conditions]):
            if type.dtype != "bool":
                raise IRError("{0}: operand {1} is {2}, expected bool", name, k, type)
        found = {t.dtype for t in types[conditions:]}
        if len(found) > 1:
            raise IRError("{0}: operands of dtypes {1}", name, ", ".join(sorted(found)))
        return TensorType(result or types[-1].dtype, shape)

    def tensors(*operands: Tensor, **attributes: Any) -> Tensor:
        shape = broadcast.shape(name, *(t.extents for t in operands))
        dtype = result or operands[-1].dtype

        def element(*indices: Expr) -> Expr:
            own = [broadcast.element(t, indices) for t in operands]
            wide = own[:conditions] + [widened(e) for e in own[conditions:]]
            return te.cast(lower(*wide, **attributes), dtype)

        return te.compute(shape, element, name=name)

    def arrays(*operands: Array, **attributes: Any) -> Array:
        narrow = operands[-1].dtype
        is_float = dtypes.is_float(dtypes.from_numpy(narrow))
        if is_float and narrow.itemsize < 4:
            operands = (
                *operands[:conditions],
                *(o.astype(np.float32) for o in operands[conditions:]),
            )
        value = reference(*operands, **attributes)
        return np.asarray(value, bool if result == "bool" else narrow)

    register(Operator(name, Kind.POINTWISE, arrays, tensors, infer, lower))


def _cast(x: Tensor, *, dtype: str) -> Tensor:
    """`x` as another dtype: floats to integers towards zero, all to bool by `x != 0`."""

    def element(*indices: Expr) -> Expr:
        value = x[indices]
        if dtype == "bool":
            return value if x.dtype == "bool" else value != te.const(0, x.dtype)
        return te.cast(value, dtype)

    return te.compute(x.extents, element, name="cast")


register(
    Operator(
        "cast",
        Kind.POINTWISE,
        lambda x, *, dtype: x.astype(dtypes.to_numpy(dtype)),
        _cast,
        lambda x, *, dtype: TensorType(dtype, x.shape),
        _cast,
    )
)

_ERF = np.vectorize(math.erf, otypes=[np.float64])


def _erf(x: Array) -> Array:
    return np.asarray(_ERF(x), x.dtype)


def _logistic(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


pointwise("add", lambda a, b: a + b, np.add)
pointwise("subtract", lambda a, b: a - b, np.subtract)
pointwise("multiply", lambda a, b: a * b, np.multiply)
pointwise("maximum", te.maximum, np.maximum)
pointwise("minimum", te.minimum, np.minimum)
pointwise("negative", lambda x: -x, np.negative)
pointwise("abs", te.abs, np.abs)
pointwise("exp", te.exp, np.exp)
pointwise("log", te.log, np.log)
pointwise("sqrt", te.sqrt, np.sqrt)
pointwise("tanh", te.tanh, np.tanh)
pointwise("erf", te.erf, _erf)
pointwise("sigmoid", te.sigmoid, _logistic)
pointwise("relu", te.relu, lambda x: np.maximum(x, 0))
pointwise("floor", te.floor, np.floor)
pointwise("ceil", te.ceil, np.ceil)
pointwise("equal", lambda a, b: a == b, np.equal, result="bool")
pointwise("less", lambda a, b: a < b, np.less, result="bool")
pointwise("less_equal", lambda a, b: a <= b, np.less_equal, result="bool")
pointwise("logical_not", lambda x: ~x, np.logical_not, result="bool")
pointwise("logical_and", lambda a, b: a & b, np.logical_and, result="bool")
pointwise("logical_or", lambda a, b: a | b, np.logical_or, result="bool")
pointwise("where", te.select, np.where, conditions=1)


def _divide(a: Expr, b: Expr) -> Operand:
    if dtypes.is_float(a.dtype):
        return a / b
    nonzero = te.select(b == 0, te.const(1, b.dtype), b)
    quotient = te.abs(a) // te.abs(nonzero)
    return te.select((a < 0) == (nonzero < 0), quotient, -quotient)


def _divided(a: Array, b: Array) -> Array:
    if a.dtype.kind not in "iu":
        return np.asarray(a / b)
    nonzero = np.where(b == 0, np.ones_like(b), b)
    quotient = np.abs(a) // np.abs(nonzero)
    return np.where((a < 0) == (nonzero < 0), quotient, -quotient)


pointwise("divide", _divide, _divided)
pointwise(
    "clip",
    lambda x, *, low, high: te.minimum(
        te.maximum(x, te.const(low, x.dtype)), te.const(high, x.dtype)
    ),
    lambda x, *, low, high: np.minimum(np.maximum(x, x.dtype.type(low)), x.dtype.type(high)),
)
