"""`build`: from a program to a module, with the schedule chosen by a policy that is spelled out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .errors import BuildError, NotTunedError, ScheduleError
from .runtime.module import Origin
from .target import Target

if TYPE_CHECKING:
    from .runtime import Module
    from .schedule import Schedule
    from .tir.ir import Func
    from .tuning_db import TuningDatabase

POLICIES = ("record", "default")


def build(
    program: Func | Schedule,
    target: Target | str = "cpu",
    database: TuningDatabase | None = None,
    allow: Sequence[str] = POLICIES,
    *,
    strict_fp: bool = False,
) -> Module:
    """Compile one kernel; nothing is measured or tuned.

    A `Schedule` is compiled as it is. A `Func` gets the first schedule that `allow` permits and
    that there is: `record`, the fastest verified one in `database`; `default`, the one that the
    analytic model prefers. `module.origin` says which it was. `strict_fp` forbids contracting
    multiplications and additions.

    Raises `NotTunedError` with the explanation of the lookup where no permitted way gives a
    schedule, and `BuildError` where lowering or compiling fails.
    """
    from .codegen.build import compile_func, to_module
    from .codegen.detect import resolve
    from .schedule import Schedule

    unknown = [a for a in allow if a not in POLICIES]
    if unknown:
        raise BuildError(
            "unknown policy {0!r}; expected some of {1}", unknown[0], ", ".join(POLICIES)
        )
    resolved = resolve(target)
    if isinstance(program, Schedule):
        compiled = compile_func(program.func, resolved, strict_fp=strict_fp)
        return to_module(compiled, Origin("schedule"))
    func, origin = _chosen(program, resolved, database, allow)
    return to_module(compile_func(func, resolved, strict_fp=strict_fp), origin)


def _chosen(
    func: Func, target: Target, database: TuningDatabase | None, allow: Sequence[str]
) -> tuple[Func, Origin]:
    """The scheduled program that the policy gives, and where its schedule comes from."""
    from .autotune.records import target_record, toolchain_record, workload_record

    explanation = "no database was given"
    if database is not None:
        workload, where = workload_record(func), target_record(target)
        if "record" in allow:
            best = database.best(workload.id, where, toolchain_record())
            if best is not None:
                return _replayed(func, best.schedule.trace, best.schedule.id), Origin(
                    "record",
                    best.schedule.id if best.measurement is None else best.measurement.id,
                    "pinned" if best.pinned else f"measured in {best.layer}",
                )
        explanation = str(database.explain(workload, where, toolchain_record()))
    if "default" in allow:
        from .autotune.search import default_trace

        trace = default_trace(func, target)
        return trace.apply(func).func, Origin("default", None, "chosen by the analytic model")
    raise NotTunedError(
        "no schedule for {0} on {1} is permitted by allow={2}:\n{3}",
        func.name,
        str(target),
        list(allow),
        explanation,
        hint="tune the program into the database, or allow 'default'",
    )


def _replayed(func: Func, trace: str, schedule: str) -> Func:
    from .schedule import Trace

    try:
        return Trace.from_json(trace).apply(func).func
    except ScheduleError as error:
        raise BuildError(
            "the recorded schedule {0} does not apply to {1}: {2}",
            schedule[:12],
            func.name,
            error,
            hint="tune again, or pin another schedule",
        ) from error
