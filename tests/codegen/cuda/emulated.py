"""Kernels of lowered functions for a driver of our own: the emulator runs their launches."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from tilewright.codegen.cuda.emit import workspace_of
from tilewright.codegen.cuda.emulate import emulate_launch
from tilewright.codegen.cuda.emulate_faults import Fault, FaultKind
from tilewright.runtime.cuda_launch import KernelLaunch
from tilewright.tir.ir import Buffer, Func, Var, integers

from ...runtime.cuda_double import DoubleKernel, Launched
from ...runtime.cuda_double import Fault as Illegal


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
