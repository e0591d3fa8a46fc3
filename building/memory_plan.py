"""Where values live while a model runs: one arena, in which lifetimes share bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

ALIGNMENT = 64


@dataclass(frozen=True)
class Block:
    """Bytes that are needed from step `first` to step `last`, both included."""

    bytes: int
    first: int
    last: int


@dataclass(frozen=True)
class Plan:
    """The offset of each block by its key, and the bytes of the arena."""

    offsets: Mapping[object, int]
    bytes: int


def plan(blocks: Mapping[object, Block]) -> Plan:
    """Offsets such that blocks which live at the same step do not overlap.

    Large ones are placed first, each at the lowest offset that is free; of several orders, the one
    that needs the smallest arena counts.
    """
    orders = (
        lambda key: (-blocks[key].bytes, blocks[key].first),
        lambda key: (blocks[key].first, -blocks[key].bytes),
        lambda key: (-blocks[key].bytes * (blocks[key].last - blocks[key].first + 1),),
    )
    return min((_placed(blocks, sorted(blocks, key=o)) for o in orders), key=lambda p: p.bytes)


def _placed(blocks: Mapping[object, Block], order: Sequence[object]) -> Plan:
    offsets: dict[object, int] = {}
    placed: list[tuple[int, int, Block]] = []  # begin and end, by their begin
    arena = 0
    for key in order:
        block = blocks[key]
        size = -(-block.bytes // ALIGNMENT) * ALIGNMENT
        begin = 0
        for other, end, held in placed:
            if held.first <= block.last and block.first <= held.last:
                if begin + size <= other:
                    break
                begin = max(begin, end)
        offsets[key] = begin
        arena = max(arena, begin + size)
        placed.append((begin, begin + size, block))
        placed.sort(key=lambda p: p[:2])
    return Plan(offsets, arena)
