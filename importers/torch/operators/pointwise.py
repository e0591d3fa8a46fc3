"""Operators on the elements at one place, activation functions among them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ....base import dtypes
from ....graph.builder import Builder
from ....graph.compose import pointwise
from ....graph.compose.basics import cast_to, times
from ....graph.compose.bits import bitcast
from ....graph.ir import TensorType, Value
from ...unsupported import Reason, Unsupported
from ..table import (
    Number,
    Operand,
    arithmetic,
    as_value,
    aten,
    common,
    in_wide,
    narrowed,
    product_dtype,
    ranged,
)

_SAME = {
    "abs": "abs",
    "acos": "acos",
    "acosh": "acosh",
    "asin": "asin",
    "asinh": "asinh",
    "atan": "atan",
    "atanh": "atanh",
    "cos": "cos",
    "cosh": "cosh",
    "div.Scalar": "divide",
    "div.Tensor": "divide",
    "erf": "erf",
    "exp": "exp",
    "fmod.Scalar": "fmod",
    "fmod.Tensor": "fmod",
    "log": "log",
    "maximum": "maximum",
    "minimum": "minimum",
    "mish": "mish",
    "neg": "negative",
    "_neg_view": "negative",
    "relu": "relu",
    "remainder.Scalar": "remainder",
    "remainder.Scalar_Tensor": "remainder",
    "remainder.Tensor": "remainder",
    "sigmoid": "sigmoid",
    "silu": "swish",
    "sin": "sin",
    "sinh": "sinh",
    "sqrt": "sqrt",
    "tan": "tan",
    "tanh": "tanh",
}
"""Operators whose operands are of the dtype of the result, and which graphs have."""

for _name, _operator in _SAME.items():
    aten(_name)(partial(arithmetic, _operator))

_BITS = {
    "bitwise_and": "and",
    "bitwise_or": "or",
    "bitwise_xor": "xor",
    "bitwise_not": "not",
}


def _bitwise(operator: str, b: Builder, out: TensorType, *operands: Operand) -> Value:
    kind = "logical" if out.dtype == "bool" else "bitwise"
    return arithmetic(f"{kind}_{operator}", b, out, *operands)


def _logical(operator: str, b: Builder, _out: TensorType, *operands: Value) -> Value:
    return b.add(operator, *(cast_to(b, x, "bool") for x in operands))


for _name, _operator in _BITS.items():
    for _overload in ("default",) if _operator == "not" else ("Tensor", "Scalar", "Scalar_Tensor"):
        aten(f"{_name}.{_overload}")(partial(_bitwise, _operator))
    aten(f"logical_{_operator}")(partial(_logical, f"logical_{_operator}"))


def _compared(
    operator: str, turned: bool, b: Builder, _out: TensorType, x: Operand, y: Operand
) -> Value:
    dtype = common(x, y)
    sides = (y, x) if turned else (x, y)
    return b.add(operator, *(as_value(b, v, dtype) for v in sides))


for _name, _operator, _turned in (
    ("eq", "equal", False),
    ("lt", "less", False),
    ("le", "less_equal", False),
    ("gt", "less", True),
    ("ge", "less_equal", True),
):
    aten(f"{_name}.Tensor", f"{_name}.Scalar")(partial(_compared, _operator, _turned))


@aten("ne.Tensor", "ne.Scalar")
def not_equal(b: Builder, out: TensorType, x: Operand, y: Operand) -> Value:
    return b.add("logical_not", _compared("equal", False, b, out, x, y))


def _sum(
    operator: str, b: Builder, out: TensorType, x: Operand, y: Operand, alpha: Number = 1
) -> Value:
    if out.dtype == "bool":
        if operator == "subtract":
            raise Unsupported(Reason.DTYPE, "bool")
        if not alpha:
            return arithmetic("logical_or", b, out, x, False)
        return arithmetic("logical_or", b, out, x, y)
    if alpha != 1:
        y = arithmetic("multiply", b, out, y, alpha)
    return arithmetic(operator, b, out, x, y)


for _name in ("add", "sub"):
    _operator = "add" if _name == "add" else "subtract"
    aten(f"{_name}.Tensor", f"{_name}.Scalar")(partial(_sum, _operator))


@aten("rsub.Tensor", "rsub.Scalar")
def reversed_subtract(
    b: Builder, out: TensorType, x: Operand, y: Operand, alpha: Number = 1
) -> Value:
    return _sum("subtract", b, out, y, x, alpha)


@aten("mul.Tensor", "mul.Scalar")
def multiply(b: Builder, out: TensorType, x: Operand, y: Operand) -> Value:
    return arithmetic("logical_and" if out.dtype == "bool" else "multiply", b, out, x, y)


@aten("div.Tensor_mode", "div.Scalar_mode")
def divide_and_round(
    b: Builder, out: TensorType, x: Operand, y: Operand, *, rounding_mode: str | None = None
) -> Value:
    """Towards zero, or the largest integer that is not above, by the remainder, as of Python."""
    if rounding_mode is None:
        return arithmetic("divide", b, out, x, y)
    whole = not dtypes.is_float(out.dtype)
    if rounding_mode == "trunc":
        quotient = arithmetic("divide", b, out, x, y)
        return quotient if whole else _truncated(b, quotient)
    dtype = product_dtype(out, x, y)
    x, y = (as_value(b, v, dtype) for v in (x, y))
    if whole:
        return pointwise.floor_divided(b, x, y)
    zero, one = b.constant(0, dtype), b.constant(1, dtype)
    rest = b.add("fmod", x, y)
    quotient = b.add("divide", b.add("subtract", x, rest), y)
    signs = b.add("logical_xor", b.add("less", y, zero), b.add("less", rest, zero))
    left = b.add("logical_not", b.add("equal", rest, zero))
    below = b.add("subtract", quotient, one)
    rounded = b.add("round", b.add("where", b.add("logical_and", left, signs), below, quotient))
    found = b.add("where", b.add("equal", y, zero), b.add("divide", x, y), rounded)
    return narrowed(b, found, out)


@aten("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def power(b: Builder, out: TensorType, x: Operand, exponent: Operand) -> Value:
    x = as_value(b, x, out.dtype)
    if not dtypes.is_float(out.dtype):
        return pointwise.power(b, x, as_value(b, exponent, out.dtype))

    def compute(base: Value) -> Value:
        return pointwise.power(b, base, as_value(b, exponent, base.dtype))

    return in_wide(b, x, out, compute)


def _clamped(
    b: Builder,
    out: TensorType,
    x: Value,
    min: Operand | None = None,
    max: Operand | None = None,
) -> Value:
    value = cast_to(b, x, out.dtype)
    if min is not None:
        value = b.add("maximum", value, as_value(b, min, out.dtype))
    return value if max is None else b.add("minimum", value, as_value(b, max, out.dtype))


aten("clamp", "clamp.Tensor")(_clamped)


@aten("hardtanh")
def hard_tanh(
    b: Builder, out: TensorType, x: Value, min_val: Number = -1, max_val: Number = 1
) -> Value:
    return _clamped(b, out, x, min_val, max_val)


@aten("where.self")
def where(b: Builder, out: TensorType, condition: Value, x: Value, y: Value) -> Value:
    own = cast_to(b, condition, "bool")
    return b.add("where", own, *(cast_to(b, v, out.dtype) for v in (x, y)))


def _rounded(operator: str, b: Builder, _out: TensorType, x: Value) -> Value:
    return b.add(operator, x) if dtypes.is_float(x.dtype) else x


for _name in ("ceil", "floor", "round"):
    aten(_name)(partial(_rounded, _name))


@aten("round.decimals")
def round_to_decimals(b: Builder, _out: TensorType, x: Value, *, decimals: int) -> Value:
    """To a power of ten, in the dtype of `x`, as PyTorch does."""
    if not dtypes.is_float(x.dtype):
        return x
    ten = b.constant(10.0 ** abs(decimals), x.dtype)
    there, back = ("multiply", "divide") if decimals > 0 else ("divide", "multiply")
    return b.add(back, b.add("round", b.add(there, x, ten)), ten)


def _truncated(b: Builder, x: Value) -> Value:
    negative = b.add("less", x, b.constant(0, x.dtype))
    return b.add("where", negative, b.add("ceil", x), b.add("floor", x))


@aten("trunc")
def trunc(b: Builder, _out: TensorType, x: Value) -> Value:
    return _truncated(b, x) if dtypes.is_float(x.dtype) else x


@aten("sign")
def sign(b: Builder, out: TensorType, x: Value) -> Value:
    """0 of NaN, as PyTorch has it."""
    if x.dtype == "bool":
        return x
    value = b.add("sign", x)
    if not dtypes.is_float(x.dtype):
        return value
    return b.add("where", b.add("is_nan", x), b.constant(0, out.dtype), value)


@aten("isnan")
def is_nan(b: Builder, out: TensorType, x: Value) -> Value:
    if dtypes.is_float(x.dtype):
        return b.add("is_nan", x)
    return b.add("broadcast_to", b.constant(False), shape=out.shape)


@aten("isinf")
def is_infinite(b: Builder, out: TensorType, x: Value) -> Value:
    if dtypes.is_float(x.dtype):
        return pointwise.is_infinite(b, x)
    return b.add("broadcast_to", b.constant(False), shape=out.shape)


@aten("reciprocal")
def reciprocal(b: Builder, out: TensorType, x: Value) -> Value:
    return arithmetic("divide", b, out, 1, x)


@aten("rsqrt")
def rsqrt(b: Builder, out: TensorType, x: Value) -> Value:
    return in_wide(b, x, out, lambda v: b.add("divide", b.constant(1, v.dtype), b.add("sqrt", v)))


@aten("log2")
def log2(b: Builder, out: TensorType, x: Value) -> Value:
    return in_wide(b, x, out, lambda v: pointwise.logarithm(b, v, 2))


@aten("log10")
def log10(b: Builder, out: TensorType, x: Value) -> Value:
    return in_wide(b, x, out, lambda v: pointwise.logarithm(b, v, 10))


@aten("log1p")
def log1p(b: Builder, out: TensorType, x: Value) -> Value:
    return in_wide(b, x, out, lambda v: pointwise.log1p(b, v))


def _in_double(
    function: Callable[[Builder, Value], Value], b: Builder, out: TensorType, x: Value
) -> Value:
    own = cast_to(b, cast_to(b, x, out.dtype), "float64")
    return cast_to(b, function(b, own), out.dtype)


def _complement(b: Builder, x: Value) -> Value:
    return b.add("subtract", b.constant(1.0), b.add("erf", x))


aten("lgamma")(partial(_in_double, pointwise.lgamma))
aten("digamma", "special_digamma")(partial(_in_double, pointwise.digamma))
aten("erfc")(partial(_in_double, _complement))


@aten("polygamma")
def polygamma(b: Builder, out: TensorType, n: int, x: Value) -> Value:
    if n:
        raise Unsupported(Reason.ATTRIBUTE, f"n={n}")
    return _in_double(pointwise.digamma, b, out, x)


def _two(
    function: Callable[[Builder, Value, Value], Value],
    b: Builder,
    out: TensorType,
    x: Operand,
    y: Operand,
) -> Value:
    """A composition of two operands, which is rounded once."""
    dtype = "float64" if out.dtype == "float64" else "float32"
    own = (cast_to(b, as_value(b, v, out.dtype), dtype) for v in (x, y))
    return cast_to(b, function(b, *own), out.dtype)


aten("atan2")(partial(_two, pointwise.atan2))
aten("hypot")(partial(_two, pointwise.hypotenuse))


def _two_whole(
    function: Callable[[Builder, Value, Value], Value],
    b: Builder,
    out: TensorType,
    x: Value,
    y: Value,
) -> Value:
    """A composition of two operands of the shape of the result."""
    own = (b.add("broadcast_to", cast_to(b, v, out.dtype), shape=out.shape) for v in (x, y))
    return function(b, *own)


aten("gcd")(partial(_two_whole, pointwise.greatest_common_divisor))
aten("lcm")(partial(_two_whole, pointwise.least_common_multiple))


def _with_sign(b: Builder, x: Value, y: Value) -> Value:
    size = b.add("abs", x)
    return b.add("where", pointwise.is_negative(b, y), b.add("negative", size), size)


aten("copysign.Tensor", "copysign.Scalar")(partial(_two, _with_sign))


def _number_first(operator: str, b: Builder, out: TensorType, x: Operand, y: Operand) -> Value:
    """Of two floats the one that is a number, if only one is."""
    x, y = as_value(b, x, out.dtype), as_value(b, y, out.dtype)
    value = b.add(operator, x, y)
    if not dtypes.is_float(out.dtype):
        return value
    value = b.add("where", b.add("is_nan", y), x, value)
    return b.add("where", b.add("is_nan", x), y, value)


aten("fmax")(partial(_number_first, "maximum"))
aten("fmin")(partial(_number_first, "minimum"))

for _name, _operator in (("left", "shift_left"), ("right", "shift_right")):
    for _overload in ("Tensor", "Tensor_Scalar", "Scalar_Tensor"):
        aten(f"bitwise_{_name}_shift.{_overload}")(partial(arithmetic, _operator))
    aten(f"__{_name[0]}shift__.Tensor", f"__{_name[0]}shift__.Scalar")(
        partial(arithmetic, _operator)
    )


@aten("ldexp.Tensor")
def ldexp(b: Builder, out: TensorType, self: Value, other: Value) -> Value:
    """Floats times whole powers of two, which themselves may be too large or small for the dtype.

    PyTorch multiplies all else by the power.
    """
    if dtypes.is_float(other.dtype) or not dtypes.is_float(self.dtype):
        dtype = other.dtype if dtypes.is_float(other.dtype) else out.dtype
        power = arithmetic("power", b, TensorType(dtype, other.shape), 2, other)
        return arithmetic("multiply", b, out, self, power)
    value, left = as_value(b, self, out.dtype), cast_to(b, other, "int64")
    value = cast_to(b, value, "float64")
    for _ in range(3 if out.dtype == "float64" else 1):
        low, high = b.constant(-1000, "int64"), b.constant(1000, "int64")
        now = b.add("maximum", b.add("minimum", left, high), low)
        left = b.add("subtract", left, now)
        biased = b.add("add", now, b.constant(1023, "int64"))
        bits = b.add("shift_left", biased, b.constant(52, "int64"))
        value = b.add("multiply", value, bitcast(b, bits, "float64"))
    return cast_to(b, value, out.dtype)


@aten("signbit")
def sign_bit(b: Builder, _out: TensorType, x: Value) -> Value:
    if dtypes.is_float(x.dtype):
        return pointwise.is_negative(b, x)
    own = cast_to(b, x, "int32") if x.dtype == "bool" else x
    return b.add("less", own, b.constant(0, own.dtype))


@aten("angle")
def angle(b: Builder, out: TensorType, x: Value) -> Value:
    """Of a real number: 0, or pi where it is negative."""
    own = cast_to(b, x, out.dtype)
    negative = b.add("less", own, b.constant(0, out.dtype))
    value = b.add("where", negative, b.constant(math.pi, out.dtype), b.constant(0, out.dtype))
    return b.add("where", b.add("is_nan", own), own, value)


@aten("exp2")
def exp2(b: Builder, out: TensorType, x: Value) -> Value:
    return arithmetic("power", b, out, 2, x)


@aten("expm1")
def expm1(b: Builder, out: TensorType, x: Value) -> Value:
    return in_wide(b, x, out, partial(pointwise.expm1, b))


@aten("gelu")
def gelu(b: Builder, _out: TensorType, x: Value, *, approximate: str = "none") -> Value:
    return b.add("gelu_by_tanh" if approximate == "tanh" else "gelu", x)


@aten("hardswish")
def hard_swish(b: Builder, _out: TensorType, x: Value) -> Value:
    return b.add("hard_swish", x, alpha=1 / 6, beta=0.5)


@aten("hardsigmoid")
def hard_sigmoid(b: Builder, _out: TensorType, x: Value) -> Value:
    return b.add("hard_sigmoid", x, alpha=1 / 6, beta=0.5)


@aten("leaky_relu")
def leaky_relu(b: Builder, _out: TensorType, x: Value, negative_slope: float = 0.01) -> Value:
    return b.add("leaky_relu", x, slope=negative_slope)


@aten("rrelu_with_noise_functional")
def rrelu(
    b: Builder,
    _out: TensorType,
    x: Value,
    noise: Value,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    generator: None = None,
) -> Sequence[Value]:
    """In training elements below 0 draw their slopes, of which it is the mean afterwards."""
    del generator
    if training:
        raise Unsupported(Reason.DATA_DEPENDENT, "elements say how many slopes are drawn")
    return b.add("leaky_relu", x, slope=(lower + upper) / 2), noise


@aten("elu")
def elu(
    b: Builder,
    out: TensorType,
    x: Value,
    alpha: float = 1.0,
    scale: float = 1.0,
    input_scale: float = 1.0,
) -> Value:
    """`scale * x`, and `scale * alpha * (exp(input_scale * x) - 1)` where it is negative."""
    if input_scale == 1:
        return b.add("selu", x, alpha=alpha, gamma=scale)
    if scale == 1 and alpha and input_scale == 1 / alpha:
        return b.add("celu", x, alpha=alpha)

    def compute(v: Value) -> Value:
        below = b.add("selu", times(b, v, input_scale), alpha=1.0, gamma=scale * alpha)
        positive = b.add("less", b.constant(0, v.dtype), v)
        return b.add("where", positive, times(b, v, scale), below)

    return in_wide(b, x, out, compute)


@aten("softplus")
def softplus(
    b: Builder, out: TensorType, x: Value, beta: float = 1.0, threshold: float = 20.0
) -> Value:
    def compute(v: Value) -> Value:
        scaled = times(b, v, beta)
        smooth = times(b, b.add("softplus", scaled), 1 / beta)
        return b.add("where", b.add("less", b.constant(threshold, v.dtype), scaled), v, smooth)

    return in_wide(b, x, out, compute)


@aten("dropout")
def dropout(_b: Builder, _out: TensorType, x: Value, p: float, train: bool) -> Value:
    if train and p:
        raise Unsupported(Reason.ATTRIBUTE, "train=True: call `eval` of the module first")
    return x


@aten("empty.memory_format", "empty_strided", "empty_permuted", "new_empty_strided")
def empty(b: Builder, out: TensorType, *_where: object, dtype: object = None) -> Value:
    """What it holds is not defined: zeros."""
    del dtype
    return b.add("broadcast_to", b.constant(0, out.dtype), shape=out.shape)


@aten("full", "full_like", "scalar_tensor")
def full(
    b: Builder, out: TensorType, _like: object, value: Number | None = None, *, dtype: object = None
) -> Value:
    del dtype
    number: Any = _like if value is None else value
    return b.add("broadcast_to", as_value(b, number, out.dtype), shape=out.shape)


@aten("arange.start_step", "arange", "arange.start")
def arange(
    b: Builder,
    out: TensorType,
    start: Number = 0,
    end: Number | None = None,
    step: Number = 1,
    *,
    dtype: object = None,
) -> Value:
    del dtype
    first = 0 if end is None else start
    return b.constant(ranged(first, step, out.shape[0]), out.dtype)
