"""Loop kinds and annotations: `parallel`, `vectorize`, `unroll`, `serial`, `bind`, `annotate`,
`unannotate`.
"""

from __future__ import annotations

import json
from dataclasses import replace as _replace
from typing import Any

from ...base.errors import similar
from ...tir.instruction import KEY
from ...tir.ir import (
    HARDWARE_AXES,
    Block,
    Buffer,
    Dim,
    For,
    ForKind,
    Func,
    Label,
    Stmt,
    Var,
    product,
)
from ..block_queries import (
    bound_regions,
    buffers_in_order,
    free_vars,
    require_not_vectorized,
)
from ..find import blocks_in, find_path, loop_path, loops_in, path_to, rebuild
from ..legality import require_concurrent
from ..primitive import primitive
from ..require import require

UNROLL_LIMIT = 4096
VECTOR_LIMIT = 1024
NOTE_LIMIT = 4096
_OF_TVM = (
    *("buffer_dim_align", "double_buffer_", "layout_free_buffers", "meta_schedule", "pragma_"),
    *("software_pipeline_", "vector_bytes", "virtual_thread", "warp_execution"),
)
"""How the keys begin that passes of TVM look for."""


@primitive
def parallel(fn: Func, loop: Var) -> tuple[Func, None]:
    """Run the iterations of a loop on several threads.

        for i in 64: A[i] = 0   ->   for i in parallel(64): A[i] = 0

    Iterations must be independent: the loop feeds only spatial iteration variables, and no
    iteration touches what another one writes. A buffer that is used only in the loop may be shared
    if each iteration writes every element that it reads.
    """
    path, old = _serial_loop(fn, loop, "parallel")
    for s in path[:-1]:
        require(
            not (type(s) is For and s.kind is ForKind.PARALLEL),
            "loop {0} around it is parallel already",
            lambda s=s: s.var.name,
            at=loop,
            hint="fuse the two loops and make the fused one parallel",
        )
    for inner in loops_in(old.body):
        require(
            inner.kind is not ForKind.PARALLEL,
            "loop {0} below it is parallel already",
            inner.var,
        )
    require_concurrent(fn, path, "run in parallel")
    return rebuild(fn, path, _of_kind(old, ForKind.PARALLEL)), None


@primitive
def vectorize(fn: Func, loop: Var) -> tuple[Func, None]:
    """Run the iterations of a loop as the lanes of vectors; a tail predicate becomes a mask.

        for i in 64: A[i] = 0   ->   for i in vectorized(64): A[i] = 0

    Iterations must be independent. Below the loop there may only be unrolled loops.
    """
    path, old = _serial_loop(fn, loop, "vectorized")
    # First what no other order of loops helps against.
    require_concurrent(fn, path, "be vectorized", private=False)
    for inner in loops_in(old.body):
        vector = inner.kind is ForKind.VECTOR
        require(
            inner.kind is ForKind.UNROLL,
            "loop {0} is inside; only unrolled loops may be inside a vectorized one",
            inner.var,
            hint=f"call serial({inner.var.name}) first: one loop of a nest runs as vectors"
            if vector
            else "reorder the loop to the innermost place",
        )
    require(
        old.extent <= VECTOR_LIMIT,
        "a vector of {0} lanes; at most {1}",
        old.extent,
        VECTOR_LIMIT,
        at=loop,
        hint="split the loop first",
        found=old.extent,
        expected=f"at most {VECTOR_LIMIT}",
    )
    return rebuild(fn, path, _of_kind(old, ForKind.VECTOR)), None


@primitive
def unroll(fn: Func, loop: Var) -> tuple[Func, None]:
    """Unroll a loop into at most 4096 statements.

        for i in 4: A[i] = 0   ->   for i in unrolled(4): A[i] = 0

    The iterations are written out when the program is compiled.
    """
    path, old = _serial_loop(fn, loop, "unrolled")
    unrolled = _of_kind(old, ForKind.UNROLL)
    above = product([s.extent for s in path[:-1] if type(s) is For and s.kind is ForKind.UNROLL])
    copies = above * _statements(unrolled)
    require(
        copies <= UNROLL_LIMIT,
        "unrolling makes {0} statements; at most {1}",
        copies,
        UNROLL_LIMIT,
        at=loop,
        hint="split the loop and unroll the inner part",
        found=copies,
        expected=f"at most {UNROLL_LIMIT}",
    )
    return rebuild(fn, path, unrolled), None


@primitive
def serial(fn: Func, loop: Var) -> tuple[Func, None]:
    """Make a parallel, vectorized or unrolled loop serial again.

        for i in parallel(64): A[i] = 0   ->   for i in 64: A[i] = 0

    An unrolled or vectorized loop whose variable indexes a buffer in registers is refused, because
    the index would not be constant. So is a loop that is bound to a thread axis.
    """
    path, old = loop_path(fn, loop)
    require(old.kind is not ForKind.SERIAL, "loop {0} is serial already", loop)
    require(
        old.kind is not ForKind.THREAD,
        "loop {0} is bound to {1}, an axis of threads that all run",
        loop,
        old.thread,
        hint="split it before bind, to have one part serial",
    )
    require_not_vectorized(path, loop, "make the loop around it serial first")
    if old.kind in (ForKind.UNROLL, ForKind.VECTOR):
        for buffer in _registers_by(old):
            require(
                old.extent == 1,
                "{0} is held in registers, which loop {1} indexes; it must stay {2}",
                buffer.name,
                loop,
                old.kind.value,
                hint="set_scope gives the buffer memory",
            )
    return rebuild(fn, path, _of_kind(old, ForKind.SERIAL)), None


@primitive
def bind(fn: Func, loop: Var, thread_axis: str) -> tuple[Func, None]:
    """Bind a loop to a hardware axis of threads or thread blocks.

        for i in 64: A[i] = 0   ->   for i in thread("threadIdx.x", 64): A[i] = 0

    Iterations must be independent. An axis may be bound once on the path to a block, and has one
    extent in the whole kernel. Axes are those of GPUs: a build for a processor refuses the program,
    for which there are `parallel` and `vectorize`.
    """
    require(
        thread_axis in HARDWARE_AXES,
        "unknown thread axis {0!r}; expected one of {1}",
        thread_axis,
        ", ".join(HARDWARE_AXES),
        at=loop,
        hint=lambda: similar(thread_axis, HARDWARE_AXES),
        found=thread_axis,
        alternatives=HARDWARE_AXES,
    )
    path, old = _serial_loop(fn, loop, "bound")
    for s in (*path[:-1], *loops_in(old.body)):
        require(
            not (type(s) is For and s.thread == thread_axis),
            "{0} is bound to loop {1} on the same path",
            thread_axis,
            lambda s=s: s.var.name,
            at=loop,
            hint="reorder the loops so that blocks are moved to one around the threads",
        )
    kernel = next(s for s in path if type(s) is For)
    for s in loops_in(kernel):
        if s.thread == thread_axis:
            require(
                s.extent == old.extent,
                "{0} has {1} iterations at loop {2} of the same kernel, here {3}",
                thread_axis,
                s.extent,
                s.var.name,
                old.extent,
                at=loop,
            )
    require_concurrent(fn, path, "be bound to threads")
    bound = _replace(old, kind=ForKind.THREAD, thread=thread_axis)
    return rebuild(fn, path, bound), None


@primitive
def annotate(fn: Func, target: Var | Label, key: str, value: Any) -> tuple[Func, None]:
    """Attach a JSON value to a loop or block under `key`, for passes that look for it.

        for i in 64: A[i] = 0   ->   for i in serial(64, annotations={key: value}): A[i] = 0

    Keys by which TVM's passes are asked for what steps do here are refused.
    """
    path, old = _annotated(fn, target)
    require(
        0 < len(key) <= 64 and key.isprintable(),
        "{0!r} is not a key; expected a text of up to 64 characters",
        key,
        at=target,
    )
    require(
        key != KEY,
        "{0!r} says that a block runs as an instruction, which has to be checked",
        key,
        at=target,
        hint="use tensorize",
    )
    require(
        not key.startswith(_OF_TVM),
        "no pass looks for {0!r}, which is a key of TVM",
        key,
        at=target,
        hint="a step of the schedule does this",
        found=key,
    )
    require(
        len(json.dumps(value)) <= NOTE_LIMIT,
        "the value of {0} takes more than {1} characters",
        key,
        NOTE_LIMIT,
        at=target,
    )
    require(
        all(k != key for k, _ in old.annotations),
        "{0} is annotated with {1} already",
        target,
        key,
    )
    notes = tuple(sorted((*old.annotations, (key, value)), key=lambda pair: pair[0]))
    return rebuild(fn, path, _replace(old, annotations=notes)), None


@primitive
def unannotate(fn: Func, target: Var | Label, key: str) -> tuple[Func, None]:
    """Remove the annotation `key` from a loop or block.

    for i in serial(64, annotations={key: value}): A[i] = 0   ->   for i in 64: A[i] = 0
    """
    path, old = _annotated(fn, target)
    kept = tuple(pair for pair in old.annotations if pair[0] != key)
    require(
        len(kept) < len(old.annotations),
        "{0} is not annotated with {1!r}; it has {2}",
        target,
        key,
        lambda: ", ".join(repr(k) for k, _ in old.annotations) or "no annotations",
    )
    return rebuild(fn, path, _replace(old, annotations=kept)), None


def _serial_loop(fn: Func, loop: Var, what: str) -> tuple[tuple[Stmt, ...], For]:
    path, old = loop_path(fn, loop)
    require(
        old.kind is ForKind.SERIAL,
        "loop {0} is {1} already",
        loop,
        old.kind.value,
        hint=None if old.kind.value == what else f"split it before that, to have one part {what}",
        found=old.kind.value,
        expected=ForKind.SERIAL.value,
    )
    return path, old


def _annotated(fn: Func, target: Var | Label) -> tuple[tuple[Stmt, ...], For | Block]:
    path = path_to(fn, target)
    old = path[-1]
    assert isinstance(old, (For, Block))
    return path, old


def _of_kind(loop: For, kind: ForKind) -> For:
    return _replace(loop, kind=kind, thread=None)


def _registers_by(loop: For) -> list[Buffer]:
    """The buffers in registers that blocks in `loop` index by its variable."""
    return [
        region.buffer
        for block in blocks_in(loop.body)
        for buffer in buffers_in_order((*block.reads, *block.writes))
        if buffer.scope == "register"
        for region in bound_regions(block, (*block.reads, *block.writes), buffer)
        if any(loop.var in free_vars(x.min) for x in region.ranges)
    ]


def _statements(loop: For) -> Dim:
    """How many statements the unrolled loops in `loop`, itself included, make."""
    total: Dim = 0
    for block in blocks_in(loop):
        path = find_path(loop, block.label) or ()
        total = total + product(
            [s.extent for s in path if type(s) is For and s.kind is ForKind.UNROLL]
        )
    return total
