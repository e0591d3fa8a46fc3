"""Online softmax: `online_softmax`.

Sums of exponentials that a block computes itself come first, then stored exponentials that several
sums share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace as _replace
from typing import Any, NamedTuple

from ...tir.bounds import prove
from ...tir.ir import (
    Binary,
    Block,
    Buffer,
    Dim,
    Expr,
    For,
    Func,
    Iter,
    IterKind,
    Label,
    Load,
    Op,
    Store,
    Var,
    binary,
    call,
    const,
    load,
    select,
)
from ...tir.piecewise import linear
from ...tir.visit import reads_from, rewrite_children, substitute
from ..block_queries import (
    free_vars,
    loop_name,
    loop_ranges,
    nest_like,
    readers_of,
    require_unit,
    with_regions,
    without_buffers,
    writers_of,
)
from ..find import find_block, find_loop, replace
from ..places import adding, redirected, spatial_nest
from ..primitive import primitive
from ..reduction_blocks import match_reduction, require_terms
from ..require import certain, require, require_some
from .cached_copies import insert_top, replace_top, top_position
from .pieces import (
    Exponent,
    Exponentials,
    at_pieces,
    exponent_of,
    exponentials,
    in_pieces,
    maximum_in,
    own_nest,
)
from .reduction import rfactor, sole_block


@primitive
def online_softmax(
    fn: Func, loop: Var, others: Sequence[Var] = ()
) -> tuple[Func, tuple[Label, ...]]:
    """Compute a maximum and a sum of exponentials relative to it piece by piece, in one pass.

        online_softmax(k_0):
        for k: M[] = max(M[], X[k])
        for k_0, k_1: S[] += exp(X[k_0 * 8 + k_1] - M[])
          ->  for k_0, k_1: M_rf[k_0] = max(M_rf[k_0], X[k_0 * 8 + k_1])
              for k_0: M[] = max(M[], M_rf[k_0])
              for k_0, k_1: S_rf[k_0] += exp(X[k_0 * 8 + k_1] - M_rf[k_0])
              for k_0: S[] += select(M_rf[k_0] == -inf, 1, S_rf[k_0]) * exp(M_rf[k_0] - M[])

    `loop` is a loop of the sum and counts the pieces. The sum no longer waits for the maximum of
    the row: `reverse_compute_at` moves the sum of a piece to where its maximum is computed, so that
    a row is read once. The difference, or both of its sides, may be multiplied by positive numbers.
    Both nests must be separate from other blocks; the maximum gets the loops of the sum. A piece
    that is -inf throughout counts as zero, or as NaN if the whole row is -inf.
    Returns the labels of the blocks of the pieces, the maximum first; the old handles stay with the
    combinations. Milakov & Gimelshein, arXiv:1805.02867.

    If a block E stores the exponentials for several sums, which may multiply them by something
    else, `others` are the loops of the other sums, and their pieces are stored as well:

        online_softmax(k_0, [j_0]):
        for k: E[k] = exp(X[k] - M[])
        for k_0, k_1: S[] += E[k_0 * 8 + k_1]
        for d, j_0, j_1: O[d] += E[j_0 * 8 + j_1] * V[j_0 * 8 + j_1, d]
          ->  for k_0: M_scale[k_0] = exp(M_rf[k_0] - M[])
              for k_0, k_1: E_rf[k_0, k_1] = exp(X[k_0 * 8 + k_1] - M_rf[k_0])
              for k_0, k_1: S_rf[k_0] += E_rf[k_0, k_1]
              for k_0: S[] += S_rf[k_0] * M_scale[k_0]
              for d, j_0, j_1: O_rf[j_0, d] += E_rf[j_0, j_1] * V[j_0 * 8 + j_1, d]
              for d, j_0: O[d] += O_rf[j_0, d] * M_scale[j_0]

    Returns the labels of the blocks of the maximum, of the scale, and of each sum. E_rf of a piece
    that is -inf throughout is zero, as E is. Products with exponentials near the largest number may
    overflow within a piece, and the scale does not repair that. Dao et al., arXiv:2205.14135.
    """
    block = sole_block(find_loop(fn, loop))
    kept = kept_exponentials(fn, block)
    if kept is not None:
        return sums_in_pieces(fn, kept, (loop, *others))
    require(
        not others,
        "block {0} does not sum elements of exponentials that a block keeps, as other sums could",
        block.label,
    )
    found = exponentials(fn, block)
    fn, made = in_pieces(fn, found.largest, block, loop)
    whole = found.largest.of.buffer
    part = find_block(fn, made.second)
    (piece,) = (i.var for i in part.iters if i.value is loop)
    body = at_pieces(part.body, whole, made.local, piece)
    fn = replace(fn, part, with_regions(_replace(part, body=body)))
    final = find_block(fn, block.label)
    rescaled = _rescaled(final, found.exponent, whole, made.local)
    return replace(fn, final, rescaled), (made.first, made.second)


def _rescaled(block: Block, exponent: Exponent, whole: Buffer, pieces: Buffer) -> Block:
    """The combination of the pieces of a sum, each made relative to the maximum of the row."""
    found = match_reduction(block)
    assert found is not None
    own = at_pieces(exponent.shift, whole, pieces, block.iters[-1].var)
    # What is -inf throughout has no difference to its maximum: the sum of the piece is NaN.
    empty = binary(Op.EQ, own, const(float("-inf"), own.dtype))
    total = select(empty, const(1.0, found.value.dtype), found.value)
    value = binary(Op.MUL, total, call("exp", exponent.of(own, exponent.shift)))
    return adding(block, found.place, value)


class Kept(NamedTuple):
    """Exponentials that `block` stores at `indices`, rows along `axis`."""

    block: Block
    buffer: Buffer
    indices: tuple[Expr, ...]
    exponent: Exponent
    axis: int

    def read_at(self, indices: tuple[Expr, ...]) -> dict[Var, Expr]:
        """The values of the block's variables for a read at `indices`."""
        return {v: e for v, e in zip(self.indices, indices, strict=True) if isinstance(v, Var)}


class _Sum(NamedTuple):
    """A sum of `terms` of what is kept, `at` indices, times something else.

    `loop` counts `number` pieces of `length` elements; `rest`, of the other loops, is the place in
    one.
    """

    block: Block
    nest: list[For]
    loop: Var
    terms: Dim
    number: Dim
    at: tuple[Expr, ...]
    length: Dim
    rest: Expr


def kept_exponentials(fn: Func, block: Block) -> Kept | None:
    """The block that keeps the exponentials which `block` sums, if there is one."""
    matched = match_reduction(block)
    source = None if matched is None else matched.value
    if type(source) is not Load:
        return None
    writers = writers_of(fn, source.buffer)
    body = writers[0].body if len(writers) == 1 else None
    exponent = exponent_of(body.value) if type(body) is Store else None
    reduced = {i.var for i in block.iters if i.kind is IterKind.REDUCE}
    axes = [d for d, e in enumerate(source.indices) if type(e) is Var and e in reduced]
    if exponent is None or len(axes) != 1:
        return None
    assert type(body) is Store
    return Kept(writers[0], body.buffer, body.indices, exponent, axes[0])


def sums_in_pieces(fn: Func, kept: Kept, loops: Sequence[Var]) -> tuple[Func, tuple[Label, ...]]:
    """Sum stored exponentials relative to the maximum of each piece; see `online_softmax`."""
    blocks = [sole_block(find_loop(fn, v)) for v in loops]
    _require_kept(fn, kept, blocks)
    first = blocks[0]
    seen = _inlined(kept, first)
    found = exponentials(fn, seen)
    for b in blocks:
        require_unit(fn, b)
    own_nest(fn, kept.block)
    sums = [_sum(fn, kept, b, v) for b, v in zip(blocks, loops, strict=True)]
    for s in sums[1:]:
        require(
            certain(s.terms == sums[0].terms) and certain(s.length == sums[0].length),
            "block {0} sums {1} elements in pieces of {2}, and block {3} {4} in pieces of {5}",
            first.label.name,
            sums[0].terms,
            sums[0].length,
            s.block.label.name,
            s.terms,
            s.length,
            at=s.loop,
        )

    fn, made = in_pieces(fn, found.largest, first, sums[0].loop)
    highest, local = made.first, made.local
    parts = [made.second]
    for s in sums[1:]:
        fn, part = rfactor(fn, s.loop, 0)
        parts.append(part)
    fn, scale = _scaled(fn, found, local, sums[0])
    fn, pieces = _kept_in_pieces(fn, kept, found, local, sums[0])
    for s, label in zip(sums, parts, strict=True):
        of = find_block(fn, label)
        (number,) = (i.var for i in of.iters if i.value is s.loop)
        body = _from_pieces(of.body, kept, pieces, number)
        fn = replace(fn, of, with_regions(_replace(of, body=body)))
        final = find_block(fn, s.block.label)
        fn = replace(fn, final, _rescaled_sum(final, kept, s, scale[1]))
    return without_buffers(fn, {kept.buffer}), (highest, scale[0], *parts)


def _require_kept(fn: Func, kept: Kept, sums: Sequence[Block]) -> None:
    """Require that the exponentials are stored completely, and for `sums` alone."""
    block = kept.block
    require_unit(fn, block)
    places = [e for e in kept.indices if type(e) is Var]
    variables = {i.var for i in block.iters}
    require(
        kept.buffer in fn.allocs
        and block.predicate is None
        and len(places) == len(variables) == len(variables.intersection(places))
        and type(kept.indices[kept.axis]) is Var,
        "block {0} does not store exponentials in an internal buffer, at its plain iteration "
        "variables",
        block.label,
    )
    labels = [b.label for b in sums]
    others = [b.label.name for b in readers_of(fn, {kept.buffer}) if b.label not in set(labels)]
    require(
        not others,
        "the exponentials {0} are read by block {1} as well, whose loop of pieces is not given",
        kept.buffer.name,
        lambda: ", ".join(others),
        at=block.label,
        hint="compute_inline puts the exponentials into the sum",
    )
    for n, label in enumerate(labels):
        require(label not in set(labels[:n]), "two of the loops are of block {0}", label)


def _inlined(kept: Kept, block: Block) -> Block:
    """The sum of stored exponentials, as one of exponentials that it computes itself."""
    matched = match_reduction(block)
    assert matched is not None
    assert type(matched.value) is Load
    exponent = kept.exponent
    value = call("exp", exponent.of(exponent.x, exponent.shift))
    return adding(block, matched.place, substitute(value, kept.read_at(matched.value.indices)))


def _sum(fn: Func, kept: Kept, block: Block, loop: Var) -> _Sum:
    """The sum that `block` computes in the pieces that `loop` counts."""
    label = block.label
    matched = match_reduction(block, "sum")
    at = require_some(
        None if matched is None else _factor(matched.value, kept.buffer),
        "block {0} must sum elements of {1}, or products of one with what is free of it",
        label,
        kept.buffer.name,
    )
    require_terms(block)
    reduced = {i.var: i for i in block.iters if i.kind is IterKind.REDUCE}
    key = at[kept.axis]
    alone = all(free_vars(e).isdisjoint(reduced) for d, e in enumerate(at) if d != kept.axis)
    row = require_some(
        reduced.get(key) if isinstance(key, Var) and alone else None,
        "block {0} does not sum along the rows of {1}",
        label,
        kept.buffer.name,
    )
    loops = own_nest(fn, block)
    ranges = loop_ranges(loops)
    parts = linear(row.value, [loop], ranges)
    length, rest = (None, const(0)) if parts is None else (
        parts.coefficients.get(loop), parts.constant)  # fmt: skip
    require(
        length is not None
        and prove(rest >= 0, ranges) is True
        and prove(rest < length, ranges) is True,
        "loop {0} does not count pieces of the rows that block {1} sums",
        loop,
        label.name,
        hint="split the loop along the row, and give the outer part",
    )
    assert length is not None
    return _Sum(block, loops, loop, row.extent, find_loop(fn, loop).extent, at, length, rest)


def _factor(e: Expr, buffer: Buffer) -> tuple[Expr, ...] | None:
    """The indices at which a product has an element of `buffer` as a factor, once."""
    if type(e) is Load and e.buffer is buffer:
        return e.indices
    if type(e) is Binary and e.op is Op.MUL:
        for one, other in ((e.a, e.b), (e.b, e.a)):
            if not reads_from(other, {buffer}):
                return _factor(one, buffer)
    return None


def _scaled(
    fn: Func, found: Exponentials, local: Buffer, first: _Sum
) -> tuple[Func, tuple[Label, Buffer]]:
    """A nest that computes the scales of the sums of pieces; its label and its buffer."""
    final = find_block(fn, found.largest.block.label)
    number = Var(f"v{first.loop.name}")
    spatial = [i for i in final.iters if i.kind is IterKind.SPATIAL]
    fresh = {i.var: Var(i.var.name) for i in spatial}
    at = tuple(substitute(e, fresh) for e in found.largest.of.indices)
    own, whole = (
        _of_maximum(found.exponent.shift, e)
        for e in (load(local, (*at, number)), load(found.largest.of.buffer, at))
    )
    value = call("exp", found.exponent.of(own, whole))
    buffer = Buffer(f"{found.largest.of.buffer.name}_scale", local.shape, value.dtype)
    axes = [(loop_name(i.var), fresh[i.var], i.extent) for i in spatial]
    axes.append((first.loop.name, number, first.number))
    label = Label(buffer.name)
    scales = spatial_nest(label, axes, Store(buffer, (*at, number), value))
    fn = insert_top(fn, top_position(fn, final.label) + 1, scales, buffer)
    return fn, (label, buffer)


def _of_maximum(shift: Any, largest: Expr) -> Any:
    """A shift with `largest` in the place of the maximum that it is made of."""
    if type(shift) is Load:
        return largest
    return rewrite_children(shift, lambda n: _of_maximum(n, largest))


def _kept_in_pieces(
    fn: Func, kept: Kept, found: Exponentials, local: Buffer, first: _Sum
) -> tuple[Func, Buffer]:
    """Keep exponentials relative to the maxima of pieces, in loops like those of the first sum."""
    loops = {s.var: Var(s.var.name) for s in first.nest}
    values = {i.var: i.value for i in first.block.iters}
    read = kept.read_at(first.at)
    key = kept.indices[kept.axis]
    assert type(key) is Var
    number, within = Var(f"v{first.loop.name}"), Var(key.name)
    iters: list[Iter] = []
    for i in kept.block.iters:
        if i.var is key:
            rest = substitute(first.rest, loops)
            iters.append(Iter(number, first.number, IterKind.SPATIAL, loops[first.loop]))
            iters.append(Iter(within, first.length, IterKind.SPATIAL, rest))
        else:
            value = substitute(substitute(read[i.var], values), loops)
            iters.append(_replace(i, value=value))
    axis = kept.axis
    shape = kept.buffer.shape
    buffer = Buffer(
        f"{kept.buffer.name}_rf",
        (first.number, *shape[:axis], first.length, *shape[axis + 1 :]),
        kept.buffer.dtype,
    )
    exponent = kept.exponent
    own = at_pieces(exponent.shift, found.largest.of.buffer, local, number)
    # What is -inf throughout has no difference to its maximum: its exponentials are zero.
    empty = binary(Op.EQ, own, const(float("-inf"), own.dtype))
    shift = select(empty, const(0.0, own.dtype), own)
    x = substitute(exponent.x, {key: number * first.length + within})
    indices = (number, *kept.indices[:axis], within, *kept.indices[axis + 1 :])
    body = Store(buffer, indices, call("exp", exponent.of(x, shift)))
    guard = first.block.predicate
    block = with_regions(
        _replace(
            kept.block,
            iters=tuple(iters),
            body=body,
            predicate=None if guard is None else substitute(guard, loops),
        )
    )
    fn = replace_top(fn, kept.block.label, nest_like(first.nest, block, loops))
    return _replace(fn, allocs=(*fn.allocs, buffer)), buffer


def _from_pieces(node: Any, kept: Kept, pieces: Buffer, number: Var) -> Any:
    """`node`, in which the piece is `number`, with the elements of `pieces` for those kept."""

    def moved(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        parts = linear(indices[kept.axis], [number])
        assert parts is not None
        return (number, *indices[: kept.axis], parts.constant, *indices[kept.axis + 1 :])

    return redirected(node, {kept.buffer: (pieces, moved)})


def _rescaled_sum(block: Block, kept: Kept, found: _Sum, scale: Buffer) -> Block:
    """The combination of the pieces of a sum, each made relative to the maximum of the row."""
    matched = match_reduction(block)
    assert matched is not None
    largest = maximum_in(kept.exponent.shift)
    assert largest is not None
    at = [substitute(e, kept.read_at(found.at)) for e in largest.indices]
    value = binary(Op.MUL, matched.value, load(scale, (*at, block.iters[-1].var)))
    return adding(block, matched.place, value)
