"""Allocate internal buffers: small ones on the stack, others from the C library."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from ... import dtypes
from ...errors import BuildError
from ...tir.ir import Alloc, Buffer, For, ForKind, Stmt, Store
from ...tir.visit import nested
from .llvm_stream import fence
from .llvm_text import Builder, Level, memory_type, value_type

ALIGNMENT = 64
STACK_BUFFER_BYTES = 16 * 1024
STACK_BYTES = 128 * 1024
MAX_BYTES = 1 << 46


def local_buffers(body: Stmt, *, into_parallel: bool) -> Iterator[Buffer]:
    """The buffers that `Alloc` statements in `body` make, those of parallel loops if asked for."""
    pending = [body]
    while pending:
        s = pending.pop()
        if type(s) is Alloc:
            yield s.buffer
        if not into_parallel and type(s) is For and s.kind is ForKind.PARALLEL:
            continue
        pending.extend(reversed(nested(s)))


def stored_buffers(body: Stmt) -> set[Buffer]:
    """The buffers that `body` stores to."""
    found: set[Buffer] = set()
    pending = [body]
    while pending:
        s = pending.pop()
        if type(s) is Store:
            found.add(s.buffer)
        else:
            pending.extend(nested(s))
    return found


def nbytes(buffer: Buffer) -> int:
    """Bytes of a buffer. Raises `BuildError` if that is not known or absurd."""
    if not all(isinstance(n, int) for n in buffer.shape):
        raise BuildError("the shape of {0} is not known: {1}", buffer.name, buffer.shape)
    size = math.prod([n for n in buffer.shape if isinstance(n, int)]) * dtypes.nbytes(buffer.dtype)
    if size > MAX_BYTES:
        raise BuildError("the internal buffer {0} needs {1} bytes", buffer.name, size)
    return size


def allocate(b: Builder, buffers: Iterable[Buffer]) -> list[str]:
    """Give memory to `buffers`, at the start of a function; fail if there is none.

    Returns the pointers that have to be freed in any case, those that are null included. Index
    values are computed after this.
    """
    stack, heap = 0, list[str]()
    for buffer in dict.fromkeys(buffers):
        size = nbytes(buffer)
        if buffer.scope == "register":
            lanes = size // dtypes.nbytes(buffer.dtype)
            whole = value_type(dtypes.vector(buffer.dtype, lanes))
            b.pointers[buffer] = b.alloca(whole, 1, ALIGNMENT)
        elif size <= STACK_BUFFER_BYTES and stack + size <= STACK_BYTES:
            stack += size
            count = max(size // dtypes.nbytes(buffer.dtype), 1)
            b.pointers[buffer] = b.alloca(memory_type(buffer.dtype), count, ALIGNMENT)
        else:
            size = -(-size // ALIGNMENT) * ALIGNMENT
            pointer = b.op(f"call noalias ptr @aligned_alloc(i64 {ALIGNMENT}, i64 {size})")
            b.pointers[buffer] = pointer
            heap.append(pointer)
    if heap:
        b.module.declare("aligned_alloc", "declare noalias ptr @aligned_alloc(i64 allocalign, i64)")
        b.module.declare("free", "declare void @free(ptr captures(none))")
        missing = [b.op(f"icmp eq ptr {pointer}, null") for pointer in heap]
        refused = missing[0]
        for other in missing[1:]:
            refused = b.op(f"or i1 {refused}, {other}")
        allocated = b.new_block("allocated")
        b.branch(refused, b.failed, allocated)
        b.start(allocated)
        b.levels[0] = Level(allocated)
    return heap


def finish(b: Builder, heap: list[str]) -> None:
    """Free what `allocate` took and return the status."""
    if b.streams:
        fence(b)
    for pointer in heap:
        b.do(f"call void @free(ptr {pointer})")
    b.block.end = "ret i32 0"
    if b.may_fail:
        b.start(b.failed)
        for pointer in heap:
            b.do(f"call void @free(ptr {pointer})")
        b.block.end = "ret i32 1"
