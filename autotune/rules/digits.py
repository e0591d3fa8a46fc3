"""Iteration variables that contractions read at quotients and remainders, taken as two.

    for y, k: Y[y] += X[k, y // 2] * W[k, y % 2]

      ->  for h, l, k: Y[h * 2 + l] += X[k, h] * W[k, l]

Transposed convolutions whose windows do not overlap are of this form. Each of the two moves along
inputs in constant steps, or not at all: what it does not move along is shared. So are the channels
of a group, which another input may be read at:

    for o, k: Y[o, x] += X[o // 8 * 8 + k, x] * W[o, k]

      ->  for g, l, k: Y[g * 8 + l, x] += X[g * 8 + k, x] * W[g * 8 + l, k]
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ...schedule import Schedule
from ...schedule.block_queries import free_vars
from ...schedule.find import find_block
from ...schedule.index_map import IndexMap
from ...tir.ir import Binary, Block, Const, Expr, IterKind, Label, Op, Var
from ...tir.visit import children
from .access_patterns import extents, last_digits, outputs_of


def has_digits(block: Block, *, contiguous: bool = False) -> bool:
    """Whether a block reads at quotients and remainders of a variable.

    One along which the outputs are contiguous is not read by itself as well, unless `contiguous`.
    """
    return bool(_cuts(block, contiguous=contiguous))


def separate_digits(sch: Schedule, label: Label, *, contiguous: bool = False) -> None:
    """Let a contraction iterate over the quotient and the remainder of each such variable.

    Variables of a single iteration go.
    """
    block = find_block(sch.func, label)
    cuts = _cuts(block, contiguous=contiguous)
    parts: list[Expr] = []
    for i in block.iters:
        by = cuts.get(i.var)
        if by is not None:
            parts += [i.var // by, i.var % by]
        elif i.extent != 1:
            parts.append(i.var)
    sch.transform_block_layout(label, IndexMap(tuple(i.var for i in block.iters), tuple(parts)))


def lay_out_digits(sch: Schedule, label: Label) -> None:
    """Give each digit of the indices at which a block writes, internal buffers, a dimension."""
    block = find_block(sch.func, label)
    low = last_digits(block)
    if not low:
        return
    for n, out in enumerate(outputs_of(block)):
        indices = tuple(Var(f"d{d}") for d in range(len(out.buffer.shape)))
        parts: list[Expr] = []
        region = next(r for r in block.writes if r.buffer is out.buffer)
        for d, r in zip(indices, region.ranges, strict=True):
            by = math.prod(low[v] for v in free_vars(r.min) & low.keys())
            parts += [d] if by == 1 else [d // by, d % by]
        sch.transform_layout(label, ("write", n), IndexMap(indices, tuple(parts)))


def _cuts(block: Block, *, contiguous: bool) -> dict[Var, int]:
    """The spatial variables that inputs use in quotients and remainders by one number.

    Where the outputs are contiguous in one, alone, unless `contiguous`.
    """
    divisors: dict[Var, int] = {}
    sizes, outputs = extents(block), outputs_of(block)
    written = {r.buffer for r in block.writes}
    indices = [r.min for x in block.reads if x.buffer not in written for r in x.ranges]
    for i in block.iters:
        if i.kind is not IterKind.SPATIAL:
            continue
        by = {n for e in indices for n in _divisors(e, i.var)}
        if contiguous or (outputs and outputs[0].strides.get(i.var) != 1):
            by.discard(0)
        if len(by) == 1:
            (number,) = by
            size = sizes.get(i.var, 1)
            if 1 < number < size and size % number == 0:
                divisors[i.var] = number
    return divisors


def _divisors(e: Expr, var: Var) -> Iterator[int]:
    """The numbers that an index divides a variable by, 0 where it uses it by itself.

    -1 for those that are no constant.
    """
    if e is var:
        yield 0
    elif type(e) is Binary and e.op in (Op.FLOORDIV, Op.MOD) and e.a is var:
        yield int(e.b.value) if type(e.b) is Const else -1
    else:
        for n in children(e):
            yield from _divisors(n, var)
