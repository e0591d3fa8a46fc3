"""Copies in iteration order: `reindex`, `reindex_cache_read`, `reindex_cache_write`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace as _replace
from typing import Any, NamedTuple

from ...tir.ir import (
    Block,
    Buffer,
    Expr,
    Func,
    Iter,
    IterKind,
    Label,
    Let,
    Load,
    Seq,
    Stmt,
    Store,
    Var,
)
from ...tir.piecewise import linear
from ...tir.simplify import simplify
from ...tir.visit import reads_from, substitute, walk
from ..available import require_still_concurrent
from ..block_queries import domain, free_vars, require_not_inplace, require_unit, writers_of
from ..buffer_choice import BufferAccess, InputIndex, OutputIndex
from ..find import find_block, replace
from ..index_map import IndexMap
from ..places import (
    always_read,
    are_apart,
    block_redirected,
    copy_nest,
    moving,
    place_of,
    places_of,
    require_apart,
    require_inside,
    shape_of,
)
from ..primitive import primitive
from ..require import certain, require
from ..written import visited
from .cached_copies import (
    accessed,
    input_at,
    insert_top,
    is_whole,
    require_read_after,
    require_scope,
    require_written_before,
    top_position,
    written_at,
    written_elements,
)
from .copies_in_nests import (
    after_writer,
    copied_out,
    readers_beside,
    require_served,
    writer_beside,
)


@primitive
def reindex(fn: Func, block: Label, buffer: BufferAccess) -> tuple[Func, Label]:
    """Let `block` access a copy of a buffer at its plain iteration variables.

        reindex(block, ("read", 0)):
        for i, j: B[i, j] = A[j * 2, i] * 2   ->   for c0, c1: A_reindex[c0, c1] = A[c1 * 2, c0]
                                                   for i, j: B[i, j] = A_reindex[i, j] * 2

    `buffer` is ("write", n) or ("read", n); reads count the buffers that the block does not write.
    The copy has one dimension for each iteration variable in the access, in their order. Returns
    the label of the copying block.
    """
    found = find_block(fn, block)
    old = accessed(found, buffer)
    used = {v for e in place_of(found, old) for v in free_vars(e)}
    plain = tuple(i.var for i in found.iters if i.var in used)
    mapping = IndexMap(tuple(i.var for i in found.iters), plain)
    copy = _read if buffer[0] == "read" else _write
    return copy(fn, found, old, f"{old.name}_reindex", "global", mapping)


@primitive
def reindex_cache_read(
    fn: Func,
    block: Label,
    read_buffer_index: InputIndex,
    storage_scope: str,
    index_map: IndexMap | Callable[..., Any],
) -> tuple[Func, Label]:
    """Let `block` read a copy of an input, with its elements at places given by an index map.

        reindex_cache_read(block, 0, "local", lambda i, j: (i // 4, j, i % 4)):
        for i, j: B[i, j] = A[j, i]
          ->  for c0, c1: A_local[c0 // 4, c1, c0 % 4] = A[c1, c0]
              for i, j: B[i, j] = A_local[i // 4, j, i % 4]

    The map takes the block's iteration variables. Iterations that read different elements must map
    to different places. Of windows, whose elements several iterations read, each is copied once:

        reindex_cache_read(block, 0, "local", lambda i, k: (i + k,)):
        for i, k in 3: B[i] += A[max(i + k - 1, 0)]
          ->  for c0: A_local[c0] = A[max(c0 - 1, 0)]
              for i, k in 3: B[i] += A_local[i + k]

    Returns the label of the copying block.
    """
    require_scope(storage_scope)
    found = find_block(fn, block)
    old = input_at(found, read_buffer_index)
    mapping = IndexMap.of(index_map)
    return _read(fn, found, old, f"{old.name}_{storage_scope}", storage_scope, mapping)


@primitive
def reindex_cache_write(
    fn: Func,
    block: Label,
    write_buffer_index: OutputIndex,
    storage_scope: str,
    index_map: IndexMap | Callable[..., Any],
) -> tuple[Func, Label]:
    """Let `block` compute into a buffer at places given by an index map; a nest after it copies.

        reindex_cache_write(block, 0, "local", lambda i, j: (j, i)):
        for i, j: B[i, j] = A[i, j] * 2   ->   for i, j: B_local[j, i] = A[i, j] * 2
                                               for c0, c1: B[c0, c1] = B_local[c1, c0]

    The map takes the block's iteration variables and depends on spatial ones only. Returns the
    label of the copying block.
    """
    require_scope(storage_scope)
    found = find_block(fn, block)
    old = written_at(found, write_buffer_index)
    mapping = IndexMap.of(index_map)
    return _write(fn, found, old, f"{old.name}_{storage_scope}", storage_scope, mapping)


def _read(
    fn: Func, block: Block, old: Buffer, name: str, scope: str, mapping: IndexMap
) -> tuple[Func, Label]:
    indices = place_of(block, old)
    places = places_of(block, mapping)
    iters, label = moving(block, (*indices, *places)), block.label
    reduced = {i.var for i in block.iters if i.kind is IterKind.REDUCE}
    starts = block.init is not None and reads_from(block.init, {old})
    require(
        not starts or all(free_vars(e).isdisjoint(reduced) for e in places),
        "block {0} starts with {1}, where it has no reduce iterations; the map makes its place "
        "depend on them",
        label,
        old.name,
        hint="map the spatial iteration variables only, or decompose_reduction first",
    )
    position = top_position(fn, label)
    copying, to, source = iters, places, indices
    apart = are_apart(iters, places)
    shared = not apart and all_written(fn, old)
    by_place = _by_place(iters, indices, places) if shared else None
    if by_place is not None:
        axes = zip(by_place.variables, shape_of(old, places, iters, label), strict=True)
        copying = tuple(Iter(v, n, IterKind.SPATIAL, v) for v, n in axes)
        to, source = by_place
    ranges = domain(copying)
    require_inside(old, source, ranges, label)
    writer = writer_beside(fn, old, [label])
    if writer is None:
        require_written_before(fn, old, position, block)
    require(
        by_place is not None
        or (always_read(block, old) and visited(fn, [(block, iters)]))
        or all_written(fn, old),
        "block {0} may not read {1} in all of its iterations, and it cannot be shown that all of "
        "it is written",
        label,
        old.name,
    )
    for n in [n for e in source for n in walk(e) if type(n) is Load]:
        require_inside(n.buffer, n.indices, ranges, label)
        require_written_before(fn, n.buffer, position, block)
        require(
            all_written(fn, n.buffer),
            "it cannot be shown that all of {0} is written, by which block {1} finds its element",
            n.buffer.name,
            label,
        )
    require(
        apart or by_place is not None,
        "the map sends iterations that read {0} at different places to one place",
        old.name,
        at=label,
    )
    shape = shape_of(old, to, copying, label)
    new = _replace(old, name=name, shape=shape, strides=None,
                   scope=scope, constant=False, align=(), swizzle=None)  # fmt: skip
    stmt, copied = copy_nest(name, copying, (new, to), (old, source))
    moved = block_redirected(block, {old: (new, lambda _: places)})
    if writer is None:
        return insert_top(replace(fn, block, moved), position, stmt, new), copied
    fn = after_writer(insert_top(fn, position + 1, stmt, new), copied, writer, [label])
    fn = replace(fn, block, moved)
    require_served(fn, [label], [copied])
    return fn, copied


class _ByPlace(NamedTuple):
    """The place of a copy as variables, and the indices of the element that it has a copy of."""

    variables: tuple[Var, ...]
    indices: tuple[Expr, ...]


def _by_place(
    iters: Sequence[Iter], indices: Sequence[Expr], places: Sequence[Expr]
) -> _ByPlace | None:
    """The `indices` as functions of the place; `None` if they are not known to depend on it alone.

    Each place is solved for an iteration variable: of `i * 2 + k`, `k` is the place without
    `i * 2`.
    """
    variables = tuple(Var(f"p{n}") for n in range(len(places)))
    left = {i.var for i in iters}
    solved: dict[Var, Expr] = {}
    for place, e in zip(variables, places, strict=True):
        parts = linear(substitute(e, solved), left)
        steps = {} if parts is None else parts.coefficients
        var = next((v for v, c in steps.items() if isinstance(c, int) and abs(c) == 1), None)
        if parts is None or var is None:
            return None
        value = simplify((place - (substitute(e, solved) - var * steps[var])) * steps[var])
        solved = {v: substitute(known, {var: value}) for v, known in solved.items()} | {var: value}
        left.discard(var)
    found = tuple(simplify(substitute(e, solved)) for e in indices)
    return None if any(free_vars(e) & left for e in found) else _ByPlace(variables, found)


def _write(
    fn: Func, block: Block, old: Buffer, name: str, scope: str, mapping: IndexMap
) -> tuple[Func, Label]:
    require_unit(fn, block)
    label = block.label
    require_not_inplace(fn, old, label)
    require(
        all(type(n) in (Seq, Let, Store) or not isinstance(n, Stmt) for n in walk(block.body)),
        "block {0} stores {1} under a condition or in a loop of its own",
        label,
        old.name,
    )
    indices = place_of(block, old)
    places = places_of(block, mapping)
    iters = moving(block, (*indices, *places))
    for i in block.iters:
        moves = any(i is m for m in iters)
        require(
            not moves or i.kind is IterKind.SPATIAL,
            "the place depends on {0}, a {1} iteration variable; an element has one place",
            i.var.name,
            i.kind.value,
            at=label,
        )
        require(
            moves or i.kind is not IterKind.SPATIAL or certain(i.extent == 1),
            "block {0} stores to the same elements of {1} for all {2}",
            label,
            old.name,
            i.var.name,
        )
    require(
        visited(fn, [(block, iters)]),
        "block {0} does not run in all of its iterations; it stores to a part of {1}",
        label,
        old.name,
        hint="do this before compute_at leaves out what is not needed",
    )
    position = top_position(fn, label)
    beside = readers_beside(fn, old, label)
    if not beside:
        require_read_after(fn, old, position, label)
    require_apart(iters, indices, "it cannot be shown that iterations store to different elements "
                   "of {0}", old, label)  # fmt: skip
    require_apart(iters, places, "the map sends iterations that store to {0} at different places "
                   "to one place", old, label)  # fmt: skip
    new = _replace(old, name=name, shape=shape_of(old, places, iters, label), strides=None,
                   scope=scope, constant=False, align=(), swizzle=None)  # fmt: skip
    if not beside:
        stmt, copied = copy_nest(name, iters, (old, indices), (new, places))
        moved = block_redirected(block, {old: (new, lambda _: places)})
        fn = insert_top(replace(fn, block, moved), position + 1, stmt, new)
        require_still_concurrent(fn, (label,))
        return fn, copied
    # The copy follows the block at plain iteration variables, which then go to their places.
    plain = tuple(i.var for i in iters)
    visits = _replace(new, shape=tuple(i.extent for i in iters))
    output = _replace(old, strides=None, constant=False, align=(), swizzle=None)
    stmt, copied = copy_nest(name, iters, (output, indices), (visits, plain))
    moved = block_redirected(block, {old: (visits, lambda _: plain)})
    fn = insert_top(replace(fn, block, moved), position + 1, stmt, visits, output)

    def place(at: tuple[Expr, ...]) -> tuple[Expr, ...]:
        values = dict(zip(plain, at, strict=True))
        return tuple(substitute(e, values) for e in places)

    swaps = {visits: (new, place), output: (old, lambda e: e)}
    return copied_out(fn, copied, label, old, swaps), copied


def all_written(fn: Func, buffer: Buffer) -> bool:
    """Whether all elements of a buffer are known to have values once its writers are done."""
    if buffer in fn.inplace or not writers_of(fn, buffer):
        return buffer not in fn.allocs
    return is_whole(written_elements(fn, buffer), buffer)
