"""Operators on the elements at one place, which broadcast by numpy's rules.

Floats narrower than float32 are computed in float32 and rounded once. Operands of one operator have
one dtype, but for conditions, which are bool. Arithmetic on integers wraps around."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...base import dtypes
from ...base.errors import IRError
from ...ops import operands as broadcast
from ...ops.operands import widened
from ...tir import te
from ...tir.te import Expr, Operand, Tensor
from ..ir import TensorType
from ..operator import Array, Kind, Operator, operator, register


def pointwise(
    name: str,
    lower: Callable[..., Operand],
    reference: Callable[..., Any],
    *,
    result: str | None = None,
    conditions: int = 0,
    infer: Callable[..., TensorType] | None = None,
) -> None:
    """Register an operator of expressions; keywords of `lower` are its attributes.

    The first `conditions` operands are bool, the others have one dtype, which is that of the result
    unless `result` says another one.
    """

    def broadcasted(*types: TensorType, **attributes: Any) -> TensorType:
        shape = broadcast.shape(name, *(t.shape for t in types))
        for k, type in enumerate(types[:conditions]):
            if type.dtype != "bool":
                raise IRError("{0}: operand {1} is {2}, expected bool", name, k, type)
        found = {t.dtype for t in types[conditions:]}
        if len(found) > 1:
            raise IRError("{0}: operands of dtypes {1}", name, ", ".join(sorted(found)))
        tensors(*(te.placeholder((), t.dtype) for t in types), **attributes)  # may refuse the dtype
        return TensorType(result or types[-1].dtype, shape)

    def tensors(*operands: Tensor, **attributes: Any) -> Tensor:
        shape = broadcast.shape(name, *(t.extents for t in operands))
        dtype = result or operands[-1].dtype

        def element(*indices: Expr) -> Expr:
            own = [element_at(t, indices, shape) for t in operands]
            wide = own[:conditions] + [_widened(e) for e in own[conditions:]]
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

    register(Operator(name, Kind.POINTWISE, arrays, tensors, infer or broadcasted, lower))


def element_at(t: Tensor, indices: Sequence[Expr], shape: tuple[int, ...]) -> Expr:
    """The element of an operand at indices of the result; one of its shape is read as it lies.

    Dimensions of 1 then hide from no schedule that all is contiguous.
    """
    return t[tuple(indices)] if t.extents == shape else broadcast.element(t, indices)


def _widened(value: Expr) -> Expr:
    return value if value.dtype == "bool" else widened(value)


def _cast(x: Tensor, *, dtype: str) -> Tensor:
    """`x` as another dtype.

    Floats become integers towards zero, within the integer's limits, and NaN 0; integers wrap
    around; what is not 0 is true.
    """

    def element(*indices: Expr) -> Expr:
        value = x[indices]
        if dtype == "bool":
            return value if x.dtype == "bool" else value != te.const(0, x.dtype)
        return te.cast(value, dtype)

    return te.compute(x.extents, element, name="cast")


def cast_array(x: Array, *, dtype: str) -> Array:
    wanted = dtypes.to_numpy(dtype)
    if not dtypes.is_integer(dtype) or not dtypes.is_float(dtypes.from_numpy(x.dtype)):
        return x.astype(wanted)
    low, high = dtypes.int_limits(dtype)
    wide = np.trunc(x.astype(np.float64))
    inside = (wide >= low) & (wide < high + 1.0)  # high + 1 is a float, high may be none
    whole = np.where(inside, wide, 0).astype(wanted)
    whole = np.where(wide < low, wanted.type(low), whole)
    return np.where(wide >= high + 1.0, wanted.type(high), whole)


def _cast_type(x: TensorType, *, dtype: str) -> TensorType:
    return TensorType(dtype, x.shape)


register(Operator("cast", Kind.POINTWISE, cast_array, _cast, _cast_type, _cast))
register(Operator("rounded", Kind.POINTWISE, cast_array, _cast, _cast_type, _cast))
"""A cast of a float to a narrower one that stands for it: who reads the result may read `x`."""


def _bits(x: TensorType, *, source: str, to: str) -> TensorType:
    if x.dtype != source or dtypes.nbytes(source) != dtypes.nbytes(to):
        raise IRError("bitcast: {0} from {1} to {2}", x, source, to)
    return TensorType(to, x.shape)


def _bits_array(x: Array, *, source: str, to: str) -> Array:
    return x.astype(dtypes.to_numpy(source)).view(dtypes.to_numpy(to))


register(Operator("bitcast", Kind.VIEW, _bits_array, infer=_bits, source=_bits_array))
"""The bits of `source`, the dtype of the operand, as those of `to`, which is as wide."""

_ERF = np.vectorize(math.erf, otypes=[np.float64])


def erf(x: Array) -> Array:
    return np.asarray(_ERF(x), x.dtype)


def logistic(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def _shifted(shift: Callable[..., Any]) -> Callable[..., Any]:
    """A shift by less than nothing or the width and more, which moves all bits out."""

    def shifted(a: Array, b: Array) -> Array:
        width = 8 * a.itemsize
        out = (b < 0) | (b >= width)
        last = shift(a, np.where(out, 0, b).astype(b.dtype))
        sign = a.dtype.type(width - 1)
        none = np.right_shift(a, sign) if shift is np.right_shift and a.dtype.kind == "i" else 0
        return np.where(out, none, last)

    return shifted


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
pointwise("erf", te.erf, erf)
pointwise("floor", te.floor, np.floor)
pointwise("ceil", te.ceil, np.ceil)
pointwise("sin", te.sin, np.sin)
pointwise("cos", te.cos, np.cos)
pointwise("tan", te.tan, np.tan)
pointwise("asin", te.asin, np.arcsin)
pointwise("acos", te.acos, np.arccos)
pointwise("atan", te.atan, np.arctan)
pointwise("sinh", te.sinh, np.sinh)
pointwise("cosh", te.cosh, np.cosh)
pointwise("asinh", te.asinh, np.arcsinh)
pointwise("acosh", te.acosh, np.arccosh)
pointwise("atanh", te.atanh, np.arctanh)
pointwise("round", te.round, np.rint)
pointwise("sign", te.sign, np.sign)
pointwise("is_nan", te.isnan, np.isnan, result="bool")
pointwise("equal", lambda a, b: a == b, np.equal, result="bool")
pointwise("less", lambda a, b: a < b, np.less, result="bool")
pointwise("less_equal", lambda a, b: a <= b, np.less_equal, result="bool")
pointwise("logical_not", lambda x: ~x, np.logical_not, result="bool", conditions=1)
pointwise("logical_and", lambda a, b: a & b, np.logical_and, result="bool", conditions=2)
pointwise("logical_or", lambda a, b: a | b, np.logical_or, result="bool", conditions=2)
pointwise("logical_xor", lambda a, b: a ^ b, np.logical_xor, result="bool", conditions=2)
pointwise("bitwise_and", lambda a, b: a & b, np.bitwise_and)
pointwise("bitwise_or", lambda a, b: a | b, np.bitwise_or)
pointwise("bitwise_xor", lambda a, b: a ^ b, np.bitwise_xor)
pointwise("bitwise_not", lambda x: ~x, np.bitwise_not)
pointwise("shift_left", lambda a, b: a << b, _shifted(np.left_shift))
pointwise("shift_right", lambda a, b: a >> b, _shifted(np.right_shift))
pointwise("where", te.select, np.where, conditions=1)


def _softplus(x: Array) -> Array:
    return np.asarray(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))


def _elu(x: Array, *, alpha: float) -> Array:
    return np.where(x > 0, x, np.expm1(x) * alpha)


def _celu(x: Array, *, alpha: float) -> Array:
    return np.where(x > 0, x, np.expm1(x / alpha) * alpha)


def _gelu(x: Array) -> Array:
    return np.asarray(x * 0.5 * (erf(x * math.sqrt(0.5)) + 1))


_TANH = math.sqrt(2 / math.pi)


def _gelu_by_tanh(x: Array) -> Array:
    return np.asarray(x * 0.5 * (np.tanh(_TANH * (x + 0.044715 * x * x * x)) + 1))


pointwise("relu", te.relu, lambda x: np.maximum(x, 0))
pointwise("sigmoid", te.sigmoid, logistic)
pointwise("softplus", te.softplus, _softplus)
pointwise("softsign", te.softsign, lambda x: x / (1 + np.abs(x)))
pointwise("mish", te.mish, lambda x: x * np.tanh(_softplus(x)))
pointwise("elu", lambda x, *, alpha=1.0: te.elu(x, alpha), _elu)
pointwise("celu", lambda x, *, alpha=1.0: te.celu(x, alpha), _celu)
pointwise(
    "selu",
    lambda x, *, alpha, gamma: te.elu(x, alpha) * gamma,
    lambda x, *, alpha, gamma: _elu(x, alpha=alpha) * gamma,
)
pointwise(
    "leaky_relu",
    lambda x, *, slope: te.select(x < 0, x * slope, x),
    lambda x, *, slope: np.where(x < 0, x * slope, x),
)
pointwise(
    "hard_sigmoid",
    lambda x, *, alpha, beta: te.hardsigmoid(x, alpha, beta),
    lambda x, *, alpha, beta: np.clip(x * alpha + beta, 0, 1),
)
pointwise(
    "hard_swish",
    lambda x, *, alpha, beta: x * te.hardsigmoid(x, alpha, beta),
    lambda x, *, alpha, beta: x * np.clip(x * alpha + beta, 0, 1),
)
pointwise(
    "swish",
    lambda x, *, alpha=1.0: x * te.sigmoid(x * alpha),
    lambda x, *, alpha: x * logistic(x * alpha),
)
pointwise("gelu", te.gelu, _gelu)
pointwise(
    "gelu_by_tanh",
    lambda x: x * 0.5 * (te.tanh((x + x * x * x * 0.044715) * _TANH) + 1.0),
    _gelu_by_tanh,
)


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

    def element(*i: Expr) -> Expr:
        whole = te.round(widened(element_at(x, i, shape)))
        for z in zero:
            whole = whole + te.cast(element_at(z, i, shape), whole.dtype)
        return te.cast(whole, dtype)

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
