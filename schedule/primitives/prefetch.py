"""Prefetching: `prefetch`."""

from __future__ import annotations

from collections.abc import Sequence

from ...base import dtypes
from ...tir.ir import (
    Block,
    Buffer,
    Dim,
    Expr,
    For,
    ForKind,
    Func,
    Iter,
    IterKind,
    Label,
    Prefetch,
    Range,
    Stmt,
    Var,
    ceildiv,
    product,
    seq,
)
from ...tir.visit import substitute, with_body
from ..block_queries import bound_regions, free_vars, hulls, loop_ranges, nest, require_inside
from ..buffer_choice import InputIndex
from ..find import find_block, find_loop, loops_above, replace
from ..primitive import primitive
from ..require import require, require_some
from .cached_copies import input_at

LINE_BYTES = 64
"""How far apart hints stand: the cache lines of the machines that there are."""
LINES = 4096
"""At most how many lines one iteration may ask for."""
MAX_OFFSET = 1 << 20


@primitive
def prefetch(
    fn: Func,
    block: Label,
    read_buffer_index: InputIndex,
    loop: Var,
    ahead_of: Var | None = None,
    offset: Dim = 1,
) -> tuple[Func, Label]:
    """In each iteration of `loop`, prefetch what `block` will read there `offset` iterations later.

        for i: for j: B[i, j] = A[i, j] * 2
          ->  for i: for j: prefetch A[i + 1, j]; B[i, j] = A[i, j] * 2     (ahead_of=i, loop=j)

    `read_buffer_index` counts the buffers that the block reads and does not write. `offset` counts
    iterations of `ahead_of`, which is `loop` itself or a loop around it. There is one prefetch for
    each cache line. If what is read does not depend on `ahead_of`, it is prefetched for the same
    iteration: whether it does may depend on decisions. Prefetching changes no result and never
    faults beyond the buffer. Returns the label of the prefetching block.
    """
    found = find_block(fn, block)
    buffer = input_at(found, read_buffer_index)
    target = find_loop(fn, loop)
    require_inside(target, block)
    around = loops_above(fn, block)
    outer = around[: next(n for n, s in enumerate(around) if s is target) + 1]
    later = require_some(
        next((s for s in outer if s.var is (loop if ahead_of is None else ahead_of)), None),
        "loop {0} is neither loop {1} nor around it",
        ahead_of,
        loop,
        at=loop,
        hint="ahead_of counts the iterations that the hint is ahead",
    )
    require(
        buffer.scope != "register",
        "{0} is held in registers; only what is in memory can be asked for",
        buffer.name,
        at=block,
    )
    require(offset >= 1, "{0} iterations ahead; expected at least 1", offset, at=loop)
    require(offset <= MAX_OFFSET, "{0} iterations ahead; at most {1}", offset, MAX_OFFSET, at=loop)
    for s in outer:
        require(
            s.kind is not ForKind.VECTOR,
            "loop {0} is vectorized; its lanes run at once",
            s.var,
            hint="prefetch in the loop around it",
        )
    inner = {s.var: s.extent for s in around[len(outer) :]}
    ranges = hulls(bound_regions(found, found.reads, buffer), inner, loop_ranges(around))
    label = Label(f"{buffer.name}_prefetch")
    hints = _hints(buffer, ranges, outer, later.var, offset, label)
    return replace(fn, target, with_body(target, seq(hints, target.body))), label


def _hints(
    buffer: Buffer,
    ranges: Sequence[Range],
    outer: Sequence[For],
    later: Var,
    offset: Dim,
    label: Label,
) -> Stmt:
    """Loops over the cache lines of a region, `offset` iterations of `later` further on.

    There is one for each dimension, so that their number does not depend on sizes.
    """
    used = {v for r in ranges for v in free_vars(r.min)}
    iters = [
        Iter(Var(f"v{s.var.name}"), s.extent, IterKind.SPATIAL, s.var)
        for s in outer
        if s.var in used
    ]
    mapping: dict[Var, Expr] = {}
    for i in iters:
        assert isinstance(i.value, Var)
        mapping[i.value] = i.var + offset if i.value is later else i.var
    loops: list[tuple[Var, Dim]] = []
    indices: list[Expr] = []
    for d, r in enumerate(ranges):
        step = _line(buffer) if d == len(ranges) - 1 else 1
        count = ceildiv(r.extent, step)
        loops.append((Var(f"p{d}"), count))
        iters.append(Iter(Var(f"v{d}"), count, IterKind.SPATIAL, loops[-1][0]))
        indices.append(substitute(r.min, mapping) + iters[-1].var * step)
    lines = product([n for _, n in loops])
    require(
        lines <= LINES,
        "one iteration would ask for {0} cache lines; at most {1}",
        lines,
        LINES,
        at=later,
        hint="prefetch in a loop further inside",
    )
    return nest(loops, Block(label, tuple(iters), (), (), Prefetch(buffer, tuple(indices))))


def _line(buffer: Buffer) -> int:
    """How many elements of the last dimension share a cache line."""
    stride = 1 if buffer.strides is None else max(abs(buffer.strides[-1]), 1)
    return max(LINE_BYTES // (dtypes.nbytes(buffer.dtype) * stride), 1)
