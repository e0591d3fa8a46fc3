"""Sums of exponentials together with their maximum: `online_softmax`."""

from __future__ import annotations

from dataclasses import replace as _replace
from typing import Any, NamedTuple

from ...tir.ir import (
    Binary,
    Block,
    Buffer,
    Call,
    Cast,
    Expr,
    Func,
    Label,
    Load,
    Op,
    Var,
    binary,
    call,
    const,
    load,
    select,
)
from ...tir.reduction import COMBINERS, Place, lowest, update
from ...tir.structure import same
from ...tir.visit import rewrite_children
from ..blocks import with_regions, writers_of
from ..find import find_block, find_loop, replace
from ..primitive import primitive
from ..reductions import match_reduction
from ..require import require
from .pieces import Statistic, in_pieces, in_variables_of
from .reduction import sole_block


@primitive
def online_softmax(fn: Func, loop: Var) -> tuple[Func, tuple[Label, Label]]:
    """Sum exponentials relative to the maximum of each piece of a row, and find that with it.

        online_softmax(k_0):
        for k: M[] = max(M[], X[k])
        for k_0, k_1: S[] += exp(X[k_0 * 8 + k_1] - M[])
          ->  for k_0, k_1: M_rf[k_0] = max(M_rf[k_0], X[k_0 * 8 + k_1])
              for k_0: M[] = max(M[], M_rf[k_0])
              for k_0, k_1: S_rf[k_0] += exp(X[k_0 * 8 + k_1] - M_rf[k_0])
              for k_0: S[] += select(M_rf[k_0] == -inf, 1, S_rf[k_0]) * exp(M_rf[k_0] - M[])

    `loop` is one of the sum's, and counts the pieces. The sum no longer waits for the maximum of
    the row: `reverse_compute_at` moves that of a piece to where its maximum is found, so that a
    row is read once. Both nests must be apart from other blocks; the maximum gets the loops of the
    sum. A piece that is -inf throughout counts as nothing, or as NaN where the row is that. Gives
    the labels of the blocks of the pieces, the maximum first; the old handles stay with the
    combinations. Milakov & Gimelshein, arXiv:1805.02867.
    """
    block = sole_block(find_loop(fn, loop))
    found = _exponentials(fn, block)
    fn, made = in_pieces(fn, found.largest, block, loop)
    whole = found.largest.of.buffer
    part = find_block(fn, made.second)
    (piece,) = (i.var for i in part.iters if i.value is loop)
    body = _at_pieces(part.body, whole, made.local, piece)
    fn = replace(fn, part, with_regions(_replace(part, body=body)))
    final = find_block(fn, block.label)
    rescaled = _rescaled(final, found.shift, whole, made.local)
    return replace(fn, final, rescaled), (made.first, made.second)


class _Exponentials(NamedTuple):
    """A sum of exp(x - shift), where `shift` is the maximum of the row in the dtype of x."""

    largest: Statistic
    shift: Expr


def _exponentials(fn: Func, block: Block) -> _Exponentials:
    label = block.label
    found = match_reduction(block)
    value = None if found is None else found.value
    inner = value.args[0] if type(value) is Call and value.fn == "exp" else None
    shift = inner.b if type(inner) is Binary and inner.op is Op.SUB else None
    largest = shift.value if type(shift) is Cast else shift
    require(
        found is not None and found.combiner.name == "sum" and type(largest) is Load,
        "block {0} must sum exp(x - m), with a maximum m from a buffer",
        label.name,
        at=label,
        hint="compute_inline puts the exponentials into the sum",
    )
    assert type(inner) is Binary
    assert shift is not None
    assert type(largest) is Load
    require(
        lowest(shift.dtype).value == float("-inf"),
        "the exponentials of block {0} are of {1}, which has no infinity",
        label.name,
        shift.dtype,
        at=label,
    )
    writers = writers_of(fn, largest.buffer)
    matched = match_reduction(writers[0]) if len(writers) == 1 else None
    require(
        matched is not None and matched.combiner.name == "max",
        "what block {0} subtracts, {1}, is no maximum that one block computes",
        label.name,
        largest.buffer.name,
        at=label,
    )
    assert matched is not None
    x = inner.a
    if type(x) is Cast and not same(in_variables_of(block, writers[0], matched.value), x):
        x = x.value
    statistic = Statistic("maximum", writers[0], matched, x, largest.indices)
    return _Exponentials(statistic, shift)


def _at_pieces(node: Any, whole: Buffer, pieces: Buffer, piece: Var) -> Any:
    """`node` with the elements of `pieces` in the place of those of `whole`."""
    if type(node) is Load and node.buffer is whole:
        return load(pieces, (*node.indices, piece))
    return rewrite_children(node, lambda n: _at_pieces(n, whole, pieces, piece))


def _rescaled(block: Block, shift: Expr, whole: Buffer, pieces: Buffer) -> Block:
    """The combination of the pieces of a sum, each made relative to the maximum of the row."""
    found = match_reduction(block)
    assert found is not None
    own = _at_pieces(shift, whole, pieces, block.iters[-1].var)
    # What is -inf throughout has no difference to its maximum: the sum of the piece is NaN.
    empty = binary(Op.EQ, own, const(float("-inf"), own.dtype))
    total = select(empty, const(1.0, found.value.dtype), found.value)
    value = binary(Op.MUL, total, call("exp", binary(Op.SUB, own, shift)))
    place = Place(found.buffer, found.indices)
    body = update(COMBINERS["sum"], [place], [load(*place)], [value])
    return with_regions(_replace(block, body=body))
