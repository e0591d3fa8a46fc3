"""The numbers of a profile for many candidates: extents, and what accesses touch as loops run.

Shuffles that bring the lanes of a vector together from the registers that they are in.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from operator import mul

from ....codegen.passes.registers import SCOPE, Home, shuffles
from ....tir.columns import (
    Number,
    Tape,
    absolute,
    as_float,
    ceil,
    ends,
    equal,
    floor,
    maximum,
    minimum,
    where,
)
from ....tir.evaluate import Expressions
from ....tir.ir import Buffer, Dim, Expr, ForKind
from ..profile import Profile, StridedAccess, Visit


@dataclass(frozen=True)
class Numbers:
    """The numbers of a visit: the extents of its loops, and the shuffles of one vector."""

    visit: Visit
    extents: list[Number]
    shuffles: float

    def product(self, which: Callable[[int], bool]) -> Number:
        """The product of the extents of the loops with the numbers that `which` picks."""
        return functools.reduce(mul, [e for n, e in enumerate(self.extents) if which(n)], 1.0)


@dataclass(frozen=True)
class Footprint:
    """The elements that an access touches, and the runs of them that are next to each other."""

    elements: Number
    runs: Number


@dataclass(frozen=True)
class Stride:
    """The elements of memory by which an iteration moves an access, if it does so each time.

    It does where the digits of a loop are next to each other in memory: `even` is 1 there.
    """

    step: Number
    even: Number


class Evaluated:
    """A profile with its dimensions as numbers on a tape, whose inputs are its variables."""

    def __init__(self, source: Profile, tape: Tape) -> None:
        self._numbers = Expressions(tape, source.bounds)
        self._floats: dict[Expr, Number] = {}
        self.bytes = self.column(source.bytes)
        self.visits = [
            Numbers(v, [maximum(self.column(e), 1.0) for e in v.extents], count)
            for v, count in zip(source.visits, shuffles_of(source.visits), strict=True)
        ]

    def column(self, dim: Dim) -> Number:
        """A dimension as a number."""
        if isinstance(dim, int):
            return float(dim)
        number = self._floats.get(dim)
        if number is None:
            number = self._floats[dim] = as_float(self._numbers(dim))
        return number

    def covered(self, n: Numbers, kinds: Collection[ForKind]) -> Number:
        """The share of the iterations of the loops that find something to do.

        Whole tiles outside of a domain are passed over, and one that is partly outside counts as a
        whole: a tile is what loops of these kinds take. Where tiles overlap, what they share is
        computed in each of them.
        """
        share: Number = n.visit.runs
        for domain in n.visit.domains:
            total: Number = 1.0
            reach: Number = 1.0
            tile: Number = 1.0
            for t in domain.terms:
                values = maximum(self.column(t.values), 1.0)
                total = total * values
                reach = reach + (values - 1.0) * absolute(self.column(t.step))
                if n.visit.kinds[t.loop] in kinds:
                    tile = tile * values
            tiles = ceil(maximum(self.column(domain.size), 1.0) / tile)
            share = share * minimum(tiles * tile / (reach if domain.exact else total), 1.0)
        return share

    def register_tiles(self, n: Numbers) -> list[tuple[Number, Number]]:
        """The register tiles of each size: their number, and the share of a whole tile's vectors.

        The last tile along a variable has what is left over. Numbers are relative to each other.
        """
        tiles: list[tuple[Number, Number]] = [(1.0, 1.0)]
        for domain in n.visit.domains:
            lanes: Number = 1.0
            tile: Number = 1.0
            unrolled = False
            for t in domain.terms:
                values = maximum(self.column(t.values), 1.0)
                if n.visit.kinds[t.loop] is ForKind.VECTOR:
                    lanes = lanes * values
                elif n.visit.kinds[t.loop] is ForKind.UNROLL and not n.visit.reduces[t.loop]:
                    tile, unrolled = tile * values, True
            if not (unrolled and domain.exact):
                continue
            vectors = ceil(maximum(self.column(domain.size), 1.0) / lanes)
            whole = floor(vectors / tile)
            rest = vectors - whole * tile
            if ends(rest)[1] == 0:
                continue
            last = minimum(rest, 1.0), rest / tile
            tiles = [
                (number * times, share * part)
                for number, share in tiles
                for times, part in ((whole, 1.0), last)
            ]
        return tiles

    def footprints(self, access: StridedAccess, depth: int) -> list[Footprint]:
        """For each of `depth` loops, what is touched while it and those inside it sweep.

        The last one is for no loop at all. Dimensions are taken as hulls, and loops to run at least
        once. Where a loop does not move the access, its footprint is that of the next loop.
        """
        sizes = [maximum(self.column(size), 1.0) for size in access.sizes]
        spans: list[Number] = [1.0] * len(sizes)
        inside = [minimum(1.0, size) for size in sizes]
        levels = [_footprint(inside, sizes)]
        for level in range(depth - 1, -1, -1):
            moved = False
            for d, terms in enumerate(access.terms):
                for t in terms:
                    if t.loop == level:
                        step = absolute(self.column(t.step))
                        spans[d] = spans[d] + step * maximum(self.column(t.values) - 1.0, 0.0)
                        inside[d] = minimum(spans[d], sizes[d])
                        moved = True
            levels.append(_footprint(inside, sizes) if moved else levels[-1])
        return levels[::-1]

    def moves(self, n: Numbers, access: StridedAccess, loop: int) -> Number | None:
        """How often a sweep of a loop moves the access to other elements, 1 where it does not.

        Returns the extent object itself if every iteration moves the access, `None` if none does.
        """
        extent = n.extents[loop]
        times: Number | None = None
        for terms in access.terms:
            for t in terms:
                if t.loop == loop:
                    if t.values is n.visit.extents[loop] and type(t.period) is int:
                        return extent
                    times = 1.0 if times is None else times
                    often = ceil(extent / self.column(t.period))
                    times = where(self.column(t.values) > 1, maximum(times, often), times)
        return times

    def stride(self, access: StridedAccess, loop: int) -> Stride:
        """How one iteration of a loop moves the access in memory."""
        size: Number = 1.0
        step: Number = 0.0
        digits: list[tuple[Number, Number, Number]] = []
        for d in range(len(access.sizes) - 1, -1, -1):
            for t in access.terms[d]:
                if t.loop == loop:
                    moves = self.column(t.values) > 1
                    by = self.column(t.step) * size * moves
                    if type(t.period) is int and t.period == 1:
                        step = step + by
                    else:
                        digits.append((by, self.column(t.period), moves))
            size = size * self.column(access.sizes[d])
        even: Number = 1.0
        for by, period, moves in digits:
            even = even * where(moves, equal(by, step * period), 1.0)
        return Stride(step, even)


def _footprint(inside: list[Number], sizes: list[Number]) -> Footprint:
    """`inside` of the `sizes` of each dimension. Whole rows next to each other make one run."""
    runs: Number = 1.0
    whole: Number = 1.0
    for d in range(len(inside) - 1, 0, -1):
        whole = whole * (inside[d] >= sizes[d])
        runs = runs * where(whole, 1.0, inside[d - 1])
    return Footprint(functools.reduce(mul, inside, 1.0), runs)


def shuffles_of(visits: Sequence[Visit]) -> list[float]:
    """For each visit those of one vector of what it reads across vectors in registers."""
    held: dict[Buffer, tuple[Visit, StridedAccess]] = {}
    for v in visits:
        for a in v.accesses:
            if a.stores and a.buffer.scope == SCOPE:
                held.setdefault(a.buffer, (v, a))
    reads = [[a for a in v.accesses if not a.stores and a.buffer in held] for v in visits]
    return [
        sum(_shuffles(v, a, *held[a.buffer]) for a in accesses)
        for v, accesses in zip(visits, reads, strict=True)
    ]


def _shuffles(reader: Visit, load: StridedAccess, writer: Visit, store: StridedAccess) -> float:
    """Those of the first vector of a load, which the others are like."""
    wanted, stored, row = _lanes(reader, load), _lanes(writer, store), store.sizes[-1]
    lanes = len(stored)
    if lanes < 2 or stored != tuple(range(lanes)) or not isinstance(row, int) or len(wanted) < 2:
        return 0.0
    home: Home = {}
    for element in wanted:
        lane = element % row % lanes
        first = element - lane
        home[element] = range(first, first + lanes), lane
    return shuffles(wanted, home, load.buffer.dtype)


def _lanes(visit: Visit, access: StridedAccess) -> tuple[int, ...]:
    """The offsets of the lanes of a vector, the first of an access; none if they are not known."""
    along = {n for n, kind in enumerate(visit.kinds) if kind is ForKind.VECTOR}
    moving = {t.loop for terms in access.terms for t in terms} & along
    if len(moving) != 1:
        return ()
    (loop,) = moving
    lanes = visit.extents[loop]
    if not isinstance(lanes, int):
        return ()
    offsets = [0] * lanes
    size: Dim = 1
    for extent, terms in zip(reversed(access.sizes), reversed(access.terms), strict=True):
        for t in terms:
            if t.loop == loop:
                match t.step, t.values, t.period, size:
                    case int(step), int(values), int(period), int(row):
                        offsets = [
                            offset + lane // period % values * step * row
                            for lane, offset in enumerate(offsets)
                        ]
                    case _:
                        return ()
        size = size * extent
    return tuple(offsets)
