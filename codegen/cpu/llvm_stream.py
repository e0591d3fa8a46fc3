"""Emit non-temporal stores of whole vectors, which bypass the caches.

On x86 their addresses must be aligned. numpy aligns memory to 16 bytes; where an address is not
aligned, the store is a plain one. A fence at the end of the function orders them.
"""

from __future__ import annotations

from ...base import dtypes
from .llvm_text import Builder, calling, memory_type, shuffled

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
