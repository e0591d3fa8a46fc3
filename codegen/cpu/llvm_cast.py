"""Emit conversions between dtypes."""

from __future__ import annotations

import numpy as np

from ...base import dtypes
from .llvm_float import narrow, round_to_odd, widen
from .llvm_text import NARROW, Builder, calling, constant, suffix, value_type
from .llvm_vector import V, where


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
    low, high = dtypes.int_limits(dtypes.info(target).scalar)
    most = dtypes.to_numpy(x.scalar).type(high)
    if int(most) > high:
        most = np.nextafter(most, most.dtype.type(0))
    number = where(x.is_nan(), x.like(0.0), x)
    number = where(number < low, x.like(low), number)
    number = where(number > float(most), x.like(float(most)), number)
    whole = number.to_integer(target)
    return whole if int(most) == high else where(x > float(most), whole.like(high), whole)
