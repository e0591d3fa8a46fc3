"""What sessions ask of a measurer: one of this machine, or of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, Self, TypeAlias

from ...runtime.measure.comparison import CheckResult
from .measure_result import BuildRequest, Kernel, MeasureResult
from .worker_pool import Built

Numbered: TypeAlias = tuple[int, MeasureResult]
"""The place of a request among those that were given, and what became of it."""


class AnyMeasurer(Protocol):
    """Measures schedules of one program; see `Measurer`, the one of this machine.

    `environment` is the record (id) of the machine that interleaved last, `None` for this one.
    """

    tick: Callable[[], None]
    timing: bool
    reference_seconds: float | None
    seconds_running: float
    seconds_waiting: float
    environment: str | None

    @property
    def seconds_building(self) -> float: ...

    @property
    def seconds_meanwhile(self) -> float: ...

    @property
    def width(self) -> int:
        """How many machines measure."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def measure(
        self,
        requests: Sequence[BuildRequest],
        best_seconds: float | None,
        meanwhile: Iterable[None] = (),
    ) -> Iterator[Numbered]: ...

    def run(self, built: Built, best_seconds: float | None = None) -> MeasureResult: ...

    def check(self, kernel: Kernel) -> CheckResult: ...

    def interleave(
        self, kernels: Sequence[Kernel], rounds: int
    ) -> list[tuple[float, ...]] | None: ...

    def await_reference(self) -> float: ...
