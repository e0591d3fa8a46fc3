"""What the manifest of an artifact says of where a program's code comes from."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..base.errors import DatabaseError
from ..runtime.manifest import MeasuredSchedule, ProgramSource, Provenance, StoredSchedule
from ..runtime.module import Origin

if TYPE_CHECKING:
    from ..graph.ir import Graph
    from ..runtime.evidence import Evidence
    from ..runtime.partition_evidence import PartitionEvidence
    from ..schedule import Schedule
    from ..tir.ir import Func
    from .build_program import Built, Ways
    from .choose import Choice
    from .lock_file import LockedKernel

_log = logging.getLogger(__name__)


def of_program(program: Func | Schedule, built: Built, ways: Ways) -> Provenance:
    """That of a program, which was built so."""
    from ..schedule import Schedule
    from ..tir.equality import structural_hash

    if isinstance(program, Schedule):
        source = ProgramSource("schedule", structural_hash(program.original))
    else:
        source = ProgramSource("program", structural_hash(program))
    return Provenance(built.origin, stored_schedules(built.choices, ways), source)


def of_graph(
    graph: Graph, origin: Origin, choices: Mapping[str, Choice], told: Any, ways: Ways
) -> Provenance:
    """That of a graph, with the evidence of its build."""
    return Provenance(
        origin,
        stored_schedules(choices, ways),
        ProgramSource("graph", graph.digest, graph.importer, dict(graph.rewrites())),
        steady(told).to_json(),
    )


def steady(told: Evidence | PartitionEvidence) -> Evidence | PartitionEvidence:
    """The evidence without what differs from build to build, so that equal builds have equal bytes:
    the seconds of the build, and what is predicted by the measured rates of a machine."""
    from ..runtime.evidence import Evidence

    if isinstance(told, Evidence):
        return _steady(told)
    parts = (
        part if part.kernels is None else replace(part, kernels=_steady(part.kernels))
        for part in told.parts
    )
    return replace(told, parts=tuple(parts))


def _steady(told: Evidence) -> Evidence:
    kernels = tuple(
        replace(
            kernel, least_seconds=None, bound=None,
            seconds=kernel.seconds if kernel.schedule == "record" else None,
        )
        for kernel in told.kernels
    )  # fmt: skip
    return replace(told, seconds={}, kernels=kernels)


def stored_schedules(choices: Mapping[str, Choice], ways: Ways) -> dict[str, StoredSchedule]:
    """The schedules of kernels by their names, as manifests have them."""
    return {
        name: StoredSchedule(
            choice.origin,
            choice.trace_text(ways.target),
            _measured(choice, ways),
        )
        for name, choice in choices.items()
    }


def _measured(choice: Choice, ways: Ways) -> MeasuredSchedule | None:
    """The measurement of a recorded schedule."""
    from ..tuning_db import Measurement, Session, TargetRecord

    if choice.locked is not None:
        return _locked(choice.locked, ways)
    database = ways.database
    if choice.measurement_id is None or database is None:
        return None
    try:
        found = database.get(Measurement, choice.measurement_id)
        where = database.get(TargetRecord, found.target)
        session = database.get(Session, found.session)
    except DatabaseError as error:
        _log.warning("%s: nothing is said of its measurement: %s", choice.func.name, error)
        return None
    if found.time is None:
        return None
    low, high = found.time.interval or (min(found.samples), max(found.samples))
    return MeasuredSchedule(
        found.id, found.time.seconds, low, high, len(found.samples), where.text,
        session.host or None, found.created.isoformat(),
    )  # fmt: skip


def _locked(kernel: LockedKernel, ways: Ways) -> MeasuredSchedule | None:
    """The measurement of a schedule that a lock has."""
    time = kernel.time
    if kernel.record is None or time is None or kernel.measured is None:
        return None
    low, high = time.interval or (time.seconds, time.seconds)
    return MeasuredSchedule(
        kernel.record, time.seconds, low, high, time.samples or 1, str(ways.target), kernel.host,
        kernel.measured.isoformat(),
    )  # fmt: skip
