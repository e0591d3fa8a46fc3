"""Online variance: `online_variance`."""

from __future__ import annotations

from typing import NamedTuple

from ...tir.bounds import prove
from ...tir.combiners import Place
from ...tir.ir import (
    Binary,
    Block,
    Buffer,
    Const,
    Expr,
    For,
    Func,
    IterKind,
    Label,
    Load,
    Op,
    Store,
    Var,
    as_expr,
    binary,
    cast,
    const,
    load,
    product,
)
from ...tir.structure import conjuncts, same
from ...tir.visit import substitute
from ..block_queries import feeding, free_vars, has_reduction, loop_ranges, writers_of
from ..find import find_block, find_loop, loops_above, replace
from ..places import adding
from ..primitive import primitive
from ..reduction_blocks import match_reduction, reduction_into
from ..require import require, require_some
from .cached_copies import top_position
from .pieces import Statistic, in_pieces
from .reduction import sole_block

ROUNDED = 1e-6
"""By how much the inverse of a number of terms may be off, of 1, as a float32."""


@primitive
def online_variance(fn: Func, loop: Var) -> tuple[Func, tuple[Label, Label]]:
    """Compute a mean and a sum of squared distances from it piece by piece, in one pass.

        online_variance(k_0):
        for k: T[] += X[k]
        M[] = T[] / 32
        for k_0, k_1: S[] += (X[k_0 * 8 + k_1] - M[]) * (X[k_0 * 8 + k_1] - M[])
          ->  for k_0, k_1: T_rf[k_0] += X[k_0 * 8 + k_1]
              for k_0: T[] += T_rf[k_0]
              M[] = T[] / 32
              for k_0, k_1: d = X[k_0 * 8 + k_1] - T_rf[k_0] / 8; S_rf[k_0] += d * d
              for k_0: d = T_rf[k_0] / 8 - M[]; S[] += S_rf[k_0] + d * d * 8

    `loop` is a loop of the sum of squares and counts the pieces; the last may be shorter. The
    squares no longer wait for the mean of the row: `reverse_compute_at` moves the squares of a
    piece to where its sum is computed, so that a row is read once. The mean is a block of its own,
    or inlined into the squares. Both nests must be separate from other blocks; the sum gets the
    loops of the squares. Where sums of floats overflow, an infinite result may become NaN. Returns
    the labels of the blocks of the pieces, the sum first; the old handles stay with the
    combinations. Chan, Golub & LeVeque, "Updating formulae and a pairwise algorithm for computing
    sample variances", 1982.
    """
    counted = find_loop(fn, loop)
    block = sole_block(counted)
    squares, total = _about_mean(fn, block)
    before = fn
    fn, made = in_pieces(fn, total, block, loop)
    count = _elements(before, block, counted)
    fn = _about_own_mean(fn, made.second, made.local, loop, count)
    fn = _combined(fn, block.label, squares, Place(made.local, total.at), loop, count)
    return fn, (made.first, made.second)


class _Squares(NamedTuple):
    """The sum of (value - mean) * (value - mean)."""

    place: Place
    value: Expr
    mean: Expr


def _squares(fn: Func, block: Block) -> tuple[_Squares, _Mean] | None:
    """The squares of distances from a mean, whichever of the two is subtracted from the other."""
    found = match_reduction(block, "sum")
    if found is None:
        return None
    square = found.value
    if type(square) is not Binary or square.op is not Op.MUL or not same(square.a, square.b):
        return None
    distance = square.a
    if type(distance) is not Binary or distance.op is not Op.SUB:
        return None
    for value, middle in ((distance.a, distance.b), (distance.b, distance.a)):
        mean = _mean(fn, middle)
        if mean is not None:
            return _Squares(found.place, value, middle), mean
    return None


class _Mean(NamedTuple):
    """A sum over a number of terms. `last` is the block that computes it, unless it is inlined."""

    total: Load
    terms: float
    last: Block | None


def _mean(fn: Func, e: Expr) -> _Mean | None:
    """The sum and count of which `e` is the mean."""
    last: Block | None = None
    if type(e) is Load:
        writers = writers_of(fn, e.buffer)
        last = writers[0] if len(writers) == 1 else None
        store = None if last is None else last.body
        if last is None or type(store) is not Store or has_reduction(last):
            return None
        indices = {v: at for v, at in zip(store.indices, e.indices, strict=True) if type(v) is Var}
        if len(indices) < len(last.iters) or any(i.var not in indices for i in last.iters):
            return None
        e = substitute(store.value, indices)
    if type(e) is not Binary or e.op not in (Op.DIV, Op.MUL):
        return None
    total, number = (e.b, e.a) if type(e.a) is Const and e.op is Op.MUL else (e.a, e.b)
    if type(total) is not Load or type(number) is not Const or not number.value > 0:
        return None
    terms = float(number.value)
    if e.op is Op.MUL:  # with the inverse of the number of terms, rounded
        terms = float(round(1 / terms))
        if abs(terms * float(number.value) - 1) > ROUNDED:
            return None
    return _Mean(total, terms, last)


def _about_mean(fn: Func, block: Block) -> tuple[_Squares, Statistic]:
    """The squares that `block` sums, and the sum whose mean they are about."""
    squares, mean = require_some(
        _squares(fn, block),
        "block {0} must sum (x - m) * (x - m), where m is a sum divided by a constant, in a block "
        "of its own or here",
        block.label,
    )
    first, found = require_some(
        reduction_into(fn, mean.total.buffer, "sum"),
        "{0}, whose mean block {1} subtracts, is no sum that one block computes",
        mean.total.buffer.name,
        block.label,
    )
    terms = product([i.extent for i in block.iters if i.kind is IterKind.REDUCE])
    require(
        mean.terms == terms,
        "the mean that block {0} subtracts is a sum over {1}, of {2} terms",
        block.label,
        mean.terms,
        terms,
    )
    order = [first, *([mean.last] if mean.last else []), block]
    places = [top_position(fn, b.label) for b in order]
    require(
        places == sorted(places),
        "block {0} comes before the mean that it subtracts",
        block.label,
    )
    return squares, Statistic("sum", first, found, squares.value, mean.total.indices)


def _elements(fn: Func, block: Block, loop: For) -> Expr:
    """How many elements the iterations of `loop` have each; it is one of the reduction's."""
    reduce = feeding(block, IterKind.REDUCE)
    around = [s for s in loops_above(fn, block.label) if s.var in reduce and s is not loop]
    guards = [c for c in conjuncts(block.predicate) if free_vars(c) & reduce]
    if not guards:
        return as_expr(product([s.extent for s in around]))
    follows = next(
        i for i in block.iters if i.kind is IterKind.REDUCE and loop.var in free_vars(i.value)
    )
    used = free_vars(follows.value)
    step = as_expr(product([s.extent for s in around if s.var in used]))
    first = binary(Op.MUL, loop.var, step)
    require(
        len(guards) == 1
        and same(guards[0], follows.value < follows.extent)
        and prove(follows.value >= first, loop_ranges([*around, loop])) is True,
        "how many elements the iterations of loop {0} have is not known",
        loop.var,
        hint="choose factors that divide the extent, or give the outermost loop of one split",
    )
    left = binary(Op.MIN, step, binary(Op.SUB, as_expr(follows.extent), first))
    return binary(Op.MUL, left, as_expr(product([s.extent for s in around if s.var not in used])))


def _about_own_mean(fn: Func, label: Label, sums: Buffer, loop: Var, count: Expr) -> Func:
    """The squares of pieces, which have `count` elements, about the means of the pieces."""
    block = find_block(fn, label)
    matched = _squares(fn, block)
    assert matched is not None
    squares, mean = matched
    (piece,) = (i.var for i in block.iters if i.value is loop)
    size = _number(count, loop, piece, squares.mean.dtype)
    own = binary(Op.DIV, load(sums, (*mean.total.indices, piece)), size)
    distance = binary(Op.SUB, squares.value, own)
    return replace(fn, block, adding(block, squares.place, binary(Op.MUL, distance, distance)))


def _combined(fn: Func, label: Label, was: _Squares, at: Place, loop: Var, count: Expr) -> Func:
    """The sum of the pieces' squares, made about the mean of the row."""
    block = find_block(fn, label)
    found = match_reduction(block)
    assert found is not None
    piece = block.iters[-1].var
    size = _number(count, loop, piece, was.mean.dtype)
    own = binary(Op.DIV, load(at.buffer, (*at.indices, piece)), size)
    distance = binary(Op.SUB, own, was.mean)
    moved = binary(Op.MUL, binary(Op.MUL, distance, distance), size)
    return replace(fn, block, adding(block, was.place, binary(Op.ADD, found.value, moved)))


def _number(count: Expr, loop: Var, piece: Var, dtype: str) -> Expr:
    """`count` for `piece`, as a number of `dtype`."""
    if type(count) is Const:
        return const(float(count.value), dtype)
    return cast(dtype, substitute(count, {loop: piece}))
