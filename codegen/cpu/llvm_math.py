"""Mathematical functions of float32 and float64, on scalars and vectors, in vector instructions.

Largest errors in units in the last place, from dense random tests over the whole range (denormal
results included):

    exp 1, exp2 1.5 (1 with fused multiply-add), log 1, erf 1.5, tanh 2.5, sigmoid 2.5; sin and cos
    0.6 in float32 and 1 in float64; pow 0.6 in float32 and 2 in float64; rsqrt, a division by a
    square root, 1.5; sqrt, floor, ceil, trunc, round and abs are exact.

Infinities, NaN, signed zeros and overflow behave as in C. Range reductions follow Cody and Waite,
the logarithm W. Kahan and fdlibm; polynomials are in llvm_polynomials.py, sine and cosine in
llvm_trigonometry.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .llvm_text import Builder, call, calling, suffix, value_type
from .llvm_trigonometry import cos, sin
from .llvm_vector import V, fma, fma_exact, from_bits, polynomial, short_polynomial, two_sum, where

INTRINSICS = {
    "sqrt": "llvm.sqrt",
    "abs": "llvm.fabs",
    "floor": "llvm.floor",
    "ceil": "llvm.ceil",
    "trunc": "llvm.trunc",
    "round": "llvm.rint",
}
"""Functions that LLVM has, exact or rounded once; on float16 too where the target computes so."""
_LOG2E = 1.4426950408889634
_LN2_HIGH = {"float32": 0.693359375, "float64": 6.93147180369123816490e-01}
_LN2_LOW = {"float32": -2.12194440054690583e-4, "float64": 1.90821492927058770002e-10}
_EXP_RANGE = {"float32": (-104.0, 89.0), "float64": (-746.0, 710.0)}
_EXP2_RANGE = {"float32": (-151.0, 129.0), "float64": (-1076.0, 1025.0)}
_HALF_ROOT_BITS = {"float32": 0x3F3504F3, "float64": 0x3FE6A09E667F3BCD}
_SMALLEST_NORMAL = {"float32": 2.0**-126, "float64": 2.0**-1022}
_TANH_ONE = {"float32": 9.5, "float64": 20.0}
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


class Exponent(NamedTuple):
    """A whole number n: as a float, and n + twice the bias in the low bits of another float."""

    number: V
    shifted: V

    def power(self) -> V:
        """2**n within the range of normal numbers."""
        return self._from_exponent(self.shifted.bits() - self.shifted.bias)

    def factors(self) -> tuple[V, V]:
        """Two powers of two whose product is 2**n, each within the range of normal numbers."""
        bits = self.shifted.bits()
        half = bits.lshr(1)
        return self._from_exponent(half), self._from_exponent(bits - half)

    def _from_exponent(self, biased: V) -> V:
        """The power of two whose biased exponent is in the low bits."""
        return from_bits(biased.shl(self.shifted.mantissa), self.shifted.dtype)


def _shift(x: V) -> V:
    """Adding it rounds to an integer and leaves that in the low bits, as `Exponent` has it."""
    return x.like(1.5 * 2.0**x.mantissa + 2 * x.bias)


def _reduce(x: V) -> tuple[Exponent, V]:
    """x = n * log(2) + r with |r| <= log(2) / 2: n and r. NaN stays in r."""
    shifted = fma(x, x.like(_LOG2E), _shift(x))
    n = shifted - _shift(x)
    r = fma(n, x.like(-_LN2_HIGH[x.scalar]), x)
    r = fma(n, x.like(-_LN2_LOW[x.scalar]), r)
    return Exponent(n, shifted), r


def _expm1_reduced(r: V) -> V:
    """exp(r) - 1 for |r| <= log(2) / 2."""
    square = r * r
    return fma(square, short_polynomial("EXP", r, square), r)


def _scaled(x: V, n: Exponent) -> V:
    """(1 + x) * 2**n, which may overflow or be denormal: by one instruction of AVX-512, or two."""
    if "avx512f" in x.b.module.target.features and x.dtype in _SCALEF:
        return _scalef(x + 1.0, n.number)
    first, second = n.factors()
    return fma(x, first, first) * second


_SCALEF = {"float32x16": ("ps", 16), "float64x8": ("pd", 8)}


def _scalef(x: V, n: V) -> V:
    kind, lanes = _SCALEF[x.dtype]
    name = f"llvm.x86.avx512.mask.scalef.{kind}.512"
    t = value_type(x.dtype)
    all_lanes, nearest = (f"i{lanes}", "-1"), ("i32", "4")
    operands = [(t, x.text), (t, n.text), (t, "zeroinitializer"), all_lanes, nearest]
    return V(x.b, x.b.op(calling(x.b, name, t, *operands)), x.dtype)


def _clamped(x: V, low: float, high: float) -> V:
    """x within bounds; NaN stays."""
    x = where(x < low, x.like(low), x)
    return where(x > high, x.like(high), x)


def _exp(x: V) -> V:
    n, r = _reduce(_clamped(x, *_EXP_RANGE[x.scalar]))
    return _scaled(_expm1_reduced(r), n)


def _exp2(x: V) -> V:
    """x = n + r with |r| <= 1/2: 2**n * (1 + r * P(r))."""
    x = _clamped(x, *_EXP2_RANGE[x.scalar])
    shifted = x + _shift(x)
    n = shifted - _shift(x)
    r = x - n
    return _scaled(r * short_polynomial("EXP2", r, r * r), Exponent(n, shifted))


def _split(x: V) -> tuple[V, V]:
    """x = m * 2**e with sqrt(1/2) <= m < sqrt(2), for positive finite x: m, and e as a float."""
    tiny = x < _SMALLEST_NORMAL[x.scalar]
    x = where(tiny, x * 2.0**x.mantissa, x)
    bits = x.bits()
    e = (bits - _HALF_ROOT_BITS[x.scalar]).ashr(x.mantissa)
    m = from_bits(bits - e.shl(x.mantissa), x.dtype)
    exponent = e.to_float(x.dtype)
    return m, where(tiny, exponent - float(x.mantissa), exponent)


def _log(x: V) -> V:
    m, e = _split(x)
    f = m - 1.0
    s = f / (f + 2.0)
    w = s * s
    half_square = f * f * 0.5
    tail = s * fma(w, polynomial("LOG", w), half_square)
    tail = fma(e, x.like(_LN2_LOW[x.scalar]), tail)
    result = fma(e, x.like(_LN2_HIGH[x.scalar]), f - (half_square - tail))
    result = where(x.equals(float("inf")), x, result)
    special = where(x.equals(0.0), x.like(float("-inf")), x.like(float("nan")))
    return where(x > 0.0, result, special)


def _rsqrt(x: V) -> V:
    root = V(x.b, call(x.b, "llvm.sqrt", x.dtype, x.dtype, x.text), x.dtype)
    return x.like(1.0) / root


def _tanh(x: V) -> V:
    """By t = exp(2|x|) - 1: t / (t + 2)."""
    size = _clamped(x.abs(), 0.0, _TANH_ONE[x.scalar])
    n, r = _reduce(size + size)
    power = n.power()
    t = fma(power, _expm1_reduced(r), power - 1.0)
    return (t / (t + 2.0)).with_sign_of(x)


def _sigmoid(x: V) -> V:
    """By e = exp(-|x|), which does not overflow: 1 / (1 + e) or e / (1 + e)."""
    e = _exp(-x.abs())
    return where(x < 0.0, e, x.like(1.0)) / (e + 1.0)


def _erf(x: V) -> V:
    """Near zero x + x * P(x**2), else 1 - exp(-x**2) * Q((x - 2) / (x + 2))."""
    size = _clamped(x.abs(), 0.0, _ERF_ONE[x.scalar])
    square = size * size
    near = fma(size, polynomial("ERF", _clamped(square, 0.0, 1.0)), size)
    n, r = _reduce(-square)
    decay = n.power() * (_expm1_reduced(r) + 1.0)
    beyond = polynomial("ERFC", (size - 2.0) / (size + 2.0))
    far = x.like(1.0) - decay * beyond
    return where(size > 1.0, far, near).with_sign_of(x)


def _pow(x: V, y: V) -> V:
    if x.scalar == "float64":
        return _pow_float64(x, y)
    wide_x, wide_y = x.extended(), y.extended()
    return _pow_special(wide_x, wide_y, _exp(wide_y * _log(wide_x.abs()))).truncated(x.dtype)


def _pow_float64(x: V, y: V) -> V:
    high, low = _log_in_two(x.abs())
    product = y * high
    rest = fma_exact(y, high, -product) + y * low
    rest = where(product.abs() < 1e4, rest, x.like(0.0))
    n, r = _reduce(_clamped(product, *_EXP_RANGE["float64"]))
    return _pow_special(x, y, _scaled(_expm1_reduced(r + rest), n))


def _log_in_two(x: V) -> tuple[V, V]:
    """log(x) as the sum of two float64, to about 65 bits, for positive finite x."""
    m, e = _split(x)
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
    high, low = two_sum(e * _LN2_HIGH["float64"], s + s)
    high, error = two_sum(high, t)
    low = low + error + fma_exact(e, x.like(_LN2_LOW["float64"]), s_low + s_low) + (t_low + tail)
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
    "exp": _exp,
    "exp2": _exp2,
    "sin": sin,
    "cos": cos,
    "log": _log,
    "rsqrt": _rsqrt,
    "tanh": _tanh,
    "sigmoid": _sigmoid,
    "erf": _erf,
    "pow": _pow,
}
