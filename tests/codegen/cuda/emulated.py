"""Kernels of lowered functions for a driver of our own: the emulator runs their launches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

from tilewright.codegen.compiled import Compiled
from tilewright.codegen.cuda.emulate import BATCH_THREADS, Emulation, number_array, run_launch
from tilewright.codegen.cuda.emulate_faults import Fault, FaultKind, Faults
from tilewright.codegen.cuda.emulate_memory import GlobalMemory
from tilewright.codegen.cuda.generator import CudaGenerator, kernels_of
from tilewright.codegen.cuda.kernels import workspace_of
from tilewright.codegen.passes.launches import launches_of
from tilewright.runtime import Module, Origin
from tilewright.runtime.cuda_driver import use_driver
from tilewright.runtime.cuda_launch import KernelLaunch
from tilewright.tir.ir import Buffer, Func, Var, integers

from ...runtime.cuda_double import H200, DoubleDriver, DoubleKernel, Launched
from ...runtime.cuda_double import Fault as Illegal


def emulate_launch(func: Func, number: int, memory: Mapping[Buffer | Var, Any]) -> Emulation:
    """Run one launch of a lowered program on memory of a device.

    Of the parameters and internal buffers that the launch uses, `memory` has flat arrays, which are
    all written and are changed in place, and numbers.
    """
    memories = {b: GlobalMemory(a, None) for b, a in memory.items() if isinstance(b, Buffer)}
    scalars = {v: number_array(v, a) for v, a in memory.items() if isinstance(v, Var)}
    faults = Faults()
    launch = launches_of(func)[number]
    counts = run_launch(number, launch, memories, scalars, faults, BATCH_THREADS)
    return Emulation(faults.all(), tuple(counts))


def emulated_kernels(
    func: Func, launches: Sequence[KernelLaunch], faults: list[Fault]
) -> dict[str, DoubleKernel]:
    """The kernels of a lowered function by name, for `DoubleDriver.provide`.

    What the emulator finds is appended to `faults`. An access outside of a buffer fails as an
    illegal address.
    """
    return {
        launch.symbol: DoubleKernel(partial(_run, func, n, launch, faults))
        for n, launch in enumerate(launches)
    }


@contextmanager
def emulated_device() -> Iterator[list[Fault]]:
    """Have an H200 here, whose kernels the emulator runs: those that are built in this process.

    What the emulator finds is in the list.
    """
    driver = DoubleDriver([replace(H200, memory_bytes=1 << 28)])
    faults, load = list[Fault](), CudaGenerator.load

    def provide(
        self: CudaGenerator, compiled: Compiled, origin: Origin, *, trust_indices: bool
    ) -> Module:
        kernels = dict[str, DoubleKernel]()
        for func, launches in zip(compiled.lowered, kernels_of(compiled), strict=True):
            kernels |= emulated_kernels(func, launches, faults)
        driver.provide(compiled.image, kernels)
        return load(self, compiled, origin, trust_indices=trust_indices)

    with use_driver(driver), patch.object(CudaGenerator, "load", provide):
        yield faults


def _run(
    func: Func, number: int, launch: KernelLaunch, faults: list[Fault], launched: Launched
) -> None:
    assert (launched.grid, launched.block) == (launch.grid, launch.block)
    memory: dict[Buffer | Var, Any] = {}
    for n, position in enumerate(launch.arguments):
        if position == len(func.params):
            offsets, _ = workspace_of(func)
            memory |= {b: _array(launched, n, b, offset) for b, offset in offsets.items()}
            continue
        param = func.params[position]
        if isinstance(param, Var):
            memory[param] = launched.number(n, param.dtype)
        else:
            memory[param] = _array(launched, n, param)
    found = emulate_launch(func, number, memory).faults
    faults += found
    if any(f.kind is FaultKind.OUT_OF_BOUNDS for f in found):
        raise Illegal


def _array(launched: Launched, n: int, buffer: Buffer, offset: int = 0) -> Any:
    address = launched.words[n] + offset
    return launched.device.array(address, buffer.dtype, integers(buffer.shape))
