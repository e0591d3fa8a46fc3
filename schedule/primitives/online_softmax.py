"""Online softmax: `online_softmax`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace as _replace

from ...tir.ir import (
    Block,
    Buffer,
    Func,
    Label,
    Op,
    Var,
    binary,
    call,
    const,
    select,
)
from ..block_queries import with_regions
from ..edits import adding
from ..find import find_block, find_loop, replace
from ..primitive import primitive
from ..reduction_blocks import match_reduction
from ..require import require
from .exponentials import Exponent, at_pieces, exponentials
from .kept import kept_exponentials, sums_in_pieces
from .pieces import in_pieces
from .reduction import sole_block


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
        block.label.name,
        at=block.label,
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
