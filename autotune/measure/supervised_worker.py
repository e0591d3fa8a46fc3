"""A worker process that is replaced when it dies, and gets its handshakes when it starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...base.errors import TuningError
from .protocol import Message
from .worker_process import Died, Event, TimedOut, Worker, quoted

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
        """Send a request to the worker that is returned; its events go through `receive`.

        If that worker dies, its death is the answer. The limits are those of `Worker.send`.
        """
        worker = self.worker
        worker.send(message, timeout, asleep)
        return worker

    def receive(self, event: Event) -> Event | Requeue | None:
        """The answer to the request that an event of the worker is; `None` if it is of another.

        A worker that answers that it is `unusable`, because of the request, is ended.

        Raises `TuningError` where workers cannot start or do not take the program.
        """
        if not self._owed:
            self._failures = 0
            if isinstance(event, Message) and event.fields.get("unusable"):
                self.close()
            return event
        welcome = self._owed[0]
        if isinstance(event, Message):
            if event.fields.get("error"):
                raise TuningError("{0} failed: {1}", welcome.what, event.fields["error"])
            del self._owed[0]
            welcome.heard(event)
            return None
        self._failures += 1
        once = welcome.once and not was_killed(event)
        if once or self._failures >= _MAX_FAILURES:
            raise TuningError("{0} failed: {1}", welcome.what, describe(event))
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


def was_killed(event: Event) -> bool:
    """Whether an event is the death of a worker that was killed from outside."""
    return isinstance(event, Died) and event.killed_from_outside


def describe(event: Died | TimedOut) -> str:
    """A death as text."""
    if isinstance(event, Died):
        return f"the process ended with {event}"
    asleep = " though it hardly computed" if event.asleep else ""
    return f"not done within {event.seconds:.3g} s{asleep}{quoted(event.output)}"
