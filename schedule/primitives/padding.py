"""Decomposing padding: `decompose_padding`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace as _replace
from typing import TypeAlias

from ...tir.ir import (
    Binary,
    Block,
    Const,
    Dim,
    Expr,
    For,
    ForKind,
    Func,
    Iter,
    IterKind,
    Label,
    Op,
    Select,
    Stmt,
    Store,
    Var,
    seq,
)
from ...tir.polynomial import ONE, negated
from ...tir.simplify import Simplifier, difference, simplify
from ...tir.structure import conjunction, conjuncts
from ...tir.visit import substitute
from ..available import require_still_concurrent
from ..block_queries import (
    domain_conditions,
    free_vars,
    loop_ranges,
    nest_like,
    require_unit,
    with_regions,
)
from ..find import find_block, find_loop, loops_above, perfect_nest, replace
from ..places import copied, with_indices
from ..primitive import primitive
from ..require import certain, require, require_some
from .reduction import sole_block


@primitive
def decompose_padding(fn: Func, block: Label, loop: Var) -> tuple[Func, Label]:
    """Fill padding with its constant before `loop`, so that the block copies only the interior.

        for i in 10:                                  for i in 10: B[i] = 0
          B[i] = select(1 <= i < 9, A[i - 1], 0)  ->  for i in 8: B[i + 1] = A[i]

    The block must store a constant where a condition fails that bounds single iteration variables;
    `loop` must contain nothing else. Serial loops shrink to the interior, others get predicates.
    Returns the label of the block that fills; the handle `block` stays with the copy.
    """
    found = find_block(fn, block)
    require_unit(fn, found)
    target = find_loop(fn, loop)
    require(sole_block(target) is found, "loop {0} is not around block {1}", loop.name, block)
    stored = found.body
    require(
        type(stored) is Store
        and type(stored.value) is Select
        and type(stored.value.other) is Const
        and not any(i.kind is not IterKind.SPATIAL for i in found.iters),
        "block {0} must store select(condition, value, constant)",
        block,
    )
    assert isinstance(stored, Store)
    assert isinstance(stored.value, Select)
    box = _box(found, stored.value.cond)
    fill, label = _filling(found, _replace(stored, value=stored.value.other), target)
    copy, shrunk = _copying(
        found, _replace(stored, value=stored.value.then), box, loops_above(fn, block), loop
    )
    copying = nest_like(perfect_nest(target)[0], copy, extents=shrunk)
    fn = replace(fn, target, seq(fill, copying))
    require_still_concurrent(fn, (label, block))
    return fn, label


SHRINKING = (ForKind.SERIAL, ForKind.UNROLL, ForKind.PARALLEL)
"""The kinds of loops whose extents may change: vectors and thread blocks keep their sizes."""

Box: TypeAlias = dict[Var, tuple[int, int]]
"""The first value of iteration variables that is inside, and the first one that is not again."""


def _box(block: Block, condition: Expr) -> Box:
    """The range of each bounded variable for which `condition` holds, in the domain of `block`."""
    extents = {i.var: i.extent for i in block.iters if isinstance(i.extent, int)}
    found: Box = {}
    for c in conjuncts(condition):
        limits = require_some(
            _limits(c, extents),
            "the condition {0} of block {1} is not a bound of a single iteration variable",
            c,
            block.label.name,
            at=block.label,
        )
        var, low, high = limits
        before = found.get(var, (0, extents[var]))
        low, high = max(low, before[0]), min(high, before[1])
        if (low, high) != (0, extents[var]):
            found[var] = low, high
    require(
        bool(found),
        "block {0} pads nothing: its condition holds everywhere",
        block.label,
        hint="compute_inline removes a block that only copies",
    )
    for var, (low, high) in found.items():
        require(
            low < high,
            "no value of {0} is inside: the condition {1} never holds",
            var.name,
            condition,
            at=block.label,
        )
    return found


def _limits(c: Expr, extents: Mapping[Var, int]) -> tuple[Var, int, int] | None:
    """The variable that `c` bounds, the first value for which it holds, and the one after the last.

    `None` if `c` is no such bound, or the extent of the variable is not known.
    """
    if type(c) is not Binary or c.op not in (Op.LT, Op.LE, Op.GT, Op.GE):
        return None
    # As `left >= 0`, where left is a sum of a multiple of the variable and a number.
    left = difference(Simplifier({v: (0, n - 1) for v, n in extents.items()}), c)
    if left is None:
        return None
    if c.op in (Op.LT, Op.LE):
        left = negated(left)
    rest = left.get(ONE, 0) - (c.op in (Op.LT, Op.GT))
    terms = [(k, n) for k, n in left.items() if k is not ONE]
    if len(terms) != 1:
        return None
    var, times = terms[0]
    extent = extents.get(var) if type(var) is Var else None
    if type(var) is not Var or extent is None:
        return None
    if times > 0:
        return var, -(rest // times), extent
    return var, 0, rest // -times + 1


def _filling(block: Block, body: Stmt, target: For) -> tuple[Stmt, Label]:
    """The nest that stores the constant to all elements, in loops of its own."""
    label = Label(f"{block.label.name}_fill")
    chain, _ = perfect_nest(target)
    renamed = {s.var: Var(f"{s.var.name}_fill") for s in chain}
    stored = _replace(block, body=body, annotations=())
    fill = with_regions(copied(stored, label, renamed))
    return nest_like(chain, fill, renamed), label


def _copying(
    block: Block, body: Stmt, box: Box, loops: Sequence[For], first: Var
) -> tuple[Block, dict[Var, Dim]]:
    """The block over the interior, and the new extents of the loops that shrink to it."""
    start = next(n for n, s in enumerate(loops) if s.var is first)
    serial = {s.var: s for s in loops[start:] if s.kind in SHRINKING}
    shrunk: dict[Var, Dim] = {}
    shifted: dict[Var, Expr] = {}
    iters: list[Iter] = []
    guards: list[Expr] = conjuncts(block.predicate)
    known = Simplifier(loop_ranges(loops))
    for i in block.iters:
        if i.var not in box:
            iters.append(i)
            continue
        low, high = box[i.var]
        fresh = Var(i.var.name)
        shifted[i.var] = fresh + low
        loop = serial.get(i.value) if type(i.value) is Var else None
        if loop is not None and certain(loop.extent == i.extent) and _is_alone(i, loop, block):
            shrunk[loop.var] = high - low
            iters.append(Iter(fresh, high - low, i.kind, loop.var))
            continue
        value = known(i.value - low)
        guards += domain_conditions(value, high - low, known)
        iters.append(Iter(fresh, high - low, i.kind, value))
    moved = _replace(
        block,
        iters=tuple(iters),
        body=with_indices(substitute(body, shifted), simplify),
        predicate=conjunction(guards),
    )
    return with_regions(moved), shrunk


def _is_alone(i: Iter, loop: For, block: Block) -> bool:
    """Whether nothing but the value of `i` depends on `loop`."""
    others = [x.value for x in block.iters if x is not i] + conjuncts(block.predicate)
    return not any(loop.var in free_vars(e) for e in others)
