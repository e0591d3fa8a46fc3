"""Lay out the shared memory of launches by lifetime and alignment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ...base import dtypes
from ...tir.equality import flat
from ...tir.ir import Alloc, Buffer, Expr, Func, Let, Stmt
from ...tir.visit import walk
from .flatten import stored_elements
from .launches import Launch, map_launches

KEY = "shared"
"""The annotation of the loop over threadIdx.x with the offsets of the shared buffers."""
ALIGNMENT = 16
"""Bytes: the widest access of a thread."""
PLENTY = 8 << 10
"""Bytes that are no reason for fewer blocks on a multiprocessor: sharing would cost a barrier."""


class Arena(NamedTuple):
    """The offsets of a launch's shared buffers in its shared memory, and its size, in bytes."""

    offsets: tuple[int, ...]
    bytes: int


def arena(func: Func) -> Func:
    """Give each shared buffer its place in the shared memory of a block.

    Buffers of which the one is used only after the last use of the other have bytes in common,
    where all together take more than 8 KiB. The offsets become an annotation of the innermost loop
    over threads.
    """
    return map_launches(func, _laid_out)


def arena_of(launch: Launch) -> Arena:
    """The layout of a launch whose buffers are laid out."""
    offsets = tuple(dict(launch.threads[-1].annotations).get(KEY, ()))
    ends = [n + _bytes(b) for n, b in zip(offsets, launch.shared, strict=True)]
    return Arena(offsets, -(-max(ends, default=0) // ALIGNMENT) * ALIGNMENT)


def overlaid(launch: Launch) -> set[frozenset[Buffer]]:
    """The pairs of shared buffers that have bytes in common."""
    places = list(zip(launch.shared, arena_of(launch).offsets, strict=True))
    return {
        frozenset((a, b))
        for n, (a, start) in enumerate(places)
        for b, other in places[n + 1 :]
        if start < other + _bytes(b) and other < start + _bytes(a)
    }


def _laid_out(launch: Launch) -> Launch:
    if not launch.shared:
        return launch
    apart = dict.fromkeys(launch.shared, (0, 0))
    offsets = _offsets(launch.shared, apart)
    if max(n + _bytes(b) for n, b in zip(offsets, launch.shared, strict=True)) > PLENTY:
        offsets = _offsets(launch.shared, _lifetimes(launch))
    *outer, inner = launch.threads
    notes = (*inner.annotations, (KEY, list(offsets)))
    return launch._replace(threads=(*outer, replace(inner, annotations=notes)))


def _lifetimes(launch: Launch) -> dict[Buffer, tuple[int, int]]:
    """The first and last of the outermost statements that use each shared buffer."""
    found: dict[Buffer, tuple[int, int]] = {}
    for n, s in enumerate(_outermost(launch.code)):
        for b in {x for x in walk(s) if type(x) is Buffer and x.scope == "shared"}:
            found[b] = (found.get(b, (n, n))[0], n)
    return found


def _outermost(code: Stmt) -> list[Stmt | Expr]:
    """What runs one after the other; what is bound around some is looked into."""
    found: list[Stmt | Expr] = []
    for s in flat(code):
        if isinstance(s, Let):
            found.append(s.value)
        found += _outermost(s.body) if isinstance(s, Alloc | Let) else [s]
    return found


def _offsets(buffers: Sequence[Buffer], lives: dict[Buffer, tuple[int, int]]) -> tuple[int, ...]:
    """The lowest free place for each buffer, large ones first."""
    placed: dict[Buffer, int] = {}
    for b in sorted(buffers, key=lambda b: (-_bytes(b), lives[b])):
        taken = sorted(
            (placed[o], placed[o] + _bytes(o))
            for o in placed
            if lives[o][0] <= lives[b][1] and lives[b][0] <= lives[o][1]
        )
        at = 0
        for start, end in taken:
            if at + _bytes(b) <= start:
                break
            at = max(at, -(-end // ALIGNMENT) * ALIGNMENT)
        placed[b] = at
    return tuple(placed[b] for b in buffers)


def _bytes(b: Buffer) -> int:
    return stored_elements(b) * dtypes.nbytes(b.dtype)
