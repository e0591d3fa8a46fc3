"""The database's records of a program: they warm a search, and resume a session that was killed."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Sequence
from datetime import datetime

from ...base.text import short_id
from ...tuning_db import TuningDatabase
from ...tuning_db.values import (
    Measurement,
    Outcome,
    ScheduleRecord,
    Session,
    TargetRecord,
    Toolchain,
    Workload,
)
from ..model.target_model import TargetModel
from ..result import BestResult
from ..running_time import parts
from .replay import Replays, read_trace, row_of
from .search import Known

_log = logging.getLogger(__name__)
_OCTAVES = 100.0
_LARGEST_FEATURE = 1e30


def known(
    database: TuningDatabase,
    workload: Workload,
    target: TargetRecord,
    toolchain: Toolchain,
    target_model: TargetModel,
    without: Collection[str] = (),
) -> list[Known]:
    """Every schedule that was measured before, with its fastest sample if any.

    Only measurements on comparable targets and toolchains count. Schedules that cannot be read are
    left out with a warning; those (ids) in `without`, which do not apply, silently.
    """
    generations = {t.id: t.generation for t in database.records(Toolchain)}
    groups: dict[str, tuple[ScheduleRecord, list[Measurement]]] = {}
    for measured, schedule in database.history(workload=workload.id, target=target):
        generation = generations.get(measured.toolchain)
        if generation == toolchain.generation and schedule.id not in without:
            groups.setdefault(schedule.id, (schedule, []))[1].append(measured)
    return [k for group in groups.values() if (k := _known(*group, target_model)) is not None]


def best_known(
    database: TuningDatabase,
    workload: Workload,
    target: TargetRecord,
    toolchain: Toolchain,
    tolerance: float | None = None,
    *,
    replays: Replays,
) -> BestResult | None:
    """The recorded best, whatever is pinned; `tolerance` as for `TuningDatabase.best`.

    One that does not apply to the program of `replays` is set aside with a warning.
    """
    best = database.best(
        workload.id, target, toolchain, tolerance=tolerance, applies=replays, pins=False
    )
    replays.warn(database.location)
    if best is None or best.measurement is None or best.time is None:
        return None
    trace = replays.schedule(best.schedule).trace
    return BestResult(
        best.time,
        trace,
        best.schedule.id,
        best.measurement.id,
        best.comparison,
        database.gains(best),
        best.schedule.generator,
        best.measurement.session,
        best.measurement.resources,
    )


def features_of(measured: Measurement, target_model: TargetModel) -> tuple[float, ...] | None:
    """The features of a measurement, if a model can learn from them.

    They are those of the target's model, of magnitudes that occur; the first is log2 of seconds.
    """
    features = measured.features
    if features is None or measured.feature_version != target_model.feature_version:
        return None
    if len(features) != len(target_model.features) or not abs(features[0]) < _OCTAVES:
        return None
    sensible = all(math.isfinite(v) and abs(v) < _LARGEST_FEATURE for v in features)
    return features if sensible else None


def durations(database: TuningDatabase, sessions: Sequence[Session]) -> dict[str, float]:
    """The durations of sessions with a common budget, by their ids.

    Of those that older versions left the moments of measurements are known, which tell the sessions
    apart and show long pauses.
    """
    moments: list[tuple[datetime, str]] = []
    for session in sessions:
        if session.elapsed is None:
            measured = (m.created for m, _ in database.each(session=session.id))
            times = (session.started, *measured, session.heartbeat)
            moments += ((time, session.id) for time in times)
    return {s.id: s.elapsed for s in sessions if s.elapsed is not None} | parts(moments)


def _known(
    schedule: ScheduleRecord, measurements: Sequence[Measurement], target_model: TargetModel
) -> Known | None:
    trace = read_trace(schedule)
    if trace is None:
        return None
    if row_of(trace) is None:
        _log.warning("the schedule %s leaves decisions open", short_id(schedule.id))
        return None
    ran = [m for m in measurements if m.outcome is Outcome.OK]
    outcome = Outcome.OK if ran else measurements[0].outcome
    seconds = min((s for m in ran for s in m.samples), default=None)
    readable = (features_of(m, target_model) for m in measurements)
    features = next(filter(None, readable), ())
    return Known(schedule.id, trace, features, outcome, seconds)
