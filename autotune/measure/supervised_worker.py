"""A worker process that is replaced when it dies, and gets its handshakes when it starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...errors import TuningError
from .protocol import Message
from .worker_process import Died, Event, TimedOut, Worker, quoted

_MAX_FAILURES = 3


class Requeue(NamedTuple):
    """The worker died before it came to the request, which has to be made again."""


@dataclass(frozen=True)
class Handshake:
    """A request that every new process of a worker gets first.

    `heard` gets the answer. Where `once` is set, a worker that dies of it is not replaced, unless
    it was killed from outside.
    """

    message: Message
    timeout: float
    what: str
    heard: Callable[[Message], None] = lambda _: None
    once: bool = False


class SupervisedWorker:
    """One process at a time in a role. Its handshakes depend on the program that it works on."""

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
        """The worker that is there now, a new one if the last has died."""
        worker = self._worker
        if worker is not None and worker.process.poll() is None and not worker.dead:
            return worker
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
        """Let workers that start from now on have an open file."""
        self._inherit.append(descriptor)

    def take_up(self, handshakes: Callable[[], Sequence[Handshake]]) -> None:
        """Give these requests first, to the worker that is there and those that replace it.

        Nothing happens where they are the ones that it got last.
        """
        if handshakes == self._handshakes:
            return
        self._handshakes = handshakes
        worker = self._worker
        if worker is not None and worker.process.poll() is None and not worker.dead:
            self._greet(worker)

    def open(self) -> None:
        """Start a worker if there is none, and let it get ready."""
        _ = self.worker

    def ask(self, message: Message, timeout: float) -> Worker:
        """Make a request of the worker given back; what comes of it goes through `receive`.

        That worker may be dead a moment later: its death is then the answer.
        """
        worker = self.worker
        worker.send(message, timeout)
        return worker

    def receive(self, event: Event) -> Event | Requeue | None:
        """What an event of the worker means for the request; `None` if it was not about it.

        Raises `TuningError` where workers cannot start or do not take the program.
        """
        if not self._owed:
            self._failures = 0
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

    def _greet(self, worker: Worker) -> None:
        handshakes = self._handshakes()
        self._owed += handshakes
        for welcome in handshakes:
            worker.send(welcome.message, welcome.timeout)


def was_killed(event: Event) -> bool:
    """Whether it is the death of a worker that was killed from outside."""
    return isinstance(event, Died) and event.killed_from_outside


def describe(event: Died | TimedOut) -> str:
    """A death in words."""
    if isinstance(event, Died):
        return f"the process ended with {event}"
    asleep = " though it hardly computed" if event.asleep else ""
    return f"not done within {event.seconds:.3g} s{asleep}{quoted(event.output)}"
