"""Conversions between dtypes."""

from __future__ import annotations

from .. import dtypes
from .llvm_float import narrow, round_to_odd, widen
from .llvm_text import NARROW, Builder, constant, suffix, value_type


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
        name = f"llvm.fpto{'s' if y.kind == 'int' else 'u'}i.sat.{suffix(target)}.{suffix(source)}"
        b.module.declare(name, f"declare {t} @{name}({s})")
        return b.op(f"call {t} @{name}({s} {text})")
    if y.kind == "float":
        return b.op(f"{'sitofp' if x.kind == 'int' else 'uitofp'} {s} {text} to {t}")
    if x.kind == "bool":
        return b.op(f"zext {s} {text} to {t}")
    if y.bits == x.bits:
        return text
    if y.bits < x.bits:
        return b.op(f"trunc {s} {text} to {t}")
    return b.op(f"{'sext' if x.kind == 'int' else 'zext'} {s} {text} to {t}")
