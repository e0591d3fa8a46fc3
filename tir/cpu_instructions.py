"""The instructions of processors: one row each.

Source of semantics and extensions: Intel, "Intrinsics Guide", and "Architecture Instruction Set
Extensions Programming Reference", chapter 3 (AMX). Costs are typical of a class of processors, like
the rates of the estimate.

Programs of instructions: semantics and implementation of each family.
"""

from __future__ import annotations

from functools import partial
from itertools import product as pairs_of

from ..base.dtypes import nbytes
from .instruction import Cost, Instruction, Product, Programs, Unit
from .parser import parse

MAX_SHUFFLE_STRIDE = 4
"""Up to which stride shuffles pick a vector out of so many: beyond it a gather is no slower."""


def product(name: str, p: Product) -> Programs:
    """Sums of products: of a row that all columns share, or of matrices."""
    return _dot_programs(name, p) if (p.rows, p.depth) == (1, 1) else _matmul_programs(name, p)


def _dot_programs(name: str, p: Product) -> Programs:
    """C[j] += A[k] * B[j, k]"""
    lanes, group, count = p.columns, p.group, p.count
    signature = f'C: T.Buffer(({lanes},), "{p.acc}")'
    semantics = f"""
def {name}(A: T.Buffer(({group},), "{p.x}"), B: T.Buffer(({lanes}, {group}), "{p.y}"), {signature}):
    T.inplace(C)
    for j, k in T.grid({lanes}, {group}):
        with T.block("C"):
            vj, vk = T.axis.remap("SR", [j, k])
            C[vj] = C[vj] + T.{p.acc}(A[vk]) * T.{p.acc}(B[vj, vk])
"""
    sums = f"C[T.ramp(0, 1, {lanes})]"
    implementation = f"""
def {name}(A: T.Buffer(({group},), "{p.x}"), B: T.Buffer(({count},), "{p.y}"), {signature}):
    T.inplace(C)
    {sums} = T.dot({sums}, A[T.ramp(0, 1, {group})], B[T.ramp(0, 1, {count})])
"""
    return parse(semantics), parse(implementation)


def _matmul_programs(name: str, p: Product) -> Programs:
    """C[i, j] += A[i, k, s] * B[k, j, s]"""
    rows, columns, depth, group = p.rows, p.columns, p.depth, p.group
    semantics = f"""
def {name}(A: T.Buffer(({rows}, {depth}, {group}), "{p.x}"),
           B: T.Buffer(({depth}, {columns}, {group}), "{p.y}"),
           C: T.Buffer(({rows}, {columns}), "{p.acc}")):
    T.inplace(C)
    for i, j, k, s in T.grid({rows}, {columns}, {depth}, {group}):
        with T.block("C"):
            vi, vj, vk, vs = T.axis.remap("SSRR", [i, j, k, s])
            C[vi, vj] = C[vi, vj] + T.{p.acc}(A[vi, vk, vs]) * T.{p.acc}(B[vk, vj, vs])
"""
    x, y, acc = rows * p.steps, columns * p.steps, rows * columns
    operands = f"C[T.ramp(0, 1, {acc})], A[T.ramp(0, 1, {x})], B[T.ramp(0, 1, {y})]"
    implementation = f"""
def {name}(A: T.Buffer(({x},), "{p.x}"), B: T.Buffer(({y},), "{p.y}"),
           C: T.Buffer(({acc},), "{p.acc}")):
    T.inplace(C)
    C[T.ramp(0, 1, {acc})] = T.matmul({operands}, {rows}, {group})
"""
    return parse(semantics), parse(implementation)


def outer(name: str, rows: int, lanes: int) -> Programs:
    """C[i, j] += A[i] * B[j] in float32, `rows` vectors of `lanes`: a fused multiply-add each."""
    head = (
        f'A: T.Buffer(({rows},), "float32"), B: T.Buffer(({lanes},), "float32"), '
        f'C: T.Buffer(({rows}, {lanes}), "float32")'
    )
    semantics = f"""
def {name}({head}):
    T.inplace(C)
    for i, j in T.grid({rows}, {lanes}):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = C[vi, vj] + A[vi] * B[vj]
"""
    vector = f"T.ramp(0, 1, {lanes})"
    lines = "\n".join(
        f"    C[{i}, {vector}] = C[{i}, {vector}] + T.broadcast(A[{i}], {lanes}) * B[{vector}]"
        for i in range(rows)
    )
    implementation = f"""
def {name}({head}):
    T.inplace(C)
{lines}
"""
    return parse(semantics), parse(implementation)


def zero(name: str, dtype: str, rows: int, columns: int) -> Programs:
    """C[i, j] = 0"""
    count = rows * columns
    semantics = f"""
def {name}(C: T.Buffer(({rows}, {columns}), "{dtype}")):
    for i, j in T.grid({rows}, {columns}):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = T.{dtype}(0)
"""
    implementation = f"""
def {name}(C: T.Buffer(({count},), "{dtype}")):
    C[T.ramp(0, 1, {count})] = T.broadcast(T.{dtype}(0), {count})
"""
    return parse(semantics), parse(implementation)


def copy(name: str, dtype: str, rows: int, columns: int) -> Programs:
    """B[i, j] = A[i, j]"""
    count = rows * columns
    semantics = f"""
def {name}(A: T.Buffer(({rows}, {columns}), "{dtype}"),
           B: T.Buffer(({rows}, {columns}), "{dtype}")):
    for i, j in T.grid({rows}, {columns}):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj]
"""
    implementation = f"""
def {name}(A: T.Buffer(({count},), "{dtype}"), B: T.Buffer(({count},), "{dtype}")):
    B[T.ramp(0, 1, {count})] = A[T.ramp(0, 1, {count})]
"""
    return parse(semantics), parse(implementation)


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
