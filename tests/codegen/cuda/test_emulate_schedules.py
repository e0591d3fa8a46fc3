"""Schedules of GPUs at odd sizes in the emulator: they are right, and need all their barriers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from tilewright.base.errors import BuildError
from tilewright.codegen.cuda.emulate import emulate
from tilewright.codegen.cuda.emulate_faults import FaultKind
from tilewright.codegen.lower import lower
from tilewright.target import CudaTarget
from tilewright.tir.ir import Barrier, Expr, Func, Seq, Stmt, Store, const
from tilewright.tir.visit import rewrite_children, walk

from ..machinery import copied, random_arguments
from . import schedules
from .emulate_check import check_lowered, check_program

TARGET = CudaTarget.named("sm_90a")
SCHEDULES: dict[str, Callable[[], Func]] = {
    "matmul": lambda: schedules.matmul(65, 37, 19),
    "matmul by vectors": lambda: schedules.matmul(33, 35, 11, lanes=4),
    "matmul of two stages": lambda: schedules.matmul(65, 37, 19, stages=2),
    "matmul of two stages by vectors": lambda: schedules.matmul(33, 35, 27, lanes=4, stages=2),
    "matmul of bfloat16": lambda: schedules.matmul(37, 43, 13, "bfloat16", lanes=4),
    "transpose": lambda: schedules.transpose(45, 71),
    "transpose of int8": lambda: schedules.transpose(67, 33, "int8"),
    "elementwise": lambda: schedules.elementwise(1003),
    "elementwise of float16": lambda: schedules.elementwise(4099, "float16", lanes=8),
    "softmax by warps": lambda: schedules.softmax(7, 101),
    "softmax by parts of warps": lambda: schedules.softmax(7, 33, rows=8, threads=16),
    "softmax by odd threads": lambda: schedules.softmax(3, 71, rows=2, threads=24),
    "softmax by blocks": lambda: schedules.softmax(3, 501, rows=1, threads=128),
    "softmax by several blocks of warps": lambda: schedules.softmax(5, 201, rows=2, threads=64),
    "sum in two launches": lambda: schedules.sum_in_two_launches(5, 1001),
    "sum in two launches by warps": lambda: schedules.sum_in_two_launches(41, 99, 3, 32),
    "conv": lambda: schedules.conv(1, 3, 9, 5, 16),
}


@cache
def lowered(name: str) -> Func:
    return lower(SCHEDULES[name](), TARGET)


@pytest.mark.part(5)
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_compute_what_the_interpreter_does(name: str) -> None:
    func = SCHEDULES[name]()
    check = check_lowered(lowered(name), func, random_arguments(func))
    assert check.right, str(check)


@pytest.mark.parametrize("name", SCHEDULES)
def test_without_a_barrier_there_is_a_race(name: str) -> None:
    func = lowered(name)
    arguments = random_arguments(SCHEDULES[name]())
    for n in range(sum(type(s) is Barrier for s in walk(func))):
        found = emulate(without_barrier(func, n), *copied(arguments))
        assert FaultKind.RACE in {f.kind for f in found.faults}, f"barrier {n} is for nothing"


def without_barrier(func: Func, number: int) -> Func:
    """`func` without the barrier of that number."""
    count = -1

    def visit(n: Any) -> Any:
        nonlocal count
        if type(n) is Barrier:
            count += 1
            return Seq(()) if count == number else n
        return rewrite_children(n, visit) if isinstance(n, Stmt) else n

    return replace(func, body=visit(func.body))


def test_there_are_barriers_to_leave_out() -> None:
    """Of blocks and of warps, in loops and beside them."""
    scopes = [
        s.scope.value for name in SCHEDULES for s in walk(lowered(name)) if type(s) is Barrier
    ]
    assert scopes.count("block") >= 10


def test_a_check_says_what_is_wrong() -> None:
    func = schedules.elementwise(37, threads=8)
    low = lowered_with(func, lambda _: const(0.0, "float32"))
    check = check_lowered(low, func, random_arguments(func))
    assert not check.right
    assert not check.emulation.faults
    (difference,) = check.differences
    assert difference.name == "C"
    assert difference.found == 0
    assert f"C[{difference.index[0]}] is 0.0, expected {difference.expected}" in str(check)
    assert 0 < difference.count <= 37


def lowered_with(func: Func, change: Callable[[Expr], Expr]) -> Func:
    """A lowered program that stores other values."""

    def visit(n: Any) -> Any:
        if type(n) is Store and n.buffer.scope == "global" and n.value.dtype == "float32":
            return replace(n, value=change(n.value))
        return rewrite_children(n, visit) if isinstance(n, Stmt) else n

    low = lower(func, TARGET)
    return replace(low, body=visit(low.body))


def test_a_check_lowers_for_a_target() -> None:
    func = schedules.transpose(45, 71)
    arguments = random_arguments(func)
    before = copied(arguments)
    check = check_program(func, TARGET, arguments)
    assert check.right, str(check)
    assert any(type(s) is Barrier for s in walk(check.lowered))
    assert sum(c.counts.wavefronts for c in check.emulation.counts)
    for a, b in zip(arguments, before, strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(BuildError):
        check_program(schedules.matmul_func(4, 4, 4), TARGET, [])


def test_floats_may_deviate_by_the_tolerance() -> None:
    func = schedules.elementwise(37, threads=8)
    low = lowered_with(func, lambda value: value * 1.001)
    arguments = random_arguments(func)
    assert check_lowered(low, func, arguments).differences
    assert check_lowered(low, func, arguments, 2e-4).differences
    assert check_lowered(low, func, arguments, 2e-3).right
