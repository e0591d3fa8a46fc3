"""Memory of the emulator: buffers in global, shared and local memory, and accesses to them.

An access is done by active threads at once. Its index is an array with an element for each of them,
or with one for all. So is its value, which has the lanes of a move as a second dimension.

Counts of what the statements of a program ask of the hardware.

Global memory moves in sectors of 32 bytes. A request is an access by the threads of a warp that are
at it together; it moves each sector once that one of them touches. Arrays start at a multiple of
32 bytes.

Shared memory has 32 banks of 4 bytes. A wavefront takes a word of 4 bytes from each bank, for any
number of threads. An access of up to 4 bytes takes as many wavefronts for a warp as there are
different words in one bank. One of 8 bytes is done for each half of a warp by itself, and one of 16
bytes for each quarter.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from ...base import dtypes
from ...target.cuda import BANK_BYTES, BANKS, SECTOR_BYTES
from ...tir.ir import WARP, Buffer, Stmt
from .emulate_batch import Active, Array, Batch
from .emulate_faults import Action, FaultKind
from .emulate_races import Clock, Log


class Place(NamedTuple):
    """A statement of a launch: its number there, and what it counts."""

    number: int
    statement: Stmt
    counts: Counts


class AccessSite(NamedTuple):
    """A read or a write in a statement; `number` is its own in the launch."""

    number: int
    place: Place
    buffer: Buffer
    action: Action


class Reporter(Protocol):
    """Takes faults of threads; see `State`."""

    clock: Clock

    def fault(self, kind: FaultKind, place: Place, action: Action, lanes: Array,
              buffer: Buffer | None = None, indices: Array | None = None) -> None: ...  # fmt: skip


class GlobalMemory:
    """A buffer in global memory. Where `written` is `None`, all of it is.

    The `log` is that of the launch that runs, if it writes the buffer.
    """

    def __init__(self, data: Array, written: Array | None) -> None:
        self.data = data
        self.written = written
        self.log: Log | None = None


class SharedMemory:
    """The shared memory of the blocks of a batch, in granules of the bytes of its least element.

    `holder` has the number of the buffer whose element is in each granule; -1 for none. Elements of
    a buffer stand in `data` at the number of their first granule.
    """

    def __init__(self, buffers: Sequence[Buffer], offsets: Sequence[int], blocks: int) -> None:
        sizes = [dtypes.nbytes(b.dtype) for b in buffers]
        self.granule = min(sizes)
        ends = [o + elements(b) * n for b, o, n in zip(buffers, offsets, sizes, strict=True)]
        row = BANKS * BANK_BYTES
        self.block_granules = -(-max(*ends, 1) // row) * row // self.granule
        self.size = blocks * self.block_granules
        self.number = {b: n for n, b in enumerate(buffers)}
        self.offset = {b: o // self.granule for b, o in zip(buffers, offsets, strict=True)}
        self.parts = {b: n // self.granule for b, n in zip(buffers, sizes, strict=True)}
        self.data = {b: np.zeros(self.size, dtypes.to_numpy(b.dtype)) for b in buffers}
        self.holder = np.full(self.size, -1, np.int16)
        self.base: Mapping[Buffer, Array] = {}
        self.log: Log | None = None

    def start(self, batch: Batch) -> None:
        """Begin a batch: nothing is written."""
        self.holder.fill(-1)
        blocks = batch.block * self.block_granules
        self.base = {b: blocks + o for b, o in self.offset.items()}

    def index(self, buffer: Buffer, granule: int) -> int:
        """The index of the element of a buffer that a granule is in."""
        return (granule % self.block_granules - self.offset[buffer]) // self.parts[buffer]


class LocalMemory:
    """A buffer of each thread: for each element a row with its values of all threads.

    A row of one value is that of all. Rows are replaced, never changed. `None` in `rows` is
    unwritten, in `written` it is written by all.
    """

    def __init__(self, buffer: Buffer) -> None:
        self.size = elements(buffer)
        self.rows: list[Array | None] = []
        self.written: list[Array | None] = []
        self.clear()

    def clear(self) -> None:
        self.rows[:] = [None] * self.size
        self.written[:] = [None] * self.size


class Access(ABC):
    """One load or store of a program: of one element, or of a move of several `lanes`."""

    def __init__(self, reporter: Reporter, site: AccessSite, lanes: int, index_dtype: str) -> None:
        self.reporter = reporter
        self.site = site
        self.counts = site.place.counts
        self.lanes = lanes
        self.steps = np.arange(lanes)
        self.dtype = dtypes.to_numpy(site.buffer.dtype)
        self.bytes = self.dtype.itemsize
        self.first_outside = max(elements(site.buffer) - lanes + 1, 0)
        self.unsigned = np.dtype(f"u{dtypes.to_numpy(index_dtype).name}")

    @abstractmethod
    def get(self, active: Active, index: Array) -> Array:
        """The values at an index that is inside for all."""

    @abstractmethod
    def put(self, active: Active, index: Array, value: Array) -> None:
        """Store values at an index that is inside for all."""

    def load(self, active: Active, index: Array) -> Array:
        inside = self._inside(active, index)
        if inside is None:
            return self.get(active, index)
        shape = (active.count,) if self.lanes == 1 else (active.count, self.lanes)
        result = np.zeros(shape, self.dtype)
        if inside.any():
            result[inside] = self.get(active.where(inside), index[inside])
        return result

    def store(self, active: Active, index: Array, value: Array) -> None:
        inside = self._inside(active, index)
        if inside is None:
            self.put(active, index, value)
        elif inside.any():
            value = value if value.shape[0] == 1 else value[inside]
            self.put(active.where(inside), index[inside], value)

    def _inside(self, active: Active, index: Array) -> Array | None:
        """For which threads an index is inside the buffer; `None` for all. Reports others."""
        if self.lanes > 1:
            wrong = index % self.lanes != 0
            if wrong.any():
                self.fault(FaultKind.MISALIGNED, active, index, wrong)
        outside: Array = index.view(self.unsigned) >= self.first_outside
        if not outside.any():
            return None
        self.fault(FaultKind.OUT_OF_BOUNDS, active, index, outside)
        return np.broadcast_to(~outside, active.count)

    def fault(self, kind: FaultKind, active: Active, index: Array, wrong: Array) -> None:
        """Report the threads for which something is `wrong`, of all or of each."""
        wrong = np.broadcast_to(wrong, active.count)
        index = np.broadcast_to(index, active.count)
        site = self.site
        self.reporter.fault(
            kind, site.place, site.action, active.lanes[wrong], site.buffer, index[wrong]
        )

    def require_written(self, active: Active, index: Array, written: Array) -> None:
        """Report threads that read what is not `written`, of one or two dimensions."""
        if not written.all():
            wrong = ~written.reshape(len(written), -1).all(axis=1)
            self.fault(FaultKind.UNWRITTEN, active, index, np.asarray(wrong))


@dataclass
class Counts:
    """What a statement did in all launches of it, by all threads.

    `executions` are by threads. `operations` are `Binary`, `Call` and `Cast`, by threads, for each
    dtype of operands, or of results of casts. Requests are by warps, and so are `shuffles`.
    `barriers` are by blocks, or by warps for those of a warp.
    """

    executions: int = 0
    operations: dict[str, int] = field(default_factory=dict)
    global_requests: int = 0
    sectors_read: int = 0
    sectors_written: int = 0
    shared_requests: int = 0
    wavefronts: int = 0
    shuffles: int = 0
    barriers: int = 0

    def operate(self, operations: Mapping[str, int], threads: int) -> None:
        """Add operations that each of `threads` does."""
        for dtype, count in operations.items():
            self.operations[dtype] = self.operations.get(dtype, 0) + count * threads


def sectors(active: Active, elements: Array, element_bytes: int) -> int:
    """The sectors of a request of each warp for these elements of an array.

    There is an element for each active thread, or one for all; for a move the first one, as it does
    not cross the border of a sector.
    """
    if elements.shape[0] == 1:
        return active.groups(WARP)
    rows = active.rows(elements // (SECTOR_BYTES // element_bytes), WARP)
    return _distinct(rows)


def wavefronts(active: Active, addresses: Array, access_bytes: int) -> int:
    """The wavefronts of accesses to shared memory at these addresses, one for each thread.

    Blocks are at multiples of `BANKS * BANK_BYTES`.
    """
    words = addresses // BANK_BYTES
    size = WARP
    if access_bytes > BANK_BYTES:
        parts = access_bytes // BANK_BYTES
        size = WARP // parts
        words = words[:, None] + np.arange(parts)
    rows = np.sort(active.rows(words, size), axis=1)
    new = rows >= 0
    new[:, 1:] &= rows[:, 1:] != rows[:, :-1]
    banks = rows % BANKS + np.arange(len(rows))[:, None] * BANKS
    used = np.bincount(banks[new], minlength=len(rows) * BANKS)
    return int(used.reshape(-1, BANKS).max(axis=1).sum())


def _distinct(rows: Array) -> int:
    """The different numbers that are not negative in each row, added up."""
    rows = np.sort(rows, axis=1)
    new = int(np.count_nonzero(rows[:, 1:] != rows[:, :-1]))
    return new + int(np.count_nonzero(rows[:, 0] >= 0))


class GlobalAccess(Access):
    def __init__(self, reporter: Reporter, site: AccessSite, lanes: int, index_dtype: str,
                 memory: GlobalMemory) -> None:  # fmt: skip
        super().__init__(reporter, site, lanes, index_dtype)
        self.memory = memory

    def get(self, active: Active, index: Array) -> Array:
        memory = self.memory
        self.counts.sectors_read += self.request(active, index)
        where = index if self.lanes == 1 else index[:, None] + self.steps
        if memory.written is not None:
            self.require_written(active, index, memory.written[where])
        if memory.log is not None:
            self.note(memory.log, active, where)
        loaded: Array = memory.data[where]
        return loaded

    def put(self, active: Active, index: Array, value: Array) -> None:
        memory = self.memory
        self.counts.sectors_written += self.request(active, index)
        where = index if self.lanes == 1 else index[:, None] + self.steps
        if memory.log is not None:
            self.note(memory.log, active, where)
        memory.data[where] = value if len(where) >= len(value) else value[-1:]
        if memory.written is not None:
            memory.written[where] = True

    def request(self, active: Active, index: Array) -> int:
        self.counts.global_requests += active.groups(32)
        return sectors(active, index, self.bytes)

    def note(self, log: Log, active: Active, where: Array) -> None:
        log.add(self.site.number, self.reporter.clock, where.ravel(), active, self.lanes)


class SharedAccess(Access):
    def __init__(self, reporter: Reporter, site: AccessSite, lanes: int, index_dtype: str,
                 memory: SharedMemory) -> None:  # fmt: skip
        super().__init__(reporter, site, lanes, index_dtype)
        self.memory = memory
        self.number = memory.number[site.buffer]
        self.data = memory.data[site.buffer]
        self.parts = memory.parts[site.buffer]

    def get(self, active: Active, index: Array) -> Array:
        first, granules = self.granules(active, index)
        holds = self.memory.holder[granules] == self.number
        self.require_written(active, index, holds)
        where = first if self.lanes == 1 else granules[:, :: self.parts]
        return self.data[where]

    def put(self, active: Active, index: Array, value: Array) -> None:
        first, granules = self.granules(active, index)
        where = first if self.lanes == 1 else granules[:, :: self.parts]
        self.data[where] = value
        self.memory.holder[granules] = self.number

    def granules(self, active: Active, index: Array) -> tuple[Array, Array]:
        """The first granule of each access, and all of them; they are counted and noted."""
        memory, parts = self.memory, self.parts
        first = active.of(memory.base[self.site.buffer]) + (index if parts == 1 else index * parts)
        each = self.lanes * parts
        granules = first if each == 1 else first[:, None] + np.arange(each)
        self.counts.shared_requests += active.groups(32)
        self.counts.wavefronts += wavefronts(
            active, first * memory.granule, self.bytes * self.lanes
        )
        assert memory.log is not None
        memory.log.add(self.site.number, self.reporter.clock, granules.ravel(), active, each)
        return first, granules


class LocalAccess(Access):
    def __init__(self, reporter: Reporter, site: AccessSite, lanes: int, index_dtype: str,
                 memory: LocalMemory) -> None:  # fmt: skip
        super().__init__(reporter, site, lanes, index_dtype)
        self.memory = memory

    def get(self, active: Active, index: Array) -> Array:
        if index.shape[0] == 1:
            first = int(index[0])
            if self.lanes == 1:
                return self.row(active, first)
            rows = [self.row(active, first + n) for n in range(self.lanes)]
            return np.stack(np.broadcast_arrays(*rows), axis=1)
        shape = (active.count,) if self.lanes == 1 else (active.count, self.lanes)
        result = np.zeros(shape, self.dtype)
        for one in np.unique(index):
            chosen = index == one
            result[chosen] = self.get(active.where(chosen), np.array([one]))
        return result

    def put(self, active: Active, index: Array, value: Array) -> None:
        if index.shape[0] == 1:
            first = int(index[0])
            if self.lanes == 1:
                self.put_row(active, first, value)
            else:
                for n in range(self.lanes):
                    self.put_row(active, first + n, value[:, n])
            return
        for one in np.unique(index):
            chosen = index == one
            part = value if value.shape[0] == 1 else value[chosen]
            self.put(active.where(chosen), np.array([one]), part)

    def row(self, active: Active, n: int) -> Array:
        """The values of element `n` of the active threads."""
        row, written = self.memory.rows[n], self.memory.written[n]
        if row is None:
            self.fault(FaultKind.UNWRITTEN, active, np.array([n]), np.ones(1, bool))
            return np.zeros(1, self.dtype)
        if written is not None:
            self.require_written(active, np.array([n]), active.of(written))
        return active.of(row)

    def put_row(self, active: Active, n: int, value: Array) -> None:
        memory = self.memory
        if active.index is None:
            memory.rows[n], memory.written[n] = value, None
            return
        lanes = active.batch.lanes
        old, written = memory.rows[n], memory.written[n]
        new = np.zeros(lanes, self.dtype) if old is None else np.broadcast_to(old, lanes).copy()
        new[active.index] = value
        if old is None or written is not None:
            written = np.zeros(lanes, bool) if written is None else written.copy()
            written[active.index] = True
            memory.written[n] = written
        memory.rows[n] = new


def elements(buffer: Buffer) -> int:
    """The elements of a buffer of a lowered program."""
    (size,) = buffer.shape
    assert isinstance(size, int), "lowered programs are concrete"
    return size
