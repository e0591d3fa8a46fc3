"""Along which variables the vectors of a reduction lie, and whether it runs in vectors at all."""

from __future__ import annotations

import math

from ....schedule.block_queries import has_reduction
from ....tir.ir import Block, Var
from ..access_patterns import (
    Input,
    extents,
    grouped,
    inputs_of,
    is_near,
    is_product,
    low_digits,
    outputs_of,
    reuse,
    spatial,
)
from ..common import lanes_for, native_lanes, widest

WORTH_PACKING = 8
"""Packing an input pays only if each element is read at least so many times."""
FILLED = 0.75
"""The share of its lanes that vectors along a variable fill, of what others fill."""


def runs_in_vectors(block: Block) -> bool:
    """Whether a block is a reduction whose results are vectors: one that reuses its inputs, or of
    which one lies along them, perhaps as it is packed ahead of calls."""
    choices = vector_choices(block) if has_reduction(block) else []
    near = any(
        is_near(i, v) or (v in i.used and i.buffer.constant)
        for i in inputs_of(block)
        for v in choices
    )
    return bool(choices) and (near or is_product(block))


def vector_choices(block: Block) -> list[Var]:
    """The spatial variables along which a reduction can be vectorised, best first.

    Along each, every input is contiguous (backward too: a shuffle reverses a vector), or the same
    for all lanes, or can be packed to be contiguous, or takes every second element or so, which a
    few shuffles pick out of vectors; the first choices also write contiguously.
    """
    outputs = outputs_of(block)
    if not outputs:
        return []
    out = outputs[0]
    sizes = extents(block)
    reading = inputs_of(block)
    low = low_digits(block)
    whole = math.prod(n for v, n in low.items() if out.strides[v] == 1)
    ranked: list[tuple[bool, int, Var]] = []
    for v in spatial(block):
        if sizes.get(v, 1) < 2 or v in low:
            continue
        fits = all(
            v not in i.used or is_near(i, v) or (v in i.plain and worth_packing(block, i))
            for i in reading
        )
        if fits:
            ranked.append((out.strides.get(v) != whole, packed_for(block, v), v))
    return [v for *_, v in sorted(ranked, key=lambda x: x[:2])]


def vector_variables(main: Block, vector_bits: int) -> list[Var]:
    """The variables along which a register tile may have vectors: the best, and at most two more.

    Those fill their lanes (8 images leave half of 16 empty, and 128 channels none) and take as
    little packing as any that do. The vectors of a group are whole.
    """
    sizes, groups, dtype = extents(main), grouped(main), widest(main)
    native = native_lanes(vector_bits, dtype)
    first, others = vector_choices(main)[:1], vector_choices(main)[1:]
    others = [
        v
        for v in others
        if v not in groups or sizes[v] % lanes_for(vector_bits, dtype, sizes[v]) == 0
    ]
    filled = {v: sizes[v] / (-(-sizes[v] // native) * native) for v in others}
    full = [v for v in others if filled[v] >= FILLED * max(filled.values())]
    least = [v for v in full if packed_for(main, v) == packed_for(main, full[0])]
    return [*first, *least[:2]]


def packed_for(block: Block, var: Var) -> int:
    """How many inputs do not lie side by side along a variable."""
    return sum(1 for i in inputs_of(block) if var in i.used and i.strides[var] not in (1, -1))


def worth_packing(block: Block, source: Input) -> bool:
    """Whether to pack an input in the order of its use: it is used often, or packed ahead."""
    return source.buffer.constant or reuse(block, source) >= WORTH_PACKING
