"""`build`, `build_library` and `explain`: choose a schedule by explicit policy and compile it."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import (
    BuildError,
    DatabaseError,
    NotTunedError,
    ScheduleError,
    TilewrightError,
    TuningError,
    similar,
)
from .runtime.module import Origin
from .target import Target

if TYPE_CHECKING:
    from .autotune.measure.build_ahead import Task
    from .autotune.search.remembered import Way
    from .autotune.search.replay import Replays
    from .codegen.compiled import Compiled
    from .runtime import Module
    from .schedule import Schedule
    from .tir.ir import Func
    from .tuning_db import Best, Explanation, TuningDatabase

POLICIES = ("record", "transfer", "model", "default")
MOST_UNFIT = 8
"""Recorded schedules that do not compile before records are given up; each takes a process."""

_log = logging.getLogger(__name__)


def build(
    program: Func | Schedule,
    target: Target | str = "cpu",
    database: TuningDatabase | None = None,
    allow: Sequence[str] = POLICIES,
    *,
    strict_fp: bool = False,
    tolerance: float | None = None,
    trust_indices: bool = False,
) -> Module:
    """Compile one kernel. Nothing is measured or tuned.

    A `Schedule` is compiled as it is. A `Func` gets the first available schedule that `allow`
    permits, in this order: `record`, the best verified one in `database`; `transfer`, the best one
    of other sizes of the program there, re-fitted to these; `model`, the one that the cost model
    predicts to be fastest; `default`, the same by the analytic estimate. `module.origin` says which
    it was, and the expected loss if it is known.

    `strict_fp` forbids contracting multiplications and additions. `tolerance` permits records with
    inexact steps and errors up to it, as measured by `autotune.measure.numeric_check`; without it,
    only a pinned one is used. Choices that were made without a record, and compiled kernels, come
    from a cache on disk.

    A record whose schedule does not apply to the program (for example, it is of a newer version or
    names an unknown primitive) or does not compile is skipped with a warning, and the next best is
    used; `explain` has the reasons. A pinned schedule that fails is an error.

    Calls check the values of integer tensors that have a `value_range`, in one pass over their
    memory. `trust_indices` omits the check; a value out of its range then makes the kernel read or
    write other memory.

    LLVM may end a process instead of refusing a program. Foreign schedules (no session on this host
    has measured them) and code for another processor are therefore compiled in a child process.

    Raises `NotTunedError` with the explanation of the lookup (also `error.data["explanation"]`) if
    no permitted policy has a schedule, `TargetError` for an invalid target, `VerifyError` for a
    program that breaks a rule (reads out of bounds, say), and `BuildError` if lowering or compiling
    fails.
    """
    from .codegen.build import to_module
    from .codegen.detect import resolve

    resolved = resolve(target)
    choice, compiled = _compiled(program, resolved, database, allow, tolerance, strict_fp=strict_fp)
    return to_module(compiled, choice.origin, trust_indices=trust_indices)


def build_all(
    programs: Sequence[Func | Schedule],
    target: Target | str = "cpu",
    database: TuningDatabase | None = None,
    allow: Sequence[str] = POLICIES,
    *,
    jobs: int | None = None,
    strict_fp: bool = False,
    tolerance: float | None = None,
    trust_indices: bool = False,
) -> list[Module]:
    """Build several kernels in parallel: the same modules as of `build` of each program, in order.

    Programs that have to be searched or compiled are built in `jobs` child processes, by default
    one for each processor that may be used. Their results come through the caches on disk: where
    `TILEWRIGHT_CACHE_DIR` is set to nothing, all is built here, one after the other. So it is where
    there are instructions of your own, and so are programs that sketch rules of your own are for.

    Raises what `build` raises, for the first program that cannot be built, and `BuildError` where
    no process can be started.
    """
    from .autotune.measure.build_ahead import build_ahead
    from .codegen.detect import resolve, usable_processors
    from .tir.instruction_set import user_instructions

    if jobs is not None and (type(jobs) is not int or jobs < 1):
        raise BuildError("jobs={0!r}: expected a number from 1 on, or None: all processors", jobs)
    resolved = resolve(target)
    jobs = usable_processors() if jobs is None else jobs
    if jobs > 1 and len(programs) > 1 and not user_instructions():  # children do not have them
        tasks: dict[object, Task] = {}
        for program in programs:
            found = _without_search(program, resolved, database, allow, tolerance, None)
            tasks |= _tasks(found, resolved, strict_fp=strict_fp)
        if len(tasks) > 1:
            try:
                build_ahead(list(tasks.values()), resolved, jobs, strict_fp=strict_fp)
            except TuningError as error:
                raise BuildError(
                    "cannot build in child processes: {0}", error, hint="build here: jobs=1"
                ) from error
    return [
        build(
            program,
            resolved,
            database,
            allow,
            strict_fp=strict_fp,
            tolerance=tolerance,
            trust_indices=trust_indices,
        )
        for program in programs
    ]


def _tasks(
    found: Choice | tuple[Func, Way], target: Target, *, strict_fp: bool
) -> dict[object, Task]:
    """The compilations for child processes, by their keys; none for what is cached."""
    from .autotune.measure.build_ahead import Task
    from .autotune.search.remembered import recalled, remembers
    from .codegen.cache import is_cached
    from .tir.equality import structural_hash

    if isinstance(found, Choice):
        scheduled = found.func
    else:
        func, way = found
        if not remembers():
            return {}
        schedule = recalled(func, target, way)
        if schedule is None:
            return {(structural_hash(func), way): Task(func, way)}
        scheduled = schedule.func
    if is_cached(scheduled, target, strict_fp=strict_fp):
        return {}
    return {repr(scheduled): Task(scheduled, None)}


def build_library(
    program: Func | Schedule,
    path: str | os.PathLike[str],
    target: Target | str = "cpu",
    database: TuningDatabase | None = None,
    allow: Sequence[str] = POLICIES,
    *,
    strict_fp: bool = False,
    tolerance: float | None = None,
    object_file: bool = False,
) -> Library:
    """Compile one kernel, chosen as by `build`, into files.

    They are a shared library at `path`, its manifest (`<path>.json`) and a C header.
    `tilewright.runtime.load(path)` returns the module, on machines that have only the runtime and
    numpy. With `object_file` they are an object file at `path` and the header, which needs no
    linker. The target may be another machine. The code contains a description of itself, the text
    `<kernel>.description`.

    All files are written or none: after a failure, the old ones are still there.

    Raises what `build` raises, and `BuildError` if the files cannot be written or there is no
    linker.
    """
    from .codegen.detect import resolve
    from .codegen.generator import Provenance, generator_for
    from .runtime.files import replace_files

    path = Path(path)
    if not path.name or "\0" in str(path):
        raise BuildError("cannot write {0!r}: expected the path of a file", str(path))
    if not path.parent.is_dir():
        raise BuildError("cannot write {0}: there is no folder {1}", path, path.parent)
    resolved = resolve(target)
    generator = generator_for(resolved)
    generator.check_path(path, intermediate=object_file)
    choice, compiled = _compiled(program, resolved, database, allow, tolerance, strict_fp=strict_fp)
    provenance = Provenance(
        choice.origin, choice.schedule_id, choice.measurement_id, _toolchain(resolved)
    )
    new = generator.files(compiled, path, provenance, intermediate=object_file)
    try:
        replace_files(new)
    except OSError as error:
        where = error.filename or path
        raise BuildError("cannot write {0}: {1}", where, error.strerror or error) from error
    code, *descriptions = (file.path for file in new)
    return Library((code, *reversed(descriptions)), compiled.target, choice.origin)


@dataclass(frozen=True)
class Library:
    """The written files, the code first, and the origin of the schedule."""

    files: tuple[Path, ...]
    target: Target
    origin: Origin


@dataclass(frozen=True)
class Choice:
    """A scheduled program, the origin of its schedule, and the ids of its records.

    `foreign`: the schedule was not measured on this host. `pinned`: the user has fixed it.
    """

    func: Func
    origin: Origin
    schedule_id: str | None = None
    measurement_id: str | None = None
    foreign: bool = False
    pinned: bool = False


def explain(
    program: Func,
    target: Target | str,
    database: TuningDatabase,
    *,
    tolerance: float | None = None,
) -> Explanation:
    """Say which records a build of a program would consider, take and refuse, and why.

    Like `TuningDatabase.explain`, and schedules are applied to the program as in `build`: those
    that do not apply are listed with the reason. Nothing is compiled.

    Raises `DatabaseError`, and `TargetError` for an invalid target.
    """
    from .codegen.detect import resolve

    return _explanation(program, resolve(target), database, tolerance)


def choose(
    program: Func | Schedule,
    target: Target,
    database: TuningDatabase | None,
    allow: Sequence[str],
    tolerance: float | None = None,
    unfit: Mapping[str, str] | None = None,
) -> Choice:
    """Returns the schedule that the policy selects for a program on a resolved target; see `build`.

    `unfit` maps the ids of recorded schedules that do not compile to the reason.
    """
    from .autotune.search.remembered import chosen

    found = _without_search(program, target, database, allow, tolerance, unfit)
    if isinstance(found, Choice):
        return found
    func, way = found
    return Choice(chosen(func, target, way).func, Origin(way, None, _WHY[way]))


def _without_search(
    program: Func | Schedule,
    target: Target,
    database: TuningDatabase | None,
    allow: Sequence[str],
    tolerance: float | None,
    unfit: Mapping[str, str] | None,
) -> Choice | tuple[Func, Way]:
    """The choice, or the program with who has to choose by searching."""
    from .autotune.measure.numeric_check import require_tolerance
    from .schedule import Schedule
    from .tir.ir import Func
    from .tir.verify import verify

    if isinstance(allow, str) or not isinstance(allow, Sequence):
        raise BuildError(
            "allow: expected a list of policies, found {0!r}",
            allow,
            hint=f"allow=[{allow!r}]" if allow in POLICIES else f"some of {', '.join(POLICIES)}",
        )
    unknown = [a for a in allow if a not in POLICIES]
    if unknown:
        raise BuildError(
            "unknown policy {0!r}; expected some of {1}",
            unknown[0],
            ", ".join(POLICIES),
            hint=similar(str(unknown[0]), POLICIES),
        )
    if isinstance(program, Schedule):
        if program.space is not None:
            raise BuildError(
                "the sizes of a symbolic schedule are open",
                hint="replay its trace with decisions: trace.with_row(row).apply(func)",
            )
        if len(program.funcs) > 1:
            raise BuildError(
                "a schedule of several programs ({0}); expected one, to build one kernel",
                ", ".join(program.funcs),
                hint=f"build(Schedule(sch.funcs[{next(iter(program.funcs))!r}])) builds one as is",
            )
        verify(program.original)
        return Choice(program.func, Origin("schedule"))
    if not isinstance(program, Func):
        raise BuildError(
            "expected a program (Func) or a Schedule to build, found {0!r}",
            type(program).__name__,
            hint="call the function that makes the program: build(matmul(), ...)",
        )
    if database is not None and not hasattr(database, "explain"):
        raise BuildError(
            "database: expected a TuningDatabase, found {0!r}",
            database,
            hint='open one: tw.TuningDatabase("tuning.db")',
        )
    require_tolerance(tolerance, BuildError)
    verify(program)
    if database is not None and "record" in allow:
        found = _lookup(program, target, database, tolerance, unfit or {})
        if found is not None:
            return found
    if database is not None and "transfer" in allow:
        found = _transferred(program, target, database)
        if found is not None:
            return found
    for way in _WHY:
        if way in allow:
            return program, way
    raise _not_tuned(program, target, database, allow, tolerance, unfit or {})


_WHY: dict[Way, str] = {
    "model": "chosen by the cost model, nothing was measured",
    "default": "chosen by the analytic model",
}


def _lookup(
    func: Func,
    target: Target,
    database: TuningDatabase,
    tolerance: float | None,
    unfit: Mapping[str, str],
) -> Choice | None:
    """Returns the best recorded schedule that applies, or `None`."""
    from .autotune.records import target_record, toolchain_record, workload_record
    from .autotune.search.replay import Replays

    if len(unfit) >= MOST_UNFIT:
        _log.warning("%s: no other record is tried, %d do not compile", func.name, len(unfit))
        return None
    workload, replays = workload_record(func), Replays(func, unfit)
    best = database.best(
        workload.id,
        target_record(target),
        toolchain_record(target),
        tolerance=tolerance,
        applies=replays,
    )
    replays.warn(database.location)
    if best is None:
        _log.info("%s has no usable record of %s on %s", database.location, func.name, target)
        return None
    measured = None if best.measurement is None else best.measurement.id
    origin = Origin(
        "record",
        best.schedule.id if measured is None else measured,
        f"pinned in {best.layer}" if best.pinned else f"measured in {best.layer}",
    )
    foreign = not _measured_here(best, database)
    scheduled = _replayed(func, best, replays)
    return Choice(scheduled, origin, best.schedule.id, measured, foreign, best.pinned)


def _transferred(func: Func, target: Target, database: TuningDatabase) -> Choice | None:
    """Returns the best schedule of other sizes, re-fitted, or `None` if none fits."""
    from .autotune.records import target_record, toolchain_record, workload_record
    from .autotune.search.transfer import transferred
    from .runtime.timer import format_seconds

    workload = workload_record(func)
    found = transferred(
        func, target, database, workload, target_record(target), toolchain_record(target)
    )
    if found is None:
        _log.info("%s has no other sizes of %s on %s", database.location, func.name, target)
        return None
    source = found.source
    measured = source.measurement
    assert measured.seconds is not None, "what is usable has a time"
    # Where there is no arithmetic, the bytes are the work.
    work = (workload.flops, source.workload.flops)
    here, there = work if all(work) else (workload.bytes, source.workload.bytes)
    same_rate = measured.seconds * here / there if there else measured.seconds
    loss = max(0.0, 1 - same_rate / found.seconds)
    detail = (
        f"re-fitted from {source.workload.shape}, measured in {source.layer}; expected to take "
        f"{format_seconds(found.seconds)}, {loss:.0%} below the rate of that record"
    )
    func = found.trace.apply(func).func
    return Choice(func, Origin("transfer", measured.id, detail, round(loss, 4)))


def _measured_here(best: Best, database: TuningDatabase) -> bool:
    """Whether a session on this host measured it; otherwise it was pinned, imported or merged."""
    from .tuning_db import Session

    if best.measurement is None:
        return False
    try:
        session = database.get(Session, best.measurement.session)
    except DatabaseError:
        return False  # a damaged session says nothing
    return session.host == socket.gethostname()


def _replayed(func: Func, best: Best, replays: Replays) -> Func:
    try:
        return replays.schedule(best.schedule).func
    except ScheduleError as error:
        # Only of a pinned one: of others the lookup has asked.
        raise BuildError(
            "the schedule {0} that is pinned in {1} does not apply to {2}: {3}",
            best.schedule.id[:12],
            best.layer,
            func.name,
            error,
            hint="pin another schedule, or remove the pin: database.unpin(workload_id, target)",
        ) from error


def _not_tuned(
    func: Func,
    target: Target,
    database: TuningDatabase | None,
    allow: Sequence[str],
    tolerance: float | None,
    unfit: Mapping[str, str],
) -> NotTunedError:
    explanation = None
    if database is not None:
        explanation = _explanation(func, target, database, tolerance, unfit)
    return NotTunedError(
        "no schedule for {0} on {1} is permitted by allow={2}:\n{3}",
        func.name,
        str(target),
        list(allow),
        "no database was given" if explanation is None else explanation,
        hint="tune the program into the database, or allow 'default'",
        explanation=explanation,
    )


def _explanation(
    func: Func,
    target: Target,
    database: TuningDatabase,
    tolerance: float | None,
    unfit: Mapping[str, str] | None = None,
) -> Explanation:
    from .autotune.records import target_record, toolchain_record, workload_record
    from .autotune.search.replay import Replays

    return database.explain(
        workload_record(func),
        target_record(target),
        toolchain_record(target),
        tolerance=tolerance,
        applies=Replays(func, unfit),
    )


def _compiled(
    program: Func | Schedule,
    target: Target,
    database: TuningDatabase | None,
    allow: Sequence[str],
    tolerance: float | None,
    *,
    strict_fp: bool,
) -> tuple[Choice, Compiled]:
    """Returns the first choice that compiles; records that do not are skipped with a warning."""
    from .autotune.search.replay import brief

    unfit: dict[str, str] = {}
    while True:
        choice = choose(program, target, database, allow, tolerance, unfit)
        # What ended a child may be the program's fault: then it would end this process next.
        choice = replace(choice, foreign=choice.foreign or bool(unfit))
        try:
            return choice, _compile(choice, target, strict_fp=strict_fp)
        except TilewrightError as error:
            if choice.origin.kind != "record" or choice.pinned or choice.schedule_id is None:
                raise
            reason = f"it does not compile: {brief(error)}"
            _log.warning(
                "%s: the schedule %.12s, %s, is set aside: %s",
                choice.func.name,
                choice.schedule_id,
                choice.origin.detail,
                reason,
            )
            unfit[choice.schedule_id] = reason


def _compile(choice: Choice, target: Target, *, strict_fp: bool) -> Compiled:
    from .codegen.cache import compile_cached
    from .codegen.generator import generator_for

    if generator_for(target).timed_on(target) == target and not choice.foreign:
        return compile_cached(choice.func, target, strict_fp=strict_fp)
    from .autotune.measure.compiler import compile_apart

    return compile_cached(choice.func, target, strict_fp=strict_fp, compiler=compile_apart)


def _toolchain(target: Target) -> dict[str, str]:
    from .autotune.records import toolchain_record

    return {name: str(text) for name, text in toolchain_record(target).versions.items()}
