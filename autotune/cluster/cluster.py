"""The workers of a Dask cluster: who they are, and work that is done on them.

A worker that has the resource `tilewright` is a machine that measures, one thing at a time. It gets
a job, and its answer is read with distrust (`answers.py`). A job whose worker ends or does not
answer is given to others, one candidate a job; a candidate that is lost twice has failed. A worker
whose answer makes no sense, that is late or that is slow gets no more work: it is set aside.

Dask starts and finds the workers, and carries texts. Exceptions of workers are not asked for: they
would come as pickles.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from ...base.errors import ClusterError, TuningError
from ...base.text import count
from ...codegen.generator import generator_for
from ...target import Target
from ...tuning_db.values import Environment, TargetRecord
from ..records import toolchain_record
from .answers import UNBELIEVED, Hello, parse
from .station import describe, perform

_log = logging.getLogger(__name__)
RESOURCE = "tilewright"
START = "start workers with: dask worker SCHEDULER --nthreads 1 --resources tilewright=1"
HELLO_SECONDS = 60.0
"""Seconds in which a worker has to say who it is."""
PATIENCE = 60.0
"""Seconds for which a session waits for a worker where none is left."""
LOOK = 1.0
"""Seconds between looks at which workers there are."""
REST = 60.0
"""Seconds after which a worker that was slow is tried again."""
MAX_LOSSES = 2
_TICK = 0.1
_FETCH_SECONDS = 30.0


@dataclass(eq=False)
class Worker:
    """A worker that measures, by its address; its machine now is an `environment`."""

    address: str
    target: Target
    record: TargetRecord
    environment: Environment


class Disturbed(Exception):
    """Why a worker is too slow for its times to be compared with others'."""


@dataclass(eq=False)
class Job:
    """Something to ask a worker about candidates (`numbers`).

    `ask` makes the text of the request when a worker is free, and `read` reads the answer; what it
    raises (`UNBELIEVED`) is a reason not to believe the worker, and `Disturbed` one to let it rest.
    After `limit` seconds the worker is late. `on` is the worker that has to do it, if it has to be
    one.
    """

    numbers: Sequence[int]
    ask: Callable[[Sequence[int]], str]
    read: Callable[[Worker, Sequence[int], object, str], Any]
    limit: float
    on: Worker | None = None
    losses: int = 0

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


@dataclass(eq=False)
class _Asked:
    """A request that a worker has, and Dask's future of the answer."""

    request: str
    future: Any
    limit: float
    began: float = field(default_factory=time.monotonic)

    @property
    def late(self) -> bool:
        return time.monotonic() - self.began > self.limit

    def answer(self) -> object:
        """The answer of a future that is done.

        Raises `TuningError` where its task failed, whose exception is not asked for; and where the
        answer does not come, or is of a kind that the client does not take.
        """
        if self.future.status == "error":
            raise TuningError("its task failed; its log says why")
        try:
            return self.future.result(timeout=_FETCH_SECONDS)
        except Exception as error:
            raise TuningError("its answer cannot be read: {0}", type(error).__name__) from error


class Cluster:
    """The workers of a Dask `client` that measure for one target.

    `wanted` is the target as each worker resolves it: `cpu` is its own processor. `target` is what
    they resolved, `record` that of it, `workers` are those that get work, and `aside` has the
    others by address, and why.

    Raises `ClusterError` where no worker measures for it, and where they are of several kinds.
    """

    def __init__(self, client: Any, wanted: Target | str) -> None:
        _require_client(client)
        self.aside: dict[str, str] = {}
        self._client, self._wanted = client, str(wanted)
        self._workers: dict[str, Worker] = {}
        self._names: dict[str, str] = {}
        self._greeted: dict[str, _Asked] = {}
        self.free = 0
        self._rests: dict[str, float] = {}
        self._looked = -math.inf
        self._record: TargetRecord | None = None
        self.look()
        while self._greeted:
            time.sleep(_TICK / 5)
            self.look()
        if not self._workers:
            raise self.none_left()
        kinds = {w.record.id: w for w in self._workers.values()}
        if len(kinds) > 1:
            raise ClusterError(
                "the workers are of several kinds: {0}",
                "; ".join(sorted(f"{w.record.perf} ({w.target})" for w in kinds.values())),
                hint="name the target of one kind in full",
            )
        (first,) = kinds.values()
        self.target, self.record = first.target, first.record
        self._record = first.record

    @property
    def workers(self) -> list[Worker]:
        return list(self._workers.values())

    def has(self, worker: Worker) -> bool:
        """Whether a worker gets work."""
        return worker.address in self._workers

    def set_aside(self, worker: Worker, why: str, seconds: float = math.inf) -> None:
        """Give a worker no work for so many seconds; `why` is a reason in plain words."""
        self._workers.pop(worker.address, None)
        self._refuse(worker.address, why)
        self._rests[worker.address] = time.monotonic() + seconds

    def do(self, jobs: Iterable[Job], tick: Callable[[], None]) -> Iterator[Done]:
        """Do jobs, on as many workers as there are; each, as soon as it is done.

        A job is taken from `jobs` when a worker is free for it; `free` is then the number of these.
        `tick` is called at least every 0.2 seconds, and gives up by raising. Raises `ClusterError`
        where the scheduler is gone, or no worker is left.
        """
        work = _Work(self, iter(jobs))
        try:
            while work.goes_on:
                tick()
                self.look()
                yield from work.step()
        finally:
            work.give_up()

    def look(self) -> None:
        """Find which workers there are now and then. Raises `ClusterError` without a scheduler."""
        if time.monotonic() - self._looked > LOOK:
            self._looked = time.monotonic()
            found = self._identities()
            self._names = {a: str(info.get("name", a)) for a, info in found.items()}
            for known in (self._workers, self._greeted):
                for address in known.keys() - found.keys():
                    del known[address]
            for address in [a for a, end in self._rests.items() if end < self._looked]:
                del self._rests[address], self.aside[address]
            request = json.dumps({"target": self._wanted})
            for address, info in found.items():
                known_already = {*self._workers, *self._greeted, *self.aside}
                if address not in known_already and info["resources"].get(RESOURCE, 0) >= 1:
                    future = self.submit(describe, request, address)
                    self._greeted[address] = _Asked(request, future, HELLO_SECONDS)
        for address, asked in list(self._greeted.items()):
            if asked.future.done() or asked.late:
                del self._greeted[address]
                try:
                    if not asked.future.done():
                        raise TuningError("it does not say who it is")
                    self._admit(address, asked.answer(), request=asked.request)
                except UNBELIEVED as error:
                    self._refuse(address, str(error))

    def submit(
        self, function: Callable[[str], str], request: str, address: str, resources: Any = None
    ) -> Any:
        """Dask's future of a function of `station.py` on a worker."""
        return self._client.submit(
            function,
            request,
            workers=[address],
            allow_other_workers=False,
            resources=resources,
            pure=False,
            retries=0,
        )

    def named(self, address: str) -> str:
        """What people call a worker: its name, if it has one, and its address."""
        name = self._names.get(address, address)
        return address if name == address else f"{name} ({address})"

    def none_left(self) -> ClusterError:
        """The error that no worker gets work."""
        reasons = "".join(f"\n  {self.named(a)}: {why}" for a, why in self.aside.items())
        return ClusterError(
            "no worker measures for {0}: {1}",
            self._wanted,
            reasons or f"none has the resource {RESOURCE}",
            hint=START,
            workers=dict(self.aside),
        )

    def _identities(self) -> dict[str, Any]:
        """What the scheduler says of its workers, by address."""
        client = self._client
        try:
            if client.status != "running":
                raise OSError(f"the connection is lost ({client.status})")
            known = client.sync(
                client.scheduler.identity, n_workers=-1, callback_timeout=_FETCH_SECONDS
            )
            workers: dict[str, Any] = known["workers"]
        except Exception as error:
            raise ClusterError(
                "the scheduler does not answer: {0}",
                error,
                hint="start it and its workers again, and continue the session: resume=True",
            ) from error
        return workers

    def _admit(self, address: str, text: object, request: str) -> None:
        """Take in a worker. Raises one of `UNBELIEVED` for one that cannot measure for this."""
        hello = parse(Hello, text, request)
        target = hello.parsed_target()
        ours = toolchain_record(target)
        found = (hello.version, hello.generation)
        expected = (str(ours.versions["tilewright"]), ours.generation)
        if found != expected:
            raise TuningError(
                "it has another version: expected tilewright {0} and {1}, found {2} and {3}",
                *expected,
                *found,
            )
        there = generator_for(target).timed_there(target, hello.machine)
        record = TargetRecord(str(target), target.compat_class, there.perf_class)
        if self._record is not None and record.id != self._record.id:
            raise TuningError("it is another kind of machine: {0} ({1})", record.perf, target)
        self._workers[address] = Worker(address, target, record, hello.environment())

    def _refuse(self, address: str, why: str) -> None:
        self.aside[address] = why
        _log.warning("worker %s gets no work: %s", self.named(address), why)


class _Work:
    """Jobs that wait, and those that workers have."""

    def __init__(self, cluster: Cluster, jobs: Iterator[Job]) -> None:
        self._cluster, self._jobs = cluster, jobs
        self._there_are_more = True
        self._waiting = deque[Job]()
        self._at_work: dict[Worker, tuple[Job, _Asked]] = {}
        self._ready = SimpleQueue[Any]()
        self._idle_since = time.monotonic()

    @property
    def goes_on(self) -> bool:
        return self._there_are_more or bool(self._waiting or self._at_work)

    def step(self) -> Iterator[Done]:
        """Give jobs to free workers, wait a little, and hear what became of others."""
        yield from self._assign()
        if self._at_work:
            self._idle_since = time.monotonic()
        elif self.goes_on and time.monotonic() - self._idle_since > PATIENCE:
            raise self._cluster.none_left()
        with suppress(Empty):
            self._ready.get(timeout=_TICK if self.goes_on else 0)
        for worker, (job, asked) in list(self._at_work.items()):
            if asked.future.done():
                yield from self._heard(worker, job, asked)
            elif not self._cluster.has(worker):  # it ended
                yield from self._lost(worker, job)
            elif asked.late:
                self._cluster.set_aside(worker, f"no answer after {asked.limit:.3g} s")
                yield from self._lost(worker, job)

    @property
    def _free(self) -> int:
        """How many workers have nothing to do."""
        return sum(worker not in self._at_work for worker in self._cluster.workers)

    def give_up(self) -> None:
        """Nobody waits for the answers any more."""
        for _, asked in self._at_work.values():
            asked.future.cancel()

    def _assign(self) -> Iterator[Done]:
        """Give jobs to the workers that have none. One that only a worker can do ends with it."""
        while (free := self._free - len(self._waiting)) > 0 and self._there_are_more:
            self._cluster.free = free
            job = next(self._jobs, None)
            if job is None:
                self._there_are_more = False
            else:
                self._waiting.append(job)
        for job in list(self._waiting):
            if job.on is not None and not self._cluster.has(job.on):
                self._waiting.remove(job)
                yield Done(job, job.on, None)
                continue
            idle = (w for w in self._cluster.workers if w not in self._at_work)
            worker = next((w for w in idle if job.on in (None, w)), None)
            if worker is not None:
                self._waiting.remove(job)
                request = job.ask(job.numbers)
                future = self._cluster.submit(perform, request, worker.address, {RESOURCE: 1})
                self._at_work[worker] = job, _Asked(request, future, job.limit)
                future.add_done_callback(self._ready.put)

    def _heard(self, worker: Worker, job: Job, asked: _Asked) -> Iterator[Done]:
        """Read an answer; a worker that is not believed gets no more work."""
        if asked.future.status in ("cancelled", "lost"):
            yield from self._lost(worker, job)
            return
        del self._at_work[worker]
        try:
            answer = job.read(worker, job.numbers, asked.answer(), asked.request)
        except Disturbed as error:
            self._cluster.set_aside(worker, str(error), REST)
            self._waiting.appendleft(job)
        except UNBELIEVED as error:  # what no worker can do costs no more than two of them
            self._cluster.set_aside(worker, str(error))
            yield from self._elsewhere(worker, job)
        else:
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
            _log.warning("worker %s is lost; %s measured again elsewhere", name, lost)
            self._waiting.extendleft(again)
        else:
            yield Done(job, worker, None)


def _require_client(client: Any) -> None:
    """Raise `ClusterError` for what is no client of Dask, or one for coroutines."""
    if not all(hasattr(client, name) for name in ("submit", "sync", "status")):
        raise ClusterError(
            "cluster={0!r:.80}: expected a dask.distributed.Client, or the address of a scheduler",
            client,
        )
    if getattr(client, "asynchronous", False):
        raise ClusterError("an asynchronous client: sessions call it from a thread of their own")


def connected(address: str) -> Any:
    """A client of the scheduler at an address such as `tcp://host:8786`.

    It takes no pickles for results. Raises `ClusterError` without Dask, or a scheduler.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise ClusterError(
            "distributed is not installed", hint="pip install 'tilewright[cluster]'"
        ) from error
    try:
        return Client(address, set_as_default=False, deserializers=["dask", "msgpack"])
    except (OSError, ValueError, TypeError) as error:
        raise ClusterError("no scheduler at {0}: {1}", address, error) from error
