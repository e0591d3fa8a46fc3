"""The reference kernel of a session, timed again: how long a disturbed machine is waited for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from tilewright.autotune.measure.measure_result import Kernel
from tilewright.autotune.measure.measurer import Measurer
from tilewright.autotune.session.finals import Finalist
from tilewright.autotune.session.noise import DriftMonitor
from tilewright.schedule import Trace
from tilewright.tuning_db import ScheduleRecord


class Timed:
    """A measurer whose kernels take the given times, one after the other."""

    def __init__(self, *seconds: float) -> None:
        self._seconds = iter(seconds)

    def interleave(self, kernels: Sequence[Kernel], rounds: int) -> list[tuple[float, ...]]:
        return [(next(self._seconds),) * rounds for _ in kernels]


FIRST = Finalist(1e-3, ScheduleRecord("[]", 1), Trace(()), Kernel(b""), True)


def test_a_disturbed_machine_is_waited_for_ever_longer() -> None:
    pauses: list[int] = []
    monitor = DriftMonitor(4, lambda: pauses.append(1))
    measurer = cast(Measurer, cast(Any, Timed(1e-3, 9e-3, 9e-3, 9e-3, 9e-3, 9e-3, 1e-3)))
    assert monitor.watch(0, FIRST, measurer) is None
    assert monitor.watch(4, FIRST, measurer) == 9.0
    assert len(pauses) == 1 + 2 + 4
    assert monitor.watch(8, FIRST, measurer) == 9.0
    assert len(pauses) == 7, "while it stays like that, it is not waited for again"
    assert monitor.watch(12, FIRST, measurer) == 1.0
    assert not monitor.disturbed


def test_the_wait_ends_with_the_disturbance() -> None:
    pauses: list[int] = []
    monitor = DriftMonitor(4, lambda: pauses.append(1))
    measurer = cast(Measurer, cast(Any, Timed(1e-3, 9e-3, 1.1e-3)))
    monitor.watch(0, FIRST, measurer)
    assert monitor.watch(4, FIRST, measurer) == 1.1
    assert len(pauses) == 1


def test_a_kernel_that_was_disturbed_at_first_is_waited_for_by_its_least_time() -> None:
    pauses: list[int] = []
    monitor = DriftMonitor(4, lambda: pauses.append(1))
    measurer = cast(Measurer, cast(Any, Timed(10e-3, 14e-6, 10e-3, 14e-6)))
    monitor.watch(0, FIRST, measurer)
    assert monitor.watch(4, FIRST, measurer) == 14e-6 / 10e-3
    assert not pauses
    monitor.look(measurer)
    assert len(pauses) == 1, "as long as at the start, and yet disturbed"
