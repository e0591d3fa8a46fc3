"""The times of one kernel on all workers, by which a slow or disturbed one is noticed."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from ...base.durations import format_ratio
from .cluster import Worker

SLOW = 2.0
"""A worker whose sentinel takes so many times as long is slow; as for `noise.DISTURBED`."""
_IMPLAUSIBLE = 4.0
"""Machines of a kind are not so many times as fast as others: a clock is wrong."""
_MANY = 2


class Sentinels:
    """The times of one kernel on each worker."""

    def __init__(self) -> None:
        self._seconds: dict[Worker, float] = {}

    def seconds(self, worker: Worker) -> float:
        """The last time on a worker; infinite while there is none."""
        return self._seconds.get(worker, float("inf"))

    def note(self, worker: Worker, samples: Sequence[Sequence[float]]) -> str | None:
        """Keep the samples of before and after a part; return why it should be set aside."""
        times = [statistics.median(row) for row in samples if row]
        if not times:
            return None
        others = [seconds for w, seconds in self._seconds.items() if w is not worker]
        self._seconds[worker] = max(times)
        if max(times) >= SLOW * min(times):
            ratio = format_ratio(max(times) / min(times))
            return f"it is disturbed: the sentinel kernel took {ratio} times as long meanwhile"
        if others and max(times) >= SLOW * (usual := statistics.median_low(others)):
            ratio = format_ratio(max(times) / usual)
            return f"it is slow: the sentinel kernel takes {ratio} times as long as elsewhere"
        if len(others) >= _MANY and _IMPLAUSIBLE * max(times) <= statistics.median_low(others):
            del self._seconds[worker]
            return f"its clock is wrong: the sentinel kernel takes {max(times):.3g} s there"
        return None
