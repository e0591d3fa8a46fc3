"""Cached copies of updated buffers: `cache_inplace`."""

from __future__ import annotations

from dataclasses import replace as _replace

from ...tir.ir import Buffer, Func, Label, Var
from ..available import require_still_concurrent
from ..block_queries import readers_of, region_buffers, writers_of
from ..find import find_block
from ..primitive import primitive
from ..require import require
from .cached_copies import (
    Elements,
    copy_block,
    elements_of,
    insert_top,
    is_whole,
    redirect,
    region_at,
    require_scope,
    top_position,
)


@primitive
def cache_inplace(
    fn: Func, block: Label, read_buffer_index: int, storage_scope: str
) -> tuple[Func, tuple[Label, Label]]:
    """Let `block` update a copy of a buffer that it reads and writes; new nests copy it in and out.

        for i: X[i] = X[i] + 1   ->   for c0: X_local[c0] = X[c0]
                                      for i: X_local[i] = X_local[i] + 1
                                      for c0: X[c0] = X_local[c0]

    `read_buffer_index` counts the buffers that the block both reads and writes. All of the buffer
    must have values before: it is updated in place, or an earlier nest writes it. Returns the
    labels of the two copying blocks.
    """
    require_scope(storage_scope)
    found = find_block(fn, block)
    written = region_buffers(found.writes)
    updated = tuple(r for r in found.reads if r.buffer in written)
    buffer = region_at(found, updated, read_buffer_index, "update")
    require(
        found.init is None,
        "block {0} starts from its init, and needs no earlier contents of {1}",
        block.name,
        buffer.name,
        at=block,
        hint="use cache_write",
    )
    position = top_position(fn, block)
    for b in (*writers_of(fn, buffer), *readers_of(fn, {buffer})):
        require(
            b.label is block or top_position(fn, b.label) != position,
            "{0} is accessed by block {1} in the same loop nest",
            buffer.name,
            b.label.name,
            at=b.label,
            hint="make the copy before compute_at moves the blocks into one nest",
        )
    require(
        buffer in fn.inplace or filled_before(fn, buffer, position),
        "it cannot be shown that all of {0} has values before block {1} updates it",
        buffer.name,
        block.name,
        at=block,
    )
    copy = _replace(
        buffer, name=f"{buffer.name}_{storage_scope}", strides=None, scope=storage_scope,
        constant=False,
    )  # fmt: skip
    variables = tuple(Var(f"v{d}") for d in range(len(buffer.shape)))
    whole = Elements(variables, buffer.shape, variables)
    before, first = copy_block(f"{copy.name}_in", buffer, copy, whole)
    after, last = copy_block(f"{copy.name}_out", copy, buffer, whole)
    fn = redirect(fn, {block}, buffer, copy)
    fn = insert_top(insert_top(fn, position + 1, after), position, before)
    fn = _replace(fn, allocs=(*fn.allocs, copy))
    require_still_concurrent(fn, (block,))
    return fn, (first, last)


def filled_before(fn: Func, buffer: Buffer, position: int) -> bool:
    """Whether all of `buffer` is written before the top-level statement at `position`."""
    earlier = [w for w in writers_of(fn, buffer) if top_position(fn, w.label) < position]
    return bool(earlier) and is_whole(elements_of(fn, buffer, earlier), buffer)
