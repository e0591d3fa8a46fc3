"""The times of several kernels, interleaved: of as many as there is memory for."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...base.errors import OutOfMemoryError
from ..timer import Timer

Load = Callable[[], Callable[[], None]]
"""Loads a kernel and packs its operands; returns its call."""


def time_loaded(
    loads: Iterable[Load], timer: Timer, *, rounds: int, min_sample_seconds: float
) -> list[list[float]]:
    """The seconds per call of each kernel, a sample in each round.

    What kernels keep beside the arguments, packed operands above all, is in memory at once. The
    samples are empty for those for which no memory is left after those before them. Raises
    `OutOfMemoryError` or `MemoryError` where there is not enough for the first one.
    """
    calls: list[Callable[[], None] | None] = []
    for n, load in enumerate(loads):
        try:
            call = load()
            call()  # takes its workspace
        except (OutOfMemoryError, MemoryError):
            if n == 0:
                raise
            calls.append(None)
        else:
            calls.append(call)
    timings = iter(
        timer.time_interleaved(
            [c for c in calls if c is not None],
            rounds=rounds,
            min_sample_seconds=min_sample_seconds,
        )
    )
    return [[] if c is None else list(next(timings).samples) for c in calls]
