"""Padding sums of products: `pad_einsum`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace as _replace
from typing import Any, NamedTuple

from ...base import dtypes
from ...tir.bounds import bound, prove
from ...tir.ir import (
    Binary,
    Block,
    Buffer,
    Cast,
    Dim,
    Expr,
    For,
    Func,
    IterKind,
    Label,
    Load,
    Op,
    Stmt,
    Store,
    Var,
    as_expr,
    binary,
    ceildiv,
    const,
    load,
    select,
    seq,
)
from ...tir.structure import conjunction, conjuncts, key_of
from ...tir.visit import rewrite_children, walk
from ..available import require_still_concurrent
from ..block_queries import (
    free_vars,
    nest_like,
    require_unit,
    with_regions,
)
from ..find import find_block, find_path
from ..places import spatial_nest
from ..primitive import primitive
from ..reduction_blocks import match_reduction
from ..require import certain, require, require_some
from .cached_copies import (
    copy_block,
    is_whole,
    replace_top,
    require_written_before,
    top_position,
    top_statements,
    written_elements,
)
from .loops import require_serial

PADDING = 64
"""At most how many times as many iterations a padded loop may have."""


@primitive
def pad_einsum(
    fn: Func, block: Label, padding: Sequence[Dim], always: bool = False
) -> tuple[Func, tuple[Label, ...]]:
    """Pad the extents of a sum of products to multiples of `padding`, by copies with zeros.

        pad_einsum(block, [1, 1, 4]):
        for i, j, k in 10: C[i, j] += A[i, k] * B[k, j]
          ->  for i, k in 12: A_pad[i, k] = select(k < 10, A[i, k], 0)
              for k in 12, j: B_pad[k, j] = select(k < 10, B[k, j], 0)
              for i, j, k in 12: C[i, j] += A_pad[i, k] * B_pad[k, j]

    `padding` has a number for each iteration variable of the block, in order; 1 means no padding.
    Copies are made where a number does not divide its extent; with `always`, where it is not 1, and
    it may be a decision that is open.
    Padded dimensions must be indexed by plain iteration variables, except for windows: an input
    indexed by `x + k` grows by as many elements as `x`, unless `x` is a reduce variable. Inputs
    grow only at their ends: one indexed by `9 - x` is refused where `x` reaches 10. If dimensions
    of the result are padded, the block computes into an internal buffer, and the unpadded part is
    copied out. Returns the labels of the copying blocks, that of the result last.
    """
    found = find_block(fn, block)
    position = top_position(fn, block)
    top = top_statements(fn)[position]
    require_unit(fn, found)
    path = find_path(top, block) or ()
    loops = [s for s in path if type(s) is For]
    padded = _padded_iters(found, loops, padding, always=always)
    if not padded:
        return fn, ()
    require(
        len(loops) == len(path) - 1,
        "there are other statements than loops around block {0} in its nest",
        block,
        hint="pad_einsum comes before compute_at moves the blocks into one nest",
    )
    _require_sum_of_products(found, padded)
    moves = _moves(found, padded, fn.allocs)
    update = _moved(found.body, padded, moves)
    init = None if found.init is None else _moved(found.init, padded, moves)
    iters = tuple(
        _replace(i, extent=padded[i.var].extent) if i.var in padded else i for i in found.iters
    )
    sums = with_regions(_replace(found, iters=iters, body=update, init=init))
    new = nest_like(loops, sums, extents={p.loop: p.extent for p in padded.values()})
    results = {r.buffer for r in found.writes}
    ins = [_copy_in(fn, found, m, position) for m in moves.values() if m.old not in results]
    outs = [
        copy_block(f"{m.old.name}_crop", m.new, m.old, written_elements(fn, m.old))
        for m in moves.values()
        if m.old in results
    ]
    made = [s for s, _ in ins] + [new] + [s for s, _ in outs]
    fn = replace_top(fn, block, seq(*made))
    fn = _replace(fn, allocs=(*fn.allocs, *(m.new for m in moves.values())))
    require_still_concurrent(fn, (block,))
    return fn, tuple(label for _, label in (*ins, *outs))


class _Padded(NamedTuple):
    """An iteration variable that is padded: its loop, its extent before and after."""

    loop: Var
    inside: int
    extent: Dim


def _padded_iters(
    block: Block, loops: Sequence[For], padding: Sequence[Dim], *, always: bool
) -> dict[Var, _Padded]:
    """The iteration variables whose extents grow. Their loops must be theirs alone."""
    require(
        len(padding) == len(block.iters),
        "{0} paddings for the {1} iteration variables of block {2} ({3})",
        len(padding),
        len(block.iters),
        block.label,
        lambda: ", ".join(i.var.name for i in block.iters),
        hint="a multiple for each, 1 for none",
    )
    found: dict[Var, _Padded] = {}
    own = {s.var: s for s in loops}
    for i, p in zip(block.iters, padding, strict=True):
        require(
            (always or isinstance(p, int)) and isinstance(i.extent, int),
            "padding {0} for an extent of {1}: which copies are made is open",
            p,
            i.extent,
            at=block.label,
            hint="give a number, such as the largest that is sampled, or have copies made `always`",
        )
        assert isinstance(i.extent, int)
        require(p >= 1, "padding {0} is not positive", p, at=block.label)
        require(
            isinstance(p, int) or p > 1,
            "padding {0} may be 1, for which no copies are made",
            p,
            at=block.label,
        )
        extent = ceildiv(i.extent, p) * p
        if p == 1 if always and isinstance(p, int) else certain(extent == i.extent):
            continue
        require(
            p <= PADDING * i.extent,
            "padding {0} for an extent of {1}; at most {2} times as much",
            p,
            i.extent,
            PADDING,
            at=block.label,
        )
        loop = own.get(i.value) if type(i.value) is Var else None
        used = [x for x in block.iters if x is not i and loop and loop.var in free_vars(x.value)]
        guarded = loop and any(loop.var in free_vars(c) for c in conjuncts(block.predicate))
        loop = require_some(
            loop
            if loop and not used and not guarded and certain(loop.extent == i.extent)
            else None,
            "{0} of block {1} is {2}; expected a loop of its own with {3} iterations",
            i.var.name,
            block.label,
            i.value,
            i.extent,
            hint="pad_einsum comes before split, fuse and other steps that change the loops",
        )
        require_serial(loop, "pad it")
        found[i.var] = _Padded(loop.var, i.extent, extent)
    return found


def _require_sum_of_products(block: Block, padded: dict[Var, _Padded]) -> None:
    """Require that padding adds zero to the block's results."""
    reduction = require_some(match_reduction(block, "sum"), "block {0} must be a sum", block.label)
    loads = list(_factors(reduction.value, block))
    kinds = {i.var: i.kind for i in block.iters}
    places = {e for e in reduction.indices if type(e) is Var}
    for v in (v for v in padded if kinds[v] is IterKind.SPATIAL):
        require(
            v in places,
            "{0} does not index {1}; what is padded would be summed again",
            v.name,
            reduction.buffer.name,
            at=block.label,
        )
    for v in (v for v in padded if kinds[v] is IterKind.REDUCE):
        zero = [any(v in free_vars(e) for e in n.indices) for n in loads]
        exact = not any(dtypes.is_float(n.dtype) for n in loads)
        without = [n.buffer.name for n, z in zip(loads, zero, strict=True) if not z]
        require(
            all(zero) or (exact and any(zero)),
            "{0} is not padded along {1}: zero times its elements need not be zero",
            lambda w=without: ", ".join(w),
            v.name,
            at=block.label,
            hint="infinity times zero is not zero; only factors that run along the sum are padded",
        )


def _factors(value: Expr, block: Block) -> Iterator[Load]:
    """The loads whose product `value` is."""
    match value:
        case Load():
            yield value
        case Cast():
            yield from _factors(value.value, block)
        case Binary(op=Op.MUL):
            yield from _factors(value.a, block)
            yield from _factors(value.b, block)
        case _:
            require(False, "block {0} must sum products of elements, found {1}", block.label, value)


class _Grown(NamedTuple):
    """A dimension that is padded: how much of it is copied, and its size with zeros."""

    inside: Dim
    extent: Dim


class _Move(NamedTuple):
    """A buffer, the padded one in its place, and how each dimension is padded."""

    old: Buffer
    new: Buffer
    dims: tuple[_Grown | None, ...]


def _moves(
    block: Block, padded: Mapping[Var, _Padded], internal: Collection[Buffer]
) -> dict[object, _Move]:
    """The padded buffers that `block` needs, by `_key` of the accesses made to them."""
    found: dict[object, _Move] = {}
    roots = [block.body] if block.init is None else [block.init, block.body]
    accesses = [n for root in roots for n in walk(root) if type(n) is Load or type(n) is Store]
    # Indices that are read come first: what they are padded with is an index, too.
    for n in reversed(accesses):
        old, key = n.buffer, _key(n, padded)
        dims = tuple(_grown(block, n, d, padded, found, internal) for d in range(len(old.shape)))
        if any(dims) and key not in found:
            sizes = tuple(
                n if p is None else p.extent for n, p in zip(old.shape, dims, strict=True)
            )
            limits = old.value_range
            values = None if limits is None else (min(limits[0], 0), max(limits[1], 1))
            new = Buffer(f"{old.name}_pad", sizes, old.dtype, value_range=values)
            found[key] = _Move(old, new, dims)
    keys = dict.fromkeys(_key(n, padded) for n in accesses)
    return {key: found[key] for key in keys if key in found}


def _grown(
    block: Block,
    access: Load | Store,
    d: int,
    padded: Mapping[Var, _Padded],
    moves: Mapping[object, _Move],
    internal: Collection[Buffer],
) -> _Grown | None:
    """How the dimension of an access is padded. `moves` are those of accesses in its indices."""
    e, size = access.indices[d], access.buffer.shape[d]
    if type(e) is Var:
        p = padded.get(e)
        return None if p is None else _Grown(p.inside, p.extent)
    moving = free_vars(e) & padded.keys()
    if not moving:
        return None
    spatial = all(i.kind is IterKind.SPATIAL for i in block.iters if i.var in moving)
    # Of digits, `x // 2` and `x % 2`, each may stay in its dimension where both together do not.
    digits = any(type(n) is Binary and n.op in (Op.FLOORDIV, Op.MOD) for n in walk(e))
    extents = {i.var: i.extent for i in block.iters} | {v: q.extent for v, q in padded.items()}
    ranges = {v: (0, n - 1) for v, n in extents.items()}
    index = _moved(e, padded, moves)
    first, last = bound(index, ranges)
    require(
        spatial
        and type(access) is Load
        and isinstance(last, int)
        and not (digits and access.buffer in internal),
        "{0} is indexed by {1}; what is padded must be indexed by plain iteration variables, or by "
        "windows of those that are not summed over",
        access.buffer.name,
        e,
        at=block.label,
    )
    require(
        prove(binary(Op.GE, index, 0), ranges) is True,
        "{0} is indexed by {1}, which could be {2} with padding; inputs are padded at their ends "
        "only, for indices from 0 on",
        access.buffer.name,
        e,
        "anything" if first is None else first,
        at=block.label,
        hint="pad iteration variables that only move indices up",
    )
    assert isinstance(last, int)
    return None if certain(size > last) else _Grown(size, last + 1)


def _key(access: Load | Store, padded: Mapping[Var, _Padded]) -> object:
    """The key of accesses that share a padded buffer: the buffer, and its padding."""
    along = (None if free_vars(e).isdisjoint(padded) else key_of(e) for e in access.indices)
    return (access.buffer, *along)


def _moved(n: Any, padded: Mapping[Var, _Padded], moves: Mapping[object, _Move]) -> Any:
    """A part of the block with its accesses made to the padded buffers."""
    if type(n) is Buffer:
        return n
    new = rewrite_children(n, lambda c: _moved(c, padded, moves))
    move = moves.get(_key(n, padded)) if type(n) is Load or type(n) is Store else None
    if move is None:
        return new
    if type(new) is Load:
        return load(move.new, new.indices)
    return Store(move.new, new.indices, new.value)


def _copy_in(fn: Func, block: Block, move: _Move, position: int) -> tuple[Stmt, Label]:
    """The nest that copies an input and surrounds it with zeros, and the label of its block."""
    require_written_before(fn, move.old, position, block)
    require(
        is_whole(written_elements(fn, move.old), move.old),
        "it cannot be shown that all of {0} is written",
        move.old.name,
        at=block.label,
    )
    axes = [(f"p{d}", Var(f"v{d}"), n) for d, n in enumerate(move.new.shape)]
    indices = tuple(v for _, v, _ in axes)
    inside = conjunction(
        [v < as_expr(p.inside) for v, p in zip(indices, move.dims, strict=True) if p is not None]
    )
    assert inside is not None
    value = select(inside, load(move.old, indices), const(0, move.old.dtype))
    label = Label(move.new.name)
    return spatial_nest(label, axes, Store(move.new, indices, value)), label
