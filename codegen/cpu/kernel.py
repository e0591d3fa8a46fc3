"""Kernels for processors: one object file of the LLVM modules of a kernel and its packers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ...errors import ArtifactError, BuildError
from ...runtime import openmp
from ...runtime.module import Module, Origin
from ...target import CpuTarget
from ..compiled import Compiled, Launch
from ..detect import check_runnable
from ..generator import Code
from . import llvm
from .elf import read_object
from .glue import make_glue
from .jit import load_object

OPENMP = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
"""The functions of OpenMP's runtime that parallel kernels call."""
CALLED = frozenset(
    {
        "memset",
        "memcpy",
        "memmove",
        "fma",
        "fmaf",
        "fmod",
        "fmodf",
        "syscall",
        *OPENMP,
    }
)
"""Functions of other libraries that kernels call."""


def compile_parts(parts: Sequence[llvm.Emitted], target: CpuTarget) -> Code:
    """One object file of the modules of a kernel and of what packs its operands."""
    module, *others = [llvm.optimise(p.text, target, thorough=p.thorough) for p in parts]
    for other in others:
        module.link_in(other)
    if any(p.parallel for p in parts):
        # of one definition now: to a weak one, linkers for ARM make a copy relocation
        module.get_global_variable(parts[0].teams).linkage = "external"
    text = str(module)  # before machine code is made of it, which rewrites it
    safe = llvm.without_single_lanes(text)
    if safe != text:
        module, text = llvm.parse(safe), safe
    launches = tuple(Launch(p.symbol, {"openmp": True} if p.parallel else {}) for p in parts)
    workspaces = tuple(p.workspace_bytes for p in parts)
    return Code(llvm.object_code(module, target), launches, workspaces, text)


def runs_parallel(compiled: Compiled) -> bool:
    """Whether a kernel, or what packs its operands, calls OpenMP's runtime."""
    return any(launch.needs.get("openmp") for launch in compiled.launches)


def assembly(compiled: Compiled) -> str:
    """The code as assembly text."""
    return llvm.assembly(llvm.parse(compiled.text), CpuTarget.of(compiled.target))


def check_image(compiled: Compiled) -> None:
    """Raise `ArtifactError` unless the object code may be that of its signature and target."""
    target, signature = CpuTarget.of(compiled.target), compiled.signature
    found = read_object(compiled.image)
    if found.arch != target.arch:
        raise ArtifactError("its code is for {0}, expected {1}", found.arch, target.arch)
    parallel = not found.undefined.isdisjoint(OPENMP)
    if parallel is not runs_parallel(compiled):
        raise ArtifactError(
            "its code calls {0} OpenMP runtime, expected {1}",
            "an" if parallel else "no",
            "one" if runs_parallel(compiled) else "none",
        )
    wanted = [*signature.symbols, *([signature.teams_symbol] if parallel else [])]
    missing = [symbol for symbol in wanted if symbol not in found.defined]
    if missing:
        raise ArtifactError("its code does not define {0}", ", ".join(missing))


def load(compiled: Compiled, origin: Origin, *, trust_indices: bool) -> Module:
    """The module of compiled code, loaded into this process."""
    check_runnable(compiled.target)
    signature, parallel = compiled.signature, runs_parallel(compiled)
    imports: dict[str, int] = {}
    if parallel:
        runtime = openmp.load()
        if runtime is None:
            raise BuildError(
                "{0} runs in parallel and there is no OpenMP runtime on this machine",
                signature.name,
                hint="install libgomp1, or compile for one thread: cpu -threads=1",
            )
        imports = {symbol: runtime.symbol_address(symbol) for symbol in OPENMP}
    symbols = signature.symbols
    variables = (signature.teams_symbol,) if parallel else ()
    loaded = load_object(compiled.image, (*symbols, *variables), imports)
    addresses, teams = loaded.addresses[: len(symbols)], loaded.addresses[len(symbols) :]
    for address in teams:
        openmp.connect(address)
    return Module(
        signature,
        addresses,
        compiled.target,
        origin=origin,
        sources={name: partial(compiled.source, name) for name in ("tir", "llvm", "asm")},
        glue=make_glue,
        owner=loaded.owner,
        parallel=parallel,
        trust_indices=trust_indices,
    )
