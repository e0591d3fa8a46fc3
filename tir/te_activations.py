"""The functions of `te` that networks apply to a float, made of others.

Floats that are narrower than float32 are computed in float32 and rounded once. NaN stays, and a
product of infinity and zero is NaN, as it is in torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec

from . import ir
from .ir import Expr, Op, Operand
from .te_functions import (
    abs,
    checked,
    clip,
    dtype_of,
    erf,
    exp,
    expm1,
    log1p,
    maximum,
    minimum,
    select,
    sigmoid,
    tanh,
    widened,
)

P = ParamSpec("P")


def _of_float(
    function: Callable[Concatenate[Expr, P], Expr],
) -> Callable[Concatenate[Operand, P], Expr]:
    """`function` of a float of any width, in the dtype of the float."""

    @wraps(function)
    def call(x: Operand, *args: P.args, **kwargs: P.kwargs) -> Expr:
        return ir.cast(dtype_of(x), function(widened(function.__name__, x), *args, **kwargs))

    return checked(call)  # type: ignore[return-value]  # x goes by its name too


@checked
def relu(value: Operand) -> Expr:
    """`value`, and 0 where it is negative; NaN stays. Integers too."""
    return ir.binary(Op.MAX, value, 0)


@checked
def relu6(value: Operand) -> Expr:
    """`value` within [0, 6]; NaN stays. Integers too."""
    return clip(value, 0, 6)


@checked
def hardtanh(value: Operand, low: Operand = -1, high: Operand = 1) -> Expr:
    """`value` within [low, high], as `clip`. Integers too."""
    return clip(value, low, high)


@_of_float
def leaky_relu(x: Expr, slope: Operand = 0.01) -> Expr:
    """`x`, and `slope * x` where it is negative."""
    return select(x > 0, x, x * slope)


@_of_float
def elu(x: Expr, alpha: Operand = 1.0) -> Expr:
    """`x`, and `alpha * (exp(x) - 1)` where it is negative."""
    return select(x > 0, x, expm1(x) * alpha)


@_of_float
def celu(x: Expr, alpha: Operand = 1.0) -> Expr:
    """`x`, and `alpha * (exp(x / alpha) - 1)` where it is negative."""
    return select(x > 0, x, expm1(x / alpha) * alpha)


@_of_float
def selu(x: Expr) -> Expr:
    """1.0507 times `elu` with alpha 1.6733: the constants of Klambauer et al., 2017."""
    return elu(x, 1.6732632423543772) * 1.0507009873554805


@_of_float
def hardsigmoid(x: Expr, alpha: Operand = 1 / 6, beta: Operand = 0.5) -> Expr:
    """`alpha * x + beta` within [0, 1]; by default that of torch. In ONNX alpha is 0.2."""
    return clip(x * alpha + beta, 0, 1)


@_of_float
def hardswish(x: Expr) -> Expr:
    """`x * hardsigmoid(x)`; NaN at -inf."""
    return x * hardsigmoid(x)


@_of_float
def silu(x: Expr) -> Expr:
    """`x * sigmoid(x)`, also called swish; NaN at -inf."""
    return x * sigmoid(x)


@_of_float
def gelu(x: Expr) -> Expr:
    """`x` times the normal distribution's probability up to it, by the error function.

    NaN at -inf.
    """
    return x * 0.5 * (erf(x * math.sqrt(0.5)) + 1.0)


@_of_float
def softplus(x: Expr) -> Expr:
    """log(1 + exp(x)), of large numbers too."""
    return maximum(x, 0) + log1p(exp(-abs(x)))


@_of_float
def log_sigmoid(x: Expr) -> Expr:
    """log(sigmoid(x)), of large negative numbers too."""
    return minimum(x, 0) - log1p(exp(-abs(x)))


@_of_float
def mish(x: Expr) -> Expr:
    """`x * tanh(softplus(x))`; NaN at -inf."""
    return x * tanh(softplus(x))


@_of_float
def softsign(x: Expr) -> Expr:
    """x / (1 + abs(x)); NaN at infinities."""
    return x / (1 + abs(x))
