"""Flash attention: bands of rows that take the keys in pieces, where a cache holds no whole rows.

    for bands of rows (parallel):
      for pieces of the keys:
        the scores of the piece, in register tiles
        for each row: their maximum, the exponentials relative to it, and the sum of these
        the exponentials times the values of the piece, in register tiles
      for each row: maximum, sum and result from those of the pieces, which are scaled

A band keeps the scores of one piece, which stay in a cache of its core. The pieces do not depend on
each other (Dao et al., arXiv:2205.14135; the split form).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ....schedule import Schedule
from ....schedule.block_queries import has_reduction, region_buffers
from ....schedule.find import find_block
from ....target import CpuTarget
from ....tir.ir import Block, Dim, Label, Var
from ..access_patterns import extents, reduced
from ..attention import Attention, attention_of, element_above
from ..common import block_loops, lanes_for, result_or_none, widest
from ..draft import Draft
from ..joining import places
from ..register_tiles import MAX_VECTORS
from ..rule import Group, Variant
from .contraction import Tiling
from .fused_attention import (
    MAX_BAND,
    Contraction,
    attention_tilings,
    attention_variant,
    contract,
    cut_bands,
    row_bytes,
    row_elements,
    sample_band,
    tile_contractions,
)
from .rows import schedule_reduction, schedule_spatial

SMALLEST = 32
"""The least part of the second cache that a piece of a band takes."""
MIN_REDUCTION_STEPS = 8
"""Pieces are multiples of so many vectors of keys: steps along a row take up to so many."""


@dataclass(frozen=True)
class _Softmax:
    """The blocks of a chain that is a softmax, or the part of one before the division.

    `scores` are what is computed of the first contraction before all others. `normalised` is what
    the second contraction reads, where that is no longer the exponentials.
    """

    scores: tuple[Label, ...]
    largest: Label
    exps: Label
    total: Label
    normalised: Label | None


class _Pieces(NamedTuple):
    """The blocks of the pieces, and that which divides the result by the sum, the last of all."""

    highest: Label
    scale: Label
    total: Label
    product: Label
    divided: Label


def flash_attention_variants(draft: Draft, group: Group) -> Iterator[Variant]:
    """The chain in bands by pieces of the keys, where the second cache holds no full band of rows.

    There must be pieces of whole vectors that make up a row.
    """
    attention = attention_of(draft, group)
    if row_bytes(attention) * MAX_BAND <= CpuTarget.of(draft.target).l2_bytes:
        return
    softmax = _softmax(attention)
    if softmax is None or not _takes_pieces(draft, attention, softmax):
        return
    exps = next(b for b in attention.chain if b.label is softmax.exps)
    along = next(i.var for i in exps.iters if i.var not in {*attention.rows[exps.label]})
    keys = extents(exps)[along]
    tilings = attention_tilings(attention)
    counts = _counts(keys, lanes_for(draft.target.vector_bits, widest(attention.first), keys))
    if tilings[0].vector is element_above(attention, exps, along) and counts:
        apply = functools.partial(
            _apply, attention=attention, softmax=softmax, tilings=tilings, counts=counts
        )
        yield attention_variant("flash_attention", apply, attention, tilings)


def _counts(keys: int, lanes: int) -> list[int]:
    """How many register tiles a piece may have, if these are made of one vector or of several.

    Steps along a row fill a piece, whatever they take.
    """
    vectors = keys // lanes if keys % lanes == 0 else 0
    most = vectors // MAX_VECTORS  # so that there are pieces for all widths of a tile
    return [
        n for n in range(MIN_REDUCTION_STEPS, most + 1, MIN_REDUCTION_STEPS) if vectors % n == 0
    ]


def _softmax(attention: Attention) -> _Softmax | None:
    """The softmax that the chain is, by what its blocks read; `None` where it is none.

    Whether the sum is of exponentials relative to the maximum is for `online_softmax` to judge.
    """
    chain, weights = attention.chain, attention.weights
    exps = weights
    if not _sums_of(chain, weights):
        read = [b for b in _read_by(chain, weights) if attention.has_elements(b)]
        if len(read) != 1 or has_reduction(read[0]):
            return None
        exps = read[0]
    sums = _sums_of(chain, exps)
    maxima = [b for b in _read_by(chain, exps) if has_reduction(b)]
    if len(sums) != 1 or len(maxima) != 1:
        return None
    labels = {exps.label, weights.label, sums[0].label, maxima[0].label}
    scores = [b for b in chain if b.label not in labels]
    if any(has_reduction(b) or not attention.before_weights(b) for b in scores):
        return None
    return _Softmax(
        tuple(b.label for b in scores),
        maxima[0].label,
        exps.label,
        sums[0].label,
        None if exps is weights else weights.label,
    )


def _sums_of(chain: Sequence[Block], block: Block) -> list[Block]:
    """The reductions of a chain that read what a block of it computes."""
    computed = region_buffers(block.writes)
    return [b for b in chain if has_reduction(b) and region_buffers(b.reads) & computed]


def _read_by(chain: Sequence[Block], block: Block) -> list[Block]:
    """The blocks of a chain whose results another one reads."""
    read = region_buffers(block.reads)
    return [b for b in chain if b is not block and region_buffers(b.writes) & read]


def _takes_pieces(draft: Draft, attention: Attention, softmax: _Softmax) -> bool:
    """Whether the exponentials and their sums can be taken in pieces."""
    trial = draft.copy()
    for block in attention.members:
        trial.schedule.get_block(block.label)
    pieces = result_or_none(_in_pieces, trial.schedule, attention, softmax, 2)
    return pieces is not None and _outer(trial.schedule, attention, pieces.divided) is not None


def _outer(sch: Schedule, attention: Attention, divided: Label) -> tuple[Var, list[Var]] | None:
    """The variables of the last block along which bands are cut, and of the other rows."""
    second = attention.second
    at = places(find_block(sch.func, second.label), find_block(sch.func, divided))
    sizes, row = extents(second), attention.row(second)
    batch = attention.batch(second)
    if row not in at or any(v not in at and sizes[v] > 1 for v in batch):
        return None
    return at[row], [at[v] for v in batch if v in at]


def _in_pieces(sch: Schedule, attention: Attention, softmax: _Softmax, length: Dim) -> _Pieces:
    """Have the sum and the second contraction take pieces of rows.

    Where rows are divided before the second contraction, what that computes is divided instead.
    """
    second = divided = attention.second.label
    if softmax.normalised is not None:
        sch.compute_inline(softmax.normalised)
        divided = sch.hoist_factor(second)
        if attention.follow is not None:
            sch.compute_inline(divided)
    if attention.follow is not None:
        divided = attention.follow.label
    outer = []
    for label in (softmax.total, second):
        (key,) = reduced(find_block(sch.func, label))
        loop = block_loops(sch, label)[key]
        outer.append(sch.split(loop, factors=[None, length], perfect=True)[0])
    highest, scale, part, product = sch.online_softmax(outer[0], outer[1:])
    return _Pieces(highest, scale, part, product, divided)


def _apply(
    draft: Draft,
    attention: Attention,
    softmax: _Softmax,
    tilings: tuple[Tiling, Tiling],
    counts: list[int],
) -> None:
    sch, cached = draft.schedule, CpuTarget.of(draft.target).l2_bytes
    for block in attention.members:
        sch.get_block(block.label)
    first, second = tile_contractions(draft, attention, tilings)
    upper, lower = first.tile, second.tile
    length = upper.width(upper.vector) * sch.sample_categorical(counts)
    count = sample_band(draft, second)
    nbytes = count * length * (row_bytes(attention) // row_elements(attention))
    draft.limit("a piece of what is between fits the second cache", nbytes <= cached)
    draft.limit("a piece is worth its scale", nbytes * SMALLEST >= cached)

    pieces = _in_pieces(sch, attention, softmax, length)
    writes = [sch.cache_write(label, 0, "register") for label in (first.label, pieces.product)]
    outer = _outer(sch, attention, pieces.divided)
    assert outer is not None
    top, _ = cut_bands(sch, block_loops(sch, pieces.divided), *outer, count)
    combined = (second.label, softmax.total, pieces.scale, softmax.largest)
    products = (writes[1], pieces.product)
    rows = (pieces.total, softmax.exps, pieces.highest)
    for label in (*combined, *products, *rows, *reversed(softmax.scores)):
        sch.compute_at(label, top)

    *lines, number, _ = block_loops(sch, pieces.highest).values()
    sch.reorder(number, *lines)
    for label in (softmax.exps, pieces.total):
        sch.reverse_compute_at(label, lines[-1])
    for label in reversed(softmax.scores):
        sch.compute_at(label, lines[-1])
    for label in (pieces.product, writes[1]):
        sch.reverse_compute_at(label, number)
    for label in (writes[0], first.label):
        sch.compute_at(label, number)
    contract(sch, first, writes[0], block_loops(sch, first.label))
    block = find_block(sch.func, pieces.product)
    of_piece = [i.var for i in block.iters[1:]]  # the first numbers the pieces
    variables = dict(zip([i.var for i in second.block.iters], of_piece, strict=True))
    product = Contraction(pieces.product, block, variables[second.row], lower.on(variables))
    contract(sch, product, writes[1], block_loops(sch, pieces.product))

    least = MIN_REDUCTION_STEPS * upper.lanes
    schedule_reduction(draft, pieces.highest, least=least)
    for label in (*softmax.scores, softmax.exps):
        schedule_spatial(draft, label, 1, least)
    schedule_reduction(draft, pieces.total, least=least)
    along = block_loops(sch, second.label)[lower.vector]
    sch.reorder(sch.get_loops(second.label)[-1], along)
    for loop in (along, sch.get_loops(pieces.scale)[-1]):
        sch.vectorize(sch.split(loop, factors=[None, lower.lanes])[1])
    schedule_spatial(draft, pieces.divided, skip=1)
    draft.map_outer(top)
