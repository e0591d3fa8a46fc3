"""Separating uses of one buffer: `distinguish_reads`, `distinguish_updates`, `cache_inplace`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace as _replace
from typing import Any

from ...tir.ir import Block, Buffer, Expr, For, Func, If, IterKind, Label, Load, Store, Var, seq
from ...tir.structure import key_of
from ...tir.visit import rewrite_children, walk
from ..available import require_read_first, require_still_concurrent
from ..block_queries import readers_of, with_regions, writers_of
from ..buffer_choice import InputIndex, UpdateIndex
from ..find import find_block, replace, statements
from ..places import rewritten
from ..primitive import primitive
from ..require import certain, require
from .cached_copies import (
    Elements,
    copy_block,
    copy_of,
    elements_of,
    input_at,
    insert_top,
    is_whole,
    loads_of,
    redirect,
    require_scope,
    require_written_before,
    top_position,
    updated_at,
    written_elements,
)


@primitive
def distinguish_reads(
    fn: Func, block: Label, read_buffer_index: InputIndex
) -> tuple[Func, tuple[Label, ...]]:
    """Let `block` read a separate copy of an input at each place but the first.

        for i, j, k: C[i, j] += A[k, i] * A[k, j]
          ->  for c0, c1: A_copy[c0, c1] = A[c0, c1]
              for i, j, k: C[i, j] += A[k, i] * A_copy[k, j]

    Steps on one input, such as `pack`, then affect one place. `compute_inline` of a copying block
    undoes it. `read_buffer_index` counts the buffers that the block reads and does not write.
    Returns the labels of the copying blocks.
    """
    found = find_block(fn, block)
    buffer = input_at(found, read_buffer_index)
    others = list(dict.fromkeys(_place(n.indices) for n in loads_of(found, buffer)))[1:]
    require(
        bool(others),
        "block {0} reads {1} at one place alone",
        block,
        buffer.name,
        hint="cache_read makes a copy for all places",
    )
    position = top_position(fn, block)
    require_written_before(fn, buffer, position, found)
    elements = [written_elements(fn, buffer) for _ in others]
    copies: dict[object, Buffer] = {}
    labels = []
    for n, place in enumerate(others):
        name = f"{buffer.name}_copy" + (f"_{n}" if n else "")
        copies[place] = copy_of(buffer, name)
        stmt, label = copy_block(name, buffer, copies[place], elements[n])
        fn = insert_top(fn, position + n, stmt)
        labels.append(label)

    def visit(n: Any) -> Any:
        if type(n) is Buffer:
            return n
        n = rewrite_children(n, visit)
        if type(n) is Load and n.buffer is buffer and (copy := copies.get(_place(n.indices))):
            return _replace(n, buffer=copy)
        return n

    new = rewritten(found, visit)
    return replace(fn, found, new, *copies.values()), tuple(labels)


@primitive
def distinguish_updates(
    fn: Func, block: Label, read_buffer_index: UpdateIndex
) -> tuple[Func, None]:
    """Give the values that `block` updates a buffer of their own.

        for i: Z[i] = A[i] + 1            for i: Z_before[i] = A[i] + 1
        for i: Z[i] = Z[i] * 2      ->    for i: Z[i] = Z_before[i] * 2

    Neither nest then updates in place, and steps such as `reverse_compute_at` apply.
    `read_buffer_index` counts the buffers that the block both reads and writes. The block must read
    exactly the element that it writes, cover the whole buffer, and share its nest with no other
    user of the buffer. If the buffer has values before the program runs, so must the first block
    that writes it: what that reads, and blocks before it, are those values.
    """
    found = find_block(fn, block)
    buffer = updated_at(found, read_buffer_index)
    stored = [n for n in walk(found.body) if type(n) is Store and n.buffer is buffer]
    places = {_place(n.indices) for n in stored} | {
        _place(n.indices) for n in loads_of(found, buffer)
    }
    inside = [n for n in walk(found.body) if type(n) in (For, If)]
    once = not any(type(n) is Store and n.buffer is buffer for s in inside for n in walk(s))
    once = once and all(
        i.kind is IterKind.SPATIAL or (i.kind is IterKind.OPAQUE and certain(i.extent == 1))
        for i in found.iters
    )
    require(
        len(stored) == 1 and len(places) == 1 and once,
        "block {0} does not update each element of {1} by itself",
        block,
        buffer.name,
    )
    require(
        found.init is None,
        "block {0} starts from its init, and updates no earlier contents of {1}",
        block,
        buffer.name,
    )
    require(
        is_whole(elements_of(fn, buffer, [found]), buffer),
        "block {0} does not update all of {1}",
        block,
        buffer.name,
    )
    users = (*writers_of(fn, buffer), *readers_of(fn, {buffer}))
    positions = {b.label: top_position(fn, b.label) for b in users}
    _require_alone(block, buffer, positions)
    _require_filled(fn, block, buffer)
    first = next(iter(writers_of(fn, buffer))) if buffer in fn.inplace else None
    start = -1
    if first is not None:
        start = positions[first.label]
        _require_alone(first.label, buffer, positions)
        _require_filled(fn, block, buffer, by=first)
        require_read_first(fn, first.label, buffer, first.label)
    before = {label for label, place in positions.items() if start < place < positions[block]}
    old = copy_of(buffer, f"{buffer.name}_before")
    updated = False

    def visit(n: Any) -> Any:
        """Loads before the store are of the values before, those after it of what it stored."""
        nonlocal updated
        if type(n) is Buffer:
            return n
        n = rewrite_children(n, visit)
        if type(n) is Store and n.buffer is buffer:
            updated = True
        before = type(n) is Load and n.buffer is buffer and not updated
        return _replace(n, buffer=old) if before else n

    new = with_regions(_replace(found, body=visit(found.body)))
    fn = redirect(replace(fn, found, new, old), before, buffer, old)
    if first is not None:
        stmts = [_replace(s, buffer=old) if type(s) is Store and s.buffer is buffer else s
                 for s in statements(first.body)]  # fmt: skip
        fn = replace(fn, first, with_regions(_replace(first, body=seq(*stmts))))
    return fn, None


def _require_alone(block: Label, buffer: Buffer, positions: Mapping[Label, int]) -> None:
    """Require that no other block uses a buffer in the nest of `block`.

    `positions` are the top-level statements of all that use it.
    """
    for user, position in positions.items():
        require(
            user is block or position != positions[block],
            "block {0} in the same loop nest uses {1} too",
            user,
            buffer.name,
            hint="fission gives each a nest of its own",
        )


def _place(indices: tuple[Expr, ...]) -> tuple[object, ...]:
    return tuple(map(key_of, indices))


@primitive
def cache_inplace(
    fn: Func, block: Label, read_buffer_index: UpdateIndex, storage_scope: str
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
    buffer = updated_at(found, read_buffer_index)
    require(
        found.init is None,
        "block {0} starts from its init, and needs no earlier contents of {1}",
        block,
        buffer.name,
        hint="use cache_write",
    )
    position = top_position(fn, block)
    for b in (*writers_of(fn, buffer), *readers_of(fn, {buffer})):
        require(
            b.label is block or top_position(fn, b.label) != position,
            "{0} is accessed by block {1} in the same loop nest",
            buffer.name,
            b.label,
            hint="make the copy before compute_at moves the blocks into one nest",
        )
    if buffer not in fn.inplace:
        _require_filled(fn, block, buffer)
    copy = _replace(
        buffer, name=f"{buffer.name}_{storage_scope}", strides=None, scope=storage_scope,
        constant=False,
    )  # fmt: skip
    variables = tuple(Var(f"v{d}") for d in range(len(buffer.shape)))
    whole = Elements(variables, buffer.shape, variables)
    before, first = copy_block(f"{copy.name}_in", buffer, copy, whole)
    after, last = copy_block(f"{copy.name}_out", copy, buffer, whole)
    fn = redirect(fn, {block}, buffer, copy)
    fn = insert_top(insert_top(fn, position + 1, after, copy), position, before)
    require_still_concurrent(fn, (block,))
    return fn, (first, last)


def _require_filled(fn: Func, block: Label, buffer: Buffer, by: Block | None = None) -> None:
    """Require that all of `buffer` is written before the top-level statement with `block`.

    By the block `by` alone, if there is one.
    """
    position = top_position(fn, block)
    writers = writers_of(fn, buffer) if by is None else [by]
    earlier = [w for w in writers if top_position(fn, w.label) < position]
    require(
        bool(earlier) and is_whole(elements_of(fn, buffer, earlier), buffer),
        "it cannot be shown that all of {0} has values before block {1} updates it",
        buffer.name,
        block,
    )
