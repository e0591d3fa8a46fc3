"""The limits of the machine: the arithmetic of a kernel alone, and moving its arguments alone.

No library: the slower of two loops of machine code, each as fast as the machine runs it. One does
as many operations as the kernel, in registers only; the other reads as many bytes as the arguments
have and writes as many as the result has (Williams, Waterman and Patterson, "Roofline", CACM 52(4),
2009). They are timed in turns with everything else, so that they know how fast the machine is now.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable

import numpy as np

import tilewright as tw
from tilewright.codegen.cpu import llvm
from tilewright.codegen.cpu.jit import load_object
from tilewright.codegen.detect import resolve
from tilewright.runtime import openmp
from tilewright.target import CpuTarget
from tilewright.tir.instruction import Product
from tilewright.tir.instruction_set import instruction_for

from .. import suite
from ..suite import Array, Case
from ..worker import sample
from .call import Call

VERSION = tw.__version__
CHAINS = 24
"""Sums that do not wait for each other: more than are in flight, and less than registers."""
_CASTS = ("vector.to.tile", "tile.to.vector")
_BLOCK = 512  # bytes moved in one iteration, by each thread


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
    lanes = where.vector_bits // 32
    group = 4 if dots else 1
    kind, wide = ("i32", f"<{4 * lanes} x i8>") if dots else ("float", f"<{lanes} x float>")
    vector = f"<{lanes} x {kind}>"
    name = f"llvm.fma.v{lanes}f32"
    if dots:
        found = instruction_for(where, Product("int32", "uint8", "int8", 1, lanes, 1, group))
        if found is None:
            raise RuntimeError(f"{where} has no instruction for products of int8")
        name = found.code
    order = "{acc}, {x}, {x}" if dots else "{x}, {x}, {acc}"
    phis, steps = [], []
    for k in range(CHAINS):
        phis.append(f"%a{k} = phi {vector} [ zeroinitializer, %entry ], [ %b{k}, %loop ]")
        call = order.format(acc=f"{vector} %a{k}", x=f"{wide} %x")
        steps.append(f"%b{k} = call {vector} @{name}({call})")
    signature = order.format(acc=vector, x=wide)
    kept = _kept(vector, CHAINS)
    body = f"""declare {vector} @{name}({signature})
define void @region(ptr %c) #0 {{
entry:
  %count = load i64, ptr %c
  %place = getelementptr i8, ptr %c, i64 64
  %x = load {wide}, ptr %place, align 8
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  {_lines(phis)}
  {_lines(steps)}
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %loop, label %done
done:
  {_lines(kept)}
  ret void
}}"""
    each = 2 * lanes * group * CHAINS * where.threads
    context = np.zeros(32, np.int64)
    context[0] = max(1, round(operations / each))
    return _call(body, where, context)


def tiles(operations: float, where: CpuTarget) -> Callable[[], object]:
    """So many operations on products of int8 and their sums, by the unit for matrices."""
    sums, vector, shape = range(4), "<256 x i32>", "i16 16, i16 64"
    to_tile, to_vector = (f"@llvm.x86.cast.{way}.v256i32" for way in _CASTS)
    phis, steps, kept = [], [], []
    for k in sums:
        phis.append(f"%a{k} = phi {vector} [ zeroinitializer, %entry ], [ %b{k}, %loop ]")
        steps += [
            f"%s{k} = call x86_amx {to_tile}({vector} %a{k})",
            f"%t{k} = call x86_amx @llvm.x86.tdpbusd.internal({shape}, i16 64, "
            f"x86_amx %s{k}, x86_amx %x, x86_amx %y)",
            f"%b{k} = call {vector} {to_vector}(x86_amx %t{k})",
        ]
        kept += [
            f"%u{k} = call x86_amx {to_tile}({vector} %b{k})",
            f"call void @llvm.x86.tilestored64.internal({shape}, ptr %place, i64 64, "
            f"x86_amx %u{k})",
        ]
    body = f"""declare x86_amx {to_tile}({vector})
declare {vector} {to_vector}(x86_amx)
declare x86_amx @llvm.x86.tileloadd64.internal(i16, i16, ptr, i64)
declare x86_amx @llvm.x86.tdpbusd.internal(i16, i16, i16, x86_amx, x86_amx, x86_amx)
declare void @llvm.x86.tilestored64.internal(i16, i16, ptr, i64, x86_amx)
define void @region(ptr %c) #0 {{
entry:
  %count = load i64, ptr %c
  %place = alloca {vector}, i64 2, align 64
  %other = getelementptr {vector}, ptr %place, i64 1
  store {vector} zeroinitializer, ptr %place
  store {vector} zeroinitializer, ptr %other
  %y = call x86_amx @llvm.x86.tileloadd64.internal({shape}, ptr %other, i64 64)
  %x = call x86_amx @llvm.x86.tileloadd64.internal({shape}, ptr %place, i64 64)
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  {_lines(phis)}
  {_lines(steps)}
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %loop, label %done
done:
  {_lines(kept)}
  ret void
}}"""
    each = 2 * 16**3 * 4 * len(sums) * where.threads
    return _call(body, where, np.array([max(1, round(operations / each))], np.int64))


def moving(read: int, written: int, where: CpuTarget) -> Callable[[], object]:
    """Read and write so many bytes, each thread its part."""
    lanes = where.vector_bits // 32
    vector, size = f"<{lanes} x i32>", where.vector_bits // 8
    places = range(0, _BLOCK, size)
    phis, loads, stores = [], [], []
    for k, offset in enumerate(places):
        phis.append(f"%a{k} = phi {vector} [ zeroinitializer, %entry ], [ %b{k}, %read ]")
        loads += [
            f"%p{k} = getelementptr i8, ptr %in, i64 {offset}",
            f"%v{k} = load {vector}, ptr %p{k}, align {size}",
            f"%b{k} = or {vector} %a{k}, %v{k}",
        ]
        stores += [
            f"%q{k} = getelementptr i8, ptr %out, i64 {offset}",
            f"store {vector} zeroinitializer, ptr %q{k}, align {size}",
        ]
    kept = _kept(vector, len(places))
    body = f"""declare i32 @omp_get_thread_num()
define void @region(ptr %c) #0 {{
entry:
  {_field("reads", 0, "i64")}
  {_field("writes", 1, "i64")}
  {_field("source", 2, "ptr")}
  {_field("target", 3, "ptr")}
  %number = {"call i32 @omp_get_thread_num()" if where.threads > 1 else "add i32 0, 0"}
  %mine = zext i32 %number to i64
  %r0 = mul i64 %mine, %reads
  %r1 = add i64 %r0, %reads
  %w0 = mul i64 %mine, %writes
  %w1 = add i64 %w0, %writes
  br label %read
read:
  %i = phi i64 [ %r0, %entry ], [ %i.next, %read ]
  {_lines(phis)}
  %i.bytes = mul i64 %i, {_BLOCK}
  %in = getelementptr i8, ptr %source, i64 %i.bytes
  {_lines(loads)}
  %i.next = add i64 %i, 1
  %i.more = icmp slt i64 %i.next, %r1
  br i1 %i.more, label %read, label %between
between:
  {_lines(kept)}
  br label %write
write:
  %j = phi i64 [ %w0, %between ], [ %j.next, %write ]
  %j.bytes = mul i64 %j, {_BLOCK}
  %out = getelementptr i8, ptr %target, i64 %j.bytes
  {_lines(stores)}
  %j.next = add i64 %j, 1
  %j.more = icmp slt i64 %j.next, %w1
  br i1 %j.more, label %write, label %done
done:
  ret void
}}"""
    parts = [max(1, n // (_BLOCK * where.threads)) for n in (read, written)]
    buffers = [_aligned(n * _BLOCK * where.threads) for n in parts]
    context = np.array([*parts, *(b.ctypes.data for b in buffers)], np.int64)
    return _call(body, where, context, buffers)


def _aligned(size: int) -> Array:
    """So many bytes that begin where vectors do."""
    room = np.ones(size + _BLOCK, np.uint8)
    return room[-room.ctypes.data % _BLOCK :][:size]


def _lines(lines: Iterable[str]) -> str:
    return "\n  ".join(lines)


def _kept(vector: str, count: int) -> list[str]:
    """Instructions that make LLVM compute all sums although nobody reads them."""
    return [f'call void asm sideeffect "", "v"({vector} %b{k})' for k in range(count)]


def _field(name: str, number: int, kind: str) -> str:
    return (
        f"%{name}.at = getelementptr i64, ptr %c, i64 {number}\n"
        f"  %{name} = load {kind}, ptr %{name}.at"
    )


def _call(
    body: str, where: CpuTarget, context: Array, owned: object = None
) -> Callable[[], object]:
    """A call of `region` by each thread, with what it reads."""
    parallel = f"call void @GOMP_parallel(ptr @region, ptr %c, i32 {where.threads}, i32 0)"
    attributes = {
        "target-cpu": where.mcpu,
        "target-features": where.llvm_features,
        "prefer-vector-width": str(where.vector_bits),
        "min-legal-vector-width": str(where.vector_bits),
    }
    text = f"""target triple = "{where.triple}"
declare void @GOMP_parallel(ptr, ptr, i32, i32)
{body}
define void @main(ptr %c) #0 {{
  {parallel if where.threads > 1 else "call void @region(ptr %c)"}
  ret void
}}
attributes #0 = {{ {_lines(f'"{k}"="{v}"' for k, v in attributes.items())} }}
"""
    code = llvm.object_code(llvm.parse(text), where)
    runtime = openmp.load()
    names = ("GOMP_parallel", "omp_get_thread_num")
    imports = {n: runtime.symbol_address(n) for n in names} if runtime else {}
    loaded = load_object(code, ["main"], imports)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(loaded.addresses[0])

    def call() -> object:
        return function(context.ctypes.data), owned, loaded

    return call
