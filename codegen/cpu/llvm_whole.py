"""Quantised numbers: floats that are divided by a constant, rounded, kept in few bits, and scaled.

They need no division and, where they are floats again, no integers.
"""

from __future__ import annotations

from ...base import dtypes
from ...tir.ir import ROUNDINGS, Binary, Broadcast, Call, Cast, Const, Expr, Op
from .llvm_float import limited
from .llvm_index import value
from .llvm_text import Builder
from .llvm_vector import V, fma
from .reciprocal import SMALLEST, reciprocal

MAX_BITS = 16
"""Integers of so many bits are float32 exactly, all of them."""


def held(b: Builder, e: Cast) -> str | None:
    """The operand of a float32 that was an integer of few bits, and a float32 before, without that
    integer; `None` of other casts."""
    inner = e.value
    if type(inner) is not Cast or {_scalar(e), _scalar(inner.value)} != {"float32"}:
        return None
    integer = dtypes.info(inner.dtype)
    if integer.kind not in ("int", "uint") or integer.bits > MAX_BITS:
        return None
    x = V(b, value(b, inner.value), inner.value.dtype)
    return limited(x if _is_whole(inner.value) else x.trunc(), inner.dtype)[0].text


def quotient(b: Builder, e: Expr, *, rounded: bool) -> str | None:
    """The operand of a quotient by a constant without a division; `None` where there has to be one.

    If it is `rounded` to an integer next, tiny quotients need not be exact.
    """
    if type(e) is not Binary or e.op is not Op.DIV or _scalar(e) != "float32":
        return None
    by = _constant(e.b)
    if by is None or not b.module.target.fma:
        return None  # without an instruction for it, a multiply-add takes no less than a division
    parts = reciprocal(by)
    if parts is None or not (rounded or _least(e) >= SMALLEST):
        return None
    x = V(b, value(b, e.a), e.dtype)
    if not parts.low:
        return (x * parts.high).text
    return fma(x, x.like(parts.high), x * parts.low).text


def _scalar(e: Expr) -> str:
    return dtypes.info(e.dtype).scalar


def _constant(e: Expr) -> float | None:
    number = e.value if type(e) is Broadcast else e
    return float(number.value) if type(number) is Const else None


def _is_whole(e: Expr) -> bool:
    """Whether a float is a whole number, infinite or NaN by the operations that it is made of."""
    if type(e) is Call:
        return e.fn in ROUNDINGS
    if type(e) is Binary:
        return e.op in (Op.ADD, Op.SUB) and _is_whole(e.a) and _is_whole(e.b)
    number = _constant(e)
    if number is not None:
        return number.is_integer()
    return type(e) is Cast and not dtypes.is_float(e.value.dtype)


def _least(e: Expr) -> float:
    """A number that a float is not smaller than, if it is not 0; 0 where nothing is known."""
    number = _constant(e)
    if number is not None:
        return abs(number)
    if _is_whole(e):
        return 1.0
    if type(e) is Binary and e.op is Op.MUL:
        return _least(e.a) * _least(e.b) / 2
    if type(e) is Binary and e.op is Op.DIV:
        by = _constant(e.b)
        return _least(e.a) / abs(by) / 2 if by else 0.0
    return 0.0
