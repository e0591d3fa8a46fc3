"""The reference kernel of a session, timed again: how long a disturbed machine is waited for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from tilewright.autotune.drift import DriftMonitor, Plausibility
from tilewright.autotune.finals import Finalist
from tilewright.autotune.measure.measure_result import Kernel
from tilewright.autotune.measure.measurer import Measurer
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


def test_times_far_beyond_their_predictions_and_the_best_are_doubted() -> None:
    plausible = Plausibility()
    assert plausible.doubts(10e-3, 14e-6, None)
    assert plausible.doubts(10e-3, 14e-6, 12e-6)
    assert not plausible.doubts(20e-6, 14e-6, None), "as predicted"
    assert not plausible.doubts(10e-3, 9e-3, 12e-6), "as slow as predicted"
    assert not plausible.doubts(10e-3, 14e-6, 1e-3), "the best is not much faster"
    assert not plausible.doubts(1.0, 14e-6, None), "a time slice explains little of it"
    assert not plausible.doubts(None, 14e-6, None), "it failed"


def test_a_model_that_is_off_for_all_candidates_is_believed_no_more() -> None:
    plausible = Plausibility()
    for _ in range(7):
        plausible.conclude(10e-3, 14e-6, doubtful=True)
    assert plausible.doubts(10e-3, 14e-6, None)
    plausible.conclude(9e-3, 14e-6, doubtful=True)
    assert not plausible.doubts(10e-3, 14e-6, None)
    plausible.conclude(14e-6, 14e-6, doubtful=False)
    assert plausible.doubts(10e-3, 14e-6, None), "it was the machine"
