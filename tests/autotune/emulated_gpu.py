"""Sessions on a GPU that the emulator is, in the processes of the session as well.

An image is the cubin, or an imitation of one where nvcc is not asked, and behind it the text of the
lowered programs: that of a message to another process is all that runs there. What an image takes
of the device's time follows from its launches, and so do the faults of `FAULTS`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import numpy as np

from tilewright.codegen import generator
from tilewright.codegen.compiled import Compiled, Launch
from tilewright.codegen.cuda.emulate_faults import Fault
from tilewright.codegen.cuda.generator import KERNELS, CudaGenerator, kernels_of
from tilewright.codegen.cuda.kernels import Emitted
from tilewright.codegen.generator import Code, Part, Tools
from tilewright.runtime import Module, Origin
from tilewright.runtime.cuda_driver import use_driver
from tilewright.runtime.cuda_launch import KernelLaunch, KernelResources, kernels_to_json
from tilewright.target import CudaTarget
from tilewright.tir.ir import Buffer, Func, integers
from tilewright.tir.parser import parse

from ..codegen.cuda.emulated import emulated_kernels
from ..runtime.cuda_double import H200, DoubleDriver, DoubleKernel, Launched
from ..runtime.cuda_double import Fault as DeviceFault

FAULTS = "TILEWRIGHT_TEST_FAULTS"
"""A variable of the environment: JSON of numbers of threads of a block, and what such a kernel
does: `wrong` results, `endless`, `refused` by the device, or the number of the driver's error."""
NVCC = "TILEWRIGHT_TEST_NVCC"
"""A variable of the environment, set where nvcc compiles."""
MEMORY = 1 << 28
_MARK = b"\0lowered:"
_SECONDS = 1e-4
"""Of a kernel with blocks of 256 threads; other ones take longer. Longer than what is replayed."""
_WORKER = "tilewright.autotune.measure.worker"


class EmulatedGenerator(CudaGenerator):
    """The generator, whose images carry what the emulator runs."""

    driver = DoubleDriver([replace(H200, memory_bytes=MEMORY)])

    def tools(self) -> Tools:
        return super().tools() if NVCC in os.environ else Tools("ptxas 13.0", {"nvcc": "13.0.88"})

    def emit(self, parts: Sequence[Part], target: CudaTarget, *, strict_fp: bool) -> Emitted:
        self.parts = parts
        return super().emit(parts, target, strict_fp=strict_fp)

    def compile(self, emitted: Emitted, target: CudaTarget) -> Code:
        if NVCC in os.environ:
            code = super().compile(emitted, target)
        else:
            names = [k.symbol for entry in emitted.entry_points for k in entry.kernels]
            image = b"\x7fELF" + b"".join(f".text.{name}\0".encode() for name in names)
            taken = {name: KernelResources(32, 8, 4, 4, 0) for name in names}
            launches = tuple(
                Launch(e.symbol, {KERNELS: kernels_to_json(e.launches(taken))})
                for e in emitted.entry_points
            )
            workspaces = tuple(e.workspace_bytes for e in emitted.entry_points)
            code = Code(image, launches, workspaces, emitted.text)
        lowered = json.dumps([str(part.func) for part in self.parts])
        return code._replace(image=code.image + _MARK + lowered.encode())

    def load(self, compiled: Compiled, origin: Origin, *, trust_indices: bool) -> Module:
        lowered = [parse(text) for text in json.loads(compiled.image.partition(_MARK)[2])]
        kernels = dict[str, DoubleKernel]()
        for func, launches in zip(lowered, kernels_of(compiled), strict=True):
            kernels |= _kernels(func, launches)
        self.driver.provide(compiled.image, kernels)
        return super().load(compiled, origin, trust_indices=trust_indices)


def _kernels(func: Func, launches: Sequence[KernelLaunch]) -> dict[str, DoubleKernel]:
    planted = json.loads(os.environ.get(FAULTS, "{}"))
    faults = list[Fault]()
    kernels = emulated_kernels(func, launches, faults)
    for launch in launches:
        kernel = kernels[launch.symbol]
        run = kernel.run

        def checked(launched: Launched, run: Callable[[Launched], object] = run) -> None:
            run(launched)
            assert not faults, faults

        kernel.run = checked
        kernel.seconds = _SECONDS * (1 + abs(np.log2(launch.threads / 256)))
        fault = planted.get(str(launch.threads))
        if fault == "endless":
            kernel.endless = True
        elif fault == "refused":
            kernel.max_threads = launch.threads - 1
        elif fault == "wrong":
            kernel.run = _wrong(kernel.run, func)
        elif fault is not None:
            kernel.run = _failing(fault)
    return kernels


def _wrong(run: Callable[[Launched], object], func: Func) -> Callable[[Launched], None]:
    """Adds 1 to the elements of the last parameter."""
    last = func.params[-1]
    assert isinstance(last, Buffer)

    def wrong(launched: Launched) -> None:
        run(launched)
        elements = launched.array(len(launched.words) - 1, last.dtype, integers(last.shape))
        elements += np.ones((), elements.dtype)

    return wrong


def _failing(code: int) -> Callable[[Launched], None]:
    def run(launched: Launched) -> None:
        raise DeviceFault(code)

    return run


@contextmanager
def emulated_gpu() -> Iterator[DoubleDriver]:
    """Have an H200 here and in the processes of sessions, whose kernels the emulator runs."""
    own = EmulatedGenerator()
    generators = generator._GENERATORS
    before = generators.of_kind("cuda")
    with ExitStack() as stack:
        generators._loaded["cuda"] = own
        stack.callback(generators._loaded.__setitem__, "cuda", before)
        stack.enter_context(use_driver(own.driver))
        yield own.driver


if getattr(sys.modules["__main__"].__spec__, "name", None) == _WORKER:
    sys.modules["llvmlite"] = None  # type: ignore[assignment]  # it is not to be imported
    _opened = emulated_gpu()
    _opened.__enter__()  # as long as the process is there
