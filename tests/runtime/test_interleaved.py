"""Kernels are timed interleaved as far as there is memory for what they keep."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tilewright.base.errors import OutOfMemoryError
from tilewright.runtime.measure.interleaved import time_loaded
from tilewright.runtime.timer import Timer


class Memory:
    """Room for packed operands, which calls keep, and for one workspace at a time."""

    def __init__(self, room: int) -> None:
        self.room = room

    def load(self, packed: int, workspace: int = 0) -> Callable[[], Callable[[], None]]:
        def call() -> None:
            if workspace > self.room:
                raise OutOfMemoryError("no memory for a workspace of {0}", workspace)

        def load() -> Callable[[], None]:
            if packed > self.room:
                raise MemoryError
            self.room -= packed
            return call

        return load


@pytest.mark.parametrize(
    ("kernels", "timed"),
    [
        ([(4, 0), (4, 0), (2, 0)], [3, 3, 3]),
        ([(4, 0), (7, 0), (6, 0)], [3, 0, 3]),
        ([(4, 3), (3, 4), (0, 0)], [3, 0, 3]),
    ],
)
def test_those_that_find_no_memory_have_no_samples(
    kernels: list[tuple[int, int]], timed: list[int]
) -> None:
    memory = Memory(10)
    loads = [memory.load(*kernel) for kernel in kernels]
    found = time_loaded(loads, Timer(), rounds=3, min_sample_seconds=1e-6)
    assert [len(samples) for samples in found] == timed


@pytest.mark.parametrize("kernel", [(11, 0), (8, 3)])
def test_the_first_has_to_find_memory(kernel: tuple[int, int]) -> None:
    loads = [Memory(10).load(*kernel)]
    with pytest.raises(MemoryError):
        time_loaded(loads, Timer(), rounds=3, min_sample_seconds=1e-6)
