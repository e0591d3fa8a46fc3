"""Between floats and integers of few bits that stand for them; scales are factors beside these."""

from __future__ import annotations

import numpy as np

from ...base import dtypes
from ...base.errors import IRError
from ...ops import operands as broadcast
from ...ops.operands import widened
from ...tir import te
from ...tir.te import Expr, Tensor
from ..ir import TensorType
from ..operator import Array, Kind, operator
from .pointwise import cast_array, element_at

_BITS = 16
"""Of integers at most: sums with zero points are exact in float32."""


def _check(name: str, kinds: tuple[str, str], zero: tuple[TensorType, ...]) -> None:
    given, integer = kinds
    held = dtypes.is_integer(integer) and dtypes.info(integer).bits <= _BITS
    if not (dtypes.is_float(given) and held and len(zero) <= 1):
        raise IRError("{0}: {1} and {2}", name, given, integer)
    if zero and zero[0].dtype != integer:
        raise IRError("{0}: a zero point of {1} for {2}", name, zero[0].dtype, integer)


def _quantized_type(x: TensorType, *zero: TensorType, dtype: str) -> TensorType:
    _check("quantize", (x.dtype, dtype), zero)
    return TensorType(dtype, broadcast.shape("quantize", x.shape, *(z.shape for z in zero)))


def _quantized(x: Array, *zero: Array, dtype: str) -> Array:
    wide = x.astype(np.float32) if x.itemsize < 4 else x
    whole = np.rint(wide)
    for z in zero:
        whole = whole + z.astype(whole.dtype)
    low, high = dtypes.int_limits(dtype)
    return cast_array(np.clip(whole, whole.dtype.type(low), whole.dtype.type(high)), dtype=dtype)


@operator(Kind.POINTWISE, reference=_quantized, infer=_quantized_type)
def quantize(x: Tensor, *zero: Tensor, dtype: str) -> Tensor:
    """The nearest integers, of two the even one, plus a zero point of `dtype`, within its limits.

    NaN becomes 0.
    """
    shape = broadcast.shape("quantize", x.extents, *(z.extents for z in zero))
    low, high = dtypes.int_limits(dtype)

    def element(*i: Expr) -> Expr:
        whole = te.round(widened(element_at(x, i, shape)))
        for z in zero:
            whole = whole + te.cast(element_at(z, i, shape), whole.dtype)
        limits = [te.const(float(limit), whole.dtype) for limit in (low, high)]
        return te.cast(te.minimum(te.maximum(whole, limits[0]), limits[1]), dtype)

    return te.compute(shape, element, name="quantize")


def _dequantized_type(x: TensorType, *zero: TensorType) -> TensorType:
    _check("dequantize", ("float32", x.dtype), zero)
    return TensorType("float32", broadcast.shape("dequantize", x.shape, *(z.shape for z in zero)))


def _dequantized(x: Array, *zero: Array) -> Array:
    wide = x.astype(np.float32)
    return wide - zero[0].astype(np.float32) if zero else wide


@operator(Kind.POINTWISE, reference=_dequantized, infer=_dequantized_type)
def dequantize(x: Tensor, *zero: Tensor) -> Tensor:
    """Integers less a zero point of their dtype, as float32, which is exact."""
    shape = broadcast.shape("dequantize", x.extents, *(z.extents for z in zero))

    def element(*i: Expr) -> Expr:
        whole = te.cast(element_at(x, i, shape), "float32")
        for z in zero:
            whole = whole - te.cast(element_at(z, i, shape), "float32")
        return whole

    return te.compute(shape, element, name="dequantize")
