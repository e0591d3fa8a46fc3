"""What the manifest of an artifact says of where a program's code comes from."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..base.errors import DatabaseError
from ..runtime.manifest import MeasuredSchedule, ProgramSource, Provenance, StoredSchedule
from ..runtime.module import Origin

if TYPE_CHECKING:
    from ..graph.ir import Graph
    from ..runtime.evidence import Evidence
    from ..runtime.partition_evidence import PartitionEvidence
    from ..schedule import Schedule
    from ..tir.ir import Func
    from ..tuning_db import TuningDatabase
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
    steady = Steady(ways.database)
    return Provenance(steady.origin(built.origin), _schedules(built.choices, ways, steady), source)


def of_graph(
    graph: Graph,
    origin: Origin,
    choices: Mapping[str, Choice],
    told: Evidence | PartitionEvidence,
    ways: Ways,
) -> Provenance:
    """That of a graph, with the evidence of its build."""
    steady = Steady(ways.database)
    return Provenance(
        steady.origin(origin),
        _schedules(choices, ways, steady),
        ProgramSource("graph", graph.digest, graph.importer, dict(graph.rewrites())),
        steady.evidence(told).to_json(),
    )


class Steady:
    """What is said of a build, without what differs from build to build, so that equal builds have
    equal bytes: the seconds of the build, what is predicted by the measured rates of a machine, and
    the folders of databases."""

    def __init__(self, database: TuningDatabase | None) -> None:
        places = () if database is None else database.locations
        self._names = {place: Path(place).name for place in places if "://" not in place}

    def text(self, text: str) -> str:
        """A text that names files of databases, without their folders."""
        for place, name in self._names.items():
            text = text.replace(place, name)
        return text

    def origin(self, origin: Origin) -> Origin:
        return replace(origin, detail=self.text(origin.detail))

    def evidence(self, told: Evidence | PartitionEvidence) -> Evidence | PartitionEvidence:
        from ..runtime.evidence import Evidence

        if isinstance(told, Evidence):
            return self._of_model(told)
        parts = (
            part if part.kernels is None else replace(part, kernels=self._of_model(part.kernels))
            for part in told.parts
        )
        return replace(told, parts=tuple(parts))

    def _of_model(self, told: Evidence) -> Evidence:
        kernels = tuple(
            replace(
                kernel, least_seconds=None, bound=None, detail=self.text(kernel.detail),
                seconds=kernel.seconds if kernel.schedule == "record" else None,
            )
            for kernel in told.kernels
        )  # fmt: skip
        return replace(told, seconds={}, kernels=kernels)


def _schedules(
    choices: Mapping[str, Choice], ways: Ways, steady: Steady
) -> dict[str, StoredSchedule]:
    """The schedules of kernels by their names, as manifests have them."""
    return {
        name: StoredSchedule(
            steady.origin(choice.origin),
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
