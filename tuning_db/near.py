"""Other programs: sizes of the same, how far apart and what of them is usable; and all others."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from datetime import datetime
from functools import partial

from sqlalchemy import bindparam, func, or_, select

from ..base.errors import DatabaseError
from .codec import instant
from .confirm import Wanted
from .lookup import failed_checks, ranked
from .read import COLUMNS, Damage, Layers, raw, to_record, undamaged
from .results import Relative
from .tables import measurement, session, target, toolchain, workload
from .values import Measurement, Workload

_FAMILY = select(*COLUMNS["workload"]).where(
    workload.c.family == bindparam("family"), workload.c.id != bindparam("itself")
)
_LAST = raw(func.max(session.c.started)).label("last")
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
# From the beginning of a word: what has no colon is looked through once.
_NAME = re.compile(r"(?<![^\s:])[^\s:]+:")
_NUMBER = re.compile(r"[0-9]+")
_DIGITS = 19
"""A size has no more; Python refuses to read numbers of thousands of them."""


def distance(shape: str, other: str) -> float | None:
    """The distance of two shape summaries; None if they differ in more than names and numbers."""
    shape, other = _NAME.sub("", shape), _NAME.sub("", other)
    if _NUMBER.split(shape) != _NUMBER.split(other):
        return None
    pairs = list(zip(_NUMBER.findall(shape), _NUMBER.findall(other), strict=True))
    if any(len(number) > _DIGITS for pair in pairs for number in pair):
        return None
    return sum(abs(math.log2((int(a) + 1) / (int(b) + 1))) for a, b in pairs)


def relatives(
    layers: Layers,
    workload: Workload,
    wanted: Wanted,
    workloads: int,
    schedules: int,
) -> list[Relative]:
    """See `TuningDatabase.relatives`; the workload of `wanted` is replaced by each relative."""
    if not workload.family:
        return []
    schedules_of_others: list[Relative] = []
    read = partial(to_record, Workload)
    known = {"family": workload.family, "itself": workload.id}
    family = undamaged(layers, _FAMILY, read, wanted.damage, **known)
    near = sorted(family.values(), key=lambda w: (_apart(workload, w), w.id))
    for other in near:
        usable_of_other = _usable(layers, other, replace(wanted, workload=other.id), schedules)
        schedules_of_others += usable_of_other
        workloads -= bool(usable_of_other)
        if workloads == 0:
            break
    return schedules_of_others


def others(
    layers: Layers,
    wanted: Workload,
    comparable: str,
    generation: str,
    feature_version: str,
    workloads: int,
    each: int,
    damage: Damage,
) -> list[Measurement]:
    """See `TuningDatabase.others`."""
    tuned: dict[str, datetime] = {}
    asked = {"itself": wanted.id, "family": wanted.family, "comparable": comparable}
    for connection in layers:
        for id, started in connection.execute(_OTHERS, {**asked, "count": workloads}):
            try:
                last = instant(started)
            except DatabaseError:
                continue  # of a damaged session
            tuned[id] = max(last, tuned.get(id, last))
    newest = sorted(tuned, key=lambda id: (-tuned[id].timestamp(), id))
    usable = {
        "comparable": comparable,
        "generation": generation,
        "version": feature_version,
        "count": each,
    }
    read = partial(to_record, Measurement)
    measurements: list[Measurement] = []
    for id in newest[:workloads]:
        tried = undamaged(layers, _TRIED, read, damage, workload=id, **usable)
        measurements += [tried[id] for id in sorted(tried)[:each]]
    return measurements


def _apart(wanted: Workload, other: Workload) -> float:
    apart = distance(wanted.shape, other.shape)
    return math.inf if apart is None else apart


def _usable(layers: Layers, other: Workload, wanted: Wanted, count: int) -> list[Relative]:
    wanted.failed = failed_checks(layers, other.id) if len(layers) > 1 else ()
    first: dict[str, Relative] = {}
    for layer, (measured, schedule) in ranked(layers, wanted):
        first.setdefault(schedule.id, Relative(other, schedule, measured, layer))
        if len(first) == count:
            break
    return list(first.values())
