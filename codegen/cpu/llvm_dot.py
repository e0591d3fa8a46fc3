"""Dot products of groups of lanes: by an LLVM intrinsic for one, or as sums of lanes."""

from __future__ import annotations

from ... import dtypes
from ...tir.instruction import Instruction
from ...tir.ir import Dot, Expr, Matmul
from .llvm_cast import convert
from .llvm_index import value
from .llvm_text import Builder, calling, lanes_of, shuffled, spread, value_type

_ELEMENTS = {"bfloat16": "bfloat", "float16": "half"}
"""LLVM's own types, which have the bits that values of these dtypes are held as."""


def intrinsic(b: Builder, e: Dot | Matmul, instruction: Instruction) -> str:
    """A product as a call of the LLVM intrinsic of an instruction, on the operands as vectors."""
    name, what = instruction.code, instruction.product
    assert what is not None
    acc, t = value(b, e.acc), value_type(e.dtype)
    operands = []
    for p in (e.x, e.y):
        scalar = dtypes.info(p.dtype).scalar
        element = _ELEMENTS.get(scalar, value_type(scalar))
        if isinstance(e, Dot):
            wide = lanes_of(element, what.columns * what.group)
            operands.append((wide, _repeated(b, p, what.columns, what.group, wide)))
        else:
            wide = lanes_of(element, dtypes.info(p.dtype).lanes)
            operands.append((wide, _as(b, value(b, p), value_type(p.dtype), wide)))
    return b.op(calling(b, name, t, (t, acc), *operands))


def _repeated(b: Builder, e: Expr, lanes: int, group: int, wide: str) -> str:
    """A factor as a vector of all groups: a single group is moved as one number of its bits."""
    text, t = value(b, e), value_type(e.dtype)
    facts = dtypes.info(e.dtype)
    if facts.lanes < lanes * group:
        whole = f"i{facts.bits * group}"
        one = b.op(f"bitcast {t} {text} to {whole}")
        text, t = spread(b, one, whole, lanes), lanes_of(whole, lanes)
    return _as(b, text, t, wide)


def _as(b: Builder, text: str, t: str, wide: str) -> str:
    """An operand of type `t` as one of type `wide`, which has the same bits."""
    return text if t == wide else b.op(f"bitcast {t} {text} to {wide}")


def summed(b: Builder, e: Dot) -> str:
    """The sum of products one lane of each group after the other."""
    t, lanes = value_type(e.dtype), dtypes.info(e.dtype).lanes
    group = max(dtypes.info(p.dtype).lanes for p in (e.x, e.y)) // lanes
    total = value(b, e.acc)
    factors = [(value(b, p), p.dtype) for p in (e.x, e.y)]
    fast = b.module.fast.rstrip()
    add, mul = (f"fadd {fast}", f"fmul {fast}") if dtypes.is_float(e.dtype) else ("add", "mul")
    for k in range(group):
        a, c = (
            convert(b, _picked(b, text, dtype, k, lanes, group), _of(dtype, lanes), e.dtype)
            for text, dtype in factors
        )
        total = b.op(f"{add} {t} {total}, {b.op(f'{mul} {t} {a}, {c}')}")
    return total


def _of(dtype: str, lanes: int) -> str:
    return dtypes.vector(dtypes.info(dtype).scalar, lanes)


def _picked(b: Builder, text: str, dtype: str, k: int, lanes: int, group: int) -> str:
    """Lane `k` of each group."""
    t, count = value_type(dtype), dtypes.info(dtype).lanes
    if count == 1:
        return text
    if lanes == 1:
        return b.op(f"extractelement {t} {text}, i64 {k}")
    order = [(group * lane + k) % count for lane in range(lanes)]
    return b.op(shuffled(t, text, "poison", order))
