"""The instructions of processors: one row each.

Source of semantics and extensions: Intel, "Intrinsics Guide", and "Architecture Instruction Set
Extensions Programming Reference", chapter 3 (AMX). Costs are typical of a class of processors, like
the rates of the estimate.
"""

from __future__ import annotations

from functools import partial
from itertools import product as pairs_of

from ..base.dtypes import nbytes
from .instruction import Cost, Instruction, Product, Unit
from .instruction_programs import copy, outer, product, zero

MAX_SHUFFLE_STRIDE = 4
"""Up to which stride shuffles pick a vector out of so many: beyond it a gather is no slower."""

AMX = Unit("amx", "amx", rows=16, row_bytes=64, registers=8)
_TILE = Cost(cycles=16.0, latency=52.0, run_loads=6.0)
"""Of a product of tiles. Nothing fetches 16 rows ahead: int8 1024^3 with rows packed takes 0.8 to
1.1 ms, with rows that lie apart 1.0 to 1.8."""
_FMA = Cost(cycles=0.5, latency=4.0)
"""Of what runs where a fused multiply-add of vectors does."""
PAIRS = Unit("vectors", "pairs", rows=1, row_bytes=64)
"""Vector instructions that add up products of pairs of 16-bit integers, and a sum after each."""
_OF_BYTES = Cost(cycles=1.5, latency=1.0)
"""Of four bytes to a sum as two such pairs: what widens a factor is shared in a register tile."""
_OF_PAIRS = Cost(cycles=0.6, latency=1.0)
_SHORT = {"uint8": "u8", "int8": "s8", "int16": "s16"}
"""Dtypes of factors as names of instructions have them."""


def _dot(
    name: str,
    dtypes: tuple[str, str, str],
    lanes: int,
    code: str,
    *requires: tuple[str, ...],
    cost: Cost | None = _FMA,
) -> Instruction:
    """Products of groups of lanes, added to 32 bits each; `dtypes` are those of acc, x and y."""
    what = Product(*dtypes, rows=1, columns=lanes, depth=1, group=4 // nbytes(dtypes[1]))
    code = f"llvm.x86.{code}.{32 * lanes}"
    programs = partial(product, name, what)
    return Instruction(name, programs, what, requires=requires, cost=cost, code=code)


def _pairs(lanes: int, x: str, y: str) -> Instruction:
    """The same by products of pairs of 16-bit integers, which bytes are widened to."""
    group = 4 // nbytes(x)
    what = Product("int32", x, y, rows=1, columns=lanes, depth=1, group=group)
    name = f"dot_{lanes}x{group}_{_SHORT[x]}{_SHORT[y]}"
    code, feature = {
        8: ("llvm.x86.avx2.pmadd.wd", "avx2"),
        16: ("llvm.x86.avx512.pmaddw.d.512", "avx512bw"),
    }[lanes]
    cost = _OF_BYTES if group == 4 else _OF_PAIRS
    programs = partial(product, name, what)
    return Instruction(name, programs, what, PAIRS, ((feature,),), cost, code)


def _matmul(name: str, dtypes: tuple[str, str, str], requires: str, code: str) -> Instruction:
    """A product of tiles; `dtypes` are those of acc, x and y."""
    what = Product(*dtypes, rows=16, columns=16, depth=16, group=4 // nbytes(dtypes[1]))
    return Instruction(
        name,
        partial(product, name, what),
        what,
        AMX,
        requires=((requires,),),
        cost=_TILE,
        code=f"llvm.x86.{code}.internal",
        init=f"zero_{what.acc}_amx",
        write=f"copy_{what.acc}_amx",
    )


def _zero(dtype: str) -> Instruction:
    name = f"zero_{dtype}_amx"
    programs = partial(zero, name, dtype, 16, 16)
    return Instruction(name, programs, unit=AMX, requires=(("amx-tile",),))


def _copy(dtype: str) -> Instruction:
    name = f"copy_{dtype}_amx"
    programs = partial(copy, name, dtype, 16, 16)
    return Instruction(name, programs, unit=AMX, requires=(("amx-tile",),))


def _outer(rows: int, lanes: int) -> Instruction:
    name = f"outer_{rows}x{lanes}_fma"
    return Instruction(name, partial(outer, name, rows, lanes), requires=(("fma",), ("neon",)))


_U8S8 = ("int32", "uint8", "int8")
_BF16 = ("float32", "bfloat16", "bfloat16")
_DPBUSD, _DPBF16 = "avx512.vpdpbusd", "avx512bf16.dpbf16ps"
_VNNI, _VNNI_VL = ("avx512vnni",), ("avx512vnni", "avx512vl")
_BF16_VL = ("avx512bf16", "avx512vl")

INSTRUCTIONS = (
    _matmul("matmul_u8s8_amx", _U8S8, "amx-int8", "tdpbusd"),
    _matmul("matmul_s8u8_amx", ("int32", "int8", "uint8"), "amx-int8", "tdpbsud"),
    _matmul("matmul_s8s8_amx", ("int32", "int8", "int8"), "amx-int8", "tdpbssd"),
    _matmul("matmul_u8u8_amx", ("int32", "uint8", "uint8"), "amx-int8", "tdpbuud"),
    _matmul("matmul_bf16_amx", _BF16, "amx-bf16", "tdpbf16ps"),
    _zero("int32"),
    _zero("float32"),
    _copy("int32"),
    _copy("float32"),
    _dot("dot_16x4_vnni", _U8S8, 16, _DPBUSD, _VNNI),
    _dot("dot_8x4_vnni", _U8S8, 8, _DPBUSD, _VNNI_VL, ("avxvnni",)),
    _dot("dot_4x4_vnni", _U8S8, 4, _DPBUSD, _VNNI_VL, ("avxvnni",), cost=None),
    _dot("dot_16x2_bf16", _BF16, 16, _DPBF16, ("avx512bf16",)),
    _dot("dot_8x2_bf16", _BF16, 8, _DPBF16, _BF16_VL),
    _dot("dot_4x2_bf16", _BF16, 4, _DPBF16, _BF16_VL, cost=None),
    *(
        _pairs(lanes, x, y)
        for lanes in (16, 8)
        for x, y in (*pairs_of(("uint8", "int8"), repeat=2), ("int16", "int16"))
    ),
    _outer(4, 16),
    _outer(4, 8),
)
"""Of those that a target has, rules try the first ones first; the widest come first. Rules pack for
eight lanes at least: those of four are for code that has such vectors anyway."""
