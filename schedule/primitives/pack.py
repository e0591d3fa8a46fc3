"""Packing and layouts: `pack` (a copy in a named layout) and `transform_layout`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace as _replace
from typing import Any

import numpy as np

from ...tir.ir import (
    Binary,
    Block,
    Buffer,
    Dim,
    Expr,
    Func,
    Label,
    Op,
    Store,
    Var,
    as_dim,
    as_expr,
    ceildiv,
    const,
    integers,
    load,
    product,
    select,
)
from ...tir.simplify import Simplifier, simplify_dim
from ...tir.structure import key_of
from ...tir.visit import walk
from ..block_queries import free_vars, loop_ranges, prefetched, region_buffers
from ..buffer_choice import BufferAccess, InputIndex
from ..find import find_block, map_blocks
from ..index_map import IndexMap
from ..places import block_redirected, extent_of, spatial_nest
from ..primitive import primitive
from ..require import certain, require
from .cached_copies import (
    accessed,
    consumers_to_redirect,
    input_at,
    insert_top,
    is_whole,
    require_scope,
    require_written_before,
    top_position,
    written_elements,
)

PADDING = 64
"""At most how many times as large as what it holds a dimension or a buffer may become."""


@primitive
def pack(
    fn: Func,
    block: Label,
    read_buffer_index: InputIndex,
    layout: str,
    factors: Sequence[Dim],
    storage_scope: str = "global",
) -> tuple[Func, Label]:
    """Let `block` read a packed copy of an input; a nest before the block's nest packs it.

        pack(block, 1, "BAb", [16]):
        for i, j, k: C[i, j] += A[i, k] * B[k, j]
          ->  for o, k, l: B_packed[o, k, l] = B[k, o * 16 + l]
              for i, j, k: C[i, j] += A[i, k] * B_packed[j // 16, k, j % 16]

    Capital letters are the buffer's dimensions in order (A the first). Small letters are inner
    parts of the dimension of the same letter; `factors` are their sizes, in order. Each capital
    letter occurs once. If a factor does not divide the extent, the copy is padded with zeros, or
    with the value of the buffer's `value_range` that is nearest to zero. Returns the label of the
    copying block.
    """
    require_scope(storage_scope)
    found = find_block(fn, block)
    buffer = input_at(found, read_buffer_index)
    labels = consumers_to_redirect(fn, found, buffer, None)
    position = top_position(fn, block)
    require_written_before(fn, buffer, position, found)
    require(
        is_whole(written_elements(fn, buffer), buffer),
        "it cannot be shown that all of {0} is written",
        buffer.name,
        at=block,
        hint="use pack before transform_layout",
    )
    sizes = _inner_sizes(buffer, layout, factors, block)
    name = f"{buffer.name}_packed"
    shape = tuple(_packed_extent(buffer, letter, sizes) for letter in layout)
    packed = Buffer(name, shape, buffer.dtype, scope=storage_scope, value_range=buffer.value_range)
    label = Label(name)
    axes = [(f"p{n}", Var(f"v{n}"), extent) for n, extent in enumerate(shape)]
    at = tuple(v for _, v, _ in axes)
    copy = spatial_nest(label, axes, Store(packed, at, _unpacked(buffer, layout, sizes, at)))

    def moved(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(_packed_index(letter, indices, sizes) for letter in layout)

    moves = {buffer: (packed, moved)}
    body = map_blocks(fn.body, lambda b: block_redirected(b, moves) if b.label in labels else b)
    return insert_top(_replace(fn, body=body), position, copy, packed), label


def _inner_sizes(buffer: Buffer, layout: str, factors: Sequence[Dim], at: Label) -> dict[str, Dim]:
    """The size of each dimension's inner part, by its capital letter."""
    rank = len(buffer.shape)
    wanted = [chr(ord("A") + d) for d in range(rank)]
    small = [c for c in layout if c.islower()]
    require(
        sorted(c for c in layout if not c.islower()) == wanted
        and len(set(small)) == len(small)
        and all(c.upper() in wanted for c in small),
        "layout {0!r} does not name the {1} dimensions of {2}; expected each of {3} once, and "
        "small letters for inner parts",
        layout,
        rank,
        buffer.name,
        " ".join(wanted),
        at=at,
    )
    require(
        len(factors) == len(small),
        "layout {0!r} has {1} inner parts, found {2} factors",
        layout,
        len(small),
        len(factors),
        at=at,
    )
    for c, f in zip(small, factors, strict=True):
        require(f >= 1, "factor {0} is not positive", f, at=at)
        extent = buffer.shape[ord(c) - ord("a")]
        require(
            not (isinstance(f, int) and isinstance(extent, int)) or f <= PADDING * max(extent, 1),
            "an inner part of {0} elements, for a dimension of {1}",
            f,
            extent,
            at=at,
        )
    return {c.upper(): f for c, f in zip(small, factors, strict=True)}


def _packed_extent(buffer: Buffer, letter: str, sizes: dict[str, Dim]) -> Dim:
    if letter.islower():
        return sizes[letter.upper()]
    extent = buffer.shape[ord(letter) - ord("A")]
    if letter not in sizes:
        return extent
    return simplify_dim(ceildiv(extent, sizes[letter]), loop_ranges(()))


def _packed_index(letter: str, indices: tuple[Expr, ...], sizes: dict[str, Dim]) -> Expr:
    index = indices[ord(letter.upper()) - ord("A")]
    if letter.islower():
        return index % sizes[letter.upper()]
    return index // sizes[letter] if letter in sizes else index


def _unpacked(buffer: Buffer, layout: str, sizes: dict[str, Dim], at: tuple[Var, ...]) -> Expr:
    """The element of `buffer` that belongs to a place in the packed copy, or its padding."""
    place = dict(zip(layout, at, strict=True))
    indices: list[Expr] = []
    inside: Expr | None = None
    for d, extent in enumerate(buffer.shape):
        letter = chr(ord("A") + d)
        index: Expr = place[letter]
        if letter in sizes:
            index = index * sizes[letter] + place[letter.lower()]
            if not certain(extent % sizes[letter] == 0):
                within = index < as_expr(extent)
                inside = within if inside is None else inside & within
        indices.append(index)
    value = load(buffer, tuple(indices))
    if inside is None:
        return value
    low, high = (0, 1) if buffer.value_range is None else buffer.value_range
    return select(inside, value, const(min(max(0, low), high - 1), buffer.dtype))


ENUMERATED = 1 << 22
"""Up to how many elements a map that no rule covers is checked by trying them all."""


@primitive
def transform_layout(
    fn: Func, block: Label, buffer: BufferAccess, index_map: IndexMap | Callable[..., Any]
) -> tuple[Func, None]:
    """Change the layout of an internal buffer that `block` reads or writes, for all its users.

        transform_layout(block, ("write", 0), lambda i, j: (j // 16, i, j % 16)):
        B[i, j] = ..; C[i, j] = B[i, j]   ->   B[j // 16, i, j % 16] = ..; C[i, j] = B[j // 16, ..]

    `buffer` is ("read", n) or ("write", n). No two elements may move to one place. Places that no
    element moves to stay unused.
    """
    found = find_block(fn, block)
    old = accessed(found, buffer)
    require(
        old in fn.allocs,
        "{0} is a parameter of the function, whose layout the caller knows",
        old.name,
        at=block,
        hint="pack makes a copy in another layout",
    )
    require(
        not old.align,
        "the strides of {0} are aligned, which is about the layout that it has",
        old.name,
        at=block,
        hint="do this step before storage_align",
    )
    require(
        old.swizzle is None,
        "the layout of {0} is swizzled by dimensions that it has",
        old.name,
        at=block,
        hint="do this step before swizzle",
    )
    rank = len(old.shape)
    mapping = IndexMap.of(index_map)
    require(
        len(mapping.inputs) == rank,
        "the map takes {0} indices, {1} has {2}",
        len(mapping.inputs),
        old.name,
        rank,
        at=block,
    )
    for part in (n for e in mapping.outputs for n in walk(e) if type(n) is Binary):
        require(
            part.op not in (Op.FLOORDIV, Op.MOD) or certain(as_dim(part.b) >= 1),
            "the map divides by {0}, which is not known to be positive",
            lambda part=part: repr(part.b),
            at=block,
        )
    ranges = loop_ranges(())
    for v, n in zip(mapping.inputs, old.shape, strict=True):
        ranges[v] = (0, n - 1)
    shape = []
    for e in mapping.outputs:
        extent = extent_of(e, ranges, block)
        shape.append(max(extent, 0) if isinstance(extent, int) else extent)  # 0 of no elements
    places, count = product(shape), product(old.shape)
    require(
        not (isinstance(places, int) and isinstance(count, int))
        or places <= PADDING * max(count, 64),
        "the map spreads {0} elements of {1} over {2} places",
        count,
        old.name,
        places,
        at=block,
    )
    _require_injective(old, mapping, block)
    new = _replace(old, shape=tuple(shape))

    def transformed(b: Block) -> Block:
        if old not in prefetched(b) and old not in region_buffers((*b.reads, *b.writes)):
            return b
        s = Simplifier({i.var: (0, i.extent - 1) for i in b.iters if isinstance(i.extent, int)})

        def moved(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
            """The new indices; digits that the map joins again are the number they are of."""
            return tuple([s(e) for e in mapping.apply(indices)])

        return block_redirected(b, {old: (new, moved)})

    body = map_blocks(fn.body, transformed)
    allocs = tuple(new if b is old else b for b in fn.allocs)
    return _replace(fn, body=body, allocs=allocs), None


def _require_injective(buffer: Buffer, mapping: IndexMap, at: Label) -> None:
    """Require that different elements move to different places.

    That is tried out for the dimensions that cannot be told from the indices by rule.
    """
    extents = dict(zip(mapping.inputs, buffer.shape, strict=True))
    open_ = {
        v: n for v, n in extents.items() if not (certain(n == 1) or _determined(v, mapping.outputs))
    }
    if not open_ or certain(product(buffer.shape) == 0):
        return
    outputs = [e for e in mapping.outputs if not free_vars(e).isdisjoint(open_)] or [const(0)]
    if any(not free_vars(e) <= open_.keys() for e in outputs):
        open_, outputs = extents, list(mapping.outputs)
    size = product(list(open_.values()))
    sizes = {v for e in outputs for v in free_vars(e)}.difference(open_)
    require(
        isinstance(size, int) and size <= ENUMERATED and not sizes,
        "it cannot be shown that the map keeps the elements of {0} apart",
        buffer.name,
        at=at,
        hint="use indices of the forms i, i // c and i % c",
    )
    from ...tir.evaluate import evaluate

    grid = np.indices(integers(map(as_dim, open_.values())), dtype=np.int64)
    columns = {v: grid[d].ravel() for d, v in enumerate(open_)}
    places = np.stack([np.broadcast_to(evaluate(e, columns), grid[0].size) for e in outputs])
    distinct = np.unique(places, axis=1).shape[1]
    rest = product([n for v, n in extents.items() if v not in open_])
    require(
        distinct == size,
        "the map moves {0} elements of {1} to {2} places",
        size * rest,
        buffer.name,
        distinct * rest,
        at=at,
    )


def _determined(var: Var, indices: tuple[Expr, ...]) -> bool:
    """Whether `var` can be told from the indices `var`, or `var // c` and `var % c`."""
    divisors: dict[Op, set[object]] = {Op.FLOORDIV: set(), Op.MOD: set()}
    for e in indices:
        if e is var:
            return True
        if type(e) is Binary and e.a is var and e.op in divisors:
            divisors[e.op].add(key_of(e.b))
    return not divisors[Op.FLOORDIV].isdisjoint(divisors[Op.MOD])
