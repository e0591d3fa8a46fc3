"""Random schedules for GPUs in the emulator: what is not refused computes what the program does."""

from __future__ import annotations

import pytest

from tilewright.codegen.cuda.emulate_check import check_program
from tilewright.errors import BuildError
from tilewright.target import CudaTarget
from tilewright.tir.ir import Barrier
from tilewright.tir.visit import walk

from ...long import first_of
from ..machinery import random_arguments
from .random_bindings import a_bound_program, threads_of

TARGET = CudaTarget.named("sm_90a")
PART = 20
"""Programs of a test."""
TOLERANCE = 1e-3
"""Of narrow floats, whose sums are added up in another order."""


@pytest.mark.parametrize("part", first_of(range(100), 4))
def test_random_schedules(part: int) -> None:
    right = 0
    for seed in range(part * PART, (part + 1) * PART):
        func = a_bound_program(seed)
        try:
            check = check_program(func, TARGET, random_arguments(func), tolerance=TOLERANCE)
        except BuildError:
            continue
        assert check.right, f"seed {seed}: {check}\n{func}\n{check.lowered}"
        right += 1
    assert right > PART // 4


def test_random_schedules_have_threads_and_barriers() -> None:
    bound = waiting = 0
    for seed in range(2 * PART):
        func = a_bound_program(seed)
        bound += bool(threads_of(func.body))
        try:
            check = check_program(func, TARGET, random_arguments(func), tolerance=TOLERANCE)
        except BuildError:
            continue
        waiting += any(type(n) is Barrier for n in walk(check.lowered))
    assert bound > PART
    assert waiting > 2
