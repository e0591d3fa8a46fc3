"""Dot products of groups of lanes: one instruction if the target has it, else sums of lanes.

The instructions are `vpdpbusd` (four products of uint8 and int8, added to an int32) and `vdpbf16ps`
(two products of bfloat16, added to a float32); Intel, "Intrinsics Guide".
"""

from __future__ import annotations

from ... import dtypes
from ...target import Target
from ...tir.ir import Dot, Expr
from .llvm_cast import convert
from .llvm_index import value
from .llvm_text import Builder, lanes_of, value_type


def dot(b: Builder, e: Dot) -> str:
    """The operand of a dot product."""
    lanes = dtypes.info(e.dtype).lanes
    group = max(dtypes.info(p.dtype).lanes for p in (e.x, e.y)) // lanes
    x, y = e.x, e.y
    kinds = tuple(dtypes.info(p.dtype).scalar for p in (e.acc, x, y))
    if kinds == ("int32", "int8", "uint8"):
        x, y, kinds = y, x, ("int32", "uint8", "int8")
    name = instruction(b.module.target, kinds, lanes, group)
    acc = value(b, e.acc)
    reorders = dtypes.is_float(e.dtype)
    if name is None or (reorders and not b.module.fast):
        return _summed(b, e, acc, lanes, group)
    # LLVM's own bfloat has the bits that values of this dtype are held as.
    element = "bfloat" if kinds[1] == "bfloat16" else "i8"
    t, wide = value_type(e.dtype), lanes_of(element, lanes * group)
    operands = [_repeated(b, p, lanes, group, wide) for p in (x, y)]
    b.module.declare(name, f"declare {t} @{name}({t}, {wide}, {wide})")
    return b.op(f"call {t} @{name}({t} {acc}, {wide} {operands[0]}, {wide} {operands[1]})")


def instruction(target: Target, kinds: tuple[str, ...], lanes: int, group: int) -> str | None:
    """LLVM's name of the instruction for a sum of `group` products in each of `lanes` lanes.

    `kinds` are the dtypes of the sum and the factors. `None` where the target has none.
    """
    bits, features = 32 * lanes, set(target.features)
    if (kinds, group) == (("int32", "uint8", "int8"), 4):
        base, name = "avx512vnni", f"llvm.x86.avx512.vpdpbusd.{bits}"
    elif (kinds, group) == (("float32", "bfloat16", "bfloat16"), 2):
        base, name = "avx512bf16", f"llvm.x86.avx512bf16.dpbf16ps.{bits}"
    else:
        return None
    narrow = {base, "avx512vl"} <= features or (base == "avx512vnni" and "avxvnni" in features)
    found = base in features if bits == 512 else narrow and bits in (128, 256)
    return name if found else None


def _repeated(b: Builder, e: Expr, lanes: int, group: int, wide: str) -> str:
    """A factor as a vector of all groups: a single group is moved as one number of its bits."""
    text, t = value(b, e), value_type(e.dtype)
    facts = dtypes.info(e.dtype)
    if facts.lanes < lanes * group:
        whole = f"i{facts.bits * group}"
        many = lanes_of(whole, lanes)
        one = b.op(f"bitcast {t} {text} to {whole}")
        first = b.op(f"insertelement {many} poison, {whole} {one}, i64 0")
        zeros = lanes_of("i32", lanes)
        text = b.op(f"shufflevector {many} {first}, {many} poison, {zeros} zeroinitializer")
        t = many
    return text if t == wide else b.op(f"bitcast {t} {text} to {wide}")


def _summed(b: Builder, e: Dot, total: str, lanes: int, group: int) -> str:
    """The sum of products one lane of each group after the other."""
    t = value_type(e.dtype)
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
    order = ", ".join(f"i32 {(group * lane + k) % count}" for lane in range(lanes))
    return b.op(f"shufflevector {t} {text}, {t} poison, <{lanes} x i32> <{order}>")
