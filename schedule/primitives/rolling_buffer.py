"""Rolling buffers: `rolling_buffer`."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace as _replace
from typing import NamedTuple

from ...base.errors import ScheduleError
from ...tir.contradiction import contradict
from ...tir.ir import (
    Block,
    Buffer,
    Const,
    Expr,
    For,
    ForKind,
    Func,
    Iter,
    IterKind,
    Label,
    Op,
    Range,
    Var,
    binary,
)
from ...tir.polynomial import Poly, add, factors
from ...tir.simplify import Simplifier
from ...tir.structure import conjunction, conjuncts
from ...tir.visit import substitute, walk
from ..available import is_rolling, require_available
from ..block_queries import (
    Ranges,
    feeding,
    loop_ranges,
    readers_of,
    region_buffers,
    require_internal,
    require_not_prefetched,
    require_unit,
    writers_of,
)
from ..buffer_choice import OutputIndex
from ..distinct import gapless
from ..find import blocks_in, find_block, map_blocks, path_to
from ..places import block_redirected
from ..primitive import primitive
from ..require import certain, current_space, require, require_number, require_some
from ..steady import updating
from .cached_copies import written_at

_IN_ORDER = (ForKind.SERIAL, ForKind.UNROLL)


@primitive
def rolling_buffer(
    fn: Func, block: Label, write_buffer_index: OutputIndex, loop: Var | None = None
) -> tuple[Func, None]:
    """Keep the overlap between loop iterations in a circular buffer, and compute only new elements.

        for i:                                      for i:
          for a in 3: B[i + a] = A[i + a] * 2   ->    for a in 3: if i == 0 or a >= 2:
          C[i] = B[i] + B[i + 1] + B[i + 2]             B[(i + a) % 3] = A[i + a] * 2
                                                      C[i] = B[i % 3] + B[(i + 1) % 3] + ..

    The block shares `loop` with all readers of the buffer, after `compute_at`. The loop moves the
    block's window along one dimension, by less than the window's size; that dimension shrinks to
    the window. By default it is the innermost loop that does so. A loop further out keeps what its
    iterations have in common, in the whole extent of the dimensions that loops inside of it move.
    The block must then run in order.
    """
    found = find_block(fn, block)
    require_unit(fn, found)
    require_internal(fn, found)
    buffer = written_at(found, write_buffer_index)
    require(
        len(region_buffers(found.writes)) == 1,
        "block {0} writes {1} buffers; what rolls is written by a block of its own",
        block,
        lambda: len(region_buffers(found.writes)),
    )
    require_not_prefetched(fn, {buffer})
    readers = readers_of(fn, {buffer}, but=block)
    require(bool(readers), "block {0} has no consumer", block)
    around = [s for s in path_to(fn, block) if type(s) is For]
    shared = _shared_loops(fn, found, readers, around)
    named = shared if loop is None else [s for s in shared if s.var is loop]
    require(
        bool(named),
        "block {0} does not share loop {1} with all its consumers; it shares {2}",
        block,
        lambda: loop.name if loop else None,
        lambda: ", ".join(s.var.name for s in shared),
    )
    ranges = loop_ranges(around)
    rolling, window = _rolling(found, buffer, named, around, ranges)
    inner = around[around.index(rolling) + 1 :]
    _require_order(rolling, inner, around)
    _require_steady(fn, found, rolling, inner)
    _require_by_place(found, window, rolling, inner, ranges)
    for r in readers:
        require_available(fn, r.label)
    guard = binary(
        Op.OR, binary(Op.EQ, rolling.var, 0), binary(Op.GE, window.ahead, window.size - window.step)
    )
    iters = tuple(_replace(i, kind=IterKind.OPAQUE) if i is window.iter else i for i in found.iters)
    predicate = conjunction([*conjuncts(found.predicate), guard])
    shape = tuple(window.size if d == window.dim else n for d, n in enumerate(buffer.shape))
    rolled = _replace(buffer, shape=shape)

    def circular(b: Block) -> Block:
        if buffer not in region_buffers((*b.reads, *b.writes)):
            return b
        new = _rolled(b, buffer, rolled, window)
        return _replace(new, iters=iters, predicate=predicate) if b is found else new

    body = map_blocks(fn.body, circular)
    allocs = tuple(rolled if b is buffer else b for b in fn.allocs)
    return _replace(fn, body=body, allocs=allocs), None


class _Window(NamedTuple):
    """The part of dimension `dim` that an iteration computes: `size` elements, of which at most the
    last `step` are new. `ahead` is how far into it a visit is; `iter` is the one that moves."""

    dim: int
    iter: Iter
    size: int
    step: int
    ahead: Expr


def _shared_loops(
    fn: Func, block: Block, readers: Sequence[Block], around: Sequence[For]
) -> list[For]:
    """The loops around a block that are around all readers of its output, outermost first."""
    shared = list(around)
    for r in readers:
        path = path_to(fn, r.label)
        shared = [s for s in shared if any(s is p for p in path)]
    require(
        bool(shared),
        "block {0} shares no loop with its consumers",
        block.label,
        hint="compute_at puts it into a loop of its consumer",
    )
    return shared


def _rolling(
    block: Block, buffer: Buffer, loops: Sequence[For], around: Sequence[For], ranges: Ranges
) -> tuple[For, _Window]:
    """The innermost of `loops` whose iterations share elements, and how it moves the window."""
    refusal: ScheduleError | None = None
    for loop in [s for s in reversed(loops) if not certain(s.extent == 1)]:
        inner = around[around.index(loop) + 1 :]
        try:
            window = _window(block, buffer, loop, inner, ranges)
        except ScheduleError as error:
            refusal = refusal or error
        else:
            _require_steps(loop)
            return loop, window
    if refusal is None:
        _require_steps(loops[-1])
    assert refusal is not None
    raise refusal


def _require_steps(loop: For) -> None:
    require(loop.extent > 1, "loop {0} has one iteration, which has nothing to keep", loop.var)


def _require_order(loop: For, inner: Sequence[For], around: Sequence[For]) -> None:
    for s in (loop, *inner):
        require(
            s.kind in _IN_ORDER,
            "loop {0} is {1}; what it computes is to be kept in order",
            s.var,
            s.kind.value,
        )
    for s in around:
        require(
            s.kind is not ForKind.VECTOR,
            "loop {0} around it is vectorized; its lanes would share a window",
            s.var,
        )


def _require_steady(fn: Func, block: Block, loop: For, inner: Sequence[For]) -> None:
    """Require that a block computes an element the same way in all iterations that compute it.

    Everything that it reads has its values in each iteration, from one block that does not change
    them later.
    """
    inside, loops = list(blocks_in(loop)), {s.var for s in (loop, *inner)}
    rolling: set[Buffer] = set()
    for b in sorted(region_buffers(block.reads) - region_buffers(block.writes),
                    key=lambda b: b.name):  # fmt: skip
        writers = writers_of(fn, b)
        changing = [w for w in writers if any(w is x for x in inside)]
        for w in changing:
            # Of a sum that is not complete, `require_available` says so.
            updated = updating(fn, w, b, loops) - feeding(w, IterKind.REDUCE)
            require(
                len(writers) == 1 and (not updated or is_rolling(w, b)),
                "{0}, which block {1} reads, changes in loop {2} (in block {3})",
                b.name,
                block.label.name,
                loop.var.name,
                w.label,
            )
            if is_rolling(w, b):
                rolling.add(b)
    require_available(fn, block.label, rolling)


def _window(
    block: Block, buffer: Buffer, loop: For, inner: Sequence[For], ranges: Ranges
) -> _Window:
    """How the loop moves the window that the block writes."""
    s = Simplifier(ranges)
    regions = [r for r in block.writes if r.buffer is buffer]
    require(
        len(regions) == 1,
        "block {0} writes {1} at {2} different places; expected one",
        block.label,
        buffer.name,
        len(regions),
    )
    region = regions[0]
    own = {i.var: i for i in block.iters}
    places = [own.get(r.min) if type(r.min) is Var else None for r in region.ranges]
    moving = [i for i in block.iters if _mentions(s.poly(i.value), {loop.var})]
    require(
        len(moving) == 1 and sum(i is moving[0] for i in places) == 1,
        "loop {0} moves {1} iteration variables of block {2}; expected one, that indexes {3}",
        loop.var,
        len(moving),
        block.label.name,
        buffer.name,
    )
    i = moving[0]
    require(
        i.kind is IterKind.SPATIAL
        and all(certain(r.extent == 1) for r in region.ranges)
        and all(
            p is not None or certain(r.min == 0) for p, r in zip(places, region.ranges, strict=True)
        ),
        "block {0} must write {1} at its plain iteration variables",
        block.label,
        buffer.name,
    )
    span = gapless(Range(i.value, 1), {f.var: f.extent for f in inner}, ranges)
    growth = None if span is None else s(substitute(span.min, {loop.var: loop.var + 1}) - span.min)
    between = {**ranges, loop.var: (0, loop.extent - 2)}
    ahead = (
        growth.value >= 1
        if type(growth) is Const
        else growth is not None and current_space() is None and contradict([growth < 0], between)
    )
    span = require_some(
        span if ahead else None,
        "what block {0} computes in an iteration of loop {1} is no window that moves ahead",
        block.label,
        loop.var.name,
    )
    size = require_number(
        span.extent,
        "the window of {0} elements has no known size; rolling_buffer takes decided sizes",
        span.extent,
        at=block.label,
    )
    assert growth is not None
    step = (
        int(growth.value)
        if type(growth) is Const
        else bisect_left(range(size), True, key=lambda k: contradict([growth > k], between))
    )
    require(
        size > step,
        "iterations of loop {0} compute {1} elements each, {2} apart; they share none",
        loop.var,
        size,
        step,
    )
    dim = next(d for d, p in enumerate(places) if p is i)
    return _Window(dim, i, size, step, s(i.value - span.min))


def _mentions(p: Poly, variables: set[Var]) -> bool:
    """Whether a term of `p` has one of `variables` in it."""
    return any(
        type(n) is Var and n in variables for key in p for f in factors(key) for n in walk(f)
    )


def _require_by_place(
    block: Block, window: _Window, loop: For, inner: Sequence[For], ranges: Ranges
) -> None:
    """Require that whether an element is computed does not depend on the iteration.

    Conditions are therefore on iteration variables, and no loop feeds two of them.
    """
    s = Simplifier(ranges)
    value = s.poly(window.iter.value)
    own = {f.var for f in (loop, *inner) if _mentions(value, {f.var})}
    for i in block.iters:
        require(
            i is window.iter or not _mentions(s.poly(i.value), own),
            "a loop feeds both {0} and {1} of block {2}",
            window.iter.var.name,
            i.var.name,
            block.label,
        )
    for c in conjuncts(block.predicate):
        p: Poly = {}
        if hasattr(c, "a") and hasattr(c, "b") and c.a.dtype == c.b.dtype == "int64":
            p = add(s.poly(c.a), s.poly(c.b), -1)
            term = next(k for k in value if _mentions({k: 1}, own))
            times, rest = divmod(p.get(term, 0), value[term])
            p = add(p, value, -times) if rest == 0 else p
            held = _mentions(p, own)
        else:
            held = bool(own & {n for n in walk(c) if type(n) is Var})
        require(
            not held,
            "block {0} only runs where {1}, which depends on more than the element it computes",
            block.label,
            c,
        )


def _rolled(block: Block, old: Buffer, new: Buffer, window: _Window) -> Block:
    """`block` with its accesses to `old` made to `new`, one dimension of which is circular."""

    def places(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(
            binary(Op.MOD, e, window.size) if d == window.dim else e for d, e in enumerate(indices)
        )

    return block_redirected(block, {old: (new, places)})
