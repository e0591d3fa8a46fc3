"""Attention fused into bands of rows: both contractions and the chain between them.

    for bands of rows (parallel):
      the first contraction for these rows, in register tiles
      for each row: the chain, a softmax for one
      the second contraction for these rows, in register tiles
      what follows that

A band of what is between the contractions stays in a cache of its core.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from ....base import dtypes
from ....schedule import Schedule
from ....schedule.block_queries import has_reduction, region_buffers
from ....target import CpuTarget
from ....tir.ir import Block, Dim, Label, Var
from ..access_patterns import extents, inputs_of, reduced, spatial
from ..attention import Attention, attention_of, downstream
from ..common import block_loops, fused, in_registers, powers
from ..draft import Draft, Step
from ..register_tiles import MAX_TILE, RegisterTile, write_back
from ..rule import Group, Variant
from .contraction import Tiling, decide_tile, unrolled
from .packing import pack, packings, schedule_copy
from .rows import schedule_reduction, schedule_spatial
from .vector_choices import vector_choices

MAX_BAND = 256
"""Rows of a band. Of more rows the operands of the contractions are read less often, which hardly
counts, and what is between is sooner too large for a cache."""


def fused_attention_variants(draft: Draft, group: Group) -> Iterator[Variant]:
    """The chain in bands, with what the vectors of the first contraction run along packed."""
    attention = attention_of(draft, group)
    tilings = attention_tilings(attention)
    apply = functools.partial(_apply, attention=attention, tilings=tilings)
    yield attention_variant("fused_attention", apply, attention, tilings)


def attention_variant(
    name: str, apply: Step, attention: Attention, tilings: tuple[Tiling, Tiling]
) -> Variant:
    """A variant whose option is whether the first contraction packs any input."""
    first, _ = tilings
    inputs = inputs_of(attention.first)
    packed = "".join(f"_pack{inputs[n].buffer.name}" for n, _ in first.packs)
    return Variant.of(f"{name}{packed}", apply, pack=bool(first.packs))


def attention_tilings(attention: Attention) -> tuple[Tiling, Tiling]:
    """How both contractions are tiled, and what they pack: not the rows, few at a time."""
    along = vector_choices(attention.second)[0]
    fewest = min(packings(attention.second, along), key=len)
    second = Tiling(along, _from_outside(attention, attention.second, fewest))
    along = vector_choices(attention.first)[0]
    packs = next(packings(attention.first, along))
    return Tiling(along, packs), second


def _from_outside(
    attention: Attention, block: Block, packs: tuple[tuple[int, Var], ...]
) -> tuple[tuple[int, Var], ...]:
    """Those of `packs` that are not of what the attention itself computes."""
    computed = {b for m in attention.members for b in region_buffers(m.writes)}
    inputs = inputs_of(block)
    return tuple((n, by) for n, by in packs if inputs[n].buffer not in computed)


@dataclass(frozen=True)
class Contraction:
    """A contraction of an attention as it is scheduled; bands are cut along `row`."""

    label: Label
    block: Block
    row: Var
    tile: RegisterTile


def sample_band(draft: Draft, second: Contraction) -> Dim:
    """Decide how many rows a band has: as many register tiles as a power of two."""
    # Register tiles end with the band, and that is no longer than the dimension whatever they are:
    # no guard is left but that of the whole dimension.
    most = max(1, min(MAX_BAND, extents(second.block)[second.row]) // MAX_TILE)
    tall = second.tile.inner.get(second.row, 1)
    count = tall * draft.schedule.sample_categorical(powers(most))
    draft.limit("a band is worth its operands", count >= MAX_TILE)
    return count


def tile_contractions(
    draft: Draft, attention: Attention, tilings: tuple[Tiling, Tiling]
) -> tuple[Contraction, Contraction]:
    """Decide the register tiles of both contractions, and pack what is to be packed.

    Tiles of both have as many rows.
    """
    sch = draft.schedule
    labels = (attention.first.label, attention.second.label)
    first, second = (draft.block(label) for label in labels)
    above, below = attention.row(attention.first), attention.row(attention.second)
    lower = decide_tile(draft, second, tilings[1], middle=False)
    tall = lower.inner.get(below, 1)
    upper = decide_tile(draft, first, tilings[0], middle=False, fixed={above: tall})
    for label, tiling, tile in zip(labels, tilings, (upper, lower), strict=True):
        for n, by in tiling.packs:
            packed = pack(sch, label, n, by, tile.width(by))
            panel = tile.inner[by] if by is tiling.vector else None
            schedule_copy(draft, packed, tile.lanes, panel=panel, parallel=True)
    return (
        Contraction(labels[0], first, above, upper),
        Contraction(labels[1], second, below, lower),
    )


def cut_bands(
    sch: Schedule, loops: dict[Var, Var], row: Var, batch: list[Var], count: Dim
) -> tuple[Var, dict[Var, Var]]:
    """Cut the loop of `row` into bands of `count` rows, and put those outside with the batch.

    `loops` are those of the last block by its variables. Returns the loop over all bands, and the
    loops inside of it by variable.
    """
    inner = {v: loop for v, loop in loops.items() if v not in set(batch)}
    outer = [loops[v] for v in batch]
    bands, inner[row] = sch.split(loops[row], factors=[None, count])
    if any(a is not b for a, b in zip(loops, (*batch, row), strict=False)):
        sch.reorder(*outer, bands, *inner.values())
    return fused(sch, [*outer, bands]), inner


def _apply(draft: Draft, attention: Attention, tilings: tuple[Tiling, Tiling]) -> None:
    sch, cached = draft.schedule, CpuTarget.of(draft.target).l2_bytes
    labels = {b.label: sch.get_block(b.label) for b in attention.members}
    first, second = tile_contractions(draft, attention, tilings)
    writes = [sch.cache_write(c.label, 0, "register") for c in (first, second)]
    last = attention.last
    loops = block_loops(sch, labels[last.label])
    count = sample_band(draft, second)
    nbytes = count * row_bytes(attention)
    draft.limit("what is between fits the second cache", nbytes <= cached)
    top, loops = cut_bands(sch, loops, attention.row(last), attention.batch(last), count)
    if attention.follow is not None:
        sch.compute_at(writes[1], top)
        sch.compute_at(second.label, top)
        loops = block_loops(sch, second.label)

    _schedule_chain(draft, attention, top)
    sch.compute_at(writes[0], top)
    sch.compute_at(first.label, top)
    contract(sch, first, writes[0], block_loops(sch, first.label))
    contract(sch, second, writes[1], loops)
    if attention.follow is not None:
        schedule_spatial(draft, last.label, skip=1)
    draft.map_outer(top)


def _schedule_chain(draft: Draft, attention: Attention, top: Var) -> None:
    """Compute the rows of the chain in the loop over the rows of the weights, where that can be.

    Other blocks have a loop of their own over the rows of the band.
    """
    sch, weights = draft.schedule, attention.weights
    before, after, apart = _placed(attention)
    for block in reversed(attention.chain):
        if block in {weights, *after, *apart}:
            sch.compute_at(block.label, top)
    row = sch.get_loops(weights.label)[attention.count]
    for block in after:
        sch.reverse_compute_at(block.label, row)
    for block in reversed(before):
        sch.compute_at(block.label, row)
    for block in attention.chain:
        if has_reduction(block):
            schedule_reduction(draft, block.label)
        elif attention.has_elements(block):
            schedule_spatial(draft, block.label, skip=1)


def _placed(attention: Attention) -> tuple[list[Block], list[Block], list[Block]]:
    """The chain but for the weights: what is computed for each row of these before them, what is
    after them, and what is apart."""
    weights, chain = attention.weights, attention.chain
    after = downstream(chain, weights)
    inside = {weights, *after}
    before: list[Block] = []
    for block in reversed(chain):
        writes = region_buffers(block.writes)
        readers = {
            b for b in attention.members if b is not block and region_buffers(b.reads) & writes
        }
        if block not in inside and readers <= inside:
            inside.add(block)
            before.insert(0, block)
    return before, after, [b for b in chain if b not in inside]


def contract(sch: Schedule, contraction: Contraction, write: Label, loops: dict[Var, Var]) -> None:
    """Compute a contraction in register tiles, in those of its `loops` that are its own.

    `write` is the block that copies what is in registers. Tiles divide the loop of its row.
    """
    label, block, tiles = contraction.label, contraction.block, contraction.tile
    around = [loops[v] for v in spatial(block) if v in loops and v not in tiles.inner]
    registers: list[Var] = []
    lanes: list[Var] = []
    for v, size in tiles.inner.items():  # the vector's first: all rows use a panel in turn
        if v is tiles.vector:
            part, *lanes = sch.split(loops[v], factors=[None, size, tiles.lanes])
        else:
            part, within = sch.split(loops[v], factors=[None, size], perfect=v is contraction.row)
            registers.append(within)
        around.append(part)
    extent = {i.var: i.extent for i in block.iters}
    depth = [(loops[v], extent[v]) for v in reduced(block)]
    steps, at_once = unrolled(sch, depth, tiles)
    registers = [*at_once, *registers, *lanes]
    sch.reorder(*around, *(loop for loop, _ in steps), *registers)
    sch.reverse_compute_at(write, around[-1])
    in_registers(sch, registers)
    write_back(sch, write, label, tiles)
    sch.decompose_reduction(label, steps[0][0])


def row_bytes(attention: Attention) -> int:
    """Bytes of a row of what the first contraction computes, and of a row of the weights."""
    buffers = {b for m in (attention.first, attention.weights) for b in region_buffers(m.writes)}
    return row_elements(attention) * sum(dtypes.nbytes(b.dtype) for b in buffers)


def row_elements(attention: Attention) -> int:
    """The elements of a row of the weights."""
    weights = attention.weights
    sizes, rows = extents(weights), {*attention.rows[weights.label]}
    return math.prod(sizes[i.var] for i in weights.iters if i.var not in rows)
