"""The code generator for processors: LLVM, threads, shared libraries.

An image is one object file, of the LLVM modules of a kernel and of its packers. What makes code is
loaded when the first code is made: other work, such as describing this machine, does without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...base.errors import ArtifactError, BuildError
from ...runtime.module import Module, Origin
from ...target import NATIVE, CpuTarget, Rates, check_runnable
from ..generator import Code, CodeGenerator, Emission, Measured, Part, Pass, Source, Tools
from .detection import host_target

if TYPE_CHECKING:
    from ...base.files import File
    from ...runtime.manifest import Provenance
    from ...tir.instruction import Instruction
    from ..compiled import Compiled
    from ..program_loops import ProgramLoops
    from ..sequence import Function
    from .llvm import Emitted

OPENMP = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads", "omp_get_wtime")
"""The functions of an OpenMP runtime that parallel kernels call (`thread_teams.py` has them)."""
_C_LIBRARY = ("memset", "memcpy", "memmove", "fma", "fmaf", "fmod", "fmodf", "syscall")
CALLED = frozenset((*_C_LIBRARY, *OPENMP))
"""Functions of other libraries that kernels call."""
_PER_THREAD = 80 << 20
"""Addresses that the C library reserves for each thread: its stack and its heap."""
_LLVM_COUNTS = {
    "instruction{s}": r"  +\S",
    "basic block{s}": r"[-\w.$]+:",
    "stack slot{s}": r"  +\S+ = alloca ",
    "load{s} of memory": r"  +\S+ = load ",
    "store{s} to memory": r"  +store ",
}
_PASSES = (
    "Four passes run: they inline vector functions, move stack slots to registers, combine "
    "instructions and turn branches into selects; lowering has done the rest."
)


class CpuGenerator(CodeGenerator[CpuTarget, "tuple[Emitted, ...]"]):
    @property
    def sources(self) -> Mapping[str, Source]:
        return {
            "llvm": Source(
                lambda compiled: compiled.text,
                "Optimises the LLVM IR, as machine code is made of it instruction by instruction.",
                _LLVM_COUNTS,
            ),
            "asm": Source(
                assembly,
                "Selects machine instructions, allocates registers and orders the instructions, "
                "for the processor of the target.",
                {"instruction{s}": r"\t(?!\.)\S"},
                is_assembly=True,
            ),
        }

    @property
    def reserved(self) -> frozenset[str]:
        return CALLED

    def host(self) -> CpuTarget:
        return host_target()

    def resolve(self, wanted: CpuTarget) -> CpuTarget:
        """Threads default to the processors that this process may use; of another architecture to
        one.

        Where the processor is this machine's, caches, cores and model are the detected ones,
        otherwise those of the table.
        """
        host = host_target()
        same = wanted.mcpu == NATIVE or wanted.arch == host.arch
        threads = wanted.threads or (host.threads if same else 1)
        if wanted.mcpu == NATIVE:
            return replace(host, threads=threads)
        if (wanted.mcpu, wanted.triple) == (host.mcpu, host.triple):
            return replace(host, threads=threads, features=wanted.features)
        return replace(wanted, threads=threads, cores=threads)

    def check_runnable(self, target: CpuTarget) -> None:
        check_runnable(target, host_target())

    def timed_on(self, target: CpuTarget) -> CpuTarget:
        return host_target().with_threads(target.threads)

    def timed_there(self, target: CpuTarget, machine: Mapping[str, Any]) -> CpuTarget:
        """The processor there. One like this machine's has the name that this machine has.

        LLVM, which names processors, is not there: any other has the name of `target`.
        """
        model = machine.get("model")
        if not isinstance(model, str):
            raise ArtifactError("these are no facts of a processor: {0!r:.80}", dict(machine))
        here = self.timed_on(target)
        return here if model == here.model else replace(target, model=model)

    def tools(self) -> Tools:
        import llvmlite.binding

        found = ".".join(map(str, llvmlite.binding.llvm_version_info))
        versions = {"llvm": found, "llvmlite": str(llvmlite.__version__)}
        return Tools(f"llvm {found.partition('.')[0]}", versions)

    def passes(self, target: CpuTarget) -> tuple[Pass, ...]:
        from .lowering import passes

        return passes(target)

    def emit(
        self, parts: Sequence[Part], target: CpuTarget, *, strict_fp: bool
    ) -> tuple[Emitted, ...]:
        from . import llvm

        return tuple(
            llvm.emit(part.func, part.signature, target, strict_fp=strict_fp, loops=part.loops)
            for part in parts
        )

    def emission(self, emitted: tuple[Emitted, ...]) -> Emission:
        return Emission(
            "\n".join(part.text for part in emitted),
            "Writes LLVM IR of the statements one by one, as LLVM is what makes machine code.",
            _PASSES,
            _LLVM_COUNTS,
        )

    def compile(self, emitted: tuple[Emitted, ...], target: CpuTarget) -> Code:
        for instruction in frozenset["Instruction"]().union(*(p.instructions for p in emitted)):
            if instruction.home is not None:
                from .checked_code import check_code  # in a child process, of users' ones only

                check_code(self, instruction, target)
        return self.object_file(emitted, target)

    joins = True
    several = True

    def join(
        self, functions: Sequence[Function], kernels: Sequence[Compiled], target: CpuTarget
    ) -> Code:
        from .entry import entry

        signature, _ = functions[0]
        size = sum(a.span_bytes for a in signature.arguments) + signature.workspace_bytes
        _check_addresses(signature.name, size, target)
        return entry(functions, kernels, target)

    def function_name(self, text: str) -> str:
        """Not that of a function of the system, which a library cannot have."""
        from .library import is_system_name

        plain = super().function_name(text)
        return f"model_{plain}" if is_system_name(plain) else plain

    def object_file(self, emitted: tuple[Emitted, ...], target: CpuTarget) -> Code:
        """One object file of the modules of a kernel and of what packs its operands."""
        from ..compiled import Launch
        from . import llvm

        for p in emitted:  # LLVM ends the process for an offset that no address has
            _check_addresses(p.symbol, p.argument_bytes + p.workspace_bytes, target)
        module, *others = [llvm.optimise(p.text, target) for p in emitted]
        for other in others:
            module.link_in(other)
        text = str(module)  # before machine code is made of it, which rewrites it
        safe = llvm.without_single_lanes(text)
        if safe != text:
            module, text = llvm.parse(safe), safe
        launches = tuple(
            Launch(p.symbol, {"parallel": True} if p.parallel else {}) for p in emitted
        )
        workspaces = tuple(p.workspace_bytes for p in emitted)
        return Code(llvm.object_code(module, target), launches, workspaces, text)

    def loops_of_lines(self, compiled: Compiled, loops: ProgramLoops) -> list[int | None] | None:
        from . import llvm
        from .assembly_loops import loops_of_lines

        target, plain = CpuTarget.of(compiled.target), assembly(compiled)
        verbose = llvm.verbose_assembly(llvm.parse(compiled.text), target)
        return loops_of_lines(plain, verbose, loops.around)

    def check(self, compiled: Compiled) -> None:
        from .archive import members
        from .object_file import read_object

        target, signature = CpuTarget.of(compiled.target), compiled.signature
        objects = [read_object(code) for code in members(compiled.image)]
        for found in objects:
            if found.arch != target.arch:
                raise ArtifactError("its code is for {0}, expected {1}", found.arch, target.arch)
        defined = frozenset[str]().union(*(found.defined for found in objects))
        parallel = any(not found.undefined.isdisjoint(OPENMP) for found in objects)
        if parallel is not runs_parallel(compiled):
            raise ArtifactError(
                "its code asks for {0} threads, expected {1}",
                "several" if parallel else "no",
                "several" if runs_parallel(compiled) else "none",
            )
        wanted = signature.symbols
        missing = [symbol for symbol in wanted if symbol not in defined]
        if missing:
            raise ArtifactError("its code does not define {0}", ", ".join(missing))

    def load(self, compiled: Compiled, origin: Origin, *, trust_indices: bool) -> Module:
        from . import thread_teams
        from .glue import make_glue
        from .jit import load_object

        self.check_runnable(CpuTarget.of(compiled.target))
        signature = compiled.signature
        imports = thread_teams.load() if runs_parallel(compiled) else {}
        loaded = load_object(compiled.image, signature.symbols, imports)
        return Module(
            signature,
            loaded.addresses,
            compiled.target,
            origin=origin,
            sources={name: partial(compiled.source, name) for name in ("tir", *self.sources)},
            glue=make_glue,
            owner=loaded.owner,
            trust_indices=trust_indices,
        )

    def is_intermediate(self, path: Path) -> bool:
        return path.suffix == ".o"

    def check_files(
        self, path: Path, target: CpuTarget, *, intermediate: bool, linker: str | None = None
    ) -> None:
        from .library import check_path
        from .linking import linker as find_linker

        check_path(path)
        if not intermediate:
            find_linker(target, linker)
        elif linker is not None:
            raise BuildError(
                "{0} is an object file, which takes no linker, found {1!r}", path, linker
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
        """A shared library or an object file, with its manifest and C header."""
        from .library import library_files, object_files

        if intermediate:
            return object_files(programs, path, toolchain)
        return library_files(programs, path, toolchain, linker)

    def environment(self, target: CpuTarget, *, runs: bool) -> dict[str, str]:
        return {
            "OMP_NUM_THREADS": str(target.threads if runs else 1),
            "OMP_DYNAMIC": "false",
            "OMP_MAX_ACTIVE_LEVELS": "1",
        }

    measures = True

    def measure(self, target: CpuTarget) -> Measured:
        from .machine import measure

        return measure(target)

    def described(self, target: CpuTarget, rates: Mapping[str, Any]) -> CpuTarget:
        try:
            return replace(target, rates=Rates.from_json(rates))
        except (TypeError, ValueError) as error:
            raise ArtifactError("expected the rates of a processor: {0}", error) from error

    def addresses(self, target: CpuTarget) -> int:
        return target.threads * _PER_THREAD


def _check_addresses(name: str, size: int, target: CpuTarget) -> None:
    """Raise `BuildError` where arguments and workspace cannot be in one memory.

    Half of 32 bits is left to the program: distances of addresses have a sign.
    """
    most = (1 << (target.pointer_bits - 1)) - 1
    if size > most:
        raise BuildError(
            "{0} takes {1} bytes of arguments and workspace, and {2} has addresses for {3}",
            name, size, target.arch, most,
            hint="divide its tensors, or write it for a machine of 64 bits",
        )  # fmt: skip


def runs_parallel(compiled: Compiled) -> bool:
    """Whether a kernel, or what packs its operands, has loops of several threads."""
    return any(launch.needs.get("parallel") for launch in compiled.launches)


def assembly(compiled: Compiled) -> str:
    """The code as assembly text; of several kernels one after the other."""
    from . import llvm

    target, texts = CpuTarget.of(compiled.target), llvm.modules(compiled.text)
    return "\n".join(llvm.assembly(llvm.parse(text), target) for text in texts)
