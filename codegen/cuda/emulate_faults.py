"""What the emulator reports of a lowered program."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from ...tir.ir import Buffer, Stmt
from ...tir.printer import stmt_text

Place: TypeAlias = tuple[int, int, int]
"""Numbers along x, y and z."""


class FaultKind(StrEnum):
    """What is wrong.

    RACE: two threads of a block at one element, one of which writes, and no barrier between.
    BLOCK_RACE: two blocks of a launch at one element, one of which writes.
    UNWRITTEN: a read of an element that was not written.
    OUT_OF_BOUNDS: an index outside of the buffer.
    MISALIGNED: a move from or to an element that is no multiple of its lanes.
    MISSED_BARRIER: a barrier that not all threads of its scope are at.
    DIVERGENT_SHUFFLE: a warp shuffle that not all threads of the warp are at.
    ABSENT_LANE: a warp shuffle from a lane that is not in the block.
    UNDEFINED: an integer divided by zero.
    """

    RACE = "race between threads"
    BLOCK_RACE = "race between blocks"
    UNWRITTEN = "unwritten"
    OUT_OF_BOUNDS = "out of bounds"
    MISALIGNED = "misaligned"
    MISSED_BARRIER = "missed barrier"
    DIVERGENT_SHUFFLE = "divergent shuffle"
    ABSENT_LANE = "absent lane"
    UNDEFINED = "undefined"


class Thread(NamedTuple):
    """A thread of a launch: blockIdx and threadIdx."""

    block: Place
    thread: Place


class Action(StrEnum):
    """What a thread does at its site."""

    READ = "reads"
    WRITE = "writes"
    WAIT = "waits"
    MISS = "misses"
    SHUFFLE = "shuffles"
    COMPUTE = "computes"


@dataclass(frozen=True)
class Site:
    """What one thread does in a statement; to an element, where there is a buffer."""

    statement: Stmt
    action: Action
    thread: Thread
    buffer: Buffer | None = None
    index: int | None = None

    def __str__(self) -> str:
        element = "" if self.buffer is None else f" {self.buffer.name}[{self.index}]"
        head = stmt_text(self.statement).splitlines()[0].strip()
        return (
            f"thread {self.thread.thread} of block {self.thread.block} "
            f"{self.action.value}{element}: {head}"
        )


@dataclass(frozen=True)
class Fault:
    """A fault, the first of `count` of its kind between these statements and buffers.

    A RACE and a BLOCK_RACE have two sites. So have a MISSED_BARRIER and a DIVERGENT_SHUFFLE: of a
    thread that is there and of one that is not. Others have one. `count` is of elements and pairs
    of statements for races, of blocks and warps for barriers and shuffles, else of threads.
    """

    kind: FaultKind
    launch: int
    sites: tuple[Site, ...]
    count: int = 1

    def __str__(self) -> str:
        times = "" if self.count == 1 else f" ({self.count} times)"
        return "\n  ".join(
            [f"launch {self.launch}: {self.kind.value}{times}", *map(str, self.sites)]
        )


class Faults:
    """Collects faults, and folds those that repeat."""

    def __init__(self) -> None:
        self._found: dict[tuple[object, ...], Fault] = {}

    def add(
        self,
        kind: FaultKind,
        launch: int,
        key: tuple[object, ...],
        sites: Callable[[], Iterable[Site]],
        count: int,
    ) -> None:
        """Add `count` faults. Those with an equal key are the same.

        `sites` is called for the sites of the first.
        """
        key = (kind, launch, *key)
        known = self._found.get(key)
        if known is None:
            self._found[key] = Fault(kind, launch, tuple(sites()), count)
        else:
            self._found[key] = replace(known, count=known.count + count)

    def all(self) -> tuple[Fault, ...]:
        """The faults, in the order in which they were first seen."""
        return tuple(self._found.values())
