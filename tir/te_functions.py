"""The functions of `te` on values: one element in, one element out."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

from ..base import dtypes
from ..base.errors import IRError, checked_call
from . import ir
from .ir import Const, Expr, Op, Operand
from .te_arguments import dtype_name
from .tensor import Tensor, no_element

P = ParamSpec("P")
R = TypeVar("R")

MORE_THAN_TWO = "of three: te.{0}(te.{0}(a, b), c); over an axis: te.{1}(X[i, r], axis=r)"


def checked(function: Callable[P, R], hint: str | None = None) -> Callable[P, R]:
    """`function`, whose wrong calls raise `IRError`. The hint is a right call, if none is given."""
    name = function.__name__
    parameters = list(inspect.signature(function).parameters)
    usage = f"te.{name}({', '.join(parameters)})"
    call = checked_call(IRError, hint or usage)(function)

    @wraps(function)
    def of_elements(*args: P.args, **kwargs: P.kwargs) -> R:
        for tensor in args:
            if isinstance(tensor, Tensor):
                raise no_element(tensor, f"te.{name}", ", .." if len(parameters) > 1 else "")
        return call(*args, **kwargs)

    return of_elements


select = checked(ir.select, "te.select(condition, a, b)")


@checked
def const(value: int | float | bool, dtype: str | None = None) -> Const:
    """A number as an expression, of `dtype`, by default bool, int64 or float32."""
    usual = (
        "bool" if isinstance(value, bool) else "float32" if isinstance(value, float) else "int64"
    )
    return ir.const(value, usual if dtype is None else dtype_name(dtype))


@checked
def where(condition: Operand, a: Operand, b: Operand) -> Expr:
    """`select` by its name in numpy: `a` where `condition` holds, else `b`."""
    return ir.select(condition, a, b)


def maximum(a: Operand, b: Operand) -> Expr:
    """The larger of two values; NaN if one of them is."""
    return ir.binary(Op.MAX, a, b)


def minimum(a: Operand, b: Operand) -> Expr:
    """The smaller of two values; NaN if one of them is."""
    return ir.binary(Op.MIN, a, b)


maximum = checked(maximum, MORE_THAN_TWO.format("maximum", "max"))
minimum = checked(minimum, MORE_THAN_TWO.format("minimum", "min"))


@checked
def clip(value: Operand, low: Operand, high: Operand) -> Expr:
    """`value` within [low, high]; NaN stays; `high` where the bounds are the wrong way round."""
    return ir.binary(Op.MIN, ir.binary(Op.MAX, value, low), high)


@checked
def cast(value: Operand, dtype: str) -> Expr:
    """`value` as `dtype`: floats to integers saturate, integers to narrower ones wrap."""
    found: Any = value
    if isinstance(found, str):
        raise IRError(
            "cast: the value is {0!r}; expected an expression or a number", found,
            hint=f"the value comes first: te.cast(x, {found!r})",
        )  # fmt: skip
    if isinstance(value, (int, float)) and dtypes.is_float(dtype_name(dtype)):
        return ir.const(float(value), dtype_name(dtype))
    return ir.cast(dtype_name(dtype), value)


@checked
def exp(value: Operand) -> Expr:
    return ir.call("exp", value)


@checked
def exp2(value: Operand) -> Expr:
    """2 to the power of `value`."""
    return ir.call("exp2", value)


@checked
def log(value: Operand) -> Expr:
    """The natural logarithm."""
    return ir.call("log", value)


@checked
def log2(value: Operand) -> Expr:
    """The logarithm to the base 2, within 3 ulp. Narrow floats: in float32."""
    return _of_log("log2", value, 1 / math.log(2))


@checked
def log10(value: Operand) -> Expr:
    """The logarithm to the base 10, within 3 ulp. Narrow floats: in float32."""
    return _of_log("log10", value, 1 / math.log(10))


@checked
def log1p(value: Operand) -> Expr:
    """log(1 + value), near 0 too."""
    return ir.call("log1p", value)


@checked
def expm1(value: Operand) -> Expr:
    """exp(value) - 1, near 0 too."""
    return ir.call("expm1", value)


@checked
def sqrt(value: Operand) -> Expr:
    return ir.call("sqrt", value)


@checked
def rsqrt(value: Operand) -> Expr:
    """1 / sqrt(value)."""
    return ir.call("rsqrt", value)


@checked
def cbrt(value: Operand) -> Expr:
    """The cube root, of negative numbers too."""
    return ir.call("cbrt", value)


@checked
def hypot(a: Operand, b: Operand) -> Expr:
    """sqrt(a**2 + b**2), of numbers whose squares overflow too."""
    return ir.call("hypot", *ir.unify(a, b))


@checked
def square(value: Operand) -> Expr:
    """`value * value`."""
    return ir.binary(Op.MUL, value, value)


@checked
def sin(value: Operand) -> Expr:
    """The sine of `value` in radians, accurate for numbers of any size."""
    return ir.call("sin", value)


@checked
def cos(value: Operand) -> Expr:
    """The cosine of `value` in radians, accurate for numbers of any size."""
    return ir.call("cos", value)


@checked
def tan(value: Operand) -> Expr:
    """The tangent of `value` in radians, within 3 ulp. Narrow floats: in float32."""
    x = widened("tan", value)
    return ir.cast(dtype_of(value), sin(x) / cos(x))


@checked
def asin(value: Operand) -> Expr:
    """The angle in radians, from -pi/2 to pi/2, whose sine `value` is; NaN where none is."""
    return ir.call("asin", value)


@checked
def acos(value: Operand) -> Expr:
    """The angle in radians, from 0 to pi, whose cosine `value` is; NaN where none is."""
    return ir.call("acos", value)


@checked
def atan(value: Operand) -> Expr:
    """The angle in radians, from -pi/2 to pi/2, whose tangent `value` is."""
    return ir.call("atan", value)


@checked
def atan2(y: Operand, x: Operand) -> Expr:
    """The angle of the point (x, y) in radians, from -pi to pi; of zeros and infinities as in C."""
    return ir.call("atan2", *ir.unify(y, x))


@checked
def sinh(value: Operand) -> Expr:
    """The hyperbolic sine."""
    return ir.call("sinh", value)


@checked
def cosh(value: Operand) -> Expr:
    """The hyperbolic cosine."""
    return ir.call("cosh", value)


@checked
def asinh(value: Operand) -> Expr:
    """The inverse hyperbolic sine."""
    return ir.call("asinh", value)


@checked
def acosh(value: Operand) -> Expr:
    """The inverse hyperbolic cosine; NaN below 1."""
    return ir.call("acosh", value)


@checked
def atanh(value: Operand) -> Expr:
    """The inverse hyperbolic tangent; NaN beyond -1 and 1."""
    return ir.call("atanh", value)


@checked
def tanh(value: Operand) -> Expr:
    return ir.call("tanh", value)


@checked
def erf(value: Operand) -> Expr:
    """The error function."""
    return ir.call("erf", value)


@checked
def sigmoid(value: Operand) -> Expr:
    """1 / (1 + exp(-value))."""
    return ir.call("sigmoid", value)


@checked
def logaddexp(a: Operand, b: Operand) -> Expr:
    """log(exp(a) + exp(b)), of large numbers too. Narrow floats: in float32."""
    a, b = ir.unify(a, b)
    x, y = widened("logaddexp", a), widened("logaddexp", b)
    more = select(x == y, math.log(2), log1p(exp(-abs(x - y))))  # of equal infinities too
    return ir.cast(a.dtype, maximum(x, y) + more)


@checked
def fmax(a: Operand, b: Operand) -> Expr:
    """The larger of two values; the other one if one of them is NaN."""
    x, y = ir.unify(a, b)
    return select((x > y) | isnan(y), x, y)


@checked
def fmin(a: Operand, b: Operand) -> Expr:
    """The smaller of two values; the other one if one of them is NaN."""
    x, y = ir.unify(a, b)
    return select((x < y) | isnan(y), x, y)


@checked
def signbit(value: Operand) -> Expr:
    """Whether `value` is negative, as -0.0 is; false for NaN."""
    if not dtypes.is_float(dtype_of(value)):
        return ir.binary(Op.LT, value, 0)
    x = widened("signbit", value)  # float8_e4m3fn has no infinity for 1 / 0
    return (x < 0) | (1 / x < 0)


@checked
def copysign(value: Operand, sign: Operand) -> Expr:
    """The float `value` with the sign of `sign`, positive where that is NaN."""
    x, y = ir.unify(value, sign)
    size = abs(widened("copysign", x))
    return ir.cast(x.dtype, select(signbit(y), -size, size))


@checked
def floor(value: Operand) -> Expr:
    return ir.call("floor", value)


@checked
def ceil(value: Operand) -> Expr:
    return ir.call("ceil", value)


@checked
def trunc(value: Operand) -> Expr:
    """`value` rounded towards zero."""
    return ir.call("trunc", value)


@checked
def round(value: Operand) -> Expr:
    """The nearest whole number, and of two the even one, as numpy rounds; a float."""
    return ir.call("round", value)


@checked
def abs(value: Operand) -> Expr:
    return ir.call("abs", value)


@checked
def sign(value: Operand) -> Expr:
    """1, 0 or -1 in the dtype of `value`; NaN stays, and -0 is 0."""
    x = ir.as_expr(value)
    one = ir.const(1, x.dtype)
    if dtypes.info(x.dtype).kind == "uint":
        return select(x > 0, one, x)
    return select(
        x > 0, one, select(x < 0, ir.const(-1, x.dtype), x - x)
    )  # of -0, the difference is 0


@checked
def pow(base: Operand, exponent: Operand) -> Expr:
    """`base` to the power of `exponent`: floats, or integers and a Python integer from 0 on.

    The Python numbers -1, 0.5, 1 and 2 are as in numpy's `**`: the power of 0.5 is the square
    root, which is NaN at -inf. Other exponents, and constants (`te.const(0.5)`), are as in C.
    """
    return ir.power(base, exponent)


@checked
def isnan(value: Operand) -> Expr:
    """Whether `value` is NaN; false for integers."""
    return ir.binary(Op.NE, value, value)


@checked
def isinf(value: Operand) -> Expr:
    """Whether `value` is infinite; false for integers."""
    x = ir.as_expr(value)
    return abs(x) == math.inf if dtypes.is_float(x.dtype) else isnan(x)


@checked
def isfinite(value: Operand) -> Expr:
    """Whether `value` is a number and not infinite; true for integers."""
    x = ir.as_expr(value)
    # A difference: float8_e4m3fn has no infinity to compare with.
    return x - x == 0 if dtypes.is_float(x.dtype) else ir.binary(Op.EQ, x, x)


def _of_log(name: str, value: Operand, factor: float) -> Expr:
    return ir.cast(dtype_of(value), log(widened(name, value)) * factor)


def dtype_of(value: Operand) -> str:
    return ir.as_expr(value).dtype


def widened(name: str, value: Operand) -> Expr:
    """A float, in float32 if it is narrower."""
    facts = dtypes.info(dtype_of(value))
    if facts.kind != "float":
        raise IRError("{0} takes floats, found {1}", name, facts.scalar,
                      hint=partial(ir.cast_hint, name, ir.as_expr(value)))  # fmt: skip
    return ir.cast("float32", value) if facts.bits < 32 else ir.as_expr(value)
