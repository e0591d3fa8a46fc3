"""Random schedules for GPUs in the emulator: what is not refused computes what the program does."""

from __future__ import annotations

import pytest

from tilewright.base.errors import BuildError
from tilewright.codegen.lower import lower
from tilewright.codegen.passes.rewrite import statements
from tilewright.tir.ir import Barrier, If, Let
from tilewright.tir.visit import walk

from ...fuzz.gpu_case import TARGET, TOLERANCE, run_gpu_case
from ...long import first_of
from ...schedule.random_cases import Tally
from ..machinery import random_arguments
from .emulate_check import check_program
from .random_bindings import a_bound_program, threads_of
from .random_branches import with_branches

PART = 20
"""Programs of a test."""


@pytest.mark.parametrize("part", first_of(range(100), 2))
def test_random_schedules(part: int) -> None:
    cases = [run_gpu_case(seed, Tally()) for seed in range(part * PART, (part + 1) * PART)]
    assert [case.failure for case in cases if case.failure is not None] == []
    assert sum(case.emulated for case in cases) > PART // 8  # the others are refused


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
    assert bound > PART // 2
    assert waiting > 1


def test_random_branches_and_names_are_around_phases() -> None:
    around = emulated = 0
    for seed in range(1, 2 * PART, 2):
        try:
            func = with_branches(a_bound_program(seed), seed)
            found = [s for s in statements(func.body) if type(s) in (If, Let) and threads_of(s)]
            around += bool(found)
            lower(func, TARGET)
            emulated += bool(found)
        except BuildError:
            continue
    assert around > PART // 8
    assert emulated > PART // 16
