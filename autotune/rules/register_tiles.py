"""Register tiles: the variables that they span, their sizes, and how they are written back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ...schedule import Schedule
from ...schedule.block_queries import free_vars, readers_of
from ...schedule.find import find_block
from ...tir.ir import Block, Dim, Label, Var, product
from .access_patterns import (
    Input,
    extents,
    grouped,
    inputs_of,
    low_digits,
    output_of,
    outputs_of,
    reduced,
    spatial,
)
from .common import in_registers, powers

MAX_TILE = 16
MAX_VECTORS = 6
MAX_MIDDLE = 256


def tile_variables(main: Block, vector: Var) -> list[Var]:
    """The variables, beside the vector's, over which a register tile reuses what it loads.

    Those that vectors do not differ in come first, then those along which windows slide.
    """
    sizes = extents(main)
    inner = set(reduced(main))
    loaded = [i for i in inputs_of(main) if vector in i.used]
    whole = low_digits(main)
    same: list[Var] = []
    sliding: list[Var] = []
    for v in reversed(spatial(main)):
        if v is vector or sizes[v] < 2 or v in whole:
            continue
        if any(v not in i.used for i in loaded):
            same.append(v)
        elif any(v in i.used and v not in i.plain and i.used & inner for i in inputs_of(main)):
            sliding.append(v)
    return [*same, *sliding][:2]


def fewest_registers(main: Block, vector: Var) -> int:
    """The registers of the smallest register tile: accumulators, and vectors that are loaded."""
    low = low_digits(main)
    loaded = [
        math.prod(n for v, n in low.items() if v in i.used)
        for i in inputs_of(main)
        if vector in i.used
    ]
    return math.prod(low.values()) * len(outputs_of(main)) + (loaded[-1] if loaded else 0)


@dataclass(frozen=True)
class RegisterTile:
    """The decisions of a register tile.

    `inner` is how much it has of each variable, of `vector` in vectors of `lanes`, and `middle` how
    many register tiles a tile in cache has along each; there are none of those if it is empty.
    `unroll` steps of the innermost loop of the reduction, and `rows` of the loop around it, are
    taken at once; `part` is how long a part of the reduction is. They are `None` where there is
    nothing to decide. There is a tile of each of `results`.
    """

    vector: Var
    lanes: int
    inner: Mapping[Var, Dim]
    middle: Mapping[Var, Dim]
    unroll: Dim | None = None
    rows: Dim | None = None
    part: Dim | None = None
    results: int = 1

    @property
    def accumulators(self) -> Dim:
        """The vectors of results that it holds."""
        return product([self.results, *self.inner.values()])

    def on(self, variables: Mapping[Var, Var]) -> RegisterTile:
        """The same tile of a block that has other variables in the place of this one's."""
        inner = {variables[v]: n for v, n in self.inner.items()}
        middle = {variables[v]: n for v, n in self.middle.items()}
        return replace(self, vector=variables[self.vector], inner=inner, middle=middle)

    def width(self, var: Var) -> Dim:
        """Its elements along a variable."""
        return self.inner[var] * self.lanes if var is self.vector else self.inner[var]


def sample_tile(
    sch: Schedule,
    main: Block,
    vector: Var,
    lanes: int,
    vectors: int,
    favoured: tuple[int, int],
    *,
    cached: bool = True,
    fixed: Mapping[Var, Dim] = {},
) -> RegisterTile:
    """Decide how much of each variable a register tile has, and how many of those a tile in cache.

    There are `vectors` of `lanes` along `vector`. `favoured` are the numbers of vectors and of rows
    that are often good. The vector's variable comes first. There are no tiles in cache unless
    `cached`; the elements of the variables `fixed` are decided already.
    """
    sizes, groups = extents(main), grouped(main)
    counts = vectors, MAX_VECTORS, favoured[0]
    inner: dict[Var, Dim] = {vector: _sampled(sch, *counts, whole=vector in groups)}
    middle: dict[Var, Dim] = (
        {vector: 1 if vector in groups else _middle_tile(sch, vectors)} if cached else {}
    )
    for n, v in enumerate(tile_variables(main, vector)):
        counts = sizes[v], MAX_TILE if n == 0 else 4, favoured[1]
        inner[v] = fixed[v] if v in fixed else _sampled(sch, *counts, whole=v in groups)
        if cached:
            middle[v] = 1 if v in groups else _middle_tile(sch, sizes[v])
    inner |= {v: sizes[v] for v in low_digits(main)}
    return RegisterTile(vector, lanes, inner, middle, results=len(outputs_of(main)))


def _sampled(sch: Schedule, extent: int, most: int, favoured: int, *, whole: bool) -> Dim:
    """How much a tile has, up to `most`; with `whole` a divisor of the extent."""
    values = [n for n in range(1, min(most, extent) + 1) if not whole or extent % n == 0]
    if whole and len(values) == 1:
        return 1  # as a decision it would not be known to divide
    return sch.sample_categorical(values, _weights(values, extent, favoured))


def _weights(values: list[int], extent: int, favoured: int) -> list[float]:
    """Probabilities of tile sizes: more for those that waste little of `extent`."""
    weights = []
    for v in values:
        waste = -(-extent // v) * v / extent - 1
        weights.append(round(1 / (1 + 8 * waste) + (0.5 if v == favoured else 0), 2))
    return weights


def _middle_tile(sch: Schedule, extent: int) -> Dim:
    return sch.sample_categorical(powers(min(MAX_MIDDLE, extent)))


def hold_results(sch: Schedule, main: Label, scope: str) -> list[Label]:
    """Hold the results of a block in a scope near it; the blocks that write them to memory.

    What nothing reads, such as the largest value where its place alone is asked for, stays there.
    """
    writes: list[Label] = []
    for n, out in enumerate(outputs_of(find_block(sch.func, main))):
        if out.buffer in sch.func.allocs and not readers_of(sch.func, {out.buffer}, but=main):
            sch.set_scope(main, n, scope)
        else:
            writes.append(sch.cache_write(main, n, scope))
    return writes


def write_back(
    sch: Schedule,
    write: Label,
    main: Label,
    register_tile: RegisterTile,
    row: Var | None = None,
) -> None:
    """Unroll and vectorise the copy of a register tile of `main` to memory.

    Vectors are stored along the variable whose values are adjacent in memory: `row` if it is given,
    else one of the tile with stride 1 in the result, else the tile's vector. Loops are fused first
    where only all of them together run through adjacent elements: the rows and columns of a tile
    that has whole rows, and the digits of one index.
    """
    vector, lanes = register_tile.vector, register_tile.lanes
    copy = find_block(sch.func, write)
    read = {i.buffer: i for i in inputs_of(copy)}
    out = next(o for o in outputs_of(find_block(sch.func, main)) if o.buffer in read)
    tile = read[out.buffer]
    loops = sch.get_loops(write)[-len(copy.iters) :]
    loop_of = {
        tile.plain[i.var]: loop
        for i, loop in zip(copy.iters, loops, strict=True)
        if i.var in tile.plain
    }
    written = output_of(copy)
    assert written is not None
    rows = (v for v in register_tile.inner if out.strides.get(v) == 1 and v in out.plain)
    along = next(rows, vector) if row is None else row
    digits = free_vars(written.at.indices[-1])
    parts: list[int] = []
    if _is_whole(register_tile, out, along):
        parts = sorted((out.plain[vector], out.plain[along]))
    elif not digits.isdisjoint(low_digits(copy)):
        parts = sorted(d for v, d in tile.plain.items() if v in digits)
    if len(parts) > 1:
        digit_loops = [loop_of[d] for d in parts]
        number = sch.fuse(*digit_loops)
        loops = (*(v for v in loops if v not in set(digit_loops)), number)
        loop_of |= dict.fromkeys(parts, number)
    last = loop_of[out.plain[along]]
    rest = [v for v in loops if v is not last]
    if last is loop_of[out.plain[vector]]:
        count, last = sch.split(last, factors=[None, lanes])
        rest.append(count)
    sch.reorder(*rest, last)
    in_registers(sch, [*rest, last])


def written_along(main: Block, follow: Block) -> Var | None:
    """The variable of a block along which the elements lie side by side that the following one
    writes."""
    out, written = output_of(main), output_of(follow)
    if out is None or written is None:
        return None
    for read in inputs_of(follow):
        if read.buffer is out.buffer:
            near = {read.plain[v] for v in read.plain if written.strides.get(v) == 1}
            return next((v for v, d in out.plain.items() if d in near), None)
    return None


def _is_whole(tile: RegisterTile, out: Input, along: Var) -> bool:
    """Whether the vector's elements are rows of a matrix in memory, and the tile has all columns.

    `along` numbers the columns. The rows of the tile then follow each other without a gap.
    """
    columns = out.at.shape[out.plain[along]]
    held = tile.inner.get(along)
    beside = isinstance(columns, int) and out.strides.get(tile.vector) == columns
    return along is not tile.vector and beside and isinstance(held, int) and held == columns
