"""`build`, `build_library`, `explain`: choose schedules by explicit policy, and compile them."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, overload

from ..base.errors import BuildError, checked_call, system_errors, told_of
from ..runtime.module import Origin
from ..target import Target
from .choose import POLICIES

if TYPE_CHECKING:
    from ..graph.ir import Graph
    from ..graph.parts import Partition
    from ..runtime import Module
    from ..runtime.model import Model
    from ..runtime.partitioned import PartitionedModel
    from ..schedule import Schedule
    from ..tir.ir import Func
    from ..tuning_db import Explanation, TuningDatabase
    from ..tuning_db.store import DatabaseOrPath
    from .explain_model import GraphExplanation
    from .library import Buildable
    from .lock_file import LockFileOrPath


@overload
def build(
    program: Func | Schedule,
    target: Target | str = "cpu",
    database: DatabaseOrPath | None = None,
    allow: Sequence[str] = POLICIES,
    *,
    strict_fp: bool = False,
    tolerance: float | None = None,
    trust_indices: bool = False,
    locked: LockFileOrPath | None = None,
    require_tuned: bool = False,
) -> Module: ...


@overload
def build(
    program: Graph,
    target: Target | str = "cpu",
    database: DatabaseOrPath | None = None,
    allow: Sequence[str] = POLICIES,
    *,
    strict_fp: bool = False,
    tolerance: float | None = None,
    locked: LockFileOrPath | None = None,
    require_tuned: bool = False,
) -> Model: ...


@overload
def build(
    program: Graph,
    target: Target | str = "cpu",
    database: DatabaseOrPath | None = None,
    allow: Sequence[str] = POLICIES,
    *,
    strict_fp: bool = False,
    tolerance: float | None = None,
    locked: LockFileOrPath | None = None,
    require_tuned: bool = False,
    providers: Sequence[str],
    placement: Mapping[str, str] | None = None,
    never: Sequence[str] = (),
    max_parts: int | None = None,
    max_transfer_bytes: int | None = None,
) -> Model | PartitionedModel: ...


@checked_call(BuildError, 'tw.build(program, "cpu")')
@system_errors(BuildError, "building")
def build(  # noqa: PLR0913 - each option of a build has a name
    program: Func | Schedule | Graph,
    target: Target | str = "cpu",
    database: DatabaseOrPath | None = None,
    allow: Sequence[str] = POLICIES,
    *,
    strict_fp: bool = False,
    tolerance: float | None = None,
    trust_indices: bool = False,
    locked: LockFileOrPath | None = None,
    require_tuned: bool = False,
    providers: Sequence[str] = ("tilewright",),
    placement: Mapping[str, str] | None = None,
    never: Sequence[str] = (),
    max_parts: int | None = None,
    max_transfer_bytes: int | None = None,
) -> Module | Model | PartitionedModel:
    """Compile one kernel, or a graph as one program of kernels. Nothing is measured or tuned.

    A `Graph` is divided into groups, each a kernel whose schedule is chosen as that of a `Func`,
    and the result is a `Model`, which takes and returns arrays. A `Func` of several products is
    divided too (see `autotune/rules/division.py`): the kernels are called by an entry, with what is
    between them in its workspace. A record of its whole counts where it is pinned, or is not slower
    than those of the kernels together.

    A `Schedule` is compiled as it is. A `Func` gets the first available schedule that `allow`
    permits, in this order: `record`, the best verified one in `database`; `transfer`, the best one
    of other sizes of the program there, re-fitted to these; `model`, the one that the cost model
    predicts to be fastest; `default`, the same by the analytic estimate. `module.origin` says which
    it was, and the expected loss if it is known. A path or URL of a database is opened read-only.

    `locked` is the lock of `freeze`, or its path: the schedules are those that it has, and nothing
    else is asked. `require_tuned` accepts recorded schedules alone.

    `strict_fp` forbids contracting multiplications and additions. `tolerance` permits records with
    inexact steps and errors up to it, as measured by `autotune.measure.numeric_check`, and choices
    without a record if even an error that would count as wrong is within it. Without it, only a
    pinned one is used. Choices that were made without a record, compiled kernels and
    models that were built before come from caches on disk.

    A record whose schedule does not apply to the program (for example, it is of a newer version or
    names an unknown primitive) or does not compile is skipped with a warning, and the next best is
    used; `explain` has the reasons. A pinned schedule that fails is an error. Where the choice of
    another policy fails, the next policy is asked, also after a warning.

    A module for a GPU is loaded at once. Where a target names an architecture and there is no
    device, the module has its sources and resources, and is loaded when it is first called. Loops
    that few threads run, as they are not bound, are warned of, with the step that helps.

    Calls check the values of integer tensors that have a `value_range`, in one pass over their
    memory. `trust_indices` omits the check; a value out of its range then makes the kernel read or
    write other memory. A graph does not take it: guards of indices are in the code of a model.

    Parts of a graph run elsewhere if `providers` names who may run them, in the order in which they
    are preferred: `tilewright`, `cuda`, `onnxruntime`, `openvino`, `reference`, and those of
    `register_provider`. A node goes to the first that can run it, or where `placement` says, which
    has names of providers by those of operators or nodes, of the graph or of its file. Small parts
    may go to a neighbour instead of crossing. `never` forbids providers. `max_parts` and
    `max_transfer_bytes`, of what crosses in a call, are limits. Each part elsewhere is warned of,
    and `evidence` of the `PartitionedModel` has why. If all is Tilewright's, it is a `Model`.

    LLVM may end a process instead of refusing a program. Foreign schedules (no session on this host
    has measured them) and code for another processor are therefore compiled in a child process.

    Raises `NotTunedError` with the explanation of the lookup (also `error.data["explanation"]`) if
    no permitted policy has a schedule; `data["missing"]` lists all kernels without a record that
    `require_tuned` finds, by their share of the time. Raises `LockError` for a bad lock and with
    all that changed since it was written, `TargetError` for an invalid target, `VerifyError` for a
    program that breaks a rule (reads out of bounds, say), and `BuildError` if lowering or compiling
    fails, or the system refuses what they take (open files, say), for a placement that cannot be,
    and for a partition beyond a limit; `UnsupportedError` with the nodes that no provider runs, and
    `ProviderError` for a provider that raises or is not installed.
    """
    from ..codegen.build import to_module
    from ..codegen.detect import resolve
    from ..graph.ir import Graph
    from .build_program import Ways, compile_program
    from .lock_file import lock_of

    resolved = resolve(target)
    if isinstance(program, Graph):
        from .build_partition import build_partition, divided
        from .providers import Tilewright

        if trust_indices:
            raise BuildError(
                "trust_indices: the code of a model compares its indices, found {0!r}",
                trust_indices, hint="leave it out",
            )  # fmt: skip
        own = Tilewright(
            database=_opened(database), allow=allow, strict_fp=strict_fp, tolerance=tolerance,
            locked=lock_of(locked), require_tuned=require_tuned,
        )  # fmt: skip
        found = divided(
            program, providers, own, placement, never=never, max_parts=max_parts,
            max_transfer_bytes=max_transfer_bytes,
        )  # fmt: skip
        return build_partition(found, resolved, own)
    _check_alone(program, providers, placement, never)
    ways = Ways(
        resolved, _opened(database), allow, tolerance, strict_fp, lock_of(locked), require_tuned
    )
    built = compile_program(program, ways)
    return to_module(built.compiled, built.origin, trust_indices=trust_indices)


@checked_call(BuildError, 'tw.build_all([program, other], "cpu")')
@system_errors(BuildError, "building")
def build_all(  # noqa: PLR0913 - each option of a build has a name
    programs: Iterable[Func | Schedule],
    target: Target | str = "cpu",
    database: DatabaseOrPath | None = None,
    allow: Sequence[str] = POLICIES,
    *,
    jobs: int | None = None,
    strict_fp: bool = False,
    tolerance: float | None = None,
    trust_indices: bool = False,
    locked: LockFileOrPath | None = None,
    require_tuned: bool = False,
) -> list[Module]:
    """Build several kernels in parallel: the same modules as of `build` of each program, in order.

    Programs to be searched or compiled are built in `jobs` processes, this one and children, by
    default one for each processor that may be used. Where a script or notebook registers
    instructions or defines the kind of target, all is built here, one after the other, and so are
    programs that sketch rules of your own are for.

    Raises what `build` raises, for the first program that cannot be built (the error names it), and
    `BuildError` where no process can be started.
    """
    from ..codegen.build import to_module
    from ..codegen.detect import resolve
    from .build_program import Ways, compile_programs
    from .lock_file import lock_of

    if jobs is not None and (type(jobs) is not int or jobs < 1):
        raise BuildError("jobs={0!r}: expected a number from 1 on, or None: all processors", jobs)
    if not isinstance(programs, Iterable):
        raise BuildError(
            "programs: expected several, found {0!r}", type(programs).__name__,
            hint="build(program) builds one",
        )  # fmt: skip
    ways = Ways(
        resolve(target), _opened(database), allow, tolerance, strict_fp, lock_of(locked),
        require_tuned,
    )  # fmt: skip
    modules: list[Module] = []
    for built in compile_programs([*programs], ways, jobs):
        with told_of(partial("program {0}".format, built.compiled.signature.name)):
            modules.append(to_module(built.compiled, built.origin, trust_indices=trust_indices))
    return modules


_log = logging.getLogger(__name__)
_SOURCES = {".onnx": "a model", ".py": "a program"}
"""What code is built from: a mistyped path must not replace it."""


@checked_call(BuildError, 'tw.build_library(program, "matmul.so")')
@system_errors(BuildError, "building")
def build_library(  # noqa: PLR0913 - each option of a build has a name
    program: Buildable | Sequence[Buildable] | Mapping[str, Buildable],
    path: str | os.PathLike[str],
    target: Target | str = "cpu",
    database: DatabaseOrPath | None = None,
    allow: Sequence[str] = POLICIES,
    *,
    strict_fp: bool = False,
    tolerance: float | None = None,
    locked: LockFileOrPath | None = None,
    require_tuned: bool = False,
    object_file: bool = False,
    linker: str | None = None,
    providers: Sequence[str] = ("tilewright",),
    placement: Mapping[str, str] | None = None,
    never: Sequence[str] = (),
    max_parts: int | None = None,
    max_transfer_bytes: int | None = None,
) -> Library:
    """Compile kernels and graphs, chosen as by `build`, into the files of one artifact.

    They are a shared library at `path`, its manifest (`<path>.json`) and a C header, and of graphs
    their constants (`<path>.weights`). `tilewright.runtime.load(path)` returns the module, of a
    graph the model, on machines that have only the runtime and numpy; of several programs a
    `LoadedLibrary` of these, by name. A dictionary of programs gives them other names.

    With `object_file`, or a path that ends with `.o`, they are no library, which takes a linker,
    but an object file at `path`; of a graph or several programs it is an archive, a static library.
    The target may be another machine: `linker` is the command that links for it, such as `ld.lld`,
    by default the first of those that do. The code contains a description of each program, the text
    `<program>.description`.

    Other providers run parts of a graph as in `build`. Those of Tilewright are in the library, and
    each other one in a file beside it (`<path>.part1`), as its provider stores it; then the header
    does not have the graph. `load` asks for the same provider, of the same version or, of
    onnxruntime and OpenVINO, a later one.

    Programs that this machine runs are called once, with random inputs, and the manifest keeps
    what they computed: `tilewright.verify(path)` compares with it anywhere.

    All files are written or none: after a failure, the old ones are still there.

    Raises what `build` raises, `UnsupportedError` for a part whose provider cannot store it, and
    `BuildError` if the files cannot be written, there is no linker, which `data["packages"]` have,
    or two programs have one name.
    """
    from ..autotune.records import toolchain_record
    from ..base.files import replace_files
    from ..codegen.detect import resolve
    from ..codegen.generator import generator_for
    from ..graph.ir import Graph
    from ..runtime.artifact import manifest_path
    from ..runtime.verification import with_fixtures
    from .build_program import Ways
    from .library import compiled_for_files, named_programs
    from .lock_file import lock_of
    from .origins import together
    from .providers import Tilewright

    path = _checked_path(path)
    resolved = resolve(target)
    generator = generator_for(resolved)
    object_file = object_file or generator.is_intermediate(path)
    generator.check_files(path, resolved, intermediate=object_file, linker=linker)
    programs = named_programs(program)
    if not any(isinstance(each, Graph) for each in programs):
        _check_alone(programs[0], providers, placement, never)
    ways = Ways(
        resolved, _opened(database), allow, tolerance, strict_fp, lock_of(locked), require_tuned
    )
    own = Tilewright(
        database=ways.database, allow=allow, strict_fp=strict_fp, tolerance=tolerance,
        locked=ways.locked, require_tuned=require_tuned,
    )  # fmt: skip
    made = compiled_for_files(
        programs, ways, own, object_file=object_file,
        shared={
            "providers": providers, "placement": placement, "never": never, "max_parts": max_parts,
            "max_transfer_bytes": max_transfer_bytes,
        },
    )  # fmt: skip
    versions = {name: str(text) for name, text in toolchain_record(resolved).versions.items()}
    new = generator.files(made, path, versions, intermediate=object_file, linker=linker)
    if new[-1].path == manifest_path(path):
        new = with_fixtures(new)
    try:
        replace_files(new)
    except OSError as error:
        where = error.filename or path
        raise BuildError("cannot write {0}: {1}", where, error.strerror or error) from error
    code, *others = (file.path for file in new)
    origins = {compiled.signature.name: told.origin for compiled, told in made}
    kernels = {n: o for _, told in made for n, o in told.kernels.items()}
    (first, told), *more = made
    alone = not more and not isinstance(programs[0], Graph) and len(kernels) == 1
    return Library(
        (code, *reversed(others)),
        first.target,
        together(kernels.values()) if more else told.origin,
        {} if alone else kernels,
        origins,
    )


def _checked_path(path: str | os.PathLike[str]) -> Path:
    """The path of a file to write. Raises `BuildError` for one that no artifact has."""
    if not isinstance(path, str | os.PathLike):
        raise BuildError(
            "expected the path of a file to write, found {0}", type(path).__name__,
            hint='tw.build_library(program, "matmul.so")',
        )  # fmt: skip
    path = Path(path)
    if not path.name or "\0" in str(path):
        raise BuildError("cannot write {0!r}: expected the path of a file", str(path))
    if path.suffix in _SOURCES:
        raise BuildError(
            "cannot write {0}: that is the name of {1}", path, _SOURCES[path.suffix],
            hint=f"name the library {path.stem}.so, for instance",
        )  # fmt: skip
    if path.suffix == ".so" and os.path.exists(path.with_suffix(".py")):
        _log.warning(
            "%s hides %s: `import %s` takes a library before a module; write it elsewhere",
            path, path.with_suffix(".py").name, path.stem,
        )  # fmt: skip
    if not os.path.isdir(path.parent):  # `Path.is_dir` raises for a name that is too long
        raise BuildError("cannot write {0}: there is no folder {1}", path, path.parent)
    return path


def _check_alone(
    program: Buildable,
    providers: Sequence[str],
    placement: Mapping[str, str] | None,
    never: Sequence[str],
) -> None:
    if (*providers, *never) != ("tilewright",) or placement:
        raise BuildError("providers run parts of graphs, found {0}", program)


@dataclass(frozen=True)
class Library:
    """The written files, the code first, and the origin of the schedule: of several, by kernel.

    `programs` has the origin of each program by its name.
    """

    files: tuple[Path, ...]
    target: Target
    origin: Origin
    kernels: Mapping[str, Origin] = field(default_factory=dict)
    programs: Mapping[str, Origin] = field(default_factory=dict)


@overload
def explain(
    program: Func,
    target: Target | str,
    database: DatabaseOrPath,
    *,
    tolerance: float | None = None,
) -> Explanation: ...


@overload
def explain(
    program: Graph,
    target: Target | str,
    database: DatabaseOrPath,
    *,
    tolerance: float | None = None,
    providers: Sequence[str] = ("tilewright",),
    placement: Mapping[str, str] | None = None,
    never: Sequence[str] = (),
) -> GraphExplanation: ...


@checked_call(BuildError, 'tw.explain(program, "cpu", "tuning.db")')
@system_errors(BuildError, "a lookup")
def explain(
    program: Func | Graph,
    target: Target | str,
    database: DatabaseOrPath,
    *,
    tolerance: float | None = None,
    providers: Sequence[str] = ("tilewright",),
    placement: Mapping[str, str] | None = None,
    never: Sequence[str] = (),
) -> Explanation | GraphExplanation:
    """Say which records a build of a program would consider, take and refuse, and why.

    Like `TuningDatabase.explain`, and schedules are applied to the program as in `build`: those
    that do not apply are listed with the reason. Nothing is compiled.

    Of a graph there is an explanation for each kernel, with the origin of its schedule, and of a
    program that is built as several kernels, beside that of the whole. Where other providers share
    a graph, as in `build`, it is of the kernels of the parts that Tilewright runs.

    Raises `DatabaseError`, `TargetError` for an invalid target, `BuildError` for what is no program
    or no database, and what `build` raises where it divides a graph.
    """
    from ..codegen.detect import resolve
    from ..graph.ir import Graph
    from ..tuning_db.arguments import opened
    from .explain_model import explain_graph, explain_program

    resolved, store = resolve(target), opened(database, BuildError)
    if isinstance(program, Graph):
        from .build_partition import divided

        found = divided(program, providers, placement=placement, never=never)
        return explain_graph(found, resolved, store, tolerance)
    _check_alone(program, providers, placement, never)
    return explain_program(program, resolved, store, tolerance)


@checked_call(BuildError, 'tw.partition(graph, ["tilewright", "onnxruntime"])')
@system_errors(BuildError, "dividing a graph")
def partition(
    graph: Graph,
    providers: Sequence[str],
    placement: Mapping[str, str] | None = None,
    *,
    never: Sequence[str] = (),
    max_parts: int | None = None,
    max_transfer_bytes: int | None = None,
) -> Partition:
    """Divide a graph among providers as `build` does, without a build.

    `print` shows who runs what, why, and what crosses; `evidence()` is that as data. `tw.tune`
    takes the result, and tunes the kernels of the parts of Tilewright.

    Raises what `build` raises where it divides a graph.
    """
    from ..graph.ir import Graph
    from .build_partition import divided

    if not isinstance(graph, Graph):
        raise BuildError("providers run parts of graphs, found {0!r:.80}", graph)
    return divided(
        graph, providers, placement=placement, never=never, max_parts=max_parts,
        max_transfer_bytes=max_transfer_bytes,
    )  # fmt: skip


@checked_call(BuildError, 'tw.kernels(program, "cpu")')
@system_errors(BuildError, "dividing a program")
def kernels(program: Func, target: Target | str = "cpu") -> dict[str, Func]:
    """The programs that a build makes kernels of, by name, in the order in which they run.

    A program of several products becomes several. Each is built, tuned and opened in the lab like
    any other, and its records serve the whole. One that is a kernel itself is the only one.

    Raises `VerifyError` for a program that breaks a rule, `TargetError` for an invalid target, and
    `BuildError` for what is no program.
    """
    from ..autotune.rules.division import pieces_of
    from ..codegen.detect import resolve
    from ..tir.ir import Func
    from ..tir.program import program_hint, shown
    from ..tir.verify import verify

    if not isinstance(program, Func):
        raise BuildError(
            "expected a program (Func), found {0}",
            shown(program),
            hint=program_hint(program, "tw.kernels"),
        )
    verify(program)
    pieces = pieces_of(program, resolve(target))
    return {func.name: func for func in [piece.func for piece in pieces] or [program]}


def _opened(database: DatabaseOrPath | None) -> TuningDatabase | None:
    from ..tuning_db.arguments import opened_or_none

    return opened_or_none(database, BuildError)
