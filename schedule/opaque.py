"""Whether opaque iterations of a block keep their order; two of them that clash, what helps."""

from __future__ import annotations

from collections.abc import Sequence

from ..tir.dependence import Order, before
from ..tir.ir import Block, Buffer, For, Stmt
from .block_queries import loop_ranges
from .find import last_loop
from .loop_dependence import Finding, conflicts, overtakes, pairs_of, uses_of

_INDEPENDENT = "no iteration touches what another one writes: write its axes with T.axis.spatial"


def keeps_opaque_order(
    above: Sequence[Stmt], old: Sequence[For], chain: Sequence[For], body: Stmt, block: Block
) -> bool:
    """Whether iterations of a block that touch an element keep their order in that of `chain`."""
    order = overtakes([s.var for s in old], [s.var for s in chain])
    return _clash(above, old, body, block, order).apart


def overtaking_example(
    above: Sequence[Stmt], old: Sequence[For], chain: Sequence[For], body: Stmt, block: Block
) -> str | None:
    """Two iterations of a block that touch an element and change their order, as text."""
    found = _clash(above, old, body, block, overtakes([s.var for s in old], [s.var for s in chain]))
    return None if found.apart else found.example()


def overtaking_hint(
    above: Sequence[Stmt], old: Sequence[For], chain: Sequence[For], body: Stmt, block: Block
) -> str | None:
    """What to do about a block whose iterations are opaque."""
    if _clash(above, old, body, block, before).apart:
        return _INDEPENDENT
    order = overtakes([s.var for s in old], [s.var for s in chain])
    found = _clash(above, old, body, block, order)
    if found.first is None:
        return None
    buffer = found.first.buffer
    return _advice(block, buffer)


def carried_example(path: Sequence[Stmt], block: Block) -> str | None:
    """Two iterations of the loop at the end of `path` that touch an element, as text."""
    found = _carried(path, block)
    return None if found.apart else found.example()


def carried_hint(path: Sequence[Stmt], block: Block) -> str | None:
    """What to do about opaque iterations of the loop at the end of `path`."""
    found = _carried(path, block)
    if found.apart:
        return _INDEPENDENT
    return "the order matters" if found.first is None else _advice(block, found.first.buffer)


def _carried(path: Sequence[Stmt], block: Block) -> Finding:
    loop = last_loop(path)
    return _clash(path[:-1], [loop], loop.body, block, before)


def _advice(block: Block, buffer: Buffer) -> str:
    if any(r.buffer is buffer for r in block.reads):
        return f"the block reads and writes {buffer.name}: storing to another buffer has no order"
    return f"several iterations write an element of {buffer.name}, and the last one counts"


def _clash(
    above: Sequence[Stmt], old: Sequence[For], body: Stmt, block: Block, order: Order
) -> Finding:
    """Whether iterations of a block in that `order` touch an element that one of them writes."""
    ranges = loop_ranges((*above, *old))
    for buffer in dict.fromkeys(r.buffer for r in block.writes):
        found = conflicts(pairs_of(uses_of(block, buffer, body)), old, ranges, order)
        if not found.apart:
            return found
    return Finding(True)
