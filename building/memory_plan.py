"""Where values live while a model runs: one arena, in which lifetimes share bytes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Generic, TypeVar

ALIGNMENT = 64
K = TypeVar("K")
_AGAIN = 8
"""How often blocks are placed again in each order,"""
_PLACED = 1 << 13
"""or until so many are placed: each takes some time of a build."""


@dataclass(frozen=True)
class Block:
    """Bytes that are needed from step `first` to step `last`, both included."""

    bytes: int
    first: int
    last: int

    @property
    def aligned(self) -> int:
        """Its bytes in an arena."""
        return -(-self.bytes // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True)
class Plan(Generic[K]):
    """The offset of each block by its key, and the bytes of the arena."""

    offsets: Mapping[K, int]
    bytes: int


def live(lifetimes: Iterable[tuple[int, Block]]) -> int:
    """The largest sum of these numbers of blocks that live at one step."""
    changes = defaultdict[int, int](int)
    for number, block in lifetimes:
        changes[block.first] += number
        changes[block.last + 1] -= number
    return max(accumulate(changes[step] for step in sorted(changes)), default=0)


def plan(blocks: Mapping[K, Block]) -> Plan[K]:
    """Offsets such that blocks which live at the same step do not overlap.

    Blocks are placed in an order, each at the lowest offset that is free: large ones first, early
    ones first, or those first that have most bytes for the longest time. While the arena is larger
    than what lives at one step, the blocks at its end are placed again, before all others. The
    smallest arena counts.
    """
    least = live((block.aligned, block) for block in blocks.values())
    orders = (
        lambda key: (-blocks[key].bytes, blocks[key].first),
        lambda key: (blocks[key].first, -blocks[key].bytes),
        lambda key: (-blocks[key].bytes * (blocks[key].last - blocks[key].first + 1),),
    )
    tried = list[Plan[K]]()
    for order in orders:
        tried.append(_placed(blocks, sorted(blocks, key=order)))
        for _ in range(min(_AGAIN, _PLACED // max(1, len(blocks)))):
            if tried[-1].bytes <= least:
                break
            tried.append(_placed(blocks, _ends_first(blocks, tried[-1])))
    return min(tried, key=lambda p: p.bytes)


def _ends_first(blocks: Mapping[K, Block], last: Plan[K]) -> list[K]:
    """The order of a plan with the blocks first that are at the end of its arena."""
    inside = {key: last.offsets[key] + blocks[key].aligned < last.bytes for key in blocks}
    return sorted(last.offsets, key=inside.__getitem__)


def _placed(blocks: Mapping[K, Block], order: Sequence[K]) -> Plan[K]:
    offsets: dict[K, int] = {}
    begun = defaultdict[int, list[K]](list)
    living = defaultdict[int, list[K]](list)
    arena = 0
    for key in order:
        block = blocks[key]
        steps = range(block.first, block.last + 1)
        # What lives at its first step, and what begins later.
        others = chain(living[block.first], *(begun[step] for step in steps[1:]))
        begin = 0
        for other, end in sorted((offsets[k], offsets[k] + blocks[k].aligned) for k in others):
            if begin + block.aligned <= other:
                break
            begin = max(begin, end)
        offsets[key] = begin
        arena = max(arena, begin + block.aligned)
        begun[block.first].append(key)
        for step in steps:
            living[step].append(key)
    return Plan(offsets, arena)
