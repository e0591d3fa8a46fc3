"""Compute types of narrow floats, and conversions to them in integer and float32 vector code.

float16 uses its own instructions if the target has AVX512-FP16. They return the same as float32
arithmetic rounded after each operation: for + - * / and square roots, double rounding is innocuous
because float32 has 24 bits, at least 2 * 11 + 2 (Figueroa, "When is double rounding innocuous?").
Everything else is computed in float32.

Conversions are written out here because LLVM would turn most of them into calls of a compiler
support library, which a loaded kernel does not have. All round to nearest even, return infinity
(NaN in float8_e4m3fn, which has none) on overflow, and keep denormals and NaN.

Emit conversions between dtypes.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

from ...base import dtypes
from .llvm_text import (
    NARROW,
    Builder,
    call,
    calling,
    constant,
    lanes_of,
    operand_type,
    splat,
    suffix,
    value_type,
)
from .llvm_vector import V, where


class Format(NamedTuple):
    """Bits of the format, of its mantissa, its exponent bias; the bits of NaN and of overflow."""

    bits: int
    mantissa: int
    bias: int
    nan: int
    overflow: int


FORMATS = {
    "float16": Format(16, 10, 15, 0x7E00, 0x7C00),
    "bfloat16": Format(16, 7, 127, 0x7FC0, 0x7F80),
    "float8_e4m3fn": Format(8, 3, 7, 0x7F, 0x7F),
    "float8_e5m2": Format(8, 2, 15, 0x7E, 0x7C),
}
_ABS = 0x7FFFFFFF
_INF = 0x7F800000


def computed_in(b: Builder, dtype: str, *, native: bool) -> str:
    """The dtype that floats of `dtype` are computed in.

    `native`: the operation is one that float16 instructions have.
    """
    facts = dtypes.info(dtype)
    if facts.scalar not in NARROW or (facts.scalar == "float16" and native and b.module.float16):
        return dtype
    return dtypes.vector("float32", facts.lanes)


def operand(b: Builder, dtype: str, inner: str, text: str) -> str:
    """A value of `dtype` as an operand of the dtype that it is computed in."""
    facts = dtypes.info(dtype)
    if facts.scalar not in NARROW:
        return text
    if inner != dtype:
        return widen(b, facts.scalar, facts.lanes, text)
    return b.op(f"bitcast {value_type(dtype)} {text} to {operand_type(dtype)}")


def result(b: Builder, dtype: str, inner: str, text: str, *, exact: bool = False) -> str:
    """Convert a result back from the dtype that it is computed in to `dtype`.

    `exact`: no rounding is needed.
    """
    facts = dtypes.info(dtype)
    if facts.scalar not in NARROW:
        return text
    if inner == dtype:
        return b.op(f"bitcast {operand_type(dtype)} {text} to {value_type(dtype)}")
    if exact and facts.scalar == "bfloat16":
        i32 = lanes_of("i32", facts.lanes)
        bits = b.op(f"bitcast {value_type(inner)} {text} to {i32}")
        return _upper_half(b, facts.lanes, bits)
    return narrow(b, facts.scalar, facts.lanes, text)


def widen(b: Builder, scalar: str, lanes: int, bits: str) -> str:
    """The float32 value of the narrow float with these bits; exact."""
    form = FORMATS[scalar]
    narrow, i32, f32 = (lanes_of(t, lanes) for t in (f"i{form.bits}", "i32", "float"))
    if scalar == "float16" and b.module.f16c:
        half = lanes_of("half", lanes)
        return b.op(f"fpext {half} {b.op(f'bitcast {narrow} {bits} to {half}')} to {f32}")
    wide = b.op(f"zext {narrow} {bits} to {i32}")
    if scalar == "bfloat16":
        shifted = b.op(f"shl {i32} {wide}, {_int(16, lanes)}")
        return b.op(f"bitcast {i32} {shifted} to {f32}")
    sign_bit = 1 << (form.bits - 1)
    magnitude = b.op(f"and {i32} {wide}, {_int(sign_bit - 1, lanes)}")
    shifted = b.op(f"shl {i32} {magnitude}, {_int(23 - form.mantissa, lanes)}")
    unscaled = b.op(f"bitcast {i32} {shifted} to {f32}")
    scale = _float_of_bits((127 + 127 - form.bias) << 23, lanes)
    scaled = b.op(f"bitcast {f32} {b.op(f'fmul {f32} {unscaled}, {scale}')} to {i32}")
    first_special = form.nan if form.nan == form.overflow else form.overflow
    special = b.op(f"icmp uge {i32} {magnitude}, {_int(first_special, lanes)}")
    i1 = lanes_of("i1", lanes)
    infinite = b.op(f"or {i32} {shifted}, {_int(_INF, lanes)}")
    chosen = b.op(f"select {i1} {special}, {i32} {infinite}, {i32} {scaled}")
    sign = b.op(f"and {i32} {wide}, {_int(sign_bit, lanes)}")
    sign = b.op(f"shl {i32} {sign}, {_int(32 - form.bits, lanes)}")
    return b.op(f"bitcast {i32} {b.op(f'or {i32} {chosen}, {sign}')} to {f32}")


def narrow(b: Builder, scalar: str, lanes: int, value: str) -> str:
    """The bits of the narrow float nearest to a float32 value."""
    form = FORMATS[scalar]
    small, i32, f32, i1 = (lanes_of(t, lanes) for t in (f"i{form.bits}", "i32", "float", "i1"))
    if scalar == "float16" and b.module.f16c:
        half = lanes_of("half", lanes)
        if lanes == 1:  # else LLVM may make one rounding of two, of a float64, which is a call
            value = call(b, "llvm.arithmetic.fence", "float32", "float32", value)
        return b.op(f"bitcast {half} {b.op(f'fptrunc {f32} {value} to {half}')} to {small}")
    bits = b.op(f"bitcast {f32} {value} to {i32}")
    if scalar == "bfloat16":
        return _upper_half(b, lanes, _rounded_to_half(b, lanes, value, bits))
    magnitude = b.op(f"and {i32} {bits}, {_int(_ABS, lanes)}")
    drop = 23 - form.mantissa
    odd = b.op(f"lshr {i32} {magnitude}, {_int(drop, lanes)}")
    odd = b.op(f"and {i32} {odd}, {_int(1, lanes)}")
    bias = _int((1 << (drop - 1)) - 1 - ((127 - form.bias) << 23), lanes)
    rounded = b.op(f"add {i32} {b.op(f'add {i32} {magnitude}, {bias}')}, {odd}")
    rounded = b.op(f"ashr {i32} {rounded}, {_int(drop, lanes)}")
    anchor = 127 + 24 - form.bias - form.mantissa
    absolute = b.op(f"bitcast {i32} {magnitude} to {f32}")
    denormal = b.op(f"fadd {f32} {absolute}, {_float_of_bits(anchor << 23, lanes)}")
    denormal = b.op(f"bitcast {f32} {denormal} to {i32}")
    denormal = b.op(f"sub {i32} {denormal}, {_int(anchor << 23, lanes)}")
    least_normal = _int((127 - form.bias + 1) << 23, lanes)
    tiny = b.op(f"icmp ult {i32} {magnitude}, {least_normal}")
    rounded = b.op(f"select {i1} {tiny}, {i32} {denormal}, {i32} {rounded}")
    over = b.op(f"icmp sgt {i32} {rounded}, {_int(form.overflow, lanes)}")
    rounded = b.op(f"select {i1} {over}, {i32} {_int(form.overflow, lanes)}, {i32} {rounded}")
    is_nan = b.op(f"icmp ugt {i32} {magnitude}, {_int(_INF, lanes)}")
    rounded = b.op(f"select {i1} {is_nan}, {i32} {_int(form.nan, lanes)}, {i32} {rounded}")
    sign = b.op(f"lshr {i32} {bits}, {_int(32 - form.bits, lanes)}")
    sign = b.op(f"and {i32} {sign}, {_int(1 << (form.bits - 1), lanes)}")
    return b.op(f"trunc {i32} {b.op(f'or {i32} {rounded}, {sign}')} to {small}")


def _upper_half(b: Builder, lanes: int, bits: str) -> str:
    """The bits of a bfloat16 are the upper half of those of its float32 value."""
    i16, i32 = (lanes_of(t, lanes) for t in ("i16", "i32"))
    return b.op(f"trunc {i32} {b.op(f'lshr {i32} {bits}, {_int(16, lanes)}')} to {i16}")


def _rounded_to_half(b: Builder, lanes: int, value: str, bits: str) -> str:
    """The bits of a float32 value, rounded to nearest even in the upper half.

    A sum that carries into the exponent is right: the largest become infinite, and that stays so.
    """
    i32, f32, i1 = (lanes_of(t, lanes) for t in ("i32", "float", "i1"))
    odd = b.op(f"and {i32} {b.op(f'lshr {i32} {bits}, {_int(16, lanes)}')}, {_int(1, lanes)}")
    nearest = b.op(f"add {i32} {b.op(f'add {i32} {bits}, {_int(0x7FFF, lanes)}')}, {odd}")
    sign = b.op(f"and {i32} {bits}, {_int(1 << 31, lanes)}")
    nan = b.op(f"or {i32} {sign}, {_int(FORMATS['bfloat16'].nan << 16, lanes)}")
    is_nan = b.op(f"fcmp uno {f32} {value}, {value}")
    return b.op(f"select {i1} {is_nan}, {i32} {nan}, {i32} {nearest}")


def round_to_odd(b: Builder, lanes: int, value: str) -> str:
    """A float64 as float32, truncated, with the last bit set if that is inexact.

    Rounding the result to a narrow float is then the same as rounding the float64 once.
    """
    f64, f32, i32, i1 = (lanes_of(t, lanes) for t in ("double", "float", "i32", "i1"))
    near = b.op(f"fptrunc {f64} {value} to {f32}")
    back = b.op(f"fpext {f32} {near} to {f64}")
    bits = b.op(f"bitcast {f32} {near} to {i32}")
    wide = dtypes.vector("float64", lanes)
    sizes = [call(b, "llvm.fabs", wide, wide, x) for x in (back, value)]
    beyond = b.op(f"fcmp ogt {f64} {sizes[0]}, {sizes[1]}")
    below = b.op(f"sub {i32} {bits}, {_int(1, lanes)}")
    truncated = b.op(f"select {i1} {beyond}, {i32} {below}, {i32} {bits}")
    inexact = b.op(f"fcmp one {f64} {back}, {value}")
    last = b.op(f"zext {i1} {inexact} to {i32}")
    return b.op(f"bitcast {i32} {b.op(f'or {i32} {truncated}, {last}')} to {f32}")


def _int(value: int, lanes: int) -> str:
    signed = (value + (1 << 31)) % (1 << 32) - (1 << 31)
    return str(signed) if lanes == 1 else splat(str(signed), "int32")


def _float_of_bits(bits: int, lanes: int) -> str:
    (value,) = struct.unpack("<f", struct.pack("<I", bits))
    return constant(value, "float32" if lanes == 1 else f"float32x{lanes}")


def convert(b: Builder, text: str, source: str, target: str) -> str:
    """An operand of dtype `source` as one of `target`, with the same number of lanes."""
    x, y = dtypes.info(source), dtypes.info(target)
    if x.scalar in NARROW:
        wide = dtypes.vector("float32", x.lanes)
        return convert(b, widen(b, x.scalar, x.lanes, text), wide, target)
    if y.scalar in NARROW:
        wide = dtypes.vector("float32", x.lanes)
        if x.scalar == "float64":
            return narrow(b, y.scalar, y.lanes, round_to_odd(b, x.lanes, text))
        return narrow(b, y.scalar, y.lanes, convert(b, text, source, wide))
    if source == target:
        return text
    s, t = value_type(source), value_type(target)
    if y.kind == "bool":
        if x.kind == "float":
            return b.op(f"fcmp une {s} {text}, {constant(0, source)}")
        return b.op(f"icmp ne {s} {text}, {constant(0, source)}")
    if x.kind == "float":
        if y.kind == "float":
            return b.op(f"{'fpext' if y.bits > x.bits else 'fptrunc'} {s} {text} to {t}")
        if x.lanes > 1:
            return _saturated(V(b, text, source), target).text
        name = f"llvm.fpto{'s' if y.kind == 'int' else 'u'}i.sat.{suffix(target)}.{suffix(source)}"
        return b.op(calling(b, name, t, (s, text)))
    if y.kind == "float":
        return b.op(f"{'sitofp' if x.kind == 'int' else 'uitofp'} {s} {text} to {t}")
    if x.kind == "bool":
        return b.op(f"zext {s} {text} to {t}")
    if y.bits == x.bits:
        return text
    if y.bits < x.bits:
        return b.op(f"trunc {s} {text} to {t}")
    return b.op(f"{'sext' if x.kind == 'int' else 'zext'} {s} {text} to {t}")


def _saturated(x: V, target: str) -> V:
    """A vector of floats as integers. LLVM's saturating cast splits vectors into lanes."""
    number, most, high = limited(x, target)
    whole = number.to_integer(target)
    return whole if int(most) == high else where(x > most, whole.like(high), whole)


def limited(x: V, target: str) -> tuple[V, float, int]:
    """Floats within the limits of the integers of `target`, NaN and -0.0 as 0.

    Also the largest number that they can be, and the largest integer, which may be beyond it.
    """
    low, high = dtypes.int_limits(dtypes.info(target).scalar)
    most = dtypes.to_numpy(x.scalar).type(high)
    if int(most) > high:
        most = np.nextafter(most, most.dtype.type(0))
    if low == 0:
        number = where(x > 0.0, x, x.like(0.0))
    else:
        number = where(x.is_nonzero(), x, x.like(0.0))
        number = where(number < low, x.like(low), number)
    return where(number > float(most), x.like(float(most)), number), float(most), high
