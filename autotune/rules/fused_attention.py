"""Contractions with a chain of rows between them, a band of rows at a time: attention.

    for bands of rows (parallel):
      the first contraction for these rows, in register tiles
      for each row: the chain, a softmax for one
      the second contraction for these rows, in register tiles

What is between the contractions is that of one band, and stays in a cache of its core.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ... import dtypes
from ...schedule import Schedule
from ...schedule.blocks import has_reduction, region_buffers
from ...schedule.find import find_block
from ...tir.ir import Block, Dim, Func, Label, Var
from .access_patterns import (
    consumers,
    extents,
    inputs_of,
    output_of,
    reduced,
    spatial,
    vector_choices,
)
from .common import fused, powers
from .contraction import Plan, decide_tile, in_registers, unrolled
from .draft import Draft, RuleChoice
from .packing import pack, packings, schedule_copy
from .rows import row_dimensions, schedule_reduction, schedule_spatial
from .rule import Group, GroupKind, Variant
from .tiles import MAX_TILE, RegisterTile, write_back

MAX_BAND = 256
"""Rows of a band. Of more rows the operands of the contractions are read less often, which hardly
counts, and what is between is sooner too large for a cache."""


@dataclass(frozen=True)
class Band:
    """Two contractions and the chain between them.

    The first `count` variables of the last of the chain number its rows; `rows` are the variables
    of the contractions that do so as the last of these.
    """

    first: Block
    chain: tuple[Block, ...]
    second: Block
    count: int
    rows: tuple[Var, Var]

    @property
    def members(self) -> tuple[Block, ...]:
        """All blocks in program order."""
        return (self.first, *self.chain, self.second)


def find_band(func: Func, chain: Sequence[Block], contractions: Sequence[Block]) -> Band | None:
    """The band that a chain of rows is in the middle of; `None` where there is none.

    What the first contraction and the chain compute must be for the next of them alone.
    """
    labels = {b.label for b in chain}
    first = next((c for c in contractions if _serves(func, c, labels)), None)
    second = next((c for c in contractions if _serves(func, chain[-1], {c.label})), None)
    if first is None or second is None:
        return None
    count = row_dimensions(func, chain[-1])
    above = row_above(first, chain, count) if count else None
    below = _row_below(chain[-1], second, count) if count else None
    if not count or above is None or below is None:
        return None
    return Band(first, tuple(chain), second, count, (above, below))


def band_of(draft: Draft, group: Group) -> Band | None:
    """The band that a group is; `None` for another group."""
    if group.kind is not GroupKind.ATTENTION:
        return None
    first, *chain, second = group.members
    return find_band(draft.func, chain, [first, second])


def _serves(func: Func, block: Block, readers: set[Label]) -> bool:
    """Whether what a block writes is internal, and read by some of `readers` alone."""
    found = consumers(func, block)
    internal = region_buffers(block.writes) <= set(func.allocs)
    return internal and bool(found) and all(r.label in readers for r in found)


def row_above(first: Block, chain: Sequence[Block], count: int) -> Var | None:
    """The variable of `first` at which it writes what `chain` reads at its variable `count`.

    They count from 1: the last that numbers rows, say.
    """
    out = output_of(first)
    if out is None:
        return None
    for b in chain:
        for read in inputs_of(b):
            at = read.plain.get(b.iters[count - 1].var)
            if read.buffer is out.buffer and read.at.shape == out.at.shape and at is not None:
                return next((v for v, d in out.plain.items() if d == at), None)
    return None


def _row_below(last: Block, second: Block, count: int) -> Var | None:
    """The variable of `second` that numbers rows as the last of the first `count` of `last` does.

    The variables before it must number rows as well, and those that follow the elements of a row
    must be reduced. `None` where that is not so.
    """
    out = output_of(last)
    if out is None:
        return None
    read = next(i for i in inputs_of(second) if i.buffer is out.buffer)
    if read.at.shape != out.at.shape:
        return None
    place = {d: v for v, d in read.plain.items()}
    numbers = [place.get(out.plain[i.var]) if i.var in out.plain else None for i in last.iters]
    row, sizes = numbers[count - 1], extents(second)
    own = spatial(second)
    if row is None or row not in set(own) or sizes[row] < MAX_TILE:
        return None
    before = [v for v in own[: next(n for n, v in enumerate(own) if v is row)] if sizes[v] > 1]
    inner = set(reduced(second))
    fits = {*before, row} <= {v for v in numbers[:count] if v is not None}
    return row if fits and all(v in inner for v in numbers[count:]) else None


def fused_attention_variants(draft: Draft, group: Group) -> Iterator[Variant]:
    """The chain in bands, with what the vectors of the first contraction run along packed."""
    band = band_of(draft, group)
    if band is None:
        return
    name, plans = band_plans(band)
    choice = RuleChoice.of("fused_attention", pack=bool(name))
    yield Variant(choice, f"band{name}", (functools.partial(_apply, band=band, plans=plans),))


def band_plans(band: Band) -> tuple[str, tuple[Plan, Plan]]:
    """The plans of both contractions, and what they pack: not the rows, few at a time."""
    along = vector_choices(band.second)[0]
    fewest = min(packings(band.second, along), key=len)
    second = Plan(along, _from_outside(band, band.second, fewest))
    along = vector_choices(band.first)[0]
    packs = next(packings(band.first, along))
    names = [inputs_of(band.first)[n].buffer.name for n, _ in packs]
    return "".join(f"_pack{x}" for x in names), (Plan(along, packs), second)


def _from_outside(
    band: Band, block: Block, packs: tuple[tuple[int, Var], ...]
) -> tuple[tuple[int, Var], ...]:
    """Those of `packs` that are not of what the band itself computes."""
    made = {b for m in band.members for b in region_buffers(m.writes)}
    inputs = inputs_of(block)
    return tuple((n, by) for n, by in packs if inputs[n].buffer not in made)


@dataclass(frozen=True)
class Ends:
    """Both contractions of a band as they are scheduled, with the register tiles of each."""

    labels: tuple[Label, Label]
    blocks: tuple[Block, Block]
    rows: tuple[Var, Var]
    tiles: tuple[RegisterTile, RegisterTile]

    @property
    def before(self) -> list[Var]:
        """The variables of the second one that come before its rows."""
        own = spatial(self.blocks[1])
        return own[: next(n for n, v in enumerate(own) if v is self.rows[1])]

    def band(self, draft: Draft) -> Dim:
        """Decide how many rows a band has: as many register tiles as a power of two."""
        row = self.rows[1]
        # Register tiles end with the band, and that is no longer than the dimension whatever they
        # are: no guard is left but that of the whole dimension.
        most = max(1, min(MAX_BAND, extents(self.blocks[1])[row]) // MAX_TILE)
        tall = self.tiles[1].inner.get(row, 1)
        count = tall * draft.schedule.sample_categorical(powers(most))
        draft.limit("a band is worth its operands", count >= MAX_TILE)
        return count


def ends_of(draft: Draft, band: Band, plans: tuple[Plan, Plan]) -> Ends:
    """Decide the register tiles of the contractions of a band, and pack what is to be packed.

    Tiles of both have as many rows.
    """
    sch = draft.schedule
    labels = (band.first.label, band.second.label)
    first, second = (draft.block(label) for label in labels)
    above, below = band.rows
    lower = decide_tile(draft, second, plans[1], middle=False)
    tall = lower.inner.get(below, 1)
    upper = decide_tile(draft, first, plans[0], middle=False, given={above: tall})
    for label, plan, tile in zip(labels, plans, (upper, lower), strict=True):
        for n, by in plan.packs:
            packed = pack(sch, label, n, by, tile.width(by))
            panel = tile.inner[by] if by is plan.vector else None
            schedule_copy(draft, packed, tile.lanes, panel=panel, parallel=True)
    return Ends(labels, (first, second), band.rows, (upper, lower))


def _apply(draft: Draft, band: Band, plans: tuple[Plan, Plan]) -> None:
    sch, target = draft.schedule, draft.target
    _, *chain, _ = (draft.handle(b.label) for b in band.members)
    contractions = ends_of(draft, band, plans)
    ends, blocks = contractions.labels, contractions.blocks
    rows, tiles = contractions.rows, contractions.tiles
    writes = [sch.cache_write(label, 0, "register") for label in ends]

    loops = dict(zip([i.var for i in blocks[1].iters], sch.get_loops(ends[1]), strict=True))
    before = [loops[v] for v in contractions.before]
    count = contractions.band(draft)
    draft.limit("what is between fits the second cache", count * row_bytes(band) <= target.l2_bytes)
    bands, loops[rows[1]] = sch.split(loops[rows[1]], factors=[None, count])
    top = fused(sch, [*before, bands])

    *others, last = chain
    sch.compute_at(last, top)
    each = sch.get_loops(last)[band.count]
    for label in reversed(others):
        sch.compute_at(label, each)
    for label in chain:
        if has_reduction(find_block(sch.func, label)):
            schedule_reduction(draft, label)
        else:
            schedule_spatial(draft, label, skip=1)
    sch.compute_at(writes[0], top)
    sch.compute_at(ends[0], top)
    own = sch.get_loops(ends[0])[1:]
    own_loops = dict(zip([i.var for i in blocks[0].iters], own, strict=True))
    contract(sch, ends[0], writes[0], blocks[0], own_loops, tiles[0], rows[0])
    inside = {v: loop for v, loop in loops.items() if loop not in set(before)}
    contract(sch, ends[1], writes[1], blocks[1], inside, tiles[1], rows[1])
    draft.map_outer(top)


def contract(
    sch: Schedule,
    label: Label,
    write: Label,
    block: Block,
    loops: dict[Var, Var],
    tiles: RegisterTile,
    row: Var,
) -> None:
    """Compute a contraction in register tiles, in those of its `loops` that are its own.

    `write` is the block that copies what is in registers. Tiles divide the loop of `row`.
    """
    around = [loops[v] for v in spatial(block) if v in loops and v not in tiles.inner]
    registers: list[Var] = []
    lanes: list[Var] = []
    for v, size in tiles.inner.items():  # the vector's first: all rows use a panel in turn
        if v is tiles.vector:
            part, *lanes = sch.split(loops[v], factors=[None, size, tiles.lanes])
        else:
            part, within = sch.split(loops[v], factors=[None, size], perfect=v is row)
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


def row_bytes(band: Band) -> int:
    """Bytes of a row of all that the band computes on the way to the second contraction."""
    last = band.chain[-1]
    sizes = extents(last)
    width = math.prod(sizes[i.var] for i in last.iters[band.count :])
    buffers = {b for m in (band.first, last) for b in region_buffers(m.writes)}
    return width * sum(dtypes.nbytes(b.dtype) for b in buffers)
