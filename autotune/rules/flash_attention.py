"""Attention whose keys are taken in pieces: bands of rows where a cache holds no whole rows.

    for bands of rows (parallel):
      for pieces of the keys:
        the scores of the piece, in register tiles
        for each row: their maximum, the exponentials relative to it, and the sum of these
        the exponentials times the values of the piece, in register tiles
      for each row: maximum, sum and result from those of the pieces, which are scaled

What a band keeps of the scores is that of one piece, and stays in a cache of its core. What the
pieces give is independent of each other (Dao et al., arXiv:2205.14135; the split form).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...errors import ScheduleError
from ...schedule import Schedule
from ...schedule.blocks import has_reduction
from ...schedule.find import find_block
from ...tir.ir import Dim, Label, Var
from .access_patterns import extents, reduced, spatial
from .common import fused, lanes_for, widest
from .contraction import Plan
from .draft import Draft, RuleChoice
from .fused_attention import (
    MAX_BAND,
    Band,
    band_of,
    band_plans,
    contract,
    ends_of,
    row_above,
    row_bytes,
)
from .rows import schedule_reduction, schedule_spatial
from .rule import Group, Variant
from .tiles import MAX_VECTORS

SMALLEST = 32
"""The least part of the second cache that a piece of a band takes."""
SHORTEST = 8
"""Pieces are multiples of so many vectors of keys: steps along a row take up to so many."""


def flash_attention_variants(draft: Draft, group: Group) -> Iterator[Variant]:
    """The chain in bands by pieces of the keys, where the second cache holds no full band of rows.

    There must be pieces of whole vectors that make up a row.
    """
    band = band_of(draft, group)
    if band is None:
        return
    if row_bytes(band) * MAX_BAND <= draft.target.l2_bytes or not _takes_pieces(draft, band):
        return
    exps = band.chain[1]
    key = row_above(band.first, (exps,), len(exps.iters))
    keys = extents(exps)[exps.iters[-1].var]
    name, plans = band_plans(band)
    counts = _counts(keys, lanes_for(draft.target, widest(band.first), keys))
    if plans[0].vector is key and counts:
        apply = functools.partial(_apply, band=band, plans=plans, counts=counts)
        choice = RuleChoice.of("flash_attention", pack=bool(name))
        yield Variant(choice, f"band_keys{name}", (apply,))


def _counts(keys: int, lanes: int) -> list[int]:
    """How many register tiles a piece may have, if these are made of one vector or of several.

    Steps along a row fill a piece, whatever they take.
    """
    vectors = keys // lanes if keys % lanes == 0 else 0
    most = vectors // MAX_VECTORS  # so that there are pieces for all widths of a tile
    return [n for n in range(SHORTEST, most + 1, SHORTEST) if vectors % n == 0]


def _takes_pieces(draft: Draft, band: Band) -> bool:
    """Whether the chain is a softmax whose exponentials can be taken in pieces."""
    trial = draft.copy()
    labels = [trial.handle(b.label) for b in band.members]
    if [has_reduction(b) for b in band.chain] != [True, False, True, False]:
        return False
    try:
        divided = _in_pieces(trial.schedule, labels, 2).divided
    except ScheduleError:
        return False
    return len(trial.block(divided).iters) == len(spatial(band.second))


class _Pieces(NamedTuple):
    """The blocks of the pieces, and that which divides the result by the sum, the last of all."""

    highest: Label
    scale: Label
    total: Label
    product: Label
    divided: Label


def _in_pieces(sch: Schedule, labels: Sequence[Label], length: Dim) -> _Pieces:
    """Have the sum and the second contraction of a band take pieces of rows."""
    *_, total, share, second = labels
    sch.compute_inline(share)
    divided = sch.hoist_factor(second)
    outer = []
    for label in (total, second):
        (key,) = reduced(find_block(sch.func, label))
        loop = _loops(sch, label)[key]
        outer.append(sch.split(loop, factors=[None, length], perfect=True)[0])
    highest, scale, part, product = sch.online_softmax(outer[0], outer[1:])
    return _Pieces(highest, scale, part, product, divided)


def _apply(draft: Draft, band: Band, plans: tuple[Plan, Plan], counts: list[int]) -> None:
    sch, target = draft.schedule, draft.target
    labels = [draft.handle(b.label) for b in band.members]
    first, largest, exps, total, _, second = labels
    ends = ends_of(draft, band, plans)
    upper, lower = ends.tiles
    length = upper.width(upper.vector) * sch.sample_categorical(counts)
    count = ends.band(draft)
    last = band.chain[-1]
    kept = count * length * (row_bytes(band) // extents(last)[last.iters[-1].var])
    draft.limit("a piece of what is between fits the second cache", kept <= target.l2_bytes)
    draft.limit("a piece is worth its scale", kept * SMALLEST >= target.l2_bytes)

    pieces = _in_pieces(sch, labels, length)
    writes = [sch.cache_write(label, 0, "register") for label in (first, pieces.product)]
    loops = dict(zip(spatial(ends.blocks[1]), sch.get_loops(pieces.divided), strict=True))
    bands, _ = sch.split(loops[ends.rows[1]], factors=[None, count])
    top = fused(sch, [*(loops[v] for v in ends.before), bands])
    combined = (second, total, pieces.scale, largest)
    for label in (*combined, writes[1], pieces.product, pieces.total, exps, pieces.highest):
        sch.compute_at(label, top)

    *lines, number, _ = _loops(sch, pieces.highest).values()
    sch.reorder(number, *lines)
    for label in (exps, pieces.total):
        sch.reverse_compute_at(label, lines[-1])
    for label in (pieces.product, writes[1]):
        sch.reverse_compute_at(label, number)
    for label in (writes[0], first):
        sch.compute_at(label, number)
    contract(sch, first, writes[0], ends.blocks[0], _loops(sch, first), upper, ends.rows[0])
    product = find_block(sch.func, pieces.product)
    now = [i.var for i in product.iters[1:]]  # the first numbers the pieces
    its = dict(zip([i.var for i in ends.blocks[1].iters], now, strict=True))
    inner = _loops(sch, pieces.product)
    contract(sch, pieces.product, writes[1], product, inner, lower.on(its), its[ends.rows[1]])

    least = SHORTEST * upper.lanes
    schedule_reduction(draft, pieces.highest, least=least)
    schedule_spatial(draft, exps, 1, least)
    schedule_reduction(draft, pieces.total, least=least)
    along = _loops(sch, second)[lower.vector]
    sch.reorder(sch.get_loops(second)[-1], along)
    for loop in (along, sch.get_loops(pieces.scale)[-1]):
        sch.vectorize(sch.split(loop, factors=[None, lower.lanes])[1])
    schedule_spatial(draft, pieces.divided, skip=1)
    draft.map_outer(top)


def _loops(sch: Schedule, label: Label) -> dict[Var, Var]:
    """The innermost loops around a block, one for each of its variables."""
    block = find_block(sch.func, label)
    loops = sch.get_loops(label)[-len(block.iters) :]
    return dict(zip([i.var for i in block.iters], loops, strict=True))
