"""Modules whose launches the emulator runs, on a driver of our own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tilewright.base.errors import DeviceError
from tilewright.codegen.build import compiled_signature
from tilewright.codegen.cuda.emulate_faults import Fault, FaultKind
from tilewright.codegen.cuda.kernels import emit
from tilewright.codegen.generator import Part
from tilewright.codegen.lower import lower
from tilewright.runtime import Module, Origin
from tilewright.runtime.cuda_driver import use_driver
from tilewright.runtime.cuda_memory import DeviceArray
from tilewright.runtime.cuda_runtime import cuda_module
from tilewright.target import CudaTarget
from tilewright.tir.interpreter import interpret
from tilewright.tir.ir import Func

from ...runtime.cuda_double import DoubleDriver
from ..machinery import assert_close, random_arguments
from . import schedules
from .emulated import emulated_kernels
from .kernels import kernel

TARGET = CudaTarget.named("sm_90a")


@pytest.fixture
def driver() -> Iterator[DoubleDriver]:
    double = DoubleDriver()
    with use_driver(double):
        yield double


def module(driver: DoubleDriver, func: Func, lowered: Func, faults: list[Fault]) -> Module:
    """The module of a program, whose image is its text."""
    signature = compiled_signature(func, TARGET)
    text = emit([Part(lowered, signature)], TARGET, strict_fp=False)
    (entry,) = text.entry_points
    launches = entry.launches({})
    image = text.text.encode()
    driver.provide(image, emulated_kernels(lowered, launches, faults))
    signature = replace(signature, workspace_bytes=entry.workspace_bytes)
    return cuda_module(image, [launches], signature, TARGET, Origin("schedule"))


def on_device(arguments: list[Any]) -> list[Any]:
    return [DeviceArray.of(a) if isinstance(a, np.ndarray) else a for a in arguments]


@pytest.mark.parametrize("name", ["matmul", "sum", "scale"])
def test_a_module_computes(driver: DoubleDriver, name: str) -> None:
    func = {
        "matmul": lambda: schedules.matmul(33, 35, 11, lanes=4),
        "sum": lambda: schedules.sum_in_two_launches(5, 300),
        "scale": lambda: schedules.elementwise(1003, "bfloat16", lanes=8),
    }[name]()
    faults: list[Fault] = []
    mod = module(driver, func, lower(func, TARGET), faults)
    arguments = random_arguments(func)
    given = on_device(arguments)
    mod(*given)
    mod.synchronize()
    interpret(func, *arguments)
    assert not faults
    for p, a, b in zip(func.params, given, arguments, strict=True):
        if isinstance(b, np.ndarray):
            assert_close(b, a.numpy(), None, p.name)


def test_faults_come_back(driver: DoubleDriver) -> None:
    func = kernel("A float32 64; B float32 64", "B[t // 2] = A[t]")
    faults: list[Fault] = []
    mod = module(driver, func, func, faults)
    mod(*on_device(random_arguments(func)))
    mod.synchronize()
    assert [f.kind for f in faults] == [FaultKind.RACE]


def test_an_access_outside_is_an_illegal_address(driver: DoubleDriver) -> None:
    func = kernel("A float32 64; B float32 64", "B[t] = A[t + 1]")
    faults: list[Fault] = []
    mod = module(driver, func, func, faults)
    mod(*on_device(random_arguments(func)))
    with pytest.raises(DeviceError, match="ILLEGAL_ADDRESS"):
        mod.synchronize()
    assert [f.kind for f in faults] == [FaultKind.OUT_OF_BOUNDS]
