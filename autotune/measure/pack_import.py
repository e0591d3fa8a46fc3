"""Records of what `runtime/measure/` measured elsewhere.

Importing a file again changes nothing: all records follow from its content. A file to which the
measuring added lines adds their records.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from ...base.errors import ArtifactError, DatabaseError, ScheduleError, TargetError
from ...base.text import short_id
from ...codegen.generator import generator_for
from ...runtime.measure.comparison import CheckResult
from ...runtime.measure.pack import Pack
from ...runtime.measure.results import Results, read_results
from ...schedule import Trace
from ...target import Target
from ...tuning_db.arguments import opened
from ...tuning_db.codec import from_plain
from ...tuning_db.store import DatabaseOrPath
from ...tuning_db.values import (
    AnyRecord,
    Environment,
    Measurement,
    Outcome,
    ScheduleRecord,
    Session,
    SessionStatus,
    TargetRecord,
    Toolchain,
    Verification,
    Workload,
    to_plain,
)
from ..records import schedule_record
from ..running_time import running_at


class Imported(NamedTuple):
    """How many records were new; what there was: measurements, candidates that are not measured."""

    new: int
    measurements: int
    missing: int
    cut: bool


def import_results(path: Path, database: DatabaseOrPath) -> Imported:
    """Put the records of a file of results into a database, all of them or none.

    Raises `ArtifactError` for a file that is damaged or makes no sense, and `DatabaseError`.
    """
    results = read_results(path)
    try:
        records = list(_records(results))
    except (
        DatabaseError, ScheduleError, TargetError, KeyError, TypeError, ValueError, OverflowError,
    ) as error:  # fmt: skip
        raise ArtifactError("{0}: its records make no sense: {1}", path, error) from error
    count = sum(isinstance(record, Measurement) for record in records)
    store = opened(database, DatabaseError, write=True)
    return Imported(store.put(*records), count, len(results.missing), results.cut)


class _More(NamedTuple):
    """What a pack says of a candidate beside its schedule."""

    resources: Mapping[str, Any] | None
    features: tuple[float, ...] | None = None
    feature_version: str | None = None
    predicted: float | None = None


class _Origin(NamedTuple):
    """The records that measurements of a run refer to."""

    workload: Workload
    target: TargetRecord
    toolchain: Toolchain
    environment: Environment
    session: Session
    elapsed: Mapping[datetime, float]
    """The seconds that measuring took until each moment; none of what was packed before."""


def _records(results: Results) -> Iterator[AnyRecord]:
    pack = results.pack
    origins = [_origin(pack, run, results) for run in results.runs]
    for origin in origins:
        yield from origin[:5]
    if not origins:
        return  # no machine is known
    schedules = [_schedule(candidate.schedule) for candidate in pack.candidates]
    packed = datetime.fromisoformat(pack.created)
    for number, candidate in enumerate(pack.candidates):
        schedule, line = schedules[number], results.candidates.get(number)
        version = pack.feature_version if candidate.features else None
        more = _More(candidate.resources, candidate.features or None, version, candidate.predicted)
        if line is not None:
            yield schedule
            yield from _candidate(origins[line["run"]], schedule, line, more)
        elif candidate.file is None:
            # Measurements of one moment are finals: each has a moment of its own.
            moment = packed + timedelta(microseconds=number)
            failed = {
                "outcome": candidate.outcome,
                "error": candidate.error,
                "created": moment.isoformat(),
            }
            yield schedule
            yield from _candidate(origins[0], schedule, failed, more)
    for finals in results.finals:
        moment = datetime.fromisoformat(finals["created"])
        for number, row in finals["samples"].items():
            samples = tuple(map(float, row))
            yield _measurement(
                origins[finals["run"]],
                schedules[int(number)].id,
                Outcome.OK,
                samples,
                None,
                moment,
                _More(pack.candidates[int(number)].resources),
                trial=False,
            )


def _candidate(
    origin: _Origin,
    schedule: ScheduleRecord,
    line: Mapping[str, Any],
    more: _More,
) -> Iterator[AnyRecord]:
    """The measurement of a candidate, and its check."""
    moment = datetime.fromisoformat(line["created"])
    outcome = Outcome(line["outcome"])
    samples = tuple(map(float, line["samples"])) if outcome is Outcome.OK else ()
    yield _measurement(
        origin,
        schedule.id,
        outcome,
        samples,
        line.get("error"),
        moment,
        more,
        trial=True,
    )
    if "check" in line:
        check = CheckResult.from_json(line["check"])
        yield Verification(
            workload=origin.workload.id,
            target=origin.target.id,
            schedule=schedule.id,
            toolchain=origin.toolchain.id,
            passed=check.passed,
            max_error=check.max_error,
            tolerance=check.tolerance,
            created=moment,
        )


def _measurement(
    origin: _Origin,
    schedule: str,
    outcome: Outcome,
    samples: tuple[float, ...],
    error: str | None,
    created: datetime,
    more: _More,
    *,
    trial: bool,
) -> Measurement:
    return Measurement(
        session=origin.session.id,
        schedule=schedule,
        workload=origin.workload.id,
        target=origin.target.id,
        toolchain=origin.toolchain.id,
        environment=origin.environment.id,
        outcome=outcome,
        seconds=statistics.median(samples) if samples else None,
        samples=samples,
        error=error,
        created=created,
        features=more.features,
        feature_version=more.feature_version,
        resources=more.resources,
        predicted=more.predicted,
        elapsed=origin.elapsed.get(created, 0.0),
        trial=trial,
    )


def _origin(pack: Pack, run: Mapping[str, Any], results: Results) -> _Origin:
    """The records of a run. The session is one for all runs of a pack on one kind of machine."""
    workload = from_plain(Workload, pack.records["workload"])
    toolchain = from_plain(Toolchain, pack.records["toolchain"])
    packed = from_plain(TargetRecord, {**pack.records["target"], "perf": "elsewhere"})
    assert isinstance(workload, Workload)
    assert isinstance(toolchain, Toolchain)
    assert isinstance(packed, TargetRecord)
    target = Target.parse(packed.text)
    there = generator_for(target).timed_there(target, run["machine"])
    record = TargetRecord(packed.text, target.compat_class, there.perf_class)
    lines = (*results.runs, *results.candidates.values(), *results.finals)
    last = max(datetime.fromisoformat(line["created"]) for line in lines)
    texts = [*(each["started"] for each in results.runs), *(line["created"] for line in lines)]
    elapsed = running_at(map(datetime.fromisoformat, texts))
    done = not results.missing
    session = Session(
        workload=workload.id,
        target=record.id,
        nonce=pack.digest[:32],
        status=SessionStatus.FINISHED if done else SessionStatus.INTERRUPTED,
        heartbeat=last,
        ended=last,
        host="elsewhere",
        pid=0,
        elapsed=max(elapsed.values()),
        **{**pack.records["session"], "started": datetime.fromisoformat(pack.created)},
    )
    checked = from_plain(Session, to_plain(session))
    assert isinstance(checked, Session)
    environment = Environment({**run["machine"], "elsewhere": True, "started": run["started"]})
    return _Origin(workload, record, toolchain, environment, checked, elapsed)


def _schedule(plain: Mapping[str, Any]) -> ScheduleRecord:
    """The record of a schedule, as its trace says: what is inexact is found here."""
    given = from_plain(ScheduleRecord, dict(plain))
    assert isinstance(given, ScheduleRecord)
    record = schedule_record(Trace.from_json(given.trace), given.generator)
    if record.id != given.id:
        raise DatabaseError(
            "the trace of schedule {0} reads back as another one", short_id(given.id)
        )
    return record
