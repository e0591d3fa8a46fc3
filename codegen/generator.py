"""Code generators: how lowered programs become running code on one kind of target.

A kind of target is five things: its record (`target/`), its runtime (`runtime/target_runtime.py`),
its code generator, its sketch rules (`autotune/rules/`) and the model of its times
(`autotune/model/`). `codegen/cpu/` is the code generator for processors; `register_generator` adds
another. What all kinds have in common is beside this file, and asks `generator_for(target)`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

from ..base.errors import ArtifactError, BuildError, TilewrightError
from ..runtime.signature import is_function_name
from ..target import Fact, Target
from ..target.target import Registry

if TYPE_CHECKING:
    from ..base.files import File
    from ..runtime.manifest import Provenance
    from ..runtime.module import Module, Origin
    from ..runtime.signature import Signature
    from ..tir.ir import Func, Var
    from .compiled import Compiled, Launch
    from .program_loops import ProgramLoops
    from .sequence import Function

T = TypeVar("T", bound=Target)
E = TypeVar("E")


@dataclass(frozen=True)
class Pass:
    """A step of lowering: its name, what it makes of a program, and why, in a sentence for people.

    `reorders` says that it changes the order of floating-point arithmetic.
    """

    name: str
    run: Callable[[Func], Func]
    why: str
    reorders: bool = False

    def __post_init__(self) -> None:
        if not self.why.strip():
            raise ValueError(f"the pass {self.name}: expected a sentence that says why it is run")


class Source(NamedTuple):
    """A text of compiled code, and why there is this step towards the code, in a sentence.

    `counts` are patterns of what a reader counts in its lines, by names such as `load{s}`.
    """

    text: Callable[[Compiled], str]
    why: str
    counts: Mapping[str, str] = {}
    is_assembly: bool = False


class Emission(NamedTuple):
    """Emitted text that tools optimise: why it is written, and how they optimise it; sentences.

    `counts` are as those of a `Source`.
    """

    text: str
    why: str
    optimisation: str
    counts: Mapping[str, str]


class Part(NamedTuple):
    """A lowered function, and the signature of the entry point that is made of it.

    `loops` are the numbers of the loops of the scheduled program, by their variables.
    """

    func: Func
    signature: Signature
    loops: Mapping[Var, int] = {}


class Code(NamedTuple):
    """Compiled code: the image, its launches and the bytes of the workspace of each, and the text
    that the image was made of."""

    image: bytes
    launches: tuple[Launch, ...]
    workspaces: tuple[int, ...]
    text: str


class Tools(NamedTuple):
    """The tools that make the code. Timings compare within a `generation` of them."""

    generation: str
    versions: Mapping[str, str]


class Measured(NamedTuple):
    """The measured rates of a machine by name, as JSON, and oddities meanwhile, in words.

    It is `doubtful` where one of these disturbed the measuring.
    """

    rates: Mapping[str, Any]
    odd: tuple[str, ...]
    doubtful: bool


class CodeGenerator(ABC, Generic[T, E]):
    """Makes code for targets `T`; `E` is what it emits before that is compiled."""

    @property
    def sources(self) -> Mapping[str, Source]:
        """The texts of compiled code that it can show, by name, in the order of their making."""
        return {}

    @property
    def assembly(self) -> str | None:
        """The name of the assembly among the `sources`."""
        return next((name for name, s in self.sources.items() if s.is_assembly), None)

    @property
    def reserved(self) -> frozenset[str]:
        """Names that no kernel can have."""
        return frozenset()

    # This machine

    @abstractmethod
    def host(self) -> T:
        """This machine as a resolved target. Raises `TargetError` if it is none of this kind."""

    @abstractmethod
    def resolve(self, wanted: T) -> T:
        """The target with everything filled in that it leaves to this machine."""

    @abstractmethod
    def check_runnable(self, target: T) -> None:
        """Raise `TargetError` unless this machine executes code for `target`."""

    @abstractmethod
    def tools(self) -> Tools:
        """The tools that make code on this machine: compilers, and a code generator from elsewhere.

        Code that other tools made is compiled anew, and not taken from the cache.
        """

    def runtimes(self) -> dict[str, Fact]:
        """The libraries that kernels need on this machine, by name; `None` for a missing one."""
        return {}

    def missing(self) -> list[TilewrightError]:
        """What this machine lacks to make code and to run it, each with its remedy."""
        return []

    @abstractmethod
    def timed_on(self, target: T) -> T:
        """This machine as the target whose `perf_class` the timings of `target` here belong to."""

    def timed_there(self, target: T, machine: Mapping[str, Any]) -> T:
        """Another machine as the target whose `perf_class` timings of `target` there belong to.

        `machine` is what `TargetRuntime.machine` said there. Raises `ArtifactError` where it is
        malformed.
        """
        del machine
        return target

    suffix: ClassVar[str] = ".so"
    """Of the names of files of code that `files` writes."""

    # Code

    def may_end_process(self, target: T, *, foreign: bool) -> bool:
        """Whether to compile may end this process instead of raising an error.

        `foreign` are schedules that no session on this machine has measured.
        """
        return foreign or self.timed_on(target) != target

    @abstractmethod
    def passes(self, target: T) -> Iterable[Pass]:
        """The passes that lower a program, in their order."""

    def remarks(self, func: Func) -> tuple[str, ...]:
        """What the schedule of a program should do better, in words."""
        del func
        return ()

    @abstractmethod
    def emit(self, parts: Sequence[Part], target: T, *, strict_fp: bool) -> E:
        """Code in the generator's own language: of the kernel, then of its packers.

        Raises `BuildError` for what it cannot say.
        """

    def emission(self, emitted: E) -> Emission | None:
        """What was emitted, as text; `None` where the first of the `sources` is just that."""
        del emitted
        return None

    @abstractmethod
    def compile(self, emitted: E, target: T) -> Code:
        """The image of what was emitted. Raises `BuildError` where the tools refuse it."""

    joins: ClassVar[bool] = False
    """Whether it can `join` kernels; models are built by those that can."""

    def join(self, functions: Sequence[Function], kernels: Sequence[Compiled], target: T) -> Code:
        """The image of functions with the code of the kernels that they call, for the first one."""
        raise NotImplementedError

    def function_name(self, text: str) -> str:
        """A name like a text, of any characters, that a function can have, also in files."""
        plain = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_")
        return plain if is_function_name(plain) else f"model_{plain}"

    def loops_of_lines(self, compiled: Compiled, loops: ProgramLoops) -> list[int | None] | None:
        """For each line of the assembly text the number of the innermost loop that runs it.

        A line of no loop of the program has `None`. `None` for all where the code does not tell.
        """
        del compiled, loops
        return None

    @abstractmethod
    def check(self, compiled: Compiled) -> None:
        """Raise `ArtifactError` unless the image may be that of its signature and target."""

    def resources(self, compiled: Compiled) -> dict[str, dict[str, int]] | None:
        """What the kernels take, by their symbols, as the compiler reports it; `None` if nothing.

        Records of measurements keep it.
        """
        del compiled
        return None

    @abstractmethod
    def load(self, compiled: Compiled, origin: Origin, *, trust_indices: bool) -> Module:
        """Load compiled code into this process.

        Raises `TargetError` if it is for another machine, `BuildError` if it does not load.
        """

    several: ClassVar[bool] = False
    """Whether the `files` of an artifact may have several programs."""

    def is_intermediate(self, path: Path) -> bool:
        """Whether a file of that name is one that other tools make an artifact of; see `files`."""
        del path
        return False

    @abstractmethod
    def check_files(
        self, path: Path, target: T, *, intermediate: bool, linker: str | None = None
    ) -> None:
        """Raise `BuildError` where `files` would, for a path or the lack of a linker."""

    @abstractmethod
    def files(
        self,
        programs: Sequence[tuple[Compiled, Provenance]],
        path: Path,
        toolchain: Mapping[str, str],
        *,
        intermediate: bool,
        linker: str | None = None,
    ) -> tuple[File, ...]:
        """The files of an artifact, in the order to write: to load one takes no code generator.

        The code is at `path` and comes first. There are programs beyond the first only where the
        generator takes `several`. `toolchain` has versions by name. With `intermediate` they are
        what other tools make an artifact of: an object file, for instance. `linker` is the command
        to link with, where one is. Raises `BuildError` where that cannot be.
        """

    # Measuring

    def emulate(self, func: Func, target: T, arguments: Sequence[Any]) -> tuple[str, ...] | None:
        """Run a scheduled program on arrays and numbers of the host without the machine.

        Returns what is wrong with it, in words; `None` where there is no emulator. Outputs are
        written in place. Raises `BuildError` where it cannot be lowered.
        """
        del func, target, arguments
        return None

    @abstractmethod
    def environment(self, target: T, *, runs: bool) -> dict[str, str]:
        """Variables for a process that compiles kernels for `target`, or `runs` and times them."""

    on_device: ClassVar[bool] = False
    """Whether kernels run on a device, which work of the processors here does not disturb."""
    measures: ClassVar[bool] = False
    """Whether it can `measure` this machine."""

    def measure(self, target: T) -> Measured:
        """Measure this machine for estimates of kernels for a resolved target, in at most 3 s.

        It may start threads, and is called in a process of its own. Called only of generators that
        say that it `measures`. Raises `BuildError`.
        """
        raise BuildError("there is no way to measure a machine for {0}", target)

    def described(self, target: T, rates: Mapping[str, Any]) -> T:
        """The target with the rates of `measure`. Raises `ArtifactError` where they are none."""
        raise ArtifactError("{0} has no rates, found {1!r}", target, rates)

    @abstractmethod
    def addresses(self, target: T) -> int | None:
        """Bytes of addresses that running kernels takes beyond their memory.

        `None` where the addresses of a process must not be limited.
        """


def _cpu() -> CodeGenerator[Any, Any]:
    from .cpu.generator import CpuGenerator

    return CpuGenerator()


def _cuda() -> CodeGenerator[Any, Any]:
    from .cuda.generator import CudaGenerator

    return CudaGenerator()


_GENERATORS = Registry("code generator", "register_generator", {"cpu": _cpu, "cuda": _cuda})


def register_generator(kind: str, load: Callable[[], CodeGenerator[Any, Any]]) -> None:
    """Make code for targets of a kind by what `load` returns when it is first asked for.

    Raises `TargetError` where the kind has a code generator already.
    """
    _GENERATORS.register(kind, load)


def generator_for(target: Target) -> CodeGenerator[Any, Any]:
    """The code generator for targets of its kind. Raises `TargetError` where there is none."""
    return _GENERATORS.of(target)


def outside_modules(target: Target) -> tuple[str, ...]:
    """The modules that register its kind, those of this package left out.

    A process that makes or runs code for the target has to import them first.
    """
    package = __name__.partition(".")[0]
    modules = dict.fromkeys((type(target).__module__, type(generator_for(target)).__module__))
    return tuple(name for name in modules if name.partition(".")[0] != package)
