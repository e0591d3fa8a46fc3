"""The bytes that move between caches, and the data that must fit a cache to stay in it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from operator import add, mul

import numpy as np

from ....base import dtypes
from ....tir.columns import (
    Floats,
    Number,
    absolute,
    calculated,
    ceil,
    common_divisor,
    ends,
    equal,
    floor,
    maximum,
    minimum,
    of_arrays,
    where,
)
from ..profile import StridedAccess
from .footprints import Evaluated, Footprint, Numbers


@dataclass(frozen=True)
class Cache:
    """A cache of `size` bytes and `ways` lines, of `line` bytes, in each set."""

    size: int
    ways: int
    line: int

    @property
    def sets(self) -> int:
        return max(1, self.size // self.line // self.ways)


@dataclass
class Traffic:
    """At one loop level: the bytes moved if what is below it fits a cache, and what must fit.

    `needed` begins with the bytes that are touched, and has then for each cache those that must
    fit: more where the stride between rows lets them compete for a few sets of the cache.
    """

    moved: Number
    needed: list[Number]


def traffic(
    data: Evaluated,
    n: Numbers,
    accesses: list[StridedAccess],
    footprints: list[list[Footprint]],
    caches: tuple[Cache, ...],
) -> list[Traffic]:
    """For each loop level, outermost first, what the accesses move and occupy."""
    line = float(caches[0].line)
    levels = [Traffic(0.0, [0.0] * (1 + len(caches))) for _ in range(len(n.extents) + 1)]
    outside: list[Number] = [1.0, *accumulate(n.extents, mul)]
    repeats = [extent > 1 for extent in n.extents]
    for a, swept in zip(accesses, footprints, strict=True):
        size = dtypes.nbytes(a.buffer.dtype)
        sharing = _sharing(data.column(a.sizes[-1]) * size if a.sizes else 1.0, caches)
        fitting = _needed(swept, size, sharing, caches)
        times: Number = 1.0
        step: Number = line
        for level, (here, needed, total) in enumerate(zip(swept, fitting, levels, strict=True)):
            # Loops right around that do not move the access reuse what is there: it is all moved as
            # often as the innermost one moves it that does, and that by all loops around that one.
            if level > 0:
                around = level - 1
                moves = data.moves(n, a, around)
                if moves is n.extents[around]:
                    times = where(repeats[around], outside[level], times)
                    step = where(repeats[around], _step(data, a, around, line / size) * size, step)
                elif moves is not None:
                    times = where(moves > 1, moves * outside[around], times)
                    step = where(moves > 1, _step(data, a, around, line / size) * size, step)
            # Steps that are shorter than a line find most of it there.
            fresh = where(step < line, minimum(here.runs * step, needed[0]), needed[0])
            moved = fresh * times  # twice for a store, which reads the line first
            if a.stores:
                total.moved = total.moved + 2.0 * moved
            elif not 0 < a.shared >= level:  # else an earlier visit has brought it
                total.moved = total.moved + moved
            total.needed = list(map(add, total.needed, needed))
    return levels


def _step(data: Evaluated, access: StridedAccess, loop: int, across: float) -> Number:
    """Elements by which an iteration of a loop moves an access along a line; `across` to others."""
    along: Number = 0.0
    for d, terms in enumerate(access.terms):
        for t in terms:
            if t.loop == loop:
                moves = data.column(t.values) > 1
                last = d == len(access.terms) - 1
                along = along + moves * (absolute(data.column(t.step)) if last else across)
    return along


def _needed(
    swept: list[Footprint], size: int, sharing: list[Number] | None, caches: tuple[Cache, ...]
) -> list[list[Number]]:
    """For each loop level, what `Traffic.needed` has of one access; see `Evaluated.footprints`."""
    levels: list[list[Number]] = []
    for level, here in enumerate(swept):
        if level > 0 and here is swept[level - 1]:
            levels.append(levels[-1])
            continue
        # Whole lines are moved.
        touched = maximum(here.elements * size, here.runs * caches[0].line)
        levels.append([touched, *_crowded(touched, here.runs, sharing, caches)])
    return levels


def _sharing(row: Number, caches: tuple[Cache, ...]) -> list[Number] | None:
    """For each cache, how many rows of `row` bytes share a set; `None` if that is all it has.

    Only rows of whole lines do: others come to lie on different sets.
    """
    line = float(caches[0].line)
    lines = floor(row / line)
    aligned = equal(row / line, lines) * (lines > 0)
    if ends(aligned)[1] == 0:
        return None
    lines = maximum(lines, 1.0)
    return [where(aligned, common_divisor(lines, cache.sets), 1.0) for cache in caches]


def _crowded(
    touched: Number, runs: Number, sharing: list[Number] | None, caches: tuple[Cache, ...]
) -> list[Number]:
    """For each cache, the bytes `touched` in so many `runs`, as if it had all its sets."""
    if sharing is None or ends(runs)[1] < min(cache.ways for cache in caches):
        return [touched] * len(caches)
    lines = maximum(ceil(touched / runs / caches[0].line), 1.0)
    return [
        touched * maximum((runs >= cache.ways) * (shared / lines), 1.0)
        for shared, cache in zip(sharing, caches, strict=True)
    ]


def at_capacity(levels: list[Traffic], cache: int, capacity: float, stays: Number) -> Number:
    """The bytes moved into a cache: those of the outermost level whose data fits it.

    Data of up to twice the capacity stays in part. Of what is touched for the first time, the share
    that `stays` of the whole program is there from the call before, or from who made it.
    """
    result = levels[-1].moved
    for level in reversed(levels[:-1]):
        result = _less(result, level.moved, staying(level.needed[1 + cache], capacity))
    return maximum(result - stays * levels[0].moved, 0.0)


def staying(needed: Number, capacity: float) -> Number:
    """The share of data that stays: all up to the capacity, nothing from twice that on."""
    least, most = ends(needed)
    low, high = (min(max(2.0 - n / capacity, 0.0), 1.0) for n in (most, least))
    return calculated(_stay, (needed, capacity, 2.0, 0.0, 1.0), low, high)


@of_arrays
def _stay(
    needed: Floats, capacity: Floats, two: Floats, zero: Floats, one: Floats, out: Floats
) -> None:
    np.divide(needed, capacity, out=out)
    np.subtract(two, out, out=out)
    np.maximum(out, zero, out=out)
    np.minimum(out, one, out=out)


def _less(moved: Number, outside: Number, stays: Number) -> Number:
    """The bytes `moved`, of which the share that stays is moved by the loop outside alone."""
    (m0, m1), (o0, o1), (s0, s1) = ends(moved), ends(outside), ends(stays)
    if s1 == 0 or m1 <= o0:
        return moved
    low, high = m0 - s1 * max(m1 - o0, 0.0), m1 - s0 * max(m0 - o1, 0.0)
    return calculated(_subtract_staying, (moved, outside, stays, 0.0), low, high)


@of_arrays
def _subtract_staying(
    moved: Floats, outside: Floats, stays: Floats, zero: Floats, out: Floats
) -> None:
    saved = moved - outside
    np.maximum(saved, zero, out=saved)
    np.multiply(stays, saved, out=saved)
    np.subtract(moved, saved, out=out)
