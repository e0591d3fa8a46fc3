"""The processes that build and run the candidates of one program or of several.

Builds that go on in several processes, and other work of this one meanwhile.

A worker process that is replaced when it dies, and gets its handshakes when it starts.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from tempfile import gettempdir
from typing import Generic, NamedTuple, TypeVar

from ...base.errors import TuningError
from ...codegen.detect import usable_processors
from ...codegen.generator import generator_for, outside_modules
from ...target import Target
from .measure_result import Kernel, MeasureConfig
from .protocol import Message
from .worker_process import Died, Reply, TimedOut, Worker, quoted, turn


class WorkerPool:
    """Builders and a runner for one target.

    Builders first import `modules`: those that register primitives of the schedules.

    The measurer of a program lets them `take_up` its handshakes. They keep that program until
    another measurer does so.
    """

    def __init__(self, target: Target, config: MeasureConfig, modules: Sequence[str] = ()) -> None:
        self.config, self.modules = config, (*outside_modules(target), *modules)
        generator = generator_for(target)
        own = dict[str, str]()
        self._folder: Path | None = None
        if generator.on_device:  # what is ended leaves its compiler's files, which go with this
            self._folder = Path(gettempdir(), f"tilewright-{token_hex(16)}")
            own["TMPDIR"] = str(self._folder)
        self.builders = [
            SupervisedWorker("builder", {**own, **generator.environment(target, runs=False)})
            for _ in range(config.builders or max(1, usable_processors() - generator.on_device))
        ]
        self._target, self._own = target, own
        self._runner: SupervisedWorker | None = None

    @property
    def runner(self) -> SupervisedWorker:
        """The one that runs; where nobody asks for it, no device is needed."""
        if self._runner is None:
            environment = generator_for(self._target).environment(self._target, runs=True)
            self._runner = SupervisedWorker("runner", {**self._own, **environment})
        return self._runner

    @property
    def workers(self) -> list[SupervisedWorker]:
        """The runner's first, if there is one."""
        return [*self.builders] if self._runner is None else [self._runner, *self.builders]

    def open(
        self,
        builder: Callable[[], Sequence[Handshake]],
        runner: Callable[[], Sequence[Handshake]] = list,
    ) -> None:
        """Start the processes with these handshakes, where none have started; they get ready.

        Raises `TuningError` where none can start.
        """
        if self._folder is not None:
            try:
                self._folder.mkdir(mode=0o700, exist_ok=True)
            except OSError as error:
                raise TuningError(
                    "there is no folder for the files of compilers: {0}",
                    error,
                    hint="the variable TMPDIR names another folder for temporary files",
                ) from error
        for worker in self.workers:
            if not worker.opened:
                worker.take_up(runner if worker is self._runner else builder)
                worker.open()

    def close(self) -> None:
        """End all processes at once."""
        for worker in self.workers:
            worker.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


_log = logging.getLogger(__name__)
Request = TypeVar("Request")
Result = TypeVar("Result")


class Built(NamedTuple):
    """A candidate that compiled, and how many seconds that took."""

    kernel: Kernel
    seconds: float


class Builds(Generic[Request, Result]):
    """Requests that builders work on, and what became of those before.

    `ask` gives a request to a builder, `hear` makes a result of the answer. A builder that was
    killed from outside says nothing of its request, which gets another one.
    """

    def __init__(
        self,
        builders: Sequence[SupervisedWorker],
        requests: Sequence[Request],
        ask: Callable[[SupervisedWorker, Request], Worker],
        hear: Callable[[Reply, Request], Result],
    ) -> None:
        self.results: dict[int, Result] = {}
        self.at_work: dict[Worker, tuple[SupervisedWorker, int]] = {}
        self._requests, self._ask, self._hear = requests, ask, hear
        self._waiting = deque(range(len(requests)))
        self._requeued: set[int] = set()
        self._free = list(builders)
        self._assign()

    def hear(
        self, tick: Callable[[], None], work: Callable[[], bool] = lambda: False, wait: bool = True
    ) -> None:
        """Hear what builders have to say, and give them more to do."""
        busy = list(self.at_work)
        for worker, reply in turn(busy, tick, work, wait=wait) if busy else ():
            if worker not in self.at_work:
                continue  # it died after its answer, which is the next request's matter
            supervised, number = self.at_work[worker]
            answer = supervised.receive(reply)
            if answer is None:
                continue
            del self.at_work[worker]
            self._free.append(supervised)
            if isinstance(answer, Requeue):
                self._waiting.appendleft(number)
            elif was_killed(answer) and number not in self._requeued:
                _log.info("a builder was killed; its request gets another")
                self._requeued.add(number)
                self._waiting.appendleft(number)
            else:
                self.results[number] = self._hear(answer, self._requests[number])
        self._assign()

    def take(self) -> int | None:
        """The number of the last request that waits, for who does it meanwhile; `None` if none."""
        return self._waiting.pop() if self._waiting else None

    def give_up(self) -> None:
        """End the builders that are at work: nobody waits for their answers."""
        for supervised, _ in self.at_work.values():
            supervised.close()
        self.at_work.clear()

    def _assign(self) -> None:
        while self._free and self._waiting:
            supervised, number = self._free.pop(), self._waiting.popleft()
            self.at_work[self._ask(supervised, self._requests[number])] = supervised, number


class OtherWork:
    """Other work to do while waiting, in steps, and the seconds that it took."""

    def __init__(self, steps: Iterable[None]) -> None:
        self.seconds = 0.0
        self._steps = iter(steps)

    def step(self) -> bool:
        """Do one step, if there is one."""
        began = time.monotonic()
        done = next(self._steps, self) is None
        self.seconds += time.monotonic() - began
        return done

    def finish(self) -> None:
        while self.step():
            pass


_MAX_FAILURES = 3


class Requeue(NamedTuple):
    """The worker died before it began with the request, which has to be made again."""


@dataclass(frozen=True)
class Handshake:
    """A request that every new process of a worker gets first.

    `heard` is called with the answer. If `once` is set, a worker that dies during the request is
    not replaced, unless it was killed from outside.
    """

    message: Message
    timeout: float
    what: str
    heard: Callable[[Message], None] = lambda _: None
    once: bool = False


class SupervisedWorker:
    """One process at a time in a role, with the handshakes of the program that it works on."""

    def __init__(self, role: str, environment: Mapping[str, str]) -> None:
        self._role = role
        self._environment = environment
        self._handshakes: Callable[[], Sequence[Handshake]] = list
        self._inherit: list[int] = []
        self._worker: Worker | None = None
        self._owed: list[Handshake] = []
        self._failures = 0

    @property
    def worker(self) -> Worker:
        """The current worker: a new one if the last has died."""
        if (alive := self._alive()) is not None:
            return alive
        self.close()
        worker = Worker([self._role], self._environment, self._inherit)
        self._worker = worker
        self._owed = []
        self._greet(worker)
        return worker

    @property
    def opened(self) -> bool:
        """Whether there is a worker, alive or dead."""
        return self._worker is not None

    def inherit(self, descriptor: int) -> None:
        """Pass an open file to all workers that start from now on."""
        self._inherit.append(descriptor)

    def take_up(self, handshakes: Callable[[], Sequence[Handshake]]) -> None:
        """Send these requests to the current worker, and first to those that replace it.

        Nothing happens if they are the ones that it got last.
        """
        if handshakes == self._handshakes:
            return
        self._handshakes = handshakes
        if (alive := self._alive()) is not None:
            self._greet(alive)

    def open(self) -> None:
        """Start a worker if there is none, and let it get ready."""
        _ = self.worker

    def ask(self, message: Message, timeout: float, asleep: float | None = None) -> Worker:
        """Send a request to the worker that is returned; its replies go through `receive`.

        If that worker dies, its death is the answer. The limits are those of `Worker.send`.
        """
        worker = self.worker
        worker.send(message, timeout, asleep)
        return worker

    def receive(self, reply: Reply) -> Reply | Requeue | None:
        """The answer to the request that a reply of the worker is; `None` if it is of another.

        A worker that answers that it is `unusable`, because of the request, is ended.

        Raises `TuningError` where workers cannot start or do not take the program.
        """
        if not self._owed:
            self._failures = 0
            if isinstance(reply, Message) and reply.fields.get("unusable"):
                self.close()
            return reply
        welcome = self._owed[0]
        if isinstance(reply, Message):
            if reply.fields.get("error"):
                raise TuningError("{0} failed: {1}", welcome.what, reply.fields["error"])
            del self._owed[0]
            welcome.heard(reply)
            return None
        self._failures += 1
        once = welcome.once and not was_killed(reply)
        if once or self._failures >= _MAX_FAILURES:
            raise TuningError("{0} failed: {1}", welcome.what, describe(reply))
        return Requeue()

    def close(self) -> None:
        if self._worker is not None:
            self._worker.kill()
            self._worker = None

    def _alive(self) -> Worker | None:
        worker = self._worker
        ended = worker is None or worker.dead or worker.process.poll() is not None
        return None if ended else worker

    def _greet(self, worker: Worker) -> None:
        handshakes = self._handshakes()
        self._owed += handshakes
        for welcome in handshakes:
            worker.send(welcome.message, welcome.timeout)


def was_killed(reply: Reply) -> bool:
    """Whether a reply is the death of a worker that was killed from outside."""
    return isinstance(reply, Died) and reply.killed_from_outside


def describe(reply: Died | TimedOut) -> str:
    """A death as text."""
    if isinstance(reply, Died):
        return f"the process ended with {reply}"
    asleep = " though it hardly computed" if reply.asleep else ""
    return f"not done within {reply.seconds:.3g} s{asleep}{quoted(reply.output)}"
