"""A measurer without processes: it gives out what was measured at another time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Self

from tilewright.autotune.measure.any_measurer import Numbered
from tilewright.autotune.measure.measure_result import (
    BuildRequest,
    Kernel,
    MeasureResult,
)
from tilewright.autotune.measure.worker_pool import Built
from tilewright.runtime.measure.comparison import CheckResult
from tilewright.tuning_db import Outcome

PASSED = CheckResult(True, 1e-7, 1e-5)


def ok(seconds: float) -> MeasureResult:
    """A measurement that ran and, as `Recorded` has it, is checked if it beats the best."""
    return MeasureResult(Outcome.OK, seconds, (seconds,) * 3, kernel=Kernel(b""))


class Recorded:
    """Takes the place of `Measurer`; `measured` repeats its last element without end.

    Each candidate that runs has machine code of its own. `repeated` counts those timed again.
    """

    def __init__(
        self,
        measured: Sequence[MeasureResult],
        interleaved: Callable[[int, int], list[tuple[float, ...]] | None] = lambda *_: None,
    ) -> None:
        self.tick: Callable[[], None] = lambda: None
        self.timing = False
        self.width, self.environment = 1, None
        self.reference_seconds = 1.0
        self.seconds_building = self.seconds_running = self.seconds_waiting = 0.0
        self.seconds_meanwhile = 0.0
        self.closed = False
        self.verdict = PASSED
        self.repeated = 0
        self._measured = list(measured)
        self._built = 0
        self._interleaved = interleaved

    def __call__(self, *_: Any, **__: Any) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True

    def measure(
        self, requests: Sequence[BuildRequest], best: float | None, meanwhile: Iterable[None] = ()
    ) -> Iterator[Numbered]:
        deque(meanwhile, 0)
        for number in range(len(requests)):
            self.tick()
            found = self._measured[0]
            del self._measured[: len(self._measured) > 1]
            if found.kernel is not None:
                self._built += 1
                found = replace(found, kernel=Kernel(b"%d" % self._built))
            if found.seconds is not None and (best is None or found.seconds < best):
                best = found.seconds
                found = replace(found, check=PASSED)
            self._last = found
            yield number, found

    def run(self, built: Built, best: float | None) -> MeasureResult:
        """Time the last candidate again, which takes as long as before."""
        self.repeated += 1
        return self._last

    def await_reference(self) -> float:
        return self.reference_seconds

    def check(self, kernel: Kernel) -> CheckResult:
        return self.verdict

    def interleave(self, kernels: Sequence[Kernel], rounds: int) -> list[tuple[float, ...]] | None:
        return self._interleaved(len(kernels), rounds)


class Simulated(Recorded):
    """A candidate takes `seconds` of its trace as JSON text, in its trial and interleaved.

    `slower` is the factor of each interleaved timing, in order; later ones have the last. `heats`
    are the traces and rounds of those of several kernels.
    """

    def __init__(self, seconds: Callable[[str], float], slower: Sequence[float] = (1.0,)) -> None:
        super().__init__([])
        self.reference_seconds = 1e-3
        self.heats: list[tuple[list[str], int]] = []
        self.built: list[str] = []
        self.watched = 0
        self._seconds = seconds
        self._slower = list(slower)

    def measure(
        self, requests: Sequence[BuildRequest], best: float | None, meanwhile: Iterable[None] = ()
    ) -> Iterator[Numbered]:
        deque(meanwhile, 0)
        for number, request in enumerate(requests):
            self.built.append(request.trace)
            seconds = self._seconds(request.trace)
            check = PASSED if best is None or seconds < best else None
            best = seconds if check is not None else best
            kernel = Kernel(request.trace.encode())
            self._last = MeasureResult(
                Outcome.OK, seconds, (seconds,) * 3, kernel=kernel, check=check
            )
            yield number, self._last

    def interleave(self, kernels: Sequence[Kernel], rounds: int) -> list[tuple[float, ...]]:
        traces = [kernel.image.decode() for kernel in kernels]
        if len(traces) == 1:
            self.watched += 1
            return [(self._seconds(traces[0]),) * rounds]
        self.heats.append((traces, rounds))
        factor = self._slower[0]
        del self._slower[: len(self._slower) > 1]
        return [(factor * self._seconds(trace),) * rounds for trace in traces]


Play = Callable[..., Recorded]
"""The fixture `play`: makes `tune` measure by what was recorded."""
