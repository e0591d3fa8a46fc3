"""Sine and cosine in vector instructions, for arguments of any size; float32 by float64.

An argument is n * pi/2 + r with |r| <= pi/4: n mod 4 says whether the result is the sine or the
cosine of r, and its sign. n and r come from one of two reductions, the second of which is a call
that only vectors with a large element make:

- Cody and Waite, "Software Manual for the Elementary Functions": pi/2 in parts of 33 bits, whose
  products with n < 2**20 are exact. Constants are those of fdlibm.
- Payne and Hanek, "Radian reduction for trigonometric functions", SIGNUM Newsletter 18, 1983: of
  2/pi only the bits count whose product with the argument is below 4 and not negligible. A table
  has them by exponent, as numbers whose products with the argument are exact.

The inverse functions of sine, cosine and tangent: llvm_math.py tells their errors.
"""

from __future__ import annotations

from functools import cache
from math import ldexp, pi

from ...base import dtypes
from .llvm_text import Builder, calling, constant, lanes_of, shuffled, value_type
from .llvm_vector import V, fma, polynomial, two_product, two_sum, where

_PARTS = 1.57079632673412561417, 6.07710050630396597660e-11, 2.02226624871116645580e-21
"""33 bits of pi/2 each."""
_REST = 8.47842766036889956997e-32
_HALF_PI = pi / 2, 6.123233995736766e-17
_LARGE = 2.0**20
_MAGIC = 1.5 * 2.0**52
"""Adding it rounds to an integer."""
_FIRST_ROW = 1023 + 20 >> 4 & -8
"""Of tables with a row for 16 exponents: that of `_LARGE`, or the next smaller multiple of 8."""
_SCALE = 512
"""Powers of two by which factors are larger, lest those of the largest numbers be denormal."""
_BITS = 1280
"""Of 2/pi: as far as the largest exponent needs it."""


def sin(x: V) -> V:
    return _of_quadrant(x, 0.0) * x.like(1.0).with_sign_of(x)


def cos(x: V) -> V:
    """sin(x + pi/2)"""
    return _of_quadrant(x, 1.0)


def _of_quadrant(x: V, turns: float) -> V:
    """sin(|x| + turns * pi/2)"""
    size = x.abs() if x.scalar == "float64" else x.abs().extended()
    n, *angle = _reduced(size, x.scalar)
    half = (n + turns) * 0.5
    quarter = half.floor() * 0.5
    sine, cosine = _of_angle(x.scalar, *angle)
    result = where(half.floor().differs(half), cosine, sine)
    result = where(quarter.floor().differs(quarter), -result, result)
    result = where(size < float("inf"), result, size.like(float("nan")))
    return result if x.scalar == "float64" else result.truncated(x.dtype)


def _of_angle(precision: str, high: V, low: V | None = None) -> tuple[V, V]:
    """The sine and the cosine of the angle high + low."""
    square = high * high
    first = high.like(1.0) - square * 0.5
    sine = high * square * polynomial("SIN", square, precision)
    cosine = square * square * polynomial("COS", square, precision)
    if low is None:
        return high + sine, first + cosine
    lost = high.like(1.0) - first - square * 0.5
    return high + fma(low, first, sine), first + (lost + (cosine - high * low))


def _reduced(size: V, precision: str) -> list[V]:
    """n, or n modulo 4, and r: a number for float32, else a sum of two."""
    n = size * (2 / pi) + _MAGIC - _MAGIC
    first, second, third = (n * part for part in _PARTS)
    if precision == "float32":
        return _unless_large(size, [n, size - first - second - third], precision)
    high, low = two_sum(size - first, -second)
    high, more = two_sum(high, -third)
    return _unless_large(size, [n, *two_sum(high, low + more - n * _REST)], precision)


def _unless_large(size: V, near: list[V], precision: str) -> list[V]:
    """`near`, or the reduction of large numbers in the lanes that have one."""
    b, lanes, t = size.b, dtypes.info(size.dtype).lanes, value_type(size.dtype)
    large = size > _LARGE
    some = large.text
    if lanes > 1:
        vector = (value_type(large.dtype), large.text)
        some = b.op(calling(b, f"llvm.vector.reduce.or.v{lanes}i1", "i1", vector))
    before, far, after = b.block, b.new_block("large"), b.new_block("reduced")
    b.branch(some, far, after)
    b.start(far)
    # The tables have no row for infinity, of which any angle will do.
    large &= size < float("inf")
    taken = where(large, size, size.like(_LARGE))
    result = _struct(t, len(near))
    angle = b.op(f"call {result} @{_large_angle(b, size.dtype, precision)}({t} {taken.text})")
    parts = [
        where(large, V(b, b.op(f"extractvalue {result} {angle}, {k}"), size.dtype), part)
        for k, part in enumerate(near)
    ]
    b.jump(after)
    b.start(after)
    return [
        V(b, b.op(f"phi {t} [ {a.text}, %{before.label} ], [ {p.text}, %{far.label} ]"), a.dtype)
        for a, p in zip(near, parts, strict=True)
    ]


def _struct(t: str, count: int) -> str:
    return f"{{ {', '.join([t] * count)} }}"


def _large_angle(b: Builder, dtype: str, precision: str) -> str:
    """The function that reduces finite float64 from `_LARGE` on: n, and r for `precision`."""
    lanes, t = dtypes.info(dtype).lanes, value_type(dtype)
    symbol = f"tilewright.large_angle.{precision}.{lanes}"
    if symbol in b.module.declarations:
        return symbol
    inner = Builder(b.module)
    x = V(inner, "%x", dtype)
    numbers = _large_single(x) if precision == "float32" else _large_double(x)
    struct, result = _struct(t, len(numbers)), "poison"
    for k, number in enumerate(numbers):
        result = inner.op(f"insertvalue {struct} {result}, {t} {number.text}, {k}")
    inner.block.end = f"ret {struct} {result}"
    head = f"define internal {struct} @{symbol}({t} %x) noinline cold #0"
    b.module.declare(symbol, f"{head} {{\n{inner.text()}\n}}")
    return symbol


def _large_single(x: V) -> tuple[V, V]:
    """n, and r as a number, where the elements of x are float32.

    The first two products are exact, and so is their sum where they cancel.
    """
    first, second, third = _two_over_pi(x, (29, 29, 53), 24)
    product = x * first
    n = fma(x, second, product) + _MAGIC - _MAGIC
    return n, fma(x, third, fma(x, second, product - n)) * _HALF_PI[0]


def _large_double(x: V) -> tuple[V, V, V]:
    """n, and r as a sum of two numbers.

    All products but the last are exact, as sums of two numbers. Of the first, multiples of 4 are
    left out; the third is below 2**-36, the last below 2**-89.
    """
    factors = _two_over_pi(x, (53, 53, 53, 53), 53)
    scaled = x * 2.0**-_SCALE
    (first, second, third), last = factors[:3], factors[3]
    p, p_low = two_product(scaled, first)
    q, q_low = two_product(scaled, second)
    s, s_low = two_product(scaled, third)
    total, low = two_sum(p - (p * 0.25).floor() * 4.0, p_low)
    total, lower = two_sum(total, q)
    n = (total + 0.5).floor()
    high, lost = two_sum(low, lower)
    more, rest = two_sum(s, q_low)
    high, left = two_sum(total - n, high)
    high, gone = two_sum(high, more)
    rest = rest + lost + (s_low + scaled * last)
    high, low = two_sum(high, left + gone + rest)
    product, error = two_product(high, high.like(_HALF_PI[0]))
    return n, *two_sum(product, error + (high * _HALF_PI[1] + low * _HALF_PI[0]))


def _two_over_pi(x: V, widths: tuple[int, ...], mantissa: int) -> list[V]:
    """Numbers of `widths` bits. Their sum is 2/pi without bits that add multiples of 4 to x * 2/pi.

    x is from `_LARGE` on, with a mantissa of `mantissa` bits. For each width there is a table with
    a row for 16 exponents: of 8 rows for float32, which fit a vector.
    """
    b, facts = x.b, dtypes.info(x.dtype)
    columns = _columns(widths, mantissa)
    t = value_type(dtypes.vector("int64", facts.lanes))
    bits = x.bits()
    row = b.op(f"lshr {t} {bits.text}, {bits.like(56).text}")
    permuted = mantissa == 24 and facts.lanes in (8, 16) and b.module.target.vector_bits == 512
    numbers = []
    for k, column in enumerate(columns):
        table = f"@tilewright.two_over_pi.{mantissa}.{k}"
        texts = ", ".join(f"double {constant(number, 'float64')}" for number in column)
        text = f"{table} = internal constant [{len(column)} x double] [{texts}], align 64"
        b.module.declare(table, text)
        element = _permuted if permuted else _gathered
        numbers.append(V(b, element(b, table, row, facts.lanes), x.dtype))
    return numbers


def _gathered(b: Builder, table: str, row: str, lanes: int) -> str:
    """Rows of a table, counted from `_FIRST_ROW`."""
    first = b.op(f"getelementptr double, ptr {table}, i64 {-_FIRST_ROW}")
    where = b.op(f"getelementptr double, ptr {first}, {lanes_of('i64', lanes)} {row}")
    if lanes == 1:
        return b.op(f"load double, ptr {where}, align 8")
    t, pointers = lanes_of("double", lanes), (lanes_of("ptr", lanes), f"align 8 {where}")
    name, mask = f"llvm.masked.gather.v{lanes}f64.v{lanes}p0", lanes_of("i1", lanes)
    return b.op(calling(b, name, t, pointers, (mask, "splat (i1 true)"), (t, "zeroinitializer")))


def _permuted(b: Builder, table: str, row: str, lanes: int) -> str:
    """Rows of a table of 8, in a vector of AVX-512, which takes the last three bits of a row."""
    double, integer = lanes_of("double", 8), lanes_of("i64", 8)
    column = double, b.op(f"load {double}, ptr {table}, align 64")
    name = "llvm.x86.avx512.permvar.df.512"
    if lanes == 8:
        return b.op(calling(b, name, double, column, (integer, row)))
    halves = [
        b.op(shuffled(lanes_of("i64", 16), row, "poison", order))
        for order in (range(8), range(8, 16))
    ]
    parts = [b.op(calling(b, name, double, column, (integer, half))) for half in halves]
    return b.op(shuffled(double, parts[0], parts[1], range(16)))


@cache
def _columns(widths: tuple[int, ...], mantissa: int) -> list[tuple[float, ...]]:
    """For each width, its bits of 2/pi in each row. Rows are biased exponents of float64, over 16.

    The first bit of a row is the first whose product with the smallest number can be below 4.
    """
    largest, scale = (127, 0) if mantissa == 24 else (1023, _SCALE)
    starts = [mantissa + 1023 - 16 * row for row in range(_FIRST_ROW, (1023 + largest >> 4) + 1)]
    columns = []
    for width in widths:
        ends = [start - width + 1 for start in starts]
        chunks = [_digits() >> _BITS + end & (1 << width) - 1 for end in ends]
        columns.append(tuple(ldexp(c, end + scale) for c, end in zip(chunks, ends, strict=True)))
        starts = [start - width for start in starts]
    return columns


@cache
def _digits() -> int:
    """2/pi times 2**_BITS. pi is by Machin's formula."""

    def arctan_of_inverse(n: int) -> int:
        total, sign, k, term = 0, 1, 1, (1 << _BITS + 64) // n
        while term:
            total += sign * (term // k)
            sign, k, term = -sign, k + 2, term // (n * n)
        return total

    scaled_pi = 16 * arctan_of_inverse(5) - 4 * arctan_of_inverse(239)
    return (1 << 2 * _BITS + 65) // scaled_pi


_QUARTER = {
    "float32": (0.785398006439209, 1.5695823932524066e-07),
    "float64": (0.7853981633974483, 3.061616997868383e-17),
}
"""pi/4 as a number whose products with 0 to 4 are exact, and the rest."""
_STEEP = 0.41421356237309503
"""tan(pi/8)"""


def asin(x: V) -> V:
    """The angle below 1/2, else pi/2 - 2 * asin(sqrt((1 - |x|) / 2))."""
    large, angle = _arcsine(x)
    return where(large, _turned(2.0, -(angle + angle)), angle).with_sign_of(x)


def acos(x: V) -> V:
    large, angle = _arcsine(x)
    double = angle + angle
    beyond = where(x < 0.0, _turned(4.0, -double), double)
    return where(large, beyond, _turned(2.0, -angle.with_sign_of(x)))


def _arcsine(x: V) -> tuple[V, V]:
    """Whether |x| > 1/2; asin(|x|), there asin(sqrt((1 - |x|) / 2))."""
    size = x.abs()
    large = size > 0.5
    z = where(large, (x.like(1.0) - size) * 0.5, size * size)
    s = where(large, z.sqrt(), size)
    return large, fma(s * z, polynomial("ASIN", z), s)


def atan(x: V) -> V:
    size, one = x.abs(), x.like(1.0)
    swapped = size > 1.0
    eighths, angle = _of_ratio(where(swapped, one, size), where(swapped, size, one))
    return _reflected(swapped, 2.0, eighths, angle).with_sign_of(x)


def atan2(y: V, x: V) -> V:
    """The angle of (x, y), in all four quadrants; of zeros and infinities as C has it."""
    one = x.like(1.0)
    a, b = y.abs(), x.abs()
    swapped = a > b
    n, m = where(swapped, b, a), where(swapped, a, b)
    both = n.equals(float("inf"))
    n = where(both, one, n)
    m = where(both | m.equals(0.0), one, m)
    eighths, angle = _of_ratio(n, m)
    eighths, angle = _reflect(swapped, 2.0, eighths, angle)
    left = one.with_sign_of(x) < 0.0
    result = _reflected(left, 4.0, eighths, angle).with_sign_of(y)
    return where(x.is_nan() | y.is_nan(), x.like(float("nan")), result)


def _of_ratio(n: V, m: V) -> tuple[V, V]:
    """atan(n / m) for 0 <= n <= m, as a number of eighths of a turn (0 or 1) and an angle."""
    steep = n > m * _STEEP
    half = where(m > 1.0, m.like(0.5), m.like(1.0))  # lest the sum overflow
    p, q = n * half, m * half
    t = where(steep, p - q, n) / where(steep, p + q, m)
    square = t * t
    angle = fma(t * square, polynomial("ATAN", square), t)
    return where(steep, m.like(1.0), m.like(0.0)), angle


def _reflect(where_: V, total: float, eighths: V, angle: V) -> tuple[V, V]:
    """`total` eighths of a turn minus the angle, where the condition holds."""
    return where(where_, eighths.like(total) - eighths, eighths), where(where_, -angle, angle)


def _reflected(where_: V, total: float, eighths: V, angle: V) -> V:
    eighths, angle = _reflect(where_, total, eighths, angle)
    high, low = _QUARTER[angle.scalar]
    return eighths * high + fma(eighths, eighths.like(low), angle)


def _turned(eighths: float, angle: V) -> V:
    """`angle` and a number of eighths of a turn."""
    high, low = _QUARTER[angle.scalar]
    return angle.like(eighths * high) + (angle + eighths * low)
