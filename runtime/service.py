"""What a program does in production: it is warmed up before it is used, and its calls are counted.

Nothing is counted unless that is asked for, and nothing is printed.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple, cast

from ..base.durations import format_seconds
from ..base.text import count
from .memory import memory_for

if TYPE_CHECKING:
    from .fixture import Fixture
    from .guards import Guard
    from .library import Loaded

Ts = TypeVarTuple("Ts")
R = TypeVar("R")


@dataclass(frozen=True)
class Report:
    """What is known of a loaded program, and what its calls have done until now.

    `kernels` are numbers of kernels by the kinds of their origins. `calls` are those that have
    returned, `seconds` the time that they took, and `errors` the numbers of the others, by their
    errors. They are `None` where calls are not counted.
    """

    program: str
    ready: bool
    kernels: Mapping[str, int]
    calls: int | None = None
    seconds: float | None = None
    errors: Mapping[str, int] | None = None

    def __str__(self) -> str:
        kernels = [f"{number} of origin {kind}" for kind, number in self.kernels.items()]
        parts = ["ready" if self.ready else "not warmed up", f"kernels: {', '.join(kernels)}"]
        if self.calls is None or self.seconds is None:
            parts.append("calls are not counted")
        else:
            parts.append(f"{count(self.calls, 'call')} in {format_seconds(self.seconds)}")
            parts += [f"{number} of {name}" for name, number in (self.errors or {}).items()]
        return f"{self.program}: {'; '.join(parts)}"


class CallCounts:
    """The calls of a program. Each thread adds to numbers of its own, so that none is lost."""

    def __init__(self) -> None:
        self._by_thread: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0])
        self._errors: Counter[str] = Counter()
        self._lock = threading.Lock()

    def counted(self, function: Callable[[*Ts], R]) -> Callable[[*Ts], R]:
        """The function, whose calls are counted."""
        by_thread, clock, thread = self._by_thread, perf_counter_ns, threading.get_ident

        def run(*arguments: *Ts) -> R:
            start = clock()
            try:
                result = function(*arguments)
            except BaseException as error:
                with self._lock:
                    self._errors[type(error).__name__] += 1
                raise
            seen = by_thread[thread()]
            seen[0] += 1
            seen[1] += clock() - start
            return result

        return run

    @property
    def numbers(self) -> tuple[int, float, dict[str, int]]:
        """The calls that returned, their seconds, and the errors of the others."""
        seen = list(self._by_thread.values())
        with self._lock:
            errors = dict(self._errors)
        return sum(own[0] for own in seen), sum(own[1] for own in seen) * 1e-9, errors


class Serviced(ABC):
    """A program that is called in production. An artifact has its `fixture`."""

    fixture: Fixture | None = None
    guards: tuple[Guard, ...] = ()
    _ready = False
    _counts: CallCounts | None = None

    @property
    def ready(self) -> bool:
        """Whether `warm_up` has succeeded."""
        return self._ready

    def warm_up(self) -> None:
        """Call the program with the inputs of its `fixture`, and compare what it computes with what
        it computed where it was built. Then it is `ready`: memory, pages and threads are in place.

        A program that was built here, or by an older version, has no fixture. It is called with the
        same inputs again, and has to compute the same. All these calls are counted as others.

        Raises `ArtifactError` where it computes something else, or writes outside of its outputs,
        `OutOfMemoryError` where there is no memory for the arguments, or a program without a
        fixture takes more than 1 GB of them, and what a call raises.
        """
        from .fixture import try_out  # it knows the kinds of programs

        with memory_for("{0}: no memory for the arguments of its warm-up", self._program):
            try_out(cast("Loaded", self))
        self._ready = True

    def count_calls(self) -> None:
        """Count the calls that begin from now on, for `report`. It costs each call 0.3 us."""
        if self._counts is None:
            self._counts = CallCounts()
            self._count(self._counts)

    def report(self) -> Report:
        """What is known of the program and its calls, until now."""
        numbers = () if self._counts is None else self._counts.numbers
        kernels = Counter(self._origins())
        return Report(self._program, self._ready, dict(sorted(kernels.items())), *numbers)

    @property
    @abstractmethod
    def _program(self) -> str: ...

    @abstractmethod
    def _origins(self) -> Iterable[str]:
        """The kind of origin of each of its kernels."""

    @abstractmethod
    def _count(self, counts: CallCounts) -> None: ...
