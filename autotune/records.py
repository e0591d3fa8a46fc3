"""Programs, targets, tools and traces as the records of the tuning database."""

from __future__ import annotations

import os
import platform
from functools import cache
from math import prod

import numpy as np

from ..base import LOWERING, __version__
from ..codegen.detect import usable_memory, usable_processors
from ..codegen.generator import generator_for
from ..runtime.target_runtime import runtime_for
from ..schedule.primitive import PRIMITIVES
from ..schedule.trace import VERSION, Trace
from ..target import Target
from ..tir.equality import family_hash, structural_hash
from ..tir.ir import Func, Var
from ..tir.printer import func_text
from ..tuning_db.canonical import parse_trace
from ..tuning_db.staleness import LOWERED, versions_of
from ..tuning_db.values import (
    Environment,
    Machine,
    ScheduleRecord,
    TargetRecord,
    Toolchain,
    Workload,
)
from .model.profile import profile
from .rules.common import nbytes


def workload_record(func: Func) -> Workload:
    """The record of an unscheduled program; its id is the structural digest."""
    shapes = []
    size = 0
    for p in func.params:
        if isinstance(p, Var):
            shapes.append(f"{p.name}:{p.dtype}")
            continue
        shapes.append(f"{p.name}:{p.dtype}[{','.join(map(str, p.shape))}]")
        size += nbytes(p)
    return Workload(
        id=structural_hash(func),
        name=func.name,
        ir=func_text(func),
        shape=" ".join(shapes),
        flops=flops(func),
        bytes=size,
        family=family_hash(func),
    )


def flops(func: Func) -> int:
    """Arithmetic operations on floats in one call of a concrete program."""
    return sum(
        (v.operations + v.expensive) * prod(n for n in v.extents if isinstance(n, int))
        for v in profile(func).visits
    )


def schedule_record(trace: Trace, generator: str = "") -> ScheduleRecord:
    """The record of a trace. On its way to workers and database it is written as JSON only here."""
    data = trace.to_data(notes=False)
    return ScheduleRecord.of(data, VERSION, generator, ", ".join(trace.inexact))


def inexact_steps(trace: str) -> str:
    """The inexact steps of a trace as JSON text, as its record names them.

    Steps that are not registered cannot be applied, and count as exact.
    """
    data = parse_trace(trace)
    steps = data.get("steps") if isinstance(data, dict) else None
    names = [s.get("op") for s in steps if isinstance(s, dict)] if isinstance(steps, list) else []
    known = (PRIMITIVES.get(name) for name in names if isinstance(name, str))
    return ", ".join(dict.fromkeys(p.name for p in known if p and p.inexact is not None))


def target_record(target: Target) -> TargetRecord:
    """The record of a resolved target; timings compare within the `perf_class` of this machine."""
    return TargetRecord(
        text=str(target),
        compat=target.compat_class,
        perf=generator_for(target).timed_on(target).perf_class,
    )


def toolchain_record(target: Target) -> Toolchain:
    """The versions that make the code. Timings compare within a generation of the tools."""
    versions = versions_of({name: primitive.version for name, primitive in PRIMITIVES.items()})
    return _toolchain(target, tuple(versions.items()))


@cache
def _toolchain(target: Target, primitives: tuple[tuple[str, int], ...]) -> Toolchain:
    tools = generator_for(target).tools()
    return Toolchain(
        generation=tools.generation,
        versions={
            "tilewright": __version__,
            LOWERED: LOWERING,
            **tools.versions,
            "numpy": np.__version__,
            "python": platform.python_version(),
            **dict(primitives),
        },
    )


def environment_record(target: Target, machine: Machine | None = None) -> Environment:
    """Facts of this machine now, and which description of it the search relies on."""
    host: Target = generator_for(target).host()
    return Environment(
        facts={
            "host": platform.node(),
            **host.hardware,
            "processors": usable_processors(),
            "threads": target.threads,
            "memory": usable_memory(),
            "load": round(os.getloadavg()[0], 2),
            "system": platform.system(),
            "release": platform.release(),
            **runtime_for(target).conditions(),
            **({} if machine is None else {"machine": machine.id}),
        }
    )
