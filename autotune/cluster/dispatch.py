"""Work that is done on the workers of a cluster: who gets what next, and what becomes of it.

A worker gets a job, and its answer is read with distrust (`answers.py`). A job whose worker ends or
does not answer is given to others, one candidate a job; a candidate that is lost twice has failed.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, Protocol

from ...base.text import count
from .answers import UNBELIEVED, Unable
from .cluster import REST, Cluster, Role, Worker
from .scheduler import Asked

_log = logging.getLogger(__name__)
PATIENCE = 60.0
"""Seconds for which a session waits for a worker where none is left: longer than one rests."""
MAX_LOSSES = 2
_TICK = 0.1


class Disturbed(Exception):
    """Why a worker is too slow for its times to be compared with others'."""


@dataclass(eq=False)
class Job:
    """Something to ask a worker about candidates (`numbers`).

    `ask` makes the text of the request, and the code beside it, when a worker is free. `read` reads
    the answer; what it raises (`UNBELIEVED`) is a reason not to believe the worker, `Disturbed`
    and `Unable` some to let it rest. After `limit` seconds the worker is late. `on` is the worker
    that has to do it, if it has to be one. `otherwise` is the job of a runner where no builder is
    left.
    """

    numbers: Sequence[int]
    ask: Callable[[Sequence[int]], tuple[str, bytes]]
    read: Callable[[Worker, Sequence[int], object, str], Any]
    limit: float
    on: Worker | None = None
    losses: int = 0
    role: Role = Role.RUN
    otherwise: Callable[[Sequence[int]], Job] | None = None

    def lost(self) -> list[Job]:
        """The jobs to do in its place once its worker was lost; none where that is given up."""
        if self.on is not None or self.losses + 1 >= MAX_LOSSES:
            return []
        return [replace(self, numbers=[n], losses=self.losses + 1) for n in self.numbers]


class Done(NamedTuple):
    """What became of a job: the `answer` that was read; `None` if workers were lost with it."""

    job: Job
    worker: Worker
    answer: Any


class Source(Protocol):
    """Where jobs come from; others may come once those that are at work are done, until `over`."""

    @property
    def over(self) -> bool: ...

    def next(self, role: Role, free: int) -> Job | None:
        """A job for one of so many workers that are free; `None` while there is none."""


class Once:
    """One job."""

    def __init__(self, job: Job) -> None:
        self._jobs = [job]

    @property
    def over(self) -> bool:
        return not self._jobs

    def next(self, role: Role, free: int) -> Job | None:
        del free
        return self._jobs.pop() if self._jobs and role is Role.RUN else None


def do(cluster: Cluster, source: Source, tick: Callable[[], None]) -> Iterator[Done]:
    """Do jobs, on as many workers as there are; each, as soon as it is done.

    It ends when nothing is at work and the source has no other. `tick` is called at least every 0.2
    seconds, and gives up by raising. Raises `ClusterError` where the scheduler is gone, or no
    worker is left.
    """
    work = _Work(cluster, source)
    try:
        while True:
            tick()
            cluster.look()
            yield from work.assign()
            if work.idle and (source.over or cluster.workers):
                return
            work.require_workers()
            yield from work.hear()
    finally:
        work.give_up()


class _Work:
    """Jobs that wait, and those that workers have."""

    def __init__(self, cluster: Cluster, source: Source) -> None:
        self._cluster, self._source = cluster, source
        self._waiting = deque[Job]()
        self._at_work: dict[Worker, tuple[Job, Asked]] = {}
        self._ready = SimpleQueue[Any]()
        self._idle_since = time.monotonic()

    @property
    def idle(self) -> bool:
        return not (self._waiting or self._at_work)

    def require_workers(self) -> None:
        """Raise `ClusterError` where nobody has worked for too long."""
        if self._at_work:
            self._idle_since = time.monotonic()
        elif time.monotonic() - self._idle_since > PATIENCE:
            raise self._cluster.none_left()

    def hear(self) -> Iterator[Done]:
        """Wait a little for answers, and take them in."""
        with suppress(Empty):
            self._ready.get(timeout=_TICK)
        for worker, (job, asked) in list(self._at_work.items()):
            if asked.future.done():
                yield from self._heard(worker, job, asked)
            elif not self._cluster.has(worker):  # it ended
                yield from self._lost(worker, job)
            elif asked.late:
                self._cluster.rest(worker, f"no answer after {asked.limit:.3g} s")
                yield from self._lost(worker, job)

    def give_up(self) -> None:
        """Nobody waits for the answers any more."""
        for _, asked in self._at_work.values():
            asked.future.cancel()

    def assign(self) -> Iterator[Done]:
        """Give jobs to the workers that have none. One that only a worker can do ends with it."""
        for job in list(self._waiting):
            if job.on is not None and not self._cluster.has(job.on):
                self._waiting.remove(job)
                yield Done(job, job.on, None)
        for role in Role:
            free = [w for w in self._cluster.of(role) if w not in self._at_work]
            while free:
                new = self._waits(role, free) or self._source.next(role, len(free))
                if new is None:
                    break
                worker = free[0] if new.on is None else new.on
                if worker not in free:
                    self._waiting.append(new)
                    break
                free.remove(worker)
                asked = self._cluster.submit(worker, *new.ask(new.numbers), new.limit)
                self._at_work[worker] = new, asked
                asked.future.add_done_callback(self._ready.put)

    def _waits(self, role: Role, free: Sequence[Worker]) -> Job | None:
        """A job that waits for one of these workers; runners do those of builders that are gone."""
        builders = bool(self._cluster.of(Role.BUILD))
        for job in self._waiting:
            if job.on not in (None, *free):
                continue
            if job.role is role:
                self._waiting.remove(job)
                return job
            if job.otherwise is not None and not builders:
                self._waiting.remove(job)
                return replace(job.otherwise(job.numbers), losses=job.losses)
        return None

    def _heard(self, worker: Worker, job: Job, asked: Asked) -> Iterator[Done]:
        """Read an answer; a worker that is not believed gets no more work, one that fails rests."""
        if asked.lost:
            yield from self._lost(worker, job)
            return
        del self._at_work[worker]
        try:
            answer = job.read(worker, job.numbers, asked.answer(), asked.request)
        except Disturbed as error:
            self._cluster.set_aside(worker, str(error), REST)
            self._waiting.appendleft(job)
        except Unable as error:
            self._cluster.rest(worker, str(error))
            yield from self._elsewhere(worker, job)
        except UNBELIEVED as error:  # what no worker can do costs no more than two of them
            self._cluster.set_aside(worker, str(error))
            yield from self._elsewhere(worker, job)
        else:
            self._cluster.worked(worker)
            yield Done(job, worker, answer)

    def _lost(self, worker: Worker, job: Job) -> Iterator[Done]:
        """Give the job of a worker that is lost to others."""
        self._at_work.pop(worker)[1].future.cancel()
        yield from self._elsewhere(worker, job)

    def _elsewhere(self, worker: Worker, job: Job) -> Iterator[Done]:
        """Give a job that a worker has not done to others, unless it was lost before."""
        again = job.lost()
        if again:
            lost = count(len(job.numbers), "candidate")
            name = self._cluster.named(worker.address)
            _log.warning("worker %s is lost; %s tried again elsewhere", name, lost)
            self._waiting.extendleft(again)
        else:
            yield Done(job, worker, None)
