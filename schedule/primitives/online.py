"""Sums of exponentials together with their maximum: `online_softmax`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace as _replace
from typing import Any, NamedTuple

from ...tir.ir import (
    Binary,
    Block,
    Buffer,
    Call,
    Cast,
    Expr,
    For,
    Func,
    IterKind,
    Label,
    Load,
    Op,
    Stmt,
    Var,
    binary,
    call,
    const,
    load,
    select,
    seq,
)
from ...tir.reduction import COMBINERS, Place, lowest, update
from ...tir.structure import same
from ...tir.visit import rewrite_children, substitute
from ..blocks import has_reduction, require_unit, with_regions, writers_of
from ..find import find_block, find_loop, replace
from ..primitive import primitive
from ..reductions import Reduction, match_reduction
from ..require import certain, require
from .cache import top_position, top_statements
from .reduction import rfactor, sole_block


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
    largest = found.block
    for b in (largest, block):
        require_unit(fn, b)
    nests = [_own_nest(fn, b) for b in (largest, block)]
    _require_same_elements(fn, found, block)
    summed = [i for i in block.iters if i.kind is IterKind.REDUCE]
    for i in summed:
        require(i.extent > 0, "the sum of block {0} has no terms", block.label.name, at=block.label)

    fn, total = rfactor(fn, loop, -1)
    require(
        has_reduction(find_block(fn, total)),
        "the pieces of block {0} have one element each",
        block.label.name,
        at=loop,
        hint="split the loop, and give the outer part",
    )
    loops = {s.var: Var(s.var.name) for s in nests[1]}
    position = top_position(fn, largest.label)
    stmts = top_statements(fn)
    copied = _like(largest, block, nests[1], loops)
    fn = _replace(fn, body=seq(*stmts[:position], copied, *stmts[position + 1 :]))
    fn, highest = rfactor(fn, loops[loop], -1)
    (local,) = (r.buffer for r in find_block(fn, highest).writes)

    part = find_block(fn, total)
    (piece,) = (i.var for i in part.iters if i.value is loop)
    body = _at_pieces(part.body, found.of.buffer, local, piece)
    fn = replace(fn, part, with_regions(_replace(part, body=body)))
    final = find_block(fn, block.label)
    rescaled = _rescaled(final, found.shift, found.of.buffer, local)
    return replace(fn, final, rescaled), (highest, total)


class _Exponentials(NamedTuple):
    """A sum of exp(x - shift), where `shift` is what `of` has for the row, in the dtype of x.

    `block` computes `of`, the maximum. `value` is x before it is cast, `at` the indices of `of`.
    """

    block: Block
    of: Reduction
    shift: Expr
    value: Expr
    at: tuple[Expr, ...]


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
    if type(x) is Cast and not same(_renamed(writers[0], block, matched.value), x):
        x = x.value
    return _Exponentials(writers[0], matched, shift, x, largest.indices)


def _variables(largest: Block, block: Block) -> dict[Var, Var]:
    """The variables of `block` that stand where those of `largest` do."""
    return {a.var: b.var for a, b in zip(largest.iters, block.iters, strict=False)}


def _renamed(largest: Block, block: Block, e: Expr) -> Expr:
    return substitute(e, _variables(largest, block))


def _own_nest(fn: Func, block: Block) -> list[For]:
    """The loops around a block that has them to itself, in the outermost statement."""
    loops: list[For] = []
    stmt: Stmt = top_statements(fn)[top_position(fn, block.label)]
    while type(stmt) is For:
        loops.append(stmt)
        stmt = stmt.body
    require(
        stmt is block,
        "block {0} shares a nest with others",
        block.label.name,
        at=block.label,
        hint="online_softmax comes before compute_at",
    )
    return loops


def _require_same_elements(fn: Func, found: _Exponentials, block: Block) -> None:
    """Require that the maximum is that of the very elements whose exponentials are summed."""
    largest = found.block
    fits = (
        len(largest.iters) == len(block.iters)
        and all(
            a.kind is b.kind and certain(a.extent == b.extent)
            for a, b in zip(largest.iters, block.iters, strict=True)
        )
        and same(_renamed(largest, block, found.of.value), found.value)
        and all(
            same(_renamed(largest, block, e), f)
            for e, f in zip(found.of.indices, found.at, strict=True)
        )
    )
    require(
        fits,
        "block {0} is no maximum of the elements that block {1} sums, over the same iterations in "
        "the same order",
        largest.label.name,
        block.label.name,
        at=block.label,
    )
    position = top_position(fn, largest.label)
    for buffer in sorted({r.buffer for r in largest.reads}, key=lambda b: b.name):
        late = [
            w.label.name
            for w in writers_of(fn, buffer)
            if w.label is not largest.label and top_position(fn, w.label) > position
        ]
        require(
            not late,
            "block {0} writes {1} after its maximum was found",
            ", ".join(late),
            buffer.name,
            at=block.label,
        )


def _like(largest: Block, block: Block, nest: list[For], loops: Mapping[Var, Var]) -> Stmt:
    """The block of the maximum in loops like those of the sum."""
    variables = _variables(largest, block)
    values = {i.var: i.value for i in block.iters}
    iters = tuple(
        _replace(i, value=substitute(values[variables[i.var]], loops)) for i in largest.iters
    )
    guard = None if block.predicate is None else substitute(block.predicate, loops)
    stmt: Stmt = _replace(largest, iters=iters, predicate=guard)
    for s in reversed(nest):
        stmt = _replace(s, var=loops[s.var], body=stmt)
    return stmt


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
