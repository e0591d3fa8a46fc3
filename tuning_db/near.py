"""Other sizes of a program: how far apart they are, and what of them is usable."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from sqlalchemy import bindparam, select

from .lookup import Layers, failed_checks, usable
from .models import TABLES
from .read import COLUMNS, to_record
from .values import Measurement, Relative, Workload

workload = TABLES["workload"]

_FAMILY = select(*COLUMNS["workload"]).where(
    workload.c.family == bindparam("family"), workload.c.id != bindparam("itself")
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
        found = usable(connection, other.id, comparable, generation, failed, None, count, tolerance)
        for measured, schedule in found:
            known = fastest.get(schedule.id)
            if known is None or _rank(measured) < _rank(known.measurement):
                fastest[schedule.id] = Relative(other, schedule, measured, location)
    return sorted(fastest.values(), key=lambda r: _rank(r.measurement))[:count]


def _rank(measured: Measurement) -> tuple[float, str]:
    assert measured.seconds is not None, "what is usable has a time"
    return measured.seconds, measured.id
