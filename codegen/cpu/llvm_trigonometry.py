"""Sine and cosine in vector instructions, for arguments of any size; float32 by float64.

An argument is n * pi/2 + r with |r| <= pi/4: n mod 4 says whether the result is the sine or the
cosine of r, and its sign. n and r come from one of two reductions, the second of which is a call
that only vectors with a large element make:

- Cody and Waite, "Software Manual for the Elementary Functions": pi/2 in parts of 33 bits, whose
  products with n < 2**20 are exact. Constants are those of fdlibm.
- Payne and Hanek, "Radian reduction for trigonometric functions", SIGNUM Newsletter 18, 1983: of
  2/pi only the bits count whose product with the argument is below 4 and not negligible.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from math import pi

from ... import dtypes
from .llvm_text import Builder, calling, lanes_of, value_type
from .llvm_vector import V, fma, fma_exact, polynomial, two_sum, where

_PARTS = 1.57079632673412561417, 6.07710050630396597660e-11, 2.02226624871116645580e-21
"""33 bits of pi/2 each."""
_REST = 8.47842766036889956997e-32
_HALF_PI = pi / 2, 6.123233995736766e-17
_LARGE = 2.0**20
_MAGIC = 1.5 * 2.0**52
"""Adding it rounds to an integer."""
_WORDS = 20
"""Of 64 bits: 2/pi as far as the largest exponent needs it, behind a word of zeros."""


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
        return _unless_large(size, [n, size - first - second - third])
    high, low = two_sum(size - first, -second)
    high, more = two_sum(high, -third)
    return _unless_large(size, [n, *two_sum(high, low + more - n * _REST)])


def _unless_large(size: V, near: list[V]) -> list[V]:
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
    taken = where(large, size, size.like(_LARGE))
    triple = b.op(f"call {_triple(t)} @{_large_angles(b, lanes)}({t} {taken.text})")
    parts = [
        where(large, V(b, b.op(f"extractvalue {_triple(t)} {triple}, {k}"), size.dtype), part)
        for k, part in enumerate(near)
    ]
    b.jump(after)
    b.start(after)
    return [
        V(b, b.op(f"phi {t} [ {a.text}, %{before.label} ], [ {p.text}, %{far.label} ]"), a.dtype)
        for a, p in zip(near, parts, strict=True)
    ]


def _triple(t: str) -> str:
    return f"{{ {t}, {t}, {t} }}"


def _large_angles(b: Builder, lanes: int) -> str:
    """The function that reduces a vector of float64 from `_LARGE` on, or one number."""
    symbol, t = f"tilewright.large_angle.{lanes}", lanes_of("double", lanes)
    if symbol in b.module.declarations:
        return symbol
    inner = Builder(b.module)
    if lanes == 1:
        numbers = [number.text for number in _large_angle(V(inner, "%x", "float64"))]
    else:
        one, numbers = _large_angles(b, 1), ["poison"] * 3
        for lane in range(lanes):
            x = inner.op(f"extractelement {t} %x, i64 {lane}")
            triple = inner.op(f"call {_triple('double')} @{one}(double {x})")
            for k, vector in enumerate(numbers):
                part = inner.op(f"extractvalue {_triple('double')} {triple}, {k}")
                text = f"insertelement {t} {vector}, double {part}, i64 {lane}"
                numbers[k] = inner.op(text)
    result = "poison"
    for k, number in enumerate(numbers):
        result = inner.op(f"insertvalue {_triple(t)} {result}, {t} {number}, {k}")
    inner.block.end = f"ret {_triple(t)} {result}"
    head = f"define internal {_triple(t)} @{symbol}({t} %x) noinline cold #0"
    b.module.declare(symbol, f"{head} {{\n{inner.text()}\n}}")
    return symbol


def _large_angle(x: V) -> tuple[V, V, V]:
    """n modulo 4, and r in two parts, of a finite number from `_LARGE` on.

    x is m * 2**e with an integer m of 53 bits. The product of m and the 192 bits of 2/pi that begin
    at the weight 2**(1 - e), modulo 2**192, has n in its first two bits and the fraction behind.
    """
    b = x.b
    bits = b.op(f"bitcast double {x.text} to i64")
    start = b.op(f"sub i64 {b.op(f'lshr i64 {bits}, 52')}, {1075 + 2 - 64}")
    m = b.op(f"or i64 {b.op(f'and i64 {bits}, {2**52 - 1}')}, {2**52}")
    words = ", ".join(f"i64 {word}" for word in _two_over_pi())
    table = "@tilewright.two_over_pi"
    constant = f"{table} = internal constant [{_WORDS} x i64] [{words}], align 8"
    b.module.declare(table, constant)
    first = b.op(f"getelementptr i64, ptr {table}, i64 {b.op(f'lshr i64 {start}, 6')}")
    pointers = [b.op(f"getelementptr i64, ptr {first}, i64 {k}") for k in range(4)]
    loaded = [b.op(f"load i64, ptr {pointer}, align 8") for pointer in pointers]
    window = [
        b.op(calling(b, "llvm.fshl.i64", "i64", ("i64", u), ("i64", v), ("i64", start)))
        for u, v in pairwise(loaded)
    ]
    wide = b.op(f"zext i64 {m} to i128")
    top = b.op(f"zext i64 {b.op(f'mul i64 {m}, {window[0]}')} to i128")
    middle, end = (
        b.op(f"mul i128 {wide}, {b.op(f'zext i64 {word} to i128')}") for word in window[1:]
    )
    total = b.op(f"add i128 {middle}, {b.op(f'lshr i128 {end}, 64')}")
    total = b.op(f"add i128 {total}, {b.op(f'shl i128 {top}, 64')}")
    rounded = b.op(f"lshr i128 {b.op(f'add i128 {total}, {2**125}')}, 126")
    n = V(b, b.op(f"uitofp i64 {b.op(f'trunc i128 {rounded} to i64')} to double"), "float64")
    fraction = b.op(f"shl i128 {total}, 2")

    def part(shift: int, width: int, how: str) -> V:
        """`width` bits from `shift` on, as a float64, which has them all."""
        kept = b.op(f"{'ashr' if how == 'sitofp' else 'lshr'} i128 {fraction}, {shift}")
        kept = b.op(f"trunc i128 {kept} to i64")
        if how == "uitofp":
            kept = b.op(f"and i64 {kept}, {2**width - 1}")
        return V(b, b.op(f"{how} i64 {kept} to double"), "float64") * 2.0 ** (shift - 128)

    high, low = two_sum(part(75, 53, "sitofp"), part(22, 53, "uitofp"))
    high, low = two_sum(high, low + part(0, 22, "uitofp"))
    product = high * _HALF_PI[0]
    rest = fma_exact(high, x.like(_HALF_PI[0]), -product)
    return n, *two_sum(product, rest + (high * _HALF_PI[1] + low * _HALF_PI[0]))


@cache
def _two_over_pi() -> tuple[int, ...]:
    """A word of zeros, and the bits of 2/pi behind the point. pi is by Machin's formula."""
    bits = 64 * _WORDS

    def arctan_of_inverse(n: int) -> int:
        total, sign, k, term = 0, 1, 1, (1 << bits + 64) // n
        while term:
            total += sign * (term // k)
            sign, k, term = -sign, k + 2, term // (n * n)
        return total

    scaled_pi = 16 * arctan_of_inverse(5) - 4 * arctan_of_inverse(239) >> 64
    number = (1 << 2 * bits + 1) // scaled_pi >> 64
    return tuple(number >> 64 * (_WORDS - 1 - k) & (2**64 - 1) for k in range(_WORDS))
