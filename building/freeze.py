"""`freeze`: what a build would take, written down, so that later builds take the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import TypeAlias

from ..autotune.records import (
    inexact_steps,
    schedule_record,
    toolchain_record,
    workload_record,
)
from ..base import LOWERING
from ..base.errors import BuildError, NotTunedError, checked_call, system_errors
from ..base.text import short_id
from ..codegen.detect import resolve
from ..graph.ir import Graph
from ..graph.parts import Partition
from ..schedule import Trace
from ..target import Target
from ..tir.equality import structural_hash
from ..tir.instruction_set import users_digests
from ..tir.ir import Func
from ..tuning_db.arguments import opened_or_none
from ..tuning_db.canonical import parse_trace
from ..tuning_db.store import DatabaseOrPath
from ..tuning_db.values import ScheduleRecord
from .build_program import Kernels, Ways
from .choose import POLICIES, host_of
from .compile_all import ChosenKernel, compile_all
from .library import parts_of, renamed
from .lock_file import LockedKernel, LockedProgram, LockFile
from .origins import not_tuned

Freezable: TypeAlias = Func | Graph | Partition


@checked_call(BuildError, 'tw.freeze([program, graph], "cpu", "tuning.db")')
@system_errors(BuildError, "freezing")
def freeze(
    programs: Freezable | Iterable[Freezable] | Mapping[str, Func | Graph],
    target: Target | str = "cpu",
    database: DatabaseOrPath | None = None,
    allow: Sequence[str] = POLICIES,
    *,
    tolerance: float | None = None,
    require_tuned: bool = False,
    jobs: int | None = None,
) -> LockFile:
    """Choose the schedules of programs and graphs as `build` does, and return them as a lock.

    `lock.write("tilewright.lock")` writes it, and `build(..., locked="tilewright.lock")` builds
    what it says, without a database: the same machine code from the same sources and tools,
    whatever has been measured since. It has each kernel once, with the steps of its schedule and
    why these: the record, its time and rivals, where and when it was measured. Of a graph that
    providers share, freeze its `partition`. A dictionary of programs gives them other names.

    Kernels without a record are locked too, with the schedule that a build chooses for them; with
    `require_tuned` they are an error. All is compiled, in `jobs` processes as by `build_all`: a
    lock has no schedule that does not compile here.

    Raises what `build` raises, for a schedule too: it is built as it is, without a lock.
    """
    store = opened_or_none(database, BuildError)
    ways = Ways(resolve(target), store, allow, tolerance, require_tuned=require_tuned)
    given = [*programs] if isinstance(programs, Iterable) else [programs]
    if isinstance(programs, Mapping):
        given = [renamed(program, name) for name, program in programs.items()]
    parted = [
        (*part, LOWERING if isinstance(program, Graph | Partition) else None)
        for program in given
        for part in parts_of(program, ways)
    ]
    for name, kernels, _ in parted:
        if not all(isinstance(kernel, Func) for kernel in kernels):
            raise BuildError(
                "{0} is a Schedule, which is built as it is", name, hint="freeze its program"
            )
    found: list[tuple[str, Kernels]] = [(name, kernels) for name, kernels, _ in parted]
    ways.check(found)
    digests = {func: structural_hash(func) for _, funcs in found for func in funcs}
    distinct = {digests[func]: func for func in sorted(digests, key=lambda f: f.name, reverse=True)}
    choices = [*map(ways.choices, distinct.values())]
    try:
        made = compile_all(choices, ways.target, jobs=jobs)
    except NotTunedError as error:
        again = [*map(ways.choices, distinct.values())]
        named = ", ".join(dict.fromkeys(name for name, _ in found))
        raise not_tuned(named, ways.target, ways.allow, again, error) from error
    entries = {
        (name, tuple(sorted((func.name, digests[func]) for func in {*funcs}))): lowering
        for name, funcs, lowering in parted
    }
    locked = [_locked(digest, kernel, ways) for digest, kernel in zip(distinct, made, strict=True)]
    return LockFile(
        str(ways.target),
        toolchain_record(ways.target).generation,
        tuple(
            LockedProgram(name, dict(pairs), lowering)
            for (name, pairs), lowering in sorted(entries.items(), key=itemgetter(0))
        ),
        tuple(sorted(locked, key=lambda kernel: (kernel.name, kernel.program))),
    )


def _locked(digest: str, kernel: ChosenKernel, ways: Ways) -> LockedKernel:
    choice, best = kernel.choice, kernel.choice.best
    text = choice.trace_text(ways.target)
    trace, data = Trace.from_json(text), parse_trace(text)
    schedule = ScheduleRecord.of(data, data["version"], "", inexact_steps(text))
    if schedule_record(trace).id == schedule.id:
        data = trace.to_data(notes=False)  # the same, with its keys in the order of a step
    measured = None if best is None else best.measurement
    assert choice.origin.kind != "schedule", "a schedule is built as it is"
    return LockedKernel(
        program=digest,
        name=kernel.func.name,
        shape=workload_record(kernel.func).shape,
        source=choice.origin.kind,
        reason=choice.reason,
        record=choice.origin.record_id,
        time=None if measured is None else measured.time,
        host=host_of(best, ways.database) if best and ways.database else None,
        measured=None if measured is None else measured.created,
        rivals=tuple(f"{short_id(c.schedule)}: {c}" for c in best.comparison[1:]) if best else None,
        schedule=schedule.id,
        inexact=schedule.inexact or None,
        instructions=users_digests(text) or None,
        trace_version=schedule.trace_version,
        steps=tuple(data["steps"]),
    )
