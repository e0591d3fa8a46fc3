"""Place internal buffers: small ones on the stack, others in the caller's workspace.

A function receives its part of the workspace as *slots*: parameters that LLVM may assume do not
alias. Buffers with disjoint lifetimes share a slot, so a function has as many slots as it has
buffers that live at once:

    alloc A: {...; alloc B: ...}; alloc C: ...   ->   slot 0: A, then C; slot 1: B

A parallel loop receives one slot. Each thread has as many bytes of it as its function needs.

Emit non-temporal stores of whole vectors, which bypass the caches.

On x86 their addresses must be aligned. numpy aligns memory to 16 bytes; where an address is not
aligned, the store is a plain one. A fence at the end of the function orders them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate

from ...base import dtypes
from ...base.errors import BuildError
from ...runtime.signature import WORKSPACE_ALIGNMENT
from ...tir.ir import Buffer, integers
from .llvm_text import Builder, calling, memory_type, shuffled, value_type

STACK_BUFFER_BYTES = 16 * 1024
STACK_BYTES = 128 * 1024
SMALL_STACK_BYTES = 16 * 1024
"""Where a program has 64 KB of stack unless its linker is told otherwise: WebAssembly."""
MAX_BYTES = 1 << 46


def nbytes(buffer: Buffer) -> int:
    """Bytes of a buffer. Raises `BuildError` if that is absurd."""
    size = math.prod(integers(buffer.shape)) * dtypes.nbytes(buffer.dtype)
    if size > MAX_BYTES:
        raise BuildError("the internal buffer {0} needs {1} bytes", buffer.name, size)
    return size


def allocate(b: Builder, buffer: Buffer) -> bool:
    """Allocate a buffer. Returns whether it is a slot, to be released after its scope."""
    if buffer in b.stacked:
        b.pointers[buffer] = b.stacked[buffer]
        return False
    size = nbytes(buffer)
    most = SMALL_STACK_BYTES if b.module.target.arch == "wasm32" else STACK_BYTES
    on_stack = size <= STACK_BUFFER_BYTES and b.stack_bytes + size <= most
    if not on_stack and buffer.scope != "register":
        b.pointers[buffer] = take_slot(b, size)
        return True
    count = max(size // dtypes.nbytes(buffer.dtype), 1)
    if buffer.scope == "register":
        kind, count = value_type(dtypes.vector(buffer.dtype, count)), 1
    else:
        kind = memory_type(buffer.dtype)
        b.stack_bytes += size
    b.pointers[buffer] = b.stacked[buffer] = b.alloca(kind, count, WORKSPACE_ALIGNMENT)
    return False


def take_slot(b: Builder, size: int) -> str:
    """A pointer to `size` bytes of the workspace, which are nobody else's until `release_slot`."""
    number = b.slots_in_use
    if number == len(b.slots):
        b.slots.append(0)
    whole = -(-size // WORKSPACE_ALIGNMENT) * WORKSPACE_ALIGNMENT
    b.slots[number] = max(b.slots[number], whole)
    b.slots_in_use += 1
    return f"%slot{number}"


def release_slot(b: Builder) -> None:
    """End the use of the slot that was taken last."""
    b.slots_in_use -= 1


def slot_parameters(slots: Sequence[int]) -> Iterator[str]:
    """The parameters of a function that uses slots of these sizes."""
    for number, size in enumerate(slots):
        facts = f"noalias nonnull align {WORKSPACE_ALIGNMENT} dereferenceable({size})"
        yield f"ptr {facts} %slot{number}"


def slot_pointers(b: Builder, slots: Sequence[int], start: str) -> Iterator[str]:
    """The arguments for these parameters: the slots lie one behind the other, from `start` on."""
    for end, size in zip(accumulate(slots), slots, strict=True):
        yield f"ptr {b.op(f'getelementptr i8, ptr {start}, i64 {end - size}')}"


def unusable(b: Builder, workspace: str) -> str:
    """Whether a workspace is null or not aligned."""
    address = b.op(f"ptrtoint ptr {workspace} to i64")
    low = b.op(f"and i64 {address}, {WORKSPACE_ALIGNMENT - 1}")
    misaligned = b.op(f"icmp ne i64 {low}, 0")
    return b.op(f"or i1 {misaligned}, {b.op(f'icmp eq i64 {address}, 0')}")


def finish(b: Builder, end: str) -> None:
    """End a function with the terminator `end`."""
    if b.streams:
        fence(b)
    b.block.end = end


PART = 16
"""Bytes that one store writes on x86; stores that follow each other fill a line all the same."""
FENCE = "llvm.x86.sse.sfence"


def store(b: Builder, dtype: str, text: str, where: str) -> None:
    """A store of the vector `text` of `dtype`, as it is in memory."""
    memory, align = memory_type(dtype), dtypes.nbytes(dtypes.info(dtype).scalar)
    plain = f"store {memory} {text}, ptr {where}, align {align}"
    if not b.module.target.triple.startswith("x86_64"):
        b.do(f"{plain}, !nontemporal !1")
        return
    size = dtypes.nbytes(dtype)
    if size % PART:
        b.do(plain)
        return
    b.streams = True
    then, other, end = b.new_block("aligned"), b.new_block("unaligned"), b.new_block("stored")
    low = b.op(f"and i64 {b.op(f'ptrtoint ptr {where} to i64')}, {PART - 1}")
    b.branch(b.op(f"icmp eq i64 {low}, 0"), then, other)
    b.start(then)
    words = b.op(f"bitcast {memory} {text} to <{size // 4} x i32>")
    for first in range(0, size, PART):
        lanes = range(first // 4, (first + PART) // 4)
        part = b.op(shuffled(f"<{size // 4} x i32>", words, "poison", lanes))
        at = b.op(f"getelementptr i8, ptr {where}, i64 {first}")
        b.do(f"store <{PART // 4} x i32> {part}, ptr {at}, align {PART}, !nontemporal !1")
    b.jump(end)
    b.start(other)
    b.do(plain)
    b.jump(end)
    b.start(end)


def fence(b: Builder) -> None:
    """A fence: later reads see the non-temporal stores."""
    b.do(calling(b, FENCE, "void"))
