"""Trials of whatever has some: a result, a run, a database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

from ..autotune.events import Trial
from ..autotune.picture import Pictures
from ..autotune.result import TuneResult
from ..errors import TilewrightError, TuningError
from ..ids import short_id
from ..schedule import Trace
from ..tuning_db import ScheduleRecord, Session, TuningDatabase
from .decisions import decisions_of
from .session import Timed, course_of


@runtime_checkable
class Run(Protocol):
    """A run of `tune(..., background=True)`, or one that `open_run` reads."""

    @property
    def pictures(self) -> Pictures: ...


Source: TypeAlias = TuneResult | Run | TuningDatabase


class Candidate(NamedTuple):
    """The decisions of a candidate by name, and its time."""

    decisions: Mapping[str, int]
    seconds: float


def trials_of(source: Source, session: str | None = None) -> list[Trial]:
    """The trials of a result, of a run, or of a session of a database: by default the newest.

    Raises `TuningError` for what has no trials, and `DatabaseError` for an unknown session.
    """
    if isinstance(source, TuningDatabase):
        return course_of(source, _session(source, session)).tried
    return _history(source)


def candidates_of(
    source: Source, database: TuningDatabase | None, session: str | None, sketch: str | None
) -> tuple[list[Candidate], str]:
    """The candidates of one sketch that ran, the fastest first, and the name of the sketch.

    That is by default the sketch of the fastest. The schedules of a result or a run are in its
    database.
    """
    if isinstance(source, TuningDatabase):
        timed = course_of(source, _session(source, session)).timed
        return _of_sketch(source, timed, sketch)
    if database is None:
        raise TuningError(
            "the decisions of a {0} are in its database",
            type(source).__name__,
            hint="give it as database=",
        )
    timed = []
    for trial in _history(source):
        if trial.seconds is not None:
            generator = database.get(ScheduleRecord, trial.schedule).generator
            more = (trial.schedule, generator, trial.predicted, trial.elapsed)
            timed.append(Timed(trial.seconds, trial.schedule, *more))
    return _of_sketch(database, sorted(timed), sketch)


def _of_sketch(
    database: TuningDatabase, timed: list[Timed], sketch: str | None
) -> tuple[list[Candidate], str]:
    if not timed:
        return [], sketch or ""
    wanted = timed[0].generator if sketch is None else sketch
    same = [t for t in timed if t.generator == wanted]
    if not same:
        known = ", ".join(sorted({t.generator for t in timed}))
        raise TuningError("no candidate is of the sketch {0!r}", wanted, hint=f"there are: {known}")
    found = []
    for one in same:
        try:
            trace = Trace.from_json(database.get(ScheduleRecord, one.schedule).trace)
        except TilewrightError:
            continue  # damaged, or of a primitive that is not here
        found.append(Candidate(decisions_of(trace), one.seconds))
    return found, wanted


def _session(database: TuningDatabase, id: str | None) -> Session:
    if id is not None:
        return database.find(id, Session)
    measured = {tally.session for tally in database.tally()}
    sessions = [s for s in database.records(Session) if s.id in measured]
    if not sessions:
        raise TuningError("there is no measurement in {0}", database.location)
    return max(sessions, key=lambda s: s.started)


def _history(source: object) -> list[Trial]:
    if isinstance(source, TuneResult):
        return list(source.history)
    if isinstance(source, Run):
        pictures = list(source.pictures.pictures.values())
        if len(pictures) > 1:
            named = ", ".join(short_id(p.started.session) for p in pictures)
            raise TuningError(
                "the run is of {0} programs", len(pictures),
                hint=f"plot its database, with session= one of {named}",
            )  # fmt: skip
        return [trial for picture in pictures for trial in picture.trials]
    raise TuningError(
        "expected a result of tune, a run or a TuningDatabase, found {0!r:.80}", source
    )
