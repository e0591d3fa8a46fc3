"""Other programs: sizes of the same, how far apart and what of them is usable; and all others."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import bindparam, func, or_, select

from .lookup import Layers, failed_checks, usable
from .models import TABLES
from .read import COLUMNS, to_record
from .values import Measurement, Relative, Workload

workload = TABLES["workload"]
measurement = TABLES["measurement"]
session = TABLES["session"]
target = TABLES["target"]
toolchain = TABLES["toolchain"]

_FAMILY = select(*COLUMNS["workload"]).where(
    workload.c.family == bindparam("family"), workload.c.id != bindparam("itself")
)
_LAST = func.max(session.c.started).label("last")
_OTHERS = (
    select(session.c.workload, _LAST)
    .join(workload, session.c.workload == workload.c.id)
    .join(target, session.c.target == target.c.id)
    .where(
        target.c.comparable == bindparam("comparable"),
        workload.c.id != bindparam("itself"),
        or_(workload.c.family != bindparam("family"), workload.c.family == ""),
    )
    .group_by(session.c.workload)
    .order_by(_LAST.desc(), session.c.workload)
    .limit(bindparam("count"))
)
_TRIED = (
    select(*COLUMNS["measurement"])
    .join(toolchain, measurement.c.toolchain == toolchain.c.id)
    .where(
        measurement.c.workload == bindparam("workload"),
        measurement.c.comparable == bindparam("comparable"),
        measurement.c.feature_version == bindparam("version"),
        toolchain.c.generation == bindparam("generation"),
    )
    .order_by(measurement.c.id)
    .limit(bindparam("count"))
)
_NAME = re.compile(r"[^\s:]+:")
_NUMBER = re.compile(r"[0-9]+")


def distance(shape: str, other: str) -> float | None:
    """How far apart two shape summaries are; None if they differ in more than names and numbers."""
    shape, other = _NAME.sub("", shape), _NAME.sub("", other)
    if _NUMBER.split(shape) != _NUMBER.split(other):
        return None
    pairs = zip(_NUMBER.findall(shape), _NUMBER.findall(other), strict=True)
    return sum(abs(math.log2((int(a) + 1) / (int(b) + 1))) for a, b in pairs)


def relatives(
    layers: Layers,
    wanted: Workload,
    comparable: str,
    generation: str | None,
    workloads: int,
    schedules: int,
    tolerance: float | None = None,
) -> list[Relative]:
    """See `TuningDatabase.relatives`."""
    if not wanted.family:
        return []
    found: list[Relative] = []
    near = sorted(_family(layers, wanted), key=lambda w: (_apart(wanted, w), w.id))
    for other in near:
        known = _usable(layers, other, comparable, generation, schedules, tolerance)
        found += known
        workloads -= bool(known)
        if workloads == 0:
            break
    return found


def others(
    layers: Layers,
    wanted: Workload,
    comparable: str,
    generation: str,
    feature_version: str,
    workloads: int,
    each: int,
) -> list[Measurement]:
    """See `TuningDatabase.others`."""
    tuned: dict[str, datetime] = {}
    asked = {"itself": wanted.id, "family": wanted.family, "comparable": comparable}
    for _, connection in layers:
        for id, last in connection.execute(_OTHERS, {**asked, "count": workloads}):
            tuned[id] = max(last, tuned.get(id, last))
    newest = sorted(tuned, key=lambda id: (-tuned[id].timestamp(), id))
    usable = {"comparable": comparable, "generation": generation, "version": feature_version}
    found: list[Measurement] = []
    for id in newest[:workloads]:
        rows = {
            row["id"]: row
            for _, connection in layers
            for row in connection.execute(
                _TRIED, {**usable, "workload": id, "count": each}
            ).mappings()
        }
        found += [to_record(Measurement, dict(rows[id])) for id in sorted(rows)[:each]]
    return found


def _family(layers: Layers, wanted: Workload) -> Iterable[Workload]:
    values = {"family": wanted.family, "itself": wanted.id}
    found: dict[str, Workload] = {}
    for _, connection in layers:
        for row in connection.execute(_FAMILY, values).mappings():
            found.setdefault(row["id"], to_record(Workload, dict(row)))
    return found.values()


def _apart(wanted: Workload, other: Workload) -> float:
    apart = distance(wanted.shape, other.shape)
    return math.inf if apart is None else apart


def _usable(
    layers: Layers,
    other: Workload,
    comparable: str,
    generation: str | None,
    count: int,
    tolerance: float | None,
) -> list[Relative]:
    failed = failed_checks(layers, other.id) if len(layers) > 1 else set()
    fastest: dict[str, Relative] = {}
    for location, connection in layers:
        values = other.id, comparable, generation, failed, None, count, tolerance
        found, _ = usable(connection, *values)
        for measured, schedule in found:
            known = fastest.get(schedule.id)
            if known is None or _rank(measured) < _rank(known.measurement):
                fastest[schedule.id] = Relative(other, schedule, measured, location)
    return sorted(fastest.values(), key=lambda r: _rank(r.measurement))[:count]


def _rank(measured: Measurement) -> tuple[float, str]:
    assert measured.seconds is not None, "what is usable has a time"
    return measured.seconds, measured.id
