"""The limits of the machine: the arithmetic of a kernel alone, and moving its arguments alone.

No library: the slower of two loops of machine code, each as fast as the machine runs it. One does
as many operations as the kernel, in registers only; the other reads as many bytes as the arguments
have and writes as many as the result has (Williams, Waterman and Patterson, "Roofline", CACM 52(4),
2009). They are timed interleaved with everything else, as the speed of the machine now counts.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import tilewright as tw
from tilewright.codegen.cpu import bare_loops as bare
from tilewright.codegen.cpu.bare_loops import BLOCK, Loop, counted, kept, operand
from tilewright.codegen.detect import resolve
from tilewright.target import CpuTarget
from tilewright.tir.cpu_instructions import PAIRS
from tilewright.tir.instruction import Product
from tilewright.tir.instruction_set import instruction_for

from .. import suite
from ..suite import Array, Case
from ..worker import sample
from .call import Call

VERSION = tw.__version__
_CASTS = ("vector.to.tile", "tile.to.vector")


def prepare(case: Case, arrays: list[Array], threads: int) -> Call:
    """The slower of both loops; it computes nothing."""
    where = CpuTarget.of(resolve(f"cpu -threads={threads}"))
    result = suite.output(case)
    loops = [moving(sum(a.nbytes for a in arrays), result.nbytes, where)]
    if case.flops and result.dtype == np.int32 and "amx-int8" in where.features:
        loops.append(tiles(case.flops, where))
    elif case.flops:
        loops.append(arithmetic(case.flops, where, dots=result.dtype == np.int32))
    return Call(max(loops, key=sample), None)


def arithmetic(operations: float, where: CpuTarget, *, dots: bool = False) -> Callable[[], object]:
    """So many operations on float32, or with `dots` on products of int8 and their sums."""
    lanes, count = where.vector_bits // 32, bare.chains(where)
    loop, group = _dots(where, count) if dots else (bare.sums("arithmetic", where, count), 1)
    each = 2 * lanes * group * count * where.threads
    if not (dots or where.fma):
        each //= 2  # a sum takes a multiplication or an addition in turns
    context = np.zeros(32, np.int64)
    context[0] = max(1, round(operations / each))
    return _call(loop, where, context)


def _dots(where: CpuTarget, count: int) -> tuple[Loop, int]:
    """Products of int8 and their sums, with so many of them; how many are added to each at once.

    Without an instruction for those they are pairs of 16-bit integers, which are widened already.
    """
    lanes = where.vector_bits // 32
    found = instruction_for(where, Product("int32", "uint8", "int8", 1, lanes, 1, 4))
    if found is None:
        raise RuntimeError(f"{where} has no instruction for products of int8")
    pairs = found.unit is PAIRS
    group = 2 if pairs else 4
    vector, wide = f"<{lanes} x i32>", f"<{group * lanes} x i{32 // group}>"
    phis, steps = [], []
    for k in range(count):
        phis.append(f"%a{k} = phi {vector} [ zeroinitializer, %entry ], [ %b{k}, %loop ]")
        if pairs:
            # Of what the sum is so far: what does not change would be computed before the loop.
            steps += [
                f"%x{k} = bitcast {vector} %a{k} to {wide}",
                f"%p{k} = call {vector} @{found.code}({wide} %x{k}, {wide} %x)",
                f"%b{k} = add {vector} %a{k}, %p{k}",
            ]
        else:
            called = f"{vector} %a{k}, {wide} %x, {wide} %x"
            steps.append(f"%b{k} = call {vector} @{found.code}({called})")
    taken = f"{wide}, {wide}" if pairs else f"{vector}, {wide}, {wide}"
    end, declared = kept(where, vector, count), [f"declare {vector} @{found.code}({taken})"]
    return counted("arithmetic", phis, steps, end, operand(wide), declared), group


def tiles(operations: float, where: CpuTarget) -> Callable[[], object]:
    """So many operations on products of int8 and their sums, by the unit for matrices."""
    sums, vector, shape = range(4), "<256 x i32>", "i16 16, i16 64"
    to_tile, to_vector = (f"@llvm.x86.cast.{way}.v256i32" for way in _CASTS)
    load = f"call x86_amx @llvm.x86.tileloadd64.internal({shape}, ptr"
    entry = [
        f"%place = alloca {vector}, i64 2, align 64",
        f"%other = getelementptr {vector}, ptr %place, i64 1",
        f"store {vector} zeroinitializer, ptr %place",
        f"store {vector} zeroinitializer, ptr %other",
        f"%y = {load} %other, i64 64)",
        f"%x = {load} %place, i64 64)",
    ]
    phis, steps, end = [], [], []
    for k in sums:
        phis.append(f"%a{k} = phi {vector} [ zeroinitializer, %entry ], [ %b{k}, %loop ]")
        steps += [
            f"%s{k} = call x86_amx {to_tile}({vector} %a{k})",
            f"%t{k} = call x86_amx @llvm.x86.tdpbusd.internal({shape}, i16 64, "
            f"x86_amx %s{k}, x86_amx %x, x86_amx %y)",
            f"%b{k} = call {vector} {to_vector}(x86_amx %t{k})",
        ]
        end += [
            f"%u{k} = call x86_amx {to_tile}({vector} %b{k})",
            f"call void @llvm.x86.tilestored64.internal({shape}, ptr %place, i64 64, "
            f"x86_amx %u{k})",
        ]
    declared = [
        f"declare x86_amx {to_tile}({vector})",
        f"declare {vector} {to_vector}(x86_amx)",
        "declare x86_amx @llvm.x86.tileloadd64.internal(i16, i16, ptr, i64)",
        "declare x86_amx @llvm.x86.tdpbusd.internal(i16, i16, i16, x86_amx, x86_amx, x86_amx)",
        "declare void @llvm.x86.tilestored64.internal(i16, i16, ptr, i64, x86_amx)",
    ]
    loop = counted("tiles", phis, steps, end, entry, declared)
    each = 2 * 16**3 * 4 * len(sums) * where.threads
    return _call(loop, where, np.array([max(1, round(operations / each))], np.int64))


def moving(read: int, written: int, where: CpuTarget) -> Callable[[], object]:
    """Read and write so many bytes, each thread its part."""
    parallel = where.threads > 1
    loops = {"reads": bare.reads(where, parallel=parallel)}
    loops["writes"] = bare.writes(where, parallel=parallel)
    both = bare.loaded(loops, where, list(loops) if parallel else ())
    contexts, buffers = [], []
    for size in (read, written):
        blocks = max(1, size // (BLOCK * where.threads))
        buffers.append(bare.aligned(blocks * BLOCK * where.threads))
        contexts.append(np.array([1, blocks, buffers[-1].ctypes.data], np.int64))

    def call() -> object:
        both["reads"](contexts[0])
        return both["writes"](contexts[1]), buffers

    return call


def _call(loop: Loop, where: CpuTarget, context: Array) -> Callable[[], object]:
    """A call of a function by each thread."""
    loops = {loop.name: loop}
    function = bare.loaded(loops, where, list(loops) if where.threads > 1 else ())[loop.name]
    return lambda: function(context)
