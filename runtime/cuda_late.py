"""Functions of an image on a machine without a device: it is loaded when it is first needed.

Code for an architecture that the caller names is compiled anywhere. Its text and what it takes are
known then; a call asks for the device.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np

from ..base.errors import TargetError
from ..target import Target
from ..target.cuda import WARP, CudaTarget
from ..target.occupancy import blocks_per_sm, occupancy
from .cuda_kernel import CudaKernel
from .cuda_launch import KernelLaunch
from .cuda_memory import CudaMemory
from .signature import Signature

Load = Callable[[], Sequence[CudaKernel]]


class LateImage:
    """The functions of an image, which `load` loads together, once it can."""

    def __init__(self, name: str, target: Target, load: Load) -> None:
        self._name, self.target, self._load = name, CudaTarget.of(target), load
        self._functions: Sequence[CudaKernel] | None = None
        self._lock = threading.Lock()

    @property
    def is_loaded(self) -> bool:
        return self._functions is not None

    @property
    def functions(self) -> Sequence[CudaKernel]:
        """Raises `TargetError` as long as there is no device that runs the code."""
        if self._functions is None:
            with self._lock:
                if self._functions is None:
                    self._functions = self._loaded()
        return self._functions

    def _loaded(self) -> Sequence[CudaKernel]:
        try:
            return self._load()
        except TargetError as error:
            raise TargetError(
                "{0} is compiled for {1}, and does not load here: {2}",
                self._name,
                self.target,
                error,
                hint="tw.build_library writes it to a file for a machine with such a device",
            ) from error


class LateKernel:
    """The function of a `LateImage` at a position, of a signature."""

    options: ClassVar[tuple[str, ...]] = CudaKernel.options

    def __init__(
        self, image: LateImage, position: int, signature: Signature, kernels: Sequence[KernelLaunch]
    ) -> None:
        self.signature, self._kernels = signature, tuple(kernels)
        self._image, self._position = image, position

    @property
    def loaded(self) -> CudaKernel:
        """Raises `TargetError` as long as there is no device that runs the code."""
        return self._image.functions[self._position]

    @property
    def memory(self) -> CudaMemory:
        return self.loaded.memory

    def __call__(self, *arguments: object) -> None:
        self.loaded(*arguments)

    @property
    def call(self) -> Callable[..., None]:
        return self.loaded.call

    @property
    def bind(self) -> Callable[..., Callable[[], None]]:
        return self.loaded.bind

    @property
    def resources(self) -> dict[str, dict[str, int | float]]:
        """What the compiler reports, and what follows for the architecture; see `Module`."""
        if self._image.is_loaded:
            return self.loaded.resources
        return {k.symbol: _resources(k, self._image.target) for k in self._kernels}


def _resources(launch: KernelLaunch, target: CudaTarget) -> dict[str, int | float]:
    told, limits = launch.resources, target.limits
    found: dict[str, int | float] = {}
    shared = launch.shared_bytes
    if told is not None:
        shared += told.shared_bytes
        found = {
            "registers": told.registers,
            "local_bytes": told.stack_bytes,
            "spill_store_bytes": told.spill_store_bytes,
            "spill_load_bytes": told.spill_load_bytes,
        }
    found |= {
        "shared_bytes": shared,
        "threads": launch.threads,
        "blocks": math.prod(launch.grid),
    }
    if told is not None:
        taken = (np.array([float(n)]) for n in (launch.threads, told.registers, shared))
        blocks = int(blocks_per_sm(limits, *taken)[0])
        found["blocks_per_sm"] = blocks
        found["occupancy"] = occupancy(blocks, launch.threads, limits.sm_warps * WARP)
    return found
