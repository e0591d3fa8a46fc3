"""The threads that the emulator runs at once: those of a batch of blocks, or a part of them."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ...tir.ir import WARP
from ..passes.launches import Launch
from .emulate_faults import Place, Thread

Array: TypeAlias = npt.NDArray[Any]


class Grid:
    """The extents of a launch: blocks and threads of a block, along x, y and z."""

    def __init__(self, launch: Launch) -> None:
        self.blocks = _extents(launch, "blockIdx")
        self.threads = _extents(launch, "threadIdx")
        self.block_count = int(np.prod(self.blocks, dtype=np.int64))
        self.block_threads = int(np.prod(self.threads, dtype=np.int64))
        self.block_warps = -(-self.block_threads // WARP)

    def thread(self, number: int) -> Thread:
        """The thread with a number in the launch, counted through its blocks."""
        block, thread = divmod(int(number), self.block_threads)
        return Thread(_place(block, self.blocks), _place(thread, self.threads))

    def coordinates(self, axis: str, first: int, count: int) -> Array:
        """The numbers along an axis of the threads of `count` blocks from the block `first` on."""
        kind, _, letter = axis.partition(".")
        n = "xyz".index(letter)
        if kind == "blockIdx":
            numbers = np.arange(first, first + count, dtype=np.int64)
            return np.repeat(_along(numbers, self.blocks, n), self.block_threads)
        numbers = np.arange(self.block_threads, dtype=np.int64)
        return np.tile(_along(numbers, self.threads, n), count)


class Batch:
    """Some blocks of a launch, whose threads are lanes of arrays, in order."""

    def __init__(self, grid: Grid, first: int, count: int) -> None:
        self.grid = grid
        self.first_thread = first * grid.block_threads
        self.blocks = count
        self.lanes = count * grid.block_threads
        self.warps = count * grid.block_warps
        self.numbers = np.arange(self.lanes, dtype=np.int64)
        self.block, self.thread = np.divmod(self.numbers, grid.block_threads)
        self.warp = self.block * grid.block_warps + self.thread // WARP
        self.slot = self.warp * WARP + self.thread % WARP
        """The place of each lane where all warps have `WARP` places."""
        self.whole = grid.block_threads % WARP == 0
        self.all = Active(self, None)
        self._partners: dict[int, tuple[Array, Array | None]] = {}

    def partners(self, xor: int) -> tuple[Array, Array | None]:
        """The lanes that a shuffle reads, and which of them are absent; `None` for none.

        Threads whose partner is absent read themselves.
        """
        found = self._partners.get(xor)
        if found is None:
            absent = (self.thread ^ xor) >= self.grid.block_threads
            partner = self.numbers - self.thread + np.where(absent, self.thread, self.thread ^ xor)
            found = self._partners[xor] = partner, (absent if absent.any() else None)
        return found


class Active:
    """The threads of a batch that run a statement together.

    `index` has their lanes in order; `None` is all of them.
    """

    def __init__(self, batch: Batch, index: Array | None) -> None:
        self.batch = batch
        self.index = index
        self.count = batch.lanes if index is None else len(index)
        self._groups: dict[int, int] = {}

    @property
    def lanes(self) -> Array:
        return self.batch.numbers if self.index is None else self.index

    def where(self, condition: Array) -> Active:
        """Those of them for which a condition holds, of which there is one element for each."""
        if self.index is None:
            return Active(self.batch, np.flatnonzero(condition))
        return Active(self.batch, self.index[condition])

    def full(self, values: Array) -> Array:
        """One element for each lane of the batch, of one for each of these or of one for all."""
        if self.index is None or values.shape[0] == 1:
            return values
        result = np.zeros(self.batch.lanes, values.dtype)
        result[self.index] = values
        return result

    def of(self, values: Array) -> Array:
        """Of one element for each lane of the batch, or one for all: those of these."""
        return values if self.index is None or values.shape[0] == 1 else values[self.index]

    def groups(self, size: int) -> int:
        """How many groups of `size` neighbours of a warp have one of these; a divisor of `WARP`."""
        found = self._groups.get(size)
        if found is None:
            groups = self.batch.slot[self.lanes] // size
            found = self._groups[size] = 1 + int(np.count_nonzero(groups[1:] != groups[:-1]))
        return found

    def rows(self, values: Array, size: int) -> Array:
        """The values of each group of `size` neighbours of a warp in a row; -1 for who is not here.

        `size` is a divisor of `WARP`. Values have one or two dimensions, the lanes first.
        """
        shape = values.shape[1:]
        if self.index is None and self.batch.whole:
            return values.reshape(-1, size * int(np.prod(shape, dtype=np.int64)))
        result = np.full((self.batch.warps * WARP, *shape), -1, values.dtype)
        result[self.batch.slot[self.lanes]] = values
        return result.reshape(-1, size * int(np.prod(shape, dtype=np.int64)))


def _extents(launch: Launch, kind: str) -> Place:
    x, y, z = (launch.extent(f"{kind}.{letter}") for letter in "xyz")
    return x, y, z


def _along(numbers: Array, extents: Place, axis: int) -> Array:
    """Of numbers of places, x first, those along an axis."""
    for extent in extents[:axis]:
        numbers = numbers // extent
    return numbers % extents[axis]


def _place(number: int, extents: Place) -> Place:
    x, y, _ = extents
    return number % x, number // x % y, number // (x * y)
