"""Lowering for GPUs: the flat list of passes, and the form of the last program.

The text of kernels is printed from the last program, and the emulator runs it. Here is all that
can be in it (`tests/codegen/cuda/form.py` checks that), and what it means; the rules of `tir/ir.py`
hold as well.

    program    := a function without blocks; its body is a launch, or a `Seq` of launches, or empty
    launch     := [blockIdx.z] [blockIdx.y] [blockIdx.x]     loops of kind THREAD, from outside
                    shared*                                  an `Alloc` of scope `shared` each
                      [threadIdx.z] [threadIdx.y] threadIdx.x    loops of kind THREAD
                        code
    code       := Seq | For | If | Let | Alloc | Store | move | Barrier
    move       := Store(buffer, (Ramp,), Load(buffer, (Ramp,)))

**Programs.** All buffers have one dimension and no strides, align or swizzle. Parameters and the
`allocs` of the function are in global memory. The latter are the workspace: they start
uninitialised and live through all launches. Launches run in order, and each finds what those before
it wrote.

**Launches.** Loops that are left out have one iteration; threadIdx.x always has its loop. All
extents are integers of at least 1. With extents x, y and z, thread (i, j, k) has number
(k * y + j) * x + i in its block. Its warp is the quotient of that by 32 and its lane the remainder.
Blocks run in any order, or at once. Threads of a block run at once, up to their next barrier.

**Shared memory.** Each block has its own copy of the `shared` buffers, uninitialised at its start.
The loop of threadIdx.x has the annotation `shared` where there are any: their offsets in bytes, in
the order of the `Alloc`s from outside. Where bytes of two buffers overlap, what one of them writes
ends the elements of the other, which are then unwritten. Offsets are multiples of 16.

**Code** is what each thread does. In it are

- `For` of kind SERIAL or UNROLL, with an integer of at least 1 as its extent; UNROLL asks the
  compiler for copies of the body. There are no annotations.
- `If`, with or without `other`; `Let` of a scalar; `Seq`.
- `Alloc` of scope `local` or `register`: a buffer of the thread, uninitialised at each entry. It
  may stand anywhere in the code.
- `Store` of a scalar with a scalar index, without a mask. In its value and index, and in conditions
  and values of `Let`, are `Var`, `Const`, `Binary`, `Call`, `Cast`, `Select`, `Load` of a scalar
  without a mask, and `WarpShuffle`.
- a move of 4, 8 or 16 bytes, the only place of vectors: 2, 4, 8 or 16 lanes of one dtype from one
  buffer to another. Both ramps have stride 1, and a base that is a multiple of the number of lanes.
- `Barrier`. Threads of the scope, the block or the warp, wait until all of them are at it. What
  they wrote to shared and global memory before is there for all of them after. All threads of the
  scope reach the same barriers equally often: it may stand in loops, and in an `If` only where its
  condition is the same in all threads of the scope.

`WarpShuffle` stands only in values of `Let` and `Store`, outside of branches of `Select`, and where
all threads of the warp get to it at once. The thread whose lane it names is in the block.

**Indices**, loop variables and the arithmetic on them are int32 where bounds prove that nothing
leaves it, and int64 elsewhere; a cast is where one meets the other.

**What holds.** Two accesses to an element of a `shared` or global buffer by different threads of a
block, one of which writes, have a barrier between them whose scope has both threads. No two blocks
of a launch use an element that one of them writes. No access is out of bounds, and nothing is read
that was not written.
"""

from __future__ import annotations

from ..generator import Pass
from ..lower import BLOCKS, FLATTEN, TRIM
from ..passes.arena import arena
from ..passes.barriers import barriers
from ..passes.collectives import collectives
from ..passes.compact import compact_on_device
from ..passes.narrow import narrow
from ..passes.phases import bound, phases
from ..passes.unroll_owned import unroll_owned
from ..passes.vectors import vectors


def passes() -> tuple[Pass, ...]:
    """From a scheduled program to one that is printed line by line."""
    return (
        Pass(
            "bound",
            bound,
            "Checks that each nest of loops is bound to axes of the device, as a kernel consists "
            "of threads.",
        ),
        BLOCKS,
        Pass(
            "phases",
            phases,
            "Joins the phases of a launch in one nest of loops over blocks and threads, as a "
            "kernel is the code of one thread.",
        ),
        TRIM,
        Pass(
            "collectives",
            collectives,
            "Lets all threads of a row combine what each holds in part, as they would wait while "
            "one of them did it alone.",
            reorders=True,
        ),
        Pass(
            "compact",
            compact_on_device,
            "Shrinks internal buffers to what is live at once, so that they fit registers and "
            "shared memory.",
        ),
        Pass(
            "arena",
            arena,
            "Gives each shared buffer its place in the shared memory of a block, where buffers "
            "that are never live together have the same bytes, as it is small.",
        ),
        Pass(
            "barriers",
            barriers,
            "Puts barriers where a thread needs what other threads have written, as threads run "
            "in any order up to the next barrier.",
        ),
        FLATTEN,
        Pass(
            "vectors",
            vectors,
            "Replaces vectorized loops by moves of up to 16 bytes, as wide moves take fewer "
            "instructions.",
        ),
        Pass(
            "unroll_owned",
            unroll_owned,
            "Marks loops that index buffers of a thread as unrolled, as registers have no "
            "addresses that an index could select.",
        ),
        Pass(
            "narrow",
            narrow,
            "Narrows indices to 32 bits where bounds prove that they fit, as a register of a GPU "
            "has 32 bits.",
        ),
    )
