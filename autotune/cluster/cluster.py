"""The workers of a Dask cluster that measure for one target: who they are, and who gets work.

A worker that has the resource `tilewright` is a machine that runs candidates, one thing at a time;
without builders it builds them too. One with `tilewright-build` is a process that builds them, on
any machine of the same architecture. A worker whose answer makes no sense gets no more
work: it is set aside, until it is started again. One that is slow or late, or says that it cannot
do something, rests; it is set aside if it fails again and again.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ...base import __version__
from ...base.errors import ClusterError, TuningError
from ...codegen.generator import generator_for
from ...target import Target
from ...tuning_db.values import Environment, TargetRecord
from ..records import toolchain_record
from .answers import UNBELIEVED, Hello, parse, received
from .scheduler import Asked, Found, Scheduler
from .station import describe, perform

_log = logging.getLogger(__name__)
START = "start workers with: dask worker SCHEDULER --nthreads 1 --resources tilewright=1"
HELLO_SECONDS = 60.0
"""Seconds in which a worker has to say who it is; one that is busy for others is asked again."""
REST = 30.0
"""Seconds after which a worker that was slow or failed is tried again."""
MAX_FAILURES = 3
"""Failures, with no success between them, after which a worker does not only rest."""
LOOK = 1.0
"""Seconds between looks at which workers there are."""
_POLL = 0.02
_NO_FACTS = Environment({})


class Role(Enum):
    """What a worker does, by the resource of Dask that it has."""

    RUN = "tilewright"
    BUILD = "tilewright-build"


@dataclass(eq=False)
class Worker:
    """A worker by its address. `environment` has facts of its machine now, of a builder none."""

    address: str
    role: Role = Role.RUN
    environment: Environment = _NO_FACTS


class Cluster:
    """The workers of a Dask `client` that measure for one target.

    `wanted` is the target as each worker resolves it: `cpu` is its own processor. A session for
    several targets names them all in `among`, of which a worker serves one. `target` is what they
    resolved, `record` its record.
    `aside` has the workers that get no work by address, and why.

    Raises `ClusterError` where no worker measures for it, and where they are of several kinds.
    """

    target: Target
    record: TargetRecord

    def __init__(
        self, client: Any, wanted: Target | str, among: Sequence[Target | str] = ()
    ) -> None:
        self.scheduler = Scheduler(client)
        self.aside: dict[str, str] = {}
        self._wanted, self._among = str(wanted), [*map(str, among)]
        self._workers: dict[str, Worker] = {}
        self._greeted: dict[str, tuple[Role, Asked]] = {}
        self._known: dict[str, Found] = {}
        self._rests: dict[str, float] = {}
        self._failures = Counter[str]()
        self._looked = -math.inf
        self._kind: _Kind | None = None
        self._others: set[str] = set()
        kind = self._first_kind()
        self.target, self.record = kind.target, kind.record
        self._settle()  # builders say who they are, once it is known for what they build

    def of(self, role: Role) -> list[Worker]:
        """Those that get work of this role."""
        return [w for w in self._workers.values() if w.role is role]

    @property
    def workers(self) -> list[Worker]:
        """Those that run candidates."""
        return self.of(Role.RUN)

    def has(self, worker: Worker) -> bool:
        """Whether a worker gets work."""
        return self._workers.get(worker.address) is worker

    def set_aside(self, worker: Worker, why: str, seconds: float = math.inf) -> None:
        """Give a worker no work for so many seconds; `why` is a reason in plain words."""
        if self.has(worker):
            del self._workers[worker.address]
            self._refuse(worker.address, why, seconds)

    def rest(self, worker: Worker, why: str) -> None:
        """Set aside a worker that failed: for a while, unless it has failed so often in a row."""
        self._failures[worker.address] += 1
        again = self._failures[worker.address] < MAX_FAILURES
        self.set_aside(worker, why, REST if again else math.inf)

    def worked(self, worker: Worker) -> None:
        """Note that a worker did what it was asked."""
        del self._failures[worker.address]

    def submit(self, worker: Worker, request: str, data: bytes, limit: float) -> Asked:
        """Ask a worker about candidates; see `station.perform`."""
        resources = {worker.role.value: 1.0}
        return self.scheduler.submit(perform, request, limit, worker.address, data, resources)

    def look(self) -> None:
        """Find which workers there are now and then. Raises `ClusterError` without a scheduler."""
        if time.monotonic() - self._looked > LOOK:
            self._looked = time.monotonic()
            self._meet({found.address: found for found in self.scheduler.workers()})
        for address, (role, asked) in list(self._greeted.items()):
            if asked.future.done():
                del self._greeted[address]
                try:
                    self._admit(address, role, asked.answer(), asked.request)
                except UNBELIEVED as error:
                    self._refuse(address, str(error))
            elif asked.late:
                del self._greeted[address]
                asked.future.cancel()
                self._refuse(address, "it does not say who it is", REST)

    def named(self, address: str) -> str:
        """What people call a worker: its name, if it has one, and its address."""
        name = self._known[address].name if address in self._known else address
        return address if name == address else f"{name} ({address})"

    def none_left(self) -> ClusterError:
        """The error that no worker gets work."""
        reasons = "".join(f"\n  {self.named(a)}: {why}" for a, why in self.aside.items())
        return ClusterError(
            "no worker measures for {0}: {1}",
            self._wanted,
            reasons or f"none has the resource {Role.RUN.value}",
            hint=START,
            workers=dict(self.aside),
        )

    def _first_kind(self) -> _Kind:
        """What all machines are that are there at first. Raises `ClusterError`."""
        self._settle()
        if self._kind is None:
            raise self.none_left()
        if self._others:
            raise ClusterError(
                "the workers are of several kinds: {0}",
                "; ".join(sorted({str(self._kind), *self._others})),
                hint="name the target of one kind in full",
            )
        return self._kind

    def _settle(self) -> None:
        """Wait until all that are greeted have said who they are, or had the time for it."""
        self.look()
        end = time.monotonic() + HELLO_SECONDS + LOOK
        while self._greeted and time.monotonic() < end:
            time.sleep(_POLL)
            self.look()

    def _meet(self, found: dict[str, Found]) -> None:
        """Forget workers that are gone or were started again, and greet those that are new."""
        for address, before in self._known.items():
            now = found.get(address)
            if now is None or now.life != before.life:
                self._workers.pop(address, None)
                self._greeted.pop(address, None)
            if now is not None and now.life != before.life:
                self._rests[address] = -math.inf
                del self._failures[address]
        for address in [a for a, end in self._rests.items() if end < self._looked]:
            del self._rests[address]
            self.aside.pop(address, None)
        self._known |= found
        for address, worker in found.items():
            role = next((r for r in Role if worker.resources.get(r.value, 0) >= 1), None)
            busy = address in self._workers or address in self._greeted or address in self.aside
            if role is None or busy or (role is Role.BUILD and self._kind is None):
                continue
            told: dict[str, Any] = {"target": self._wanted, "among": self._among}
            if role is Role.BUILD:
                assert self._kind is not None
                told = {"builds": self._kind.target.to_json()}
            asked = self.scheduler.submit(describe, json.dumps(told), HELLO_SECONDS, address)
            self._greeted[address] = role, asked

    def _admit(self, address: str, role: Role, answer: object, request: str) -> None:
        """Take in a worker. Raises one of `UNBELIEVED` for one that cannot do this work."""
        # Another version may say other things of itself.
        _require("version", __version__, received(answer, request).fields.get("version"))
        hello = parse(Hello, answer, request)
        target = hello.parsed_target()
        if not hello.serves:
            self.aside[address] = f"it measures for {target}"
            _log.info("worker %s: %s", self.named(address), self.aside[address])
            return
        _require("compiler", toolchain_record(target).generation, hello.generation)
        if role is Role.BUILD:
            assert self._kind is not None, "builders are greeted by what they have to build for"
            _require("architecture", self._kind.architecture, hello.architecture)
            self._workers[address] = Worker(address, role)
            return
        there = generator_for(target).timed_there(target, hello.machine)
        record = TargetRecord(str(target), target.compat_class, there.perf_class)
        kind = _Kind(target, record, hello.architecture)
        if self._kind is None:
            self._kind = kind
            self._looked = -math.inf  # builders can be greeted now
        elif kind.record.id != self._kind.record.id:
            self._others.add(str(kind))
            raise TuningError("it is another kind of machine: {0}", kind)
        self._workers[address] = Worker(address, role, hello.environment())

    def _refuse(self, address: str, why: str, seconds: float = math.inf) -> None:
        self.aside[address] = why
        self._rests[address] = time.monotonic() + seconds
        _log.warning("worker %s gets no work: %s", self.named(address), why)


@dataclass(frozen=True)
class _Kind:
    """What the machines that run candidates are."""

    target: Target
    record: TargetRecord
    architecture: str

    def __str__(self) -> str:
        return f"{self.record.perf} ({self.target})"


def _require(what: str, expected: object, found: object) -> None:
    if found != expected:
        raise TuningError("it has another {0}: expected {1}, found {2}", what, expected, found)
