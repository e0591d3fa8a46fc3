"""The runtime of CUDA devices: device memory, cubins, events."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ..base.checked_json import read
from ..base.errors import ArtifactError, DeviceError, TargetError
from ..target import Fact, Target
from ..target.cuda import WARP, CudaTarget
from ..target.occupancy import blocks_per_sm, occupancy
from .cuda_driver import BAD_IMAGE, Device, driver
from .cuda_kernel import CudaKernel, LoadedImage
from .cuda_launch import KernelLaunch, kernels_from_json
from .cuda_memory import CudaMemory, cuda_memory
from .cuda_nvml import device_state, power_limit
from .cuda_timer import CudaTimer
from .evidence import Natural
from .kernel import Kernel
from .manifest import Manifest, StoredProgram
from .module import Module, Origin
from .ranges import trusting
from .signature import Signature
from .target_runtime import TargetRuntime
from .timer import Timer


@dataclass(frozen=True)
class ImageSlice:
    """Where the cubin of a program is in the code of an artifact of several programs."""

    offset: Natural
    size: Natural

    def of(self, code: bytes) -> bytes:
        """The cubin. Raises `ArtifactError` where the code is too short."""
        if self.offset + self.size > len(code):
            raise ArtifactError(
                "manifest: image: expected at most {0} bytes of code, found {1} from {2}",
                len(code), self.size, self.offset,
            )  # fmt: skip
        return code[self.offset :][: self.size]


class CudaRuntime(TargetRuntime):
    """The code of an artifact is a cubin, or has one of each program, which is its `image`.

    `kernels` lists those of each of its entry points.
    """

    timer: ClassVar[Timer] = CudaTimer()

    def __init__(self, ordinal: int | None = None) -> None:
        """Of a device, or of that which the calling thread uses."""
        self._ordinal = ordinal

    def on_device(self, ordinal: int) -> CudaRuntime:
        return CudaRuntime(ordinal)

    @property
    def memory(self) -> CudaMemory:
        """That of the device. Raises `TargetError` where there is none."""
        return cuda_memory(driver().current() if self._ordinal is None else self._ordinal)

    def conditions(self) -> dict[str, Fact]:
        """The driver's version, and the state of the device that this thread uses."""
        found = driver()
        facts = found.facts()[found.current()]
        version = ".".join(map(str, facts.driver_version))
        return {"driver": version, **device_state(facts.pci_bus_id)}

    def machine(self) -> dict[str, Fact]:
        """The device that this thread uses."""
        found = driver()
        facts = found.facts()[found.current()]
        return {
            "model": facts.name,
            "capability": ".".join(map(str, facts.capability)),
            "sms": facts.sms,
            "memory_bytes": facts.memory_bytes,
            "l2_bytes": facts.l2_bytes,
            "power_watts": power_limit(facts.pci_bus_id),
        }

    def needs(self, data: Mapping[str, Any], signature: Signature) -> dict[str, Any]:
        lists = read(list[Any], data.get("kernels"), "manifest: kernels")
        entry_points(lists, signature)
        if "image" not in data:
            return {"kernels": lists}
        image = read(ImageSlice, data["image"], "manifest: image")
        return {"kernels": lists, "image": asdict(image)}

    def load(
        self,
        manifest: Manifest,
        program: StoredProgram,
        code: bytes,
        path: Path,
        *,
        trust_indices: bool,
    ) -> Module:
        signature, image = program.signature, code
        if "image" in program.needs:
            image = ImageSlice(**program.needs["image"]).of(code)
        try:
            return cuda_module(
                image,
                entry_points(program.needs["kernels"], signature),
                signature,
                manifest.target,
                program.provenance.origin,
                trust_indices=trust_indices,
                ordinal=self._ordinal,
            )
        except (TargetError, DeviceError) as error:
            if isinstance(error, DeviceError) and error.sticky:
                raise  # it says nothing of the artifact
            raise ArtifactError("{0} does not load: {1}", path, error) from error


def entry_points(lists: Sequence[Any], signature: Signature) -> list[tuple[KernelLaunch, ...]]:
    """The kernels of each function of a signature, of their JSON forms. Raises `ArtifactError`."""
    functions = (signature, *signature.packers)
    if len(lists) != len(functions):
        raise ArtifactError(
            "kernels: {0} lists of them, expected one for each of {1}",
            len(lists),
            ", ".join(signature.symbols),
        )
    return [kernels_from_json(data, of) for data, of in zip(lists, functions, strict=True)]


def cuda_module(
    image: bytes,
    kernels: Sequence[Sequence[KernelLaunch]],
    signature: Signature,
    target: Target,
    origin: Origin,
    *,
    sources: Mapping[str, Callable[[], str]] | None = None,
    trust_indices: bool = False,
    ordinal: int | None = None,
    late: bool = False,
) -> Module:
    """A module of an image, on a device or on the one that this thread uses.

    `kernels` are those of each of `signature.symbols`. Raises `TargetError` where there is no
    device, or one of another architecture, and `DeviceError` for what the device refuses; a `late`
    module does so when it is first needed, and is loaded then.
    """
    checked = trusting(signature) if trust_indices else signature
    parts = [*zip((checked, *checked.packers), kernels, strict=True)]
    load = partial(_loaded, image, parts, CudaTarget.of(target), ordinal)
    if late:
        code = LateImage(signature.name, target, load)
        functions: Sequence[Kernel] = [LateKernel(code, n, *part) for n, part in enumerate(parts)]
    else:
        functions = load()
    return Module(signature, functions, target, origin=origin, sources=sources)


def _loaded(
    image: bytes,
    parts: Sequence[tuple[Signature, Sequence[KernelLaunch]]],
    target: CudaTarget,
    ordinal: int | None,
) -> list[CudaKernel]:
    """The functions of an image on a device."""
    memory = cuda_memory(driver().current() if ordinal is None else ordinal)
    check_device(target, memory.device)
    try:
        loaded = LoadedImage(memory.device, image)
    except DeviceError as error:
        if error.code not in BAD_IMAGE:
            raise
        raise TargetError(
            "{0} does not load code for {1}: {2}",
            memory.device.facts.name,
            target,
            error,
            hint="build it anew for this device: tilewright target cuda",
        ) from error
    return [CudaKernel(of, own, loaded, memory) for of, own in parts]


def check_device(target: CudaTarget, device: Device) -> None:
    """Raise `TargetError` unless the device runs code for `target`."""
    facts = device.facts
    if not target.runs_on(facts.capability):
        raise TargetError(
            "code for {0} does not run on {1}, which is {2}",
            target,
            facts.name,
            facts.arch,
            hint=f"build it for this device: cuda -arch={facts.arch}",
        )


# Functions of an image on a machine without a device: it is loaded when it is first needed.
#
# Code for an architecture that the caller names is compiled anywhere. Its text and what it takes
# are known then; a call asks for the device.

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
