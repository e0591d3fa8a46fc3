"""Sampling decisions: `sample_perfect_tile`, `sample_partitioned_tile`, `sample_tile`,
`sample_categorical`, `sample_compute_location`.

In a symbolic schedule, tiles are sampled of loops that have as many iterations for all decisions,
or a number that is known in terms of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

from ...base.errors import ScheduleError
from ...tir.bounds import bound
from ...tir.ir import Dim, Expr, Func, Label, Var, ceildiv, product
from ..block_queries import readers_of, region_buffers
from ..choose import Choose, Fits
from ..find import find_block, find_loop, loops_above
from ..placement import require_settled
from ..primitive import primitive
from ..require import current_space, imply, require
from .place import compute_at

MAX_PARTS = 16
MAX_CANDIDATES = 4096


@primitive
def sample_perfect_tile(
    fn: Func, choose: Choose, loop: Var, n: int, max_innermost_factor: int = 16
) -> tuple[Func, tuple[Dim, ...]]:
    """Sample `n` factors of the extent of `loop`, with the innermost at most the maximum.

        sch.sample_perfect_tile(i, n=3)   ->   (16, 8, 8) for an extent of 1024

    The decision has the inner `n - 1` factors, innermost first; the outermost follows from them.
    """
    extent = _require_parts(fn, loop, n, max_innermost_factor)
    factors: tuple[Dim, ...] = ()
    for k in range(n - 1, 0, -1):
        most = max_innermost_factor if k == n - 1 else _most(extent)
        values = [d for d in _divisors(extent) if d <= most]
        factors = (choose(f"{loop.name}_t{k}", values, _divides(extent, factors)), *factors)
    return fn, _with_outermost(extent, factors)


@primitive
def sample_partitioned_tile(
    fn: Func,
    choose: Choose,
    loop: Var,
    n: int,
    partition_pos: int = 0,
    innerpart_factor: int = 1,
) -> tuple[Func, tuple[Dim, ...]]:
    """Sample `n` factors of the extent of `loop`, with the inner part a multiple of a factor.

        sch.sample_partitioned_tile(i, n=3, partition_pos=1, innerpart_factor=16)   ->   (4, 2, 8)

    The product of the factors from `partition_pos` on, here 2 * 8, is a multiple of
    `innerpart_factor`, such as the tile size of an instruction. The decision has the inner `n - 1`
    factors, innermost first; the outermost follows from them.
    """
    extent = _require_parts(fn, loop, n, innerpart_factor)
    require(
        0 <= partition_pos <= n,
        "the partition is before part {0}; expected 0 to {1}",
        partition_pos,
        n,
        at=loop,
    )
    require(
        partition_pos < n or innerpart_factor == 1,
        "there is no part from {0} on whose factors could multiply to a multiple of {1}",
        partition_pos,
        innerpart_factor,
        at=loop,
    )
    require(
        extent % innerpart_factor == 0,
        "the extent {0} is no multiple of {1}, which the inner part is to be",
        extent,
        innerpart_factor,
        at=loop,
    )
    factors: tuple[Dim, ...] = ()
    for k in range(n - 1, 0, -1):
        fits = _divides(extent, factors)
        if k >= partition_pos > 0:
            last = k == partition_pos
            fits = _divides_with(extent, factors, innerpart_factor, last=last)
        factors = (choose(f"{loop.name}_t{k}", _divisors(extent), fits), *factors)
    return fn, _with_outermost(extent, factors)


@primitive
def sample_tile(
    fn: Func, choose: Choose, loop: Var, n: int, max_factor: int = 64
) -> tuple[Func, tuple[Dim, ...]]:
    """Sample `n` factors whose product covers the extent of `loop` and need not divide it.

        sch.sample_tile(i, n=2)   ->   (9, 12) for an extent of 97

    The decision has the inner `n - 1` factors, innermost first, each at most `max_factor`; their
    product is at most the extent. The outermost is the smallest that covers the extent.
    """
    extent = _require_parts(fn, loop, n, max_factor)
    factors: tuple[Dim, ...] = ()
    for k in range(n - 1, 0, -1):
        values = range(1, max(1, min(max_factor, _most(extent))) + 1)
        factors = (choose(f"{loop.name}_t{k}", values, _at_most(extent, factors)), *factors)
    return fn, (ceildiv(extent, product(factors)), *factors)


@primitive
def sample_categorical(
    fn: Func, choose: Choose, candidates: Sequence[int], probs: Sequence[float] | None = None
) -> tuple[Func, Dim]:
    """Sample one of the integers `candidates`, with probabilities `probs` (uniform by default).

    sch.sample_categorical([0, 16, 64])   ->   16
    """
    require(
        0 < len(candidates) <= MAX_CANDIDATES,
        "{0} candidates; expected 1 to {1}",
        len(candidates),
        MAX_CANDIDATES,
    )
    require(len(set(candidates)) == len(candidates), "candidates repeat: {0}", list(candidates))
    weights = [1.0] * len(candidates) if probs is None else [float(q) for q in probs]
    require(
        len(weights) == len(candidates),
        "{0} probabilities for {1} candidates",
        len(weights),
        len(candidates),
    )
    require(
        all(math.isfinite(w) and w >= 0 for w in weights) and sum(weights) > 0,
        "probabilities must be positive numbers, found {0}",
        weights,
    )
    order = sorted(range(len(candidates)), key=lambda k: candidates[k])
    values = [candidates[k] for k in order]
    return fn, choose("choice", values, lambda _: True, [weights[k] for k in order])


@primitive
def sample_compute_location(fn: Func, choose: Choose, block: Label) -> tuple[Func, Var]:
    """Sample a loop at which `compute_at` can compute a block.

        sch.compute_at(b, sch.sample_compute_location(b))   ->   one of the loops of b's consumer

    The decision has the position of the loop among those around the first consumer, outermost
    first. A block that fits at none of them is refused, with the reason for the outermost one.
    Leaving a block where it is, or inlining it, is a separate choice, for instance by
    `sample_categorical`.
    """
    require(
        current_space() is None,
        "where block {0} is computed decides the structure of the program; it cannot be left open",
        block,
        hint="sample the location in a schedule that is not symbolic, or name a loop in compute_at",
    )
    producer = find_block(fn, block)
    consumers = readers_of(fn, region_buffers(producer.writes), but=block)
    require(bool(consumers), "block {0} has no consumer", block)
    loops = [s.var for s in loops_above(fn, consumers[0].label)]
    refusals: list[ScheduleError] = []

    @cache
    def legal(k: Dim) -> bool:
        assert isinstance(k, int)
        try:
            compute_at(fn, block, loops[k])
        except ScheduleError as refusal:
            refusals.append(refusal)
            return False
        return True

    if not any(map(legal, range(len(loops)))):
        raise ScheduleError(
            "block {0} can be computed at none of the loops around its consumer {1}{2}",
            block.name,
            consumers[0].label.name,
            lambda: f": {refusals[0].first_line}" if refusals else "",
            at=block,
        )
    place = choose(f"{block.name}_at", range(len(loops)), legal)
    assert isinstance(place, int)
    return fn, loops[place]


def _require_parts(fn: Func, loop: Var, n: int, most: int) -> Dim:
    """The extent of the loop, once the number of parts and the largest factor make sense."""
    found = find_loop(fn, loop)
    extent = found.extent
    require(1 <= n <= MAX_PARTS, "{0} parts; expected 1 to {1}", n, MAX_PARTS)
    require(most >= 1, "the largest factor must be positive, found {0}", most)
    require(extent >= 1, "loop {0} has no iterations to tile", loop)
    require_settled(found)
    return extent


def _with_outermost(extent: Dim, factors: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """The factors, which divide `extent`, after the one that they leave."""
    outer = extent // product(factors)
    imply(product((outer, *factors)) == extent)
    imply(outer >= 1)
    return (outer, *factors)


def _most(extent: Dim) -> int:
    """The largest value of an extent."""
    if isinstance(extent, int):
        return extent
    space = current_space()
    high = bound(extent, {} if space is None else space.bounds)[1]
    if not isinstance(high, int):
        raise ScheduleError("the extent {0} has no known bound", extent)
    return high


def _divisors(extent: Dim) -> Sequence[int]:
    """The divisors of an extent, ascending; every number up to its bound where it is symbolic."""
    if not isinstance(extent, int):
        return range(1, _most(extent) + 1)
    low = [d for d in range(1, math.isqrt(extent) + 1) if extent % d == 0]
    return low + [extent // d for d in reversed(low) if d * d != extent]


def _divides(extent: Dim, factors: tuple[Dim, ...]) -> Fits:
    def fits(value: Dim) -> bool | Expr:
        return extent % product((value, *factors)) == 0

    return fits


def _divides_with(extent: Dim, factors: tuple[Dim, ...], factor: int, *, last: bool) -> Fits:
    """Values that divide the extent and leave `factor` to inner parts that are still to come.

    With `last` none are to come.
    """

    def fits(value: Dim) -> bool | Expr:
        inner = product((value, *factors))
        divides = extent % inner == 0
        if last:
            return divides & (inner % factor == 0)
        if not (isinstance(extent, int) and isinstance(inner, int)):
            return divides  # the last inner part says the rest
        return extent % math.lcm(inner, factor) == 0

    return fits


def _at_most(extent: Dim, factors: tuple[Dim, ...]) -> Fits:
    def fits(value: Dim) -> bool | Expr:
        return product((value, *factors)) <= extent

    return fits
