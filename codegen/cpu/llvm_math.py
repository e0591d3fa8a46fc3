"""Mathematical functions of float32 and float64, on scalars and vectors, in vector instructions.

Largest errors in units in the last place, from dense random tests over the whole range (denormal
results included):

    exp 1, exp2 1.5 (1 with fused multiply-add), expm1 2.5, log 1, log1p 1; sin and cos 0.6 in
    float32 and 1 in float64; asin 3, acos 1.5, atan 3, atan2 3; sinh 3, cosh 2, tanh 2.5, asinh 2,
    acosh 2.5, atanh 2.5; erf 1.5, sigmoid 2.5; pow 0.6 in float32 and 2 in float64; cbrt 1; hypot
    0.6 in float32 and 1.5 in float64; rsqrt, a division by a square root, 1.5; sqrt, floor, ceil,
    trunc, round and abs are exact.

Infinities, NaN, signed zeros and overflow behave as in C. The families are in files of their own:
llvm_exponential.py (and logarithms), llvm_trigonometry.py (and inverses); their polynomials are in
llvm_polynomials.py.
"""

from __future__ import annotations

from collections.abc import Callable

from .llvm_exponential import (
    EXP_RANGE,
    LN2_HIGH,
    LN2_LOW,
    acosh,
    asinh,
    atanh,
    clamped,
    cosh,
    exp,
    exp2,
    expm1,
    expm1_reduced,
    log,
    log1p,
    reduced_exponent,
    scaled,
    sigmoid,
    sinh,
    split,
    tanh,
    whole,
)
from .llvm_text import Builder, call, suffix, value_type
from .llvm_trigonometry import acos, asin, atan, atan2, cos, sin
from .llvm_vector import V, fma, fma_exact, polynomial, two_sum, where

INTRINSICS = {
    "sqrt": "llvm.sqrt",
    "abs": "llvm.fabs",
    "floor": "llvm.floor",
    "ceil": "llvm.ceil",
    "trunc": "llvm.trunc",
    "round": "llvm.rint",
}
"""Functions that LLVM has, exact or rounded once; on float16 too where the target computes so."""
_ERF_ONE = {"float32": 4.0, "float64": 6.0}


def function(b: Builder, name: str, dtype: str, args: list[str]) -> str:
    """The function `name` on float32 or float64 operands, vectors or scalars."""
    t = value_type(dtype)
    if name in INTRINSICS:
        return call(b, INTRINSICS[name], dtype, dtype, *args)
    if name == "neg":
        return b.op(f"fneg {t} {args[0]}")
    symbol = f"tilewright.{name}.{suffix(dtype)}"
    if symbol not in b.module.declarations:
        _define(b, symbol, dtype, len(args), _FUNCTIONS[name])
    return b.op(f"call {t} @{symbol}({', '.join(f'{t} {a}' for a in args)})")


def _define(b: Builder, symbol: str, dtype: str, arity: int, body: Callable[..., V]) -> None:
    """Add the function to the module, to be inlined where it is called."""
    inner = Builder(b.module)
    t = value_type(dtype)
    result = body(*(V(inner, f"%x{i}", dtype) for i in range(arity)))
    inner.block.end = f"ret {t} {result.text}"
    parameters = ", ".join(f"{t} %x{i}" for i in range(arity))
    text = f"define internal {t} @{symbol}({parameters}) alwaysinline #0 {{\n{inner.text()}\n}}"
    b.module.declare(symbol, text)


def _rsqrt(x: V) -> V:
    return x.like(1.0) / x.sqrt()


def _hypot(x: V, y: V) -> V:
    """In float64 that of numbers whose squares do not overflow."""
    infinite = x.abs().equals(float("inf")) | y.abs().equals(float("inf"))
    if x.scalar == "float32":
        a, b = x.extended(), y.extended()
        root = fma(a, a, b * b).sqrt().truncated(x.dtype)
    else:
        a, b = x.abs(), y.abs()
        most = where(a > b, a, b)
        scale = where(most > 2.0**500, x.like(2.0**-600), x.like(1.0))
        scale = where(most < 2.0**-500, x.like(2.0**600), scale)
        a, b = a * scale, b * scale
        root = fma(a, a, b * b).sqrt() / scale
    return where(infinite, x.like(float("inf")), root)


def _cbrt(x: V) -> V:
    """By x = a * 2**(3n): a polynomial, and a step of Halley's iteration."""
    size = x.abs()
    m, e = split(size)
    n = ((e + 0.5) * (1 / 3)).floor()
    rest = e - n * 3.0
    a = where(rest > 0.5, where(rest > 1.5, m * 4.0, m * 2.0), m)
    roots = x.like(1.0), x.like(2.0 ** (1 / 3)), x.like(2.0 ** (2 / 3))
    t = polynomial("CBRT", m) * where(rest > 0.5, where(rest > 1.5, roots[2], roots[1]), roots[0])
    cube = t * t * t
    t = fma(t, (a - cube) / (cube + cube + a), t)
    result = (t * whole(n).power()).with_sign_of(x)
    return where((size > 0.0) & (size < float("inf")), result, x)


def _erf(x: V) -> V:
    """Near zero x + x * P(x**2), else 1 - exp(-x**2) * Q((x - 2) / (x + 2))."""
    size = clamped(x.abs(), 0.0, _ERF_ONE[x.scalar])
    square = size * size
    near = fma(size, polynomial("ERF", clamped(square, 0.0, 1.0)), size)
    n, r = reduced_exponent(-square)
    decay = n.power() * (expm1_reduced(r) + 1.0)
    beyond = polynomial("ERFC", (size - 2.0) / (size + 2.0))
    far = x.like(1.0) - decay * beyond
    return where(size > 1.0, far, near).with_sign_of(x)


def _pow(x: V, y: V) -> V:
    if x.scalar == "float64":
        return _pow_float64(x, y)
    wide_x, wide_y = x.extended(), y.extended()
    return _pow_special(wide_x, wide_y, exp(wide_y * log(wide_x.abs()))).truncated(x.dtype)


def _pow_float64(x: V, y: V) -> V:
    high, low = _log_in_two(x.abs())
    product = y * high
    rest = fma_exact(y, high, -product) + y * low
    rest = where(product.abs() < 1e4, rest, x.like(0.0))
    n, r = reduced_exponent(clamped(product, *EXP_RANGE["float64"]))
    return _pow_special(x, y, scaled(expm1_reduced(r + rest), n))


def _log_in_two(x: V) -> tuple[V, V]:
    """log(x) as the sum of two float64, to about 65 bits, for positive finite x."""
    m, e = split(x)
    f = m - 1.0
    d = f + 2.0
    d_low = f - (d - 2.0)
    s = f / d
    s_low = fma_exact(-s, d_low, fma_exact(-s, d, f)) / d
    w = s * s
    w_low = fma_exact(s, s, -w) + s * s_low * 2.0
    cube = w * s
    cube_low = fma_exact(w, s, -cube) + fma_exact(w_low, s, w * s_low)
    third, third_low = x.like(2.0 / 3.0), x.like(3.700743415417188e-17)
    t = third * cube
    t_low = fma_exact(third, cube, -t) + fma_exact(third, cube_low, third_low * cube)
    tail = cube * w * polynomial("LOG2ND", w)
    high, low = two_sum(e * LN2_HIGH["float64"], s + s)
    high, error = two_sum(high, t)
    low = low + error + fma_exact(e, x.like(LN2_LOW["float64"]), s_low + s_low) + (t_low + tail)
    return two_sum(high, low)


def _pow_special(x: V, y: V, result: V) -> V:
    """`result` is |x| ** y for finite x that are not zero; the rest of C's table of pow."""
    zero, one, inf = x.like(0.0), x.like(1.0), x.like(float("inf"))
    result = where(x.abs().equals(float("inf")), where(y < 0.0, zero, inf), result)
    result = where(x.equals(0.0), where(y < 0.0, inf, zero), result)
    half = y * 0.5
    integral = y.floor().equals(y)
    odd = integral & half.floor().differs(half)
    result = where(odd, result.with_sign_of(x), result)
    finite_negative = (x < 0.0) & (x > float("-inf"))
    nan = x.like(float("nan"))
    result = where(finite_negative, where(integral, result, nan), result)
    result = where((x.abs().equals(1.0)) & (y.abs().equals(float("inf"))), one, result)
    result = where(x.is_nan() | y.is_nan(), nan, result)
    return where((y.equals(0.0)) | (x.equals(1.0)), one, result)


_FUNCTIONS: dict[str, Callable[..., V]] = {
    "acos": acos,
    "acosh": acosh,
    "asin": asin,
    "asinh": asinh,
    "atan": atan,
    "atan2": atan2,
    "atanh": atanh,
    "cbrt": _cbrt,
    "cos": cos,
    "cosh": cosh,
    "erf": _erf,
    "exp": exp,
    "exp2": exp2,
    "expm1": expm1,
    "hypot": _hypot,
    "log": log,
    "log1p": log1p,
    "pow": _pow,
    "rsqrt": _rsqrt,
    "sigmoid": sigmoid,
    "sin": sin,
    "sinh": sinh,
    "tanh": tanh,
}
