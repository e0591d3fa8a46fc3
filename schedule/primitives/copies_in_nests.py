"""Copies within a loop nest: right after the block that computes what they copy.

They stand in the innermost loop that this block shares with another one that uses it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace as _replace

from ...tir.ir import Block, Buffer, For, Func, Label, Var
from ..available import require_available, require_still_concurrent
from ..block_queries import order_of, readers_of, writers_of
from ..find import find_path, map_blocks, path_to
from ..places import Moved, block_redirected
from .place import put_after


def shared_loops(fn: Func, block: Label, others: Collection[Label]) -> list[For]:
    """The loops that a block shares with one of `others` at least, outermost first."""
    around = [s for s in path_to(fn, block) if type(s) is For]
    return [s for s in around if any(find_path(s, other) is not None for other in others)]


def writer_beside(fn: Func, buffer: Buffer, readers: Collection[Label]) -> Label | None:
    """The last block that writes `buffer` in a loop that it shares with one of `readers`."""
    order = order_of(fn)
    labels = [w.label for w in writers_of(fn, buffer) if shared_loops(fn, w.label, readers)]
    return max(labels, key=order.__getitem__, default=None)


def readers_beside(fn: Func, buffer: Buffer, writer: Label) -> list[Label]:
    """The blocks that read `buffer` in a loop that they share with `writer`."""
    readers = readers_of(fn, {buffer}, but=writer)
    return [r.label for r in readers if shared_loops(fn, r.label, [writer])]


def after_writer(fn: Func, copy: Label, writer: Label, readers: Collection[Label]) -> Func:
    """`fn` with the block `copy`, of a nest after that of `writer`, right after that."""
    loop = shared_loops(fn, writer, readers)[-1]
    return put_after(fn, copy, loop.var, moves=False)


def require_served(fn: Func, readers: Collection[Label], changed: Sequence[Label | Var]) -> None:
    """Require that `readers` find what they read, and that loops around may still run at once."""
    for r in readers:
        require_available(fn, r)
    require_still_concurrent(fn, (*changed, *readers))


def copied_out(
    fn: Func, copy: Label, writer: Label, old: Buffer, moves: Mapping[Buffer, Moved]
) -> Func:
    """`fn` with `copy`, of a nest after that of `writer`, before readers of `old` in that nest.

    Both blocks use buffers that nobody else does; once the copy is in its place, `moves` has those
    to use instead. One of these is `old`.
    """
    fn = after_writer(fn, copy, writer, readers_beside(fn, old, writer))

    def moved(b: Block) -> Block:
        return block_redirected(b, moves) if b.label in (writer, copy) else b

    added = [new for new, _ in moves.values() if new is not old]
    allocs = (*(b for b in fn.allocs if b not in moves), *added)
    fn = _replace(fn, body=map_blocks(fn.body, moved), allocs=allocs)
    readers = [r.label for r in readers_of(fn, {old})]
    require_served(fn, readers, (writer, copy))
    return fn
