"""Loops of machine code that do one thing as fast as a processor does it, for measuring it.

Each is a function of LLVM that takes the address of a few integers, its context: how often it
repeats, and where its memory is. Those that read or write memory give each thread its part.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...target import CpuTarget
from . import llvm, thread_teams
from .jit import load_object
from .thread_teams import EACH

Array = np.ndarray[Any, Any]
THREADS = 3
"""Which integer of a context says how many threads ran the loop."""
BLOCK = 512
"""Bytes that an iteration reads or writes."""
STEPS = 64
"""Instructions of an iteration of a loop in which each waits for the one before."""
GATHERS = 8
"""Vectors that an iteration gathers."""
TABLE = 1024
"""Integers of 32 bits that are gathered from."""
_KEPT = 4
"""Vector registers that are left to what sums do not take."""


class Loop(NamedTuple):
    """The definition of a function in LLVM's language, and what it takes to be declared."""

    name: str
    text: str
    declared: tuple[str, ...] = ()


def chains(target: CpuTarget) -> int:
    """Sums that do not wait for each other: more than are in flight, and less than registers."""
    return min(24, target.vector_registers - _KEPT)


def clock() -> Loop:
    """Integer instructions of a cycle each, one after the other. Context: iterations."""
    values = ["%x", *(f"%s{k}" for k in range(STEPS))]
    steps = [
        f"{values[k + 1]} = {('add', 'xor')[k % 2]} i64 {values[k]}, %count" for k in range(STEPS)
    ]
    phi = f"%x = phi i64 [ 1, %entry ], [ {values[-1]}, %loop ]"
    return counted("clock", [phi], steps, [f'call void asm sideeffect "", "r"(i64 {values[-1]})'])


def sums(name: str, target: CpuTarget, count: int) -> Loop:
    """Fused multiply-adds of float32 with so many sums. Context: iterations, at byte 64 a vector.

    Without such an instruction, the sums are multiplied and added to in turns.
    """
    lanes = target.vector_bits // 32
    vector, fma = f"<{lanes} x float>", f"@llvm.fma.v{lanes}f32"
    phis, steps = [], []
    for k in range(count):
        phis.append(f"%a{k} = phi {vector} [ zeroinitializer, %entry ], [ %b{k}, %loop ]")
        if target.fma:
            steps.append(f"%b{k} = call {vector} {fma}({vector} %x, {vector} %x, {vector} %a{k})")
        else:
            steps.append(f"%b{k} = {('fadd', 'fmul')[k % 2]} {vector} %a{k}, %x")
    declared = f"declare {vector} {fma}({vector}, {vector}, {vector})"
    return counted(name, phis, steps, kept(target, vector, count), operand(vector), [declared])


def shuffles(target: CpuTarget, count: int) -> Loop:
    """Interleavings of halves of 128 bits. Context: iterations, at byte 64 a vector."""
    lanes = target.vector_bits // 32
    vector = f"<{lanes} x i32>"
    firsts = [first for half in range(0, lanes, 4) for first in (half, half + 1)]
    mask = ", ".join(f"i32 {first}, i32 {first + lanes}" for first in firsts)
    phis = [f"%a{k} = phi {vector} [ %x, %entry ], [ %b{k}, %loop ]" for k in range(count)]
    steps = [
        f"%b{k} = shufflevector {vector} %a{k}, {vector} %x, <{lanes} x i32> <{mask}>"
        for k in range(count)
    ]
    return counted("shuffles", phis, steps, kept(target, vector, count), operand(vector))


def gathers(target: CpuTarget) -> Loop:
    """Gathers of `GATHERS` vectors. Context: iterations, the address of a table; then indices.

    The indices begin at byte 64, and those of the next vector after each.
    """
    lanes = target.vector_bits // 32
    vector, pointers = f"<{lanes} x i32>", f"<{lanes} x ptr>"
    name = f"@llvm.masked.gather.v{lanes}i32.v{lanes}p0"
    ones = ", ".join(["i1 true"] * lanes)
    entry = [*field("table", 1, "ptr")]
    steps = []
    for k in range(GATHERS):
        entry += [
            f"%w{k} = getelementptr i8, ptr %c, i64 {64 + k * target.vector_bits // 8}",
            f"%n{k} = load {vector}, ptr %w{k}, align 8",
            f"%p{k} = getelementptr i32, ptr %table, {vector} %n{k}",
        ]
        steps += [
            f"%g{k} = call {vector} {name}({pointers} align 4 %p{k}, "
            f"<{lanes} x i1> <{ones}>, {vector} poison)",
            f"%b{k} = or {vector} %a{k}, %g{k}",
        ]
    phis = [
        f"%a{k} = phi {vector} [ zeroinitializer, %entry ], [ %b{k}, %loop ]"
        for k in range(GATHERS)
    ]
    # What does not change between iterations is gathered again: the table might.
    steps.append('call void asm sideeffect "", "~{memory}"()')
    declared = f"declare {vector} {name}({pointers}, <{lanes} x i1>, {vector})"
    return counted("gathers", phis, steps, kept(target, vector, GATHERS), entry, [declared])


def chase() -> Loop:
    """Loads of addresses, each from where the one before says. Context: iterations, the first."""
    values = ["%x", *(f"%s{k}" for k in range(STEPS))]
    steps = [f"{values[k + 1]} = load ptr, ptr {values[k]}" for k in range(STEPS)]
    phi = f"%x = phi ptr [ %first, %entry ], [ {values[-1]}, %loop ]"
    end = f'call void asm sideeffect "", "r"(ptr {values[-1]})'
    return counted("chase", [phi], steps, [end], [*field("first", 1, "ptr")])


def reads(target: CpuTarget, *, parallel: bool) -> Loop:
    """Context: repetitions, blocks of each thread, address of the first."""
    vector, places = _vectors(target)
    count = min(len(places), chains(target))
    newest = [f"%a{n}" for n in range(count)]
    steps = []
    for k, offset in enumerate(places):
        steps += [
            f"%p{k} = getelementptr i8, ptr %place, i64 {offset}",
            f"%v{k} = load {vector}, ptr %p{k}, align {target.vector_bits // 8}",
            f"%o{k} = or {vector} {newest[k % count]}, %v{k}",
        ]
        newest[k % count] = f"%o{k}"
    steps += [f"%b{n} = freeze {vector} {value}" for n, value in enumerate(newest)]
    phis = [
        f"%a{n} = phi {vector} [ zeroinitializer, %again ], [ %b{n}, %loop ]" for n in range(count)
    ]
    return _over_blocks("reads", phis, steps, kept(target, vector, count), parallel=parallel)


def writes(target: CpuTarget, *, parallel: bool) -> Loop:
    """Context as that of `reads`."""
    vector, places = _vectors(target)
    steps = []
    for k, offset in enumerate(places):
        steps += [
            f"%p{k} = getelementptr i8, ptr %place, i64 {offset}",
            f"store {vector} zeroinitializer, ptr %p{k}, align {target.vector_bits // 8}",
        ]
    steps.append('call void asm sideeffect "", "~{memory}"()')
    return _over_blocks("writes", [], steps, [], parallel=parallel)


def forks(target: CpuTarget) -> Loop:
    """Parallel loops that do nothing. Context: iterations."""
    nothing = "define void @nothing(ptr %c) #0 {\n  ret void\n}"
    call = f"call void @GOMP_parallel(ptr @nothing, ptr %c, i32 {target.threads}, i32 {EACH})"
    return counted("forks", [], [call], [], declared=[nothing])


def _vectors(target: CpuTarget) -> tuple[str, range]:
    """The type of the widest vectors, and where those of a block begin."""
    return f"<{target.vector_bits // 32} x i32>", range(0, BLOCK, target.vector_bits // 8)


def counted(
    name: str,
    phis: Iterable[str],
    steps: Iterable[str],
    end: Iterable[str],
    entry: Iterable[str] = (),
    declared: Sequence[str] = (),
) -> Loop:
    """A function that repeats `steps` as often as its context begins with."""
    text = f"""define void @{name}(ptr %c) #0 {{
entry:
  %count = load i64, ptr %c
  {_lines(entry)}
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  {_lines(phis)}
  {_lines(steps)}
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %loop, label %done
done:
  {_lines(end)}
  ret void
}}"""
    return Loop(name, text, tuple(declared))


def _over_blocks(
    name: str, phis: Iterable[str], steps: Iterable[str], end: Iterable[str], *, parallel: bool
) -> Loop:
    """A function that runs `steps` on each block, from `%place`, in several repetitions.

    One for all threads writes into its context how many they are, as `THREADS`.
    """
    number, threads = "add i32 0, 0", []
    if parallel:
        number = "call i32 @omp_get_thread_num()"
        threads = [
            "%threads = call i32 @omp_get_num_threads()",
            "%ran = zext i32 %threads to i64",
            f"%ran.at = getelementptr i64, ptr %c, i64 {THREADS}",
            "store atomic i64 %ran, ptr %ran.at monotonic, align 8",
        ]
    text = f"""define void @{name}(ptr %c) #0 {{
entry:
  {_lines([*field("count", 0, "i64"), *field("blocks", 1, "i64"), *field("all", 2, "ptr")])}
  %number = {number}
  {_lines(threads)}
  %mine = zext i32 %number to i64
  %bytes = mul i64 %blocks, {BLOCK}
  %offset = mul i64 %mine, %bytes
  %start = getelementptr i8, ptr %all, i64 %offset
  br label %again
again:
  %r = phi i64 [ 0, %entry ], [ %r.next, %then ]
  br label %loop
loop:
  %i = phi i64 [ 0, %again ], [ %i.next, %loop ]
  {_lines(phis)}
  %i.bytes = mul i64 %i, {BLOCK}
  %place = getelementptr i8, ptr %start, i64 %i.bytes
  {_lines(steps)}
  %i.next = add i64 %i, 1
  %i.more = icmp slt i64 %i.next, %blocks
  br i1 %i.more, label %loop, label %then
then:
  {_lines(end)}
  %r.next = add i64 %r, 1
  %r.more = icmp slt i64 %r.next, %count
  br i1 %r.more, label %again, label %done
done:
  ret void
}}"""
    return Loop(name, text)


def operand(vector: str) -> list[str]:
    """The vector at byte 64 of the context, as `%x`."""
    return ["%at = getelementptr i8, ptr %c, i64 64", f"%x = load {vector}, ptr %at, align 8"]


def kept(target: CpuTarget, vector: str, count: int) -> list[str]:
    """Instructions that make LLVM compute all sums although nobody reads them."""
    register = "w" if target.arch == "aarch64" else "v"
    return [f'call void asm sideeffect "", "{register}"({vector} %b{k})' for k in range(count)]


def field(name: str, number: int, kind: str) -> list[str]:
    """The integer of the context with this number, as `%name`."""
    return [
        f"%{name}.at = getelementptr i64, ptr %c, i64 {number}",
        f"%{name} = load {kind}, ptr %{name}.at",
    ]


def _lines(lines: Iterable[str]) -> str:
    return "\n  ".join(lines)


def module_text(
    functions: Mapping[str, Loop], target: CpuTarget, parallel: Sequence[str] = ()
) -> str:
    """A module of LLVM with the functions; those in `parallel` have entries for all threads."""
    together = (
        f"define void @{name}.all(ptr %c) #0 {{\n  call void @GOMP_parallel("
        f"ptr @{name}, ptr %c, i32 {target.threads}, i32 {EACH})\n  ret void\n}}"
        for name in parallel
    )
    return "\n".join(
        [
            f'target triple = "{target.triple}"',
            "declare void @GOMP_parallel(ptr, ptr, i32, i32)",
            "declare i32 @omp_get_thread_num()",
            "declare i32 @omp_get_num_threads()",
            *dict.fromkeys(d for loop in functions.values() for d in loop.declared),
            *(loop.text for loop in functions.values()),
            *together,
            f"attributes #0 = {{ {_attributes(target)} }}",
        ]
    )


def compiled(
    functions: Mapping[str, Loop], target: CpuTarget, parallel: Sequence[str] = ()
) -> bytes:
    """The object file of `module_text`."""
    return llvm.object_code(llvm.parse(module_text(functions, target, parallel)), target)


def loaded(
    functions: Mapping[str, Loop], target: CpuTarget, parallel: Sequence[str] = ()
) -> dict[str, Callable[[Array], object]]:
    """The functions by their names, compiled; each takes an array with its context.

    Those in `parallel` are run by each of the target's threads.
    """
    code = compiled(functions, target, parallel)
    entries = {name: f"{name}.all" if name in parallel else name for name in functions}
    found = load_object(code, list(entries.values()), thread_teams.load())
    prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    return {
        name: _caller(prototype(address), found.owner)
        for name, address in zip(entries, found.addresses, strict=True)
    }


def _attributes(target: CpuTarget) -> str:
    width = target.vector_bits
    found = {
        "target-cpu": target.llvm_cpu,
        "target-features": target.llvm_features,
        "prefer-vector-width": width,
        "min-legal-vector-width": width,
    }
    return " ".join(f'"{name}"="{value}"' for name, value in found.items())


def _caller(function: Any, owner: object) -> Callable[[Array], object]:
    def call(context: Array) -> object:
        return function(context.ctypes.data), owner

    return call


def aligned(size: int) -> Array:
    """So many bytes, written, that begin where blocks do."""
    room = np.ones(size + BLOCK, np.uint8)
    return room[-room.ctypes.data % BLOCK :][:size]
