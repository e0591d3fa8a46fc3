"""The state of a launch that runs in the emulator: its memory, its clock, and what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ...tir.ir import BarrierScope, Buffer, Stmt, Var
from ...tir.visit import stored_buffers
from ..passes.launches import Launch
from .emulate_batch import Active, Array, Batch, Grid
from .emulate_faults import Action, FaultKind, Faults, Site, Thread
from .emulate_memory import (
    AccessSite,
    Counts,
    GlobalMemory,
    LocalMemory,
    Place,
    SharedMemory,
)
from .emulate_races import Clock, Conflict, Log


class State:
    """A launch and its memory. Code of it that is compiled has its places and sites here.

    `values` has of each variable the value of all threads, or of each lane of the batch.
    """

    def __init__(
        self,
        number: int,
        launch: Launch,
        memories: Mapping[Buffer, GlobalMemory],
        scalars: Mapping[Var, Array],
        shared: SharedMemory | None,
        faults: Faults,
    ) -> None:
        self.number = number
        self.grid = Grid(launch)
        self.memories = memories
        self.shared = shared
        self.locals: dict[Buffer, LocalMemory] = {}
        self.values: dict[Var, Array] = dict(scalars)
        self.places: list[Place] = []
        self.clock: Clock
        self.batch: Batch
        self._axes = {f.var: f for f in launch.axes}
        self._faults = faults
        self._sites: list[AccessSite] = []
        self._writes: set[int] = set()
        self._logs = list(self._new_logs(stored_buffers(launch.code)))

    def _new_logs(self, stored: set[Buffer]) -> Iterator[Log]:
        """A log for each space that the launch writes."""
        blocks = self.grid.block_count > 1
        for buffer, memory in self.memories.items():
            memory.log = None
            if buffer in stored:
                memory.log = Log(
                    len(memory.data), self._writes, self._report_conflict, blocks=blocks
                )
                yield memory.log
        if self.shared is not None:
            self.shared.log = Log(
                self.shared.size, self._writes, self._report_conflict, blocks=False
            )
            yield self.shared.log

    # Compiling

    def place(self, statement: Stmt) -> Place:
        """A new place of a statement: one object may be at several."""
        place = Place(len(self.places), statement, Counts())
        self.places.append(place)
        return place

    def site(self, place: Place, buffer: Buffer, action: Action) -> AccessSite:
        site = AccessSite(len(self._sites), place, buffer, action)
        self._sites.append(site)
        if action is Action.WRITE:
            self._writes.add(site.number)
        return site

    # Running

    def start(self, batch: Batch, first: int) -> None:
        """Begin the batch of blocks from number `first` on."""
        self.batch = batch
        self.clock = Clock.zero(batch)
        if self.shared is not None:
            self.shared.start(batch)
        for var, loop in self._axes.items():
            assert loop.thread is not None, "a loop of a launch has an axis"
            numbers = self.grid.coordinates(loop.thread, first, batch.blocks)
            self.values[var] = numbers.astype(var.dtype)

    def finish(self) -> None:
        """Look through the accesses since the last barrier of all."""
        for log in self._logs:
            log.flush(self.batch)

    def wait(self, place: Place, active: Active, scope: BarrierScope) -> None:
        """Let the active threads wait for those of their blocks, or of their warps."""
        batch, clock = self.batch, self.clock
        if scope is BarrierScope.BLOCK:
            self.require_together(FaultKind.MISSED_BARRIER, place, active, batch.block)
            if active.index is None:
                place.counts.barriers += batch.blocks
                self.finish()
                self.clock = Clock.zero(batch)
                return
            here = np.unique(batch.block[active.index])
            self.clock = clock.after_blocks(here, self.grid.block_warps)
        else:
            self.require_together(FaultKind.MISSED_BARRIER, place, active, batch.warp)
            here = np.unique(batch.warp[active.lanes])
            self.clock = clock.after_warps(here)
        place.counts.barriers += len(here)

    # Faults

    def require_together(
        self, kind: FaultKind, place: Place, active: Active, groups: Array
    ) -> None:
        """Report groups that are not here as a whole; `groups` has the number of each lane's."""
        if active.index is None:
            return
        here, sizes = np.bincount(groups[active.index]), np.bincount(groups)
        partial = np.flatnonzero((here > 0) & (here < sizes[: len(here)]))
        if not len(partial):
            return

        def sites() -> Iterator[Site]:
            members = np.flatnonzero(groups == partial[0])
            present = np.isin(members, active.lanes)
            is_barrier = kind is FaultKind.MISSED_BARRIER
            action = Action.WAIT if is_barrier else Action.SHUFFLE
            for lane, what in ((members[present][0], action), (members[~present][0], Action.MISS)):
                yield Site(place.statement, what, self._thread(lane))

        self._faults.add(kind, self.number, (place.number,), sites, len(partial))

    def fault(
        self,
        kind: FaultKind,
        place: Place,
        action: Action,
        lanes: Array,
        buffer: Buffer | None = None,
        indices: Array | None = None,
    ) -> None:
        """Report faults of threads, each with an index if there is a buffer."""

        def sites() -> Iterator[Site]:
            index = None if indices is None else int(indices[0])
            yield Site(place.statement, action, self._thread(lanes[0]), buffer, index)

        self._faults.add(kind, self.number, (place.number, action, buffer), sites, len(lanes))

    def _report_conflict(self, conflict: Conflict) -> None:
        kind = FaultKind.BLOCK_RACE if conflict.between_blocks else FaultKind.RACE

        def sites() -> Iterator[Site]:
            for number, thread in zip(conflict.sites, conflict.threads, strict=True):
                site, index = self._sites[number], conflict.element
                if site.buffer.scope == "shared":
                    assert self.shared is not None
                    index = self.shared.index(site.buffer, index)
                yield Site(
                    site.place.statement,
                    site.action,
                    self.grid.thread(thread),
                    site.buffer,
                    index,
                )

        self._faults.add(kind, self.number, conflict.sites, sites, conflict.elements)

    def _thread(self, lane: int) -> Thread:
        return self.grid.thread(self.batch.first_thread + int(lane))
