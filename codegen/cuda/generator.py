"""The code generator for GPUs of NVIDIA: CUDA C++, compiled by nvcc or NVRTC, and cubins.

An image is one cubin, of the kernels of a function and of its packers. Of each function, `needs`
has the launches of its kernels: `kernels`.

The compiler of CUDA C++ that is here: nvcc, or else NVRTC.

The GPU of this machine as a target.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

from ...base.errors import ArtifactError, BuildError, TargetError, TilewrightError
from ...runtime.cuda_driver import DeviceFacts, driver
from ...runtime.cuda_launch import KernelLaunch, kernels_from_json, kernels_to_json
from ...runtime.cuda_nvml import power_limit
from ...runtime.module import Module, Origin
from ...target import ARCHS, CudaTarget, Fact
from ..compiled import Compiled, Launch
from ..generator import Code, CodeGenerator, Part, Pass, Source, Tools
from ..passes.idle_threads import idle_threads
from . import nvcc, nvrtc
from .kernels import Emitted, emit
from .lowering import passes
from .nvcc import Cubin

if TYPE_CHECKING:
    from ...base.files import File
    from ...runtime.manifest import Provenance
    from ...tir.ir import Func
    from ..program_loops import ProgramLoops

KERNELS, IMAGE = "kernels", "image"
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_ELF = b"\x7fELF"
_SUFFIX = ".cubin"


class CudaGenerator(CodeGenerator[CudaTarget, Emitted]):
    on_device: ClassVar[bool] = True

    @property
    def sources(self) -> Mapping[str, Source]:
        return {
            "cuda": Source(
                lambda compiled: compiled.text,
                "Writes the code of a thread as CUDA C++, as NVIDIA's compiler makes machine code.",
            ),
            "ptx": Source(
                _ptx,
                "Optimises the CUDA C++ and selects instructions; ptxas allocates registers after "
                "this.",
                {"instruction{s}": r"\t(?!\.)\S"},
                is_assembly=True,
            ),
        }

    def host(self) -> CudaTarget:
        return host_target()

    def resolve(self, wanted: CudaTarget) -> CudaTarget:
        """Without an architecture, it is the device of this machine."""
        return wanted if wanted.arch else self.host()

    def check_runnable(self, target: CudaTarget) -> None:
        facts = device_facts()
        if not target.runs_on(facts.capability):
            raise TargetError(
                "code for {0} does not run on {1}, which is {2}",
                target,
                facts.name,
                facts.arch,
                hint="build for the target `cuda`, which is this machine's device",
            )

    def tools(self) -> Tools:
        found = versions()
        (version,) = found.values()
        release = ".".join(version.split(".")[:2])
        return Tools(f"ptxas {release}", found)

    def runtimes(self) -> dict[str, Fact]:
        """pycuda, by its version."""
        try:
            return {"pycuda": metadata.version("pycuda")}
        except metadata.PackageNotFoundError:
            return {"pycuda": None}

    def missing(self) -> list[TilewrightError]:
        found: list[TilewrightError] = []
        for needed in (versions, self.host):
            try:
                needed()
            except TilewrightError as error:
                found.append(error)
        return found

    def timed_on(self, target: CudaTarget) -> CudaTarget:
        """The device that is here; without one nothing is timed, and it is `target` itself."""
        try:
            return self.host()
        except TargetError:
            return target

    def may_end_process(self, target: CudaTarget, *, foreign: bool) -> bool:
        """nvcc is a process of its own, and NVRTC returns errors."""
        del target, foreign
        return False

    def timed_there(self, target: CudaTarget, machine: Mapping[str, Any]) -> CudaTarget:
        """The device there: the newest architecture whose code it runs, as it is named here."""
        try:
            major, _, minor = str(machine["capability"]).partition(".")
            model = str(machine["model"])
            arch = newest_arch(model, (int(major), int(minor)))
            return replace(
                target,
                arch=arch,
                model=model,
                sms=int(machine["sms"]),
                memory_bytes=int(machine["memory_bytes"]),
                l2_bytes=int(machine["l2_bytes"]),
                power_watts=int(machine["power_watts"]),
            )
        except (KeyError, TypeError, ValueError, TargetError) as error:
            raise ArtifactError("these are no facts of a device: {0!r}", error) from error

    suffix: ClassVar[str] = _SUFFIX
    several = True

    def passes(self, target: CudaTarget) -> tuple[Pass, ...]:
        del target
        return passes()

    def remarks(self, func: Func) -> tuple[str, ...]:
        return idle_threads(func)

    def emit(self, parts: Sequence[Part], target: CudaTarget, *, strict_fp: bool) -> Emitted:
        return emit(parts, target, strict_fp=strict_fp)

    def compile(self, emitted: Emitted, target: CudaTarget) -> Code:
        image, resources = compile_cubin(emitted.text, target, strict_fp=emitted.strict_fp)
        symbols = [kernel.symbol for entry in emitted.entry_points for kernel in entry.kernels]
        missing = [symbol for symbol in symbols if symbol not in resources]
        if missing or not image.startswith(_ELF):
            raise BuildError(
                "the compiler of CUDA C++ says that all is well, and makes {0} bytes: expected a "
                "cubin, and what it uses of {1}",
                len(image),
                ", ".join(missing or symbols),
                hint="is it the compiler of NVIDIA's toolkit? `tilewright target cuda` names it",
            )
        launches = tuple(
            Launch(entry.symbol, {KERNELS: kernels_to_json(entry.launches(dict(resources)))})
            for entry in emitted.entry_points
        )
        workspaces = tuple(entry.workspace_bytes for entry in emitted.entry_points)
        return Code(image, launches, workspaces, emitted.text)

    def loops_of_lines(self, compiled: Compiled, loops: ProgramLoops) -> list[int | None] | None:
        from ..build import emit_parts, lower_parts
        from .ptx_loops import loops_of_lines

        target, strict_fp = CudaTarget.of(compiled.target), compiled.strict_fp
        lowered = lower_parts(loops.func, target, strict_fp=strict_fp)
        emitted: Emitted = emit_parts(lowered, target, strict_fp=strict_fp)
        if emitted.text != compiled.text:
            return None
        numbers = loops.numbers
        fors = {line: numbers[var] for line, var in emitted.loops.items() if var in numbers}
        located = compile_ptx(compiled.text, target, strict_fp=strict_fp, lines=True)
        return loops_of_lines(_ptx(compiled), located, fors, loops.around)

    def check(self, compiled: Compiled) -> None:
        if not compiled.image.startswith(_ELF):
            raise ArtifactError("its code is no cubin")
        for kernel in (k for kernels in kernels_of(compiled) for k in kernels):
            if f".text.{kernel.symbol}\0".encode() not in compiled.image:
                raise ArtifactError("its code does not define {0}", kernel.symbol)

    def resources(self, compiled: Compiled) -> dict[str, dict[str, int]]:
        """What ptxas reports of each kernel, with all of the shared memory, threads and blocks."""
        return {
            k.symbol: {
                **({} if k.resources is None else k.resources.to_json()),
                "shared_bytes": k.shared_bytes + (k.resources.shared_bytes if k.resources else 0),
                "threads": k.threads,
                "blocks": math.prod(k.grid),
            }
            for kernels in kernels_of(compiled)
            for k in kernels
        }

    def load(self, compiled: Compiled, origin: Origin, *, trust_indices: bool) -> Module:
        """Where there is no device, the module is loaded when it is first called.

        The target has named an architecture then: without one there is nothing to compile for.
        """
        from ...runtime.cuda_runtime import cuda_module

        late = False
        try:
            driver().facts()
        except TargetError:
            late = True
        return cuda_module(
            compiled.image,
            kernels_of(compiled),
            compiled.signature,
            compiled.target,
            origin,
            sources={name: partial(compiled.source, name) for name in ("tir", *self.sources)},
            trust_indices=trust_indices,
            late=late,
        )

    def check_files(
        self, path: Path, target: CudaTarget, *, intermediate: bool, linker: str | None = None
    ) -> None:
        del target
        if linker is not None:
            raise BuildError("code for GPUs is not linked, found the linker {0!r}", linker)
        if intermediate:
            raise BuildError(
                "a kernel for GPUs has no object file", hint="write the cubin: kernel.cubin"
            )
        if path.suffix != _SUFFIX:
            raise BuildError(
                "{0} is no path of a kernel for GPUs; expected one that ends with {1}",
                path,
                _SUFFIX,
                hint=f"write {path.with_suffix(_SUFFIX)}",
            )

    def files(
        self,
        programs: Sequence[tuple[Compiled, Provenance]],
        path: Path,
        toolchain: Mapping[str, str],
        *,
        intermediate: bool,
        linker: str | None = None,
    ) -> tuple[File, ...]:
        """The cubin with its description behind it, and the manifest.

        Of several programs, each has its cubin and description, one after the other: `image` is
        where its cubin is.
        """
        from ...base.files import File
        from ...runtime.artifact import ProgramContent, artifact_files
        from ...runtime.manifest import description

        target = CudaTarget.of(programs[0][0].target)
        self.check_files(path, target, intermediate=intermediate, linker=linker)
        code, contents = b"", list[ProgramContent]()
        for compiled, provenance in programs:
            needs: dict[str, Any] = {KERNELS: [*map(kernels_to_json, kernels_of(compiled))]}
            if len(programs) > 1:
                needs[IMAGE] = {"offset": len(code), "size": len(compiled.image)}
            signature = compiled.signature
            code += compiled.image + description(signature, target, target.features, needs)
            contents.append(ProgramContent(signature, needs, provenance))
        return artifact_files(File(path, code), target, toolchain, contents)

    def emulate(self, func: Func, target: CudaTarget, arguments: Sequence[Any]) -> tuple[str, ...]:
        from ..lower import lower
        from .emulate import emulate

        return tuple(map(str, emulate(lower(func, target), *arguments).faults))

    def environment(self, target: CudaTarget, *, runs: bool) -> dict[str, str]:
        """A process that runs kernels has the device that this thread uses, and no other."""
        del target
        if not runs:
            return {}
        from ...runtime.cuda_driver import driver

        current, visible = driver().current(), os.environ.get(_VISIBLE)
        return {_VISIBLE: visible.split(",")[current].strip() if visible else str(current)}

    def addresses(self, target: CudaTarget) -> None:
        """CUDA reserves far more addresses than it uses."""


def kernels_of(compiled: Compiled) -> list[tuple[KernelLaunch, ...]]:
    """The launches of each function of compiled code. Raises `ArtifactError`."""
    signature = compiled.signature
    functions = (signature, *signature.packers)
    return [
        kernels_from_json(launch.needs.get(KERNELS), of)
        for launch, of in zip(compiled.launches, functions, strict=True)
    ]


def _ptx(compiled: Compiled) -> str:
    """The PTX that the compiler makes of the kernels, as of the image."""
    target = CudaTarget.of(compiled.target)
    return compile_ptx(compiled.text, target, strict_fp=compiled.strict_fp)


def compile_cubin(text: str, target: CudaTarget, *, strict_fp: bool = False) -> Cubin:
    """Compile CUDA C++. `strict_fp` forbids fma contraction.

    Raises `BuildError` where there is no compiler, and for what it refuses or warns of.
    """
    cubin: Cubin = _compiler().compile_cubin(text, target, strict_fp=strict_fp)
    return cubin


def compile_ptx(
    text: str, target: CudaTarget, *, strict_fp: bool = False, lines: bool = False
) -> str:
    """The PTX of CUDA C++, with the `lines` that it is made of. Raises `BuildError`."""
    ptx: str = _compiler().compile_ptx(text, target, strict_fp=strict_fp, lines=lines)
    return ptx


def versions() -> dict[str, str]:
    """The compiler and its version, `{"nvcc": "13.0.88"}`. Raises `BuildError`."""
    compiler = _compiler()
    return {compiler.__name__.rpartition(".")[2]: compiler.version()}


def _compiler() -> ModuleType:
    try:
        nvcc.nvcc()
    except BuildError as error:
        if nvrtc.is_there():
            return nvrtc
        raise BuildError(
            "there is neither nvcc nor NVRTC on this machine, which compile kernels",
            hint=f"{error.hint}; {nvrtc.HINT}",
        ) from error
    return nvcc


def device_facts() -> DeviceFacts:
    """What the driver says of the device that this thread uses. Raises `TargetError`.

    No memory of the device is taken for that, as for a context.
    """
    found = driver()
    return found.facts()[found.current()]


def host_target() -> CudaTarget:
    """The device that this thread uses, as a resolved target.

    Raises `TargetError` where there is none, and for one that no code is made for.
    """
    return target_of(device_facts())


def target_of(facts: DeviceFacts) -> CudaTarget:
    """The target of a device: the newest architecture whose code it runs. Raises `TargetError`."""
    return CudaTarget(
        arch=newest_arch(facts.name, facts.capability),
        model=facts.name,
        sms=facts.sms,
        memory_bytes=facts.memory_bytes,
        l2_bytes=facts.l2_bytes,
        power_watts=power_limit(facts.pci_bus_id),
    )


def newest_arch(name: str, capability: tuple[int, int]) -> str:
    """The newest architecture whose code a device runs. Raises `TargetError`."""
    runs = [arch for arch in ARCHS if CudaTarget(arch=arch).runs_on(capability)]
    if not runs:
        raise TargetError(
            "{0} is sm_{1}{2}, which no code is made for; known: {3}",
            name,
            *capability,
            ", ".join(ARCHS),
            hint="use a device of one of these architectures",
        )
    return runs[-1]
