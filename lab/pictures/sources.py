"""Trials of whatever has some: a result, a run, a database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from ...autotune.result import TuneResult
from ...autotune.session.events import Trial
from ...autotune.show.picture import HasPictures
from ...base.errors import DatabaseError, TilewrightError, TuningError
from ...base.text import short_id
from ...schedule import Trace
from ...tuning_db import ScheduleRecord, Session, TuningDatabase, Workload
from ...tuning_db.arguments import is_address, opened
from ...tuning_db.store import DatabaseOrPath
from .arguments import optional_text, refused
from .decisions import DecisionNames
from .session import Timed, session_trials

Source: TypeAlias = TuneResult | HasPictures | DatabaseOrPath


_SESSION = "give the id of a session, or its first digits"


class Candidate(NamedTuple):
    """The decisions of a candidate by name, and its time."""

    decisions: Mapping[str, int]
    seconds: float


def trials_of(source: Source, session: str | None = None) -> list[Trial]:
    """The trials of a result, of a run, or of a session of a database: by default the newest.

    Raises `TuningError` for what has no trials, and `DatabaseError` for an unknown session.
    """
    optional_text("session", session, _SESSION)
    if not isinstance(source, (TuneResult, HasPictures)):
        database = _opened(source)
        return session_trials(database, _session(database, session)).tried
    return _history(source, session)


def candidates_of(
    source: Source, database: DatabaseOrPath | None, session: str | None, sketch: str | None
) -> tuple[list[Candidate], str]:
    """The candidates of one sketch that ran, the fastest first, and the name of the sketch.

    That is by default the sketch of the fastest. The schedules of a result or a run are in its
    database.
    """
    optional_text("session", session, _SESSION)
    optional_text("sketch", sketch, "the titles of plots are names of sketches")
    if not isinstance(source, (TuneResult, HasPictures)):
        own = _opened(source)
        chosen = _session(own, session)
        return _of_sketch(own, session_trials(own, chosen).timed, sketch, chosen.id)
    if database is None:
        raise TuningError(
            "the decisions of a {0} are in its database",
            type(source).__name__,
            hint="give it as database=",
        )
    store, timed = opened(database, TuningError), []
    for trial in _history(source, session):
        if trial.seconds is not None:
            generator = store.get(ScheduleRecord, trial.schedule).generator
            more = (trial.schedule, generator, trial.predicted, trial.elapsed)
            timed.append(Timed(trial.seconds, trial.schedule, *more))
    return _of_sketch(store, sorted(timed), sketch, _session_id(source))


def _of_sketch(
    database: TuningDatabase, timed: list[Timed], sketch: str | None, session: str
) -> tuple[list[Candidate], str]:
    if not timed:
        return [], sketch or ""
    wanted = timed[0].generator if sketch is None else sketch
    same = [t for t in timed if t.generator == wanted]
    if not same:
        known = ", ".join(sorted({t.generator for t in timed}))
        raise TuningError("no candidate is of the sketch {0!r}", wanted, hint=f"there are: {known}")
    names, found = _names(database, session), []
    for one in same:
        try:
            trace = Trace.from_json(database.get(ScheduleRecord, one.schedule).trace)
        except TilewrightError:
            continue  # damaged, or of a primitive that is not here
        found.append(Candidate(names.decisions(trace), one.seconds))
    return found, wanted


def _names(database: TuningDatabase, session: str) -> DecisionNames:
    """The names of decisions of the program of a session, if the database has it."""
    try:
        workload = database.get(Session, session).workload
        return DecisionNames.of(database.get(Workload, workload))
    except DatabaseError:
        return DecisionNames(None)


def _session_id(source: TuneResult | HasPictures) -> str:
    """The session of a result, or of a run of one program."""
    if isinstance(source, TuneResult):
        return source.session
    return next((p.started.session for p in source.pictures.pictures.values()), "")


def _opened(source: object) -> TuningDatabase:
    """The database of a source that is no result and no run."""
    if isinstance(source, TuningDatabase) or is_address(source):
        return opened(source, TuningError)
    raise refused(
        "source",
        source,
        "a result of tune, a run, or a TuningDatabase or the path of one",
        'tw.plot.convergence(result), or tw.plot.convergence("tuning.db")',
    )


def _session(database: TuningDatabase, id: str | None) -> Session:
    if id is not None:
        return database.find(id, Session)
    measured = {tally.session for tally in database.tally()}
    sessions = [s for s in database.records(Session) if s.id in measured]
    if not sessions:
        raise TuningError("there is no measurement in {0}", database.location)
    return max(sessions, key=lambda s: s.started)


def _history(source: TuneResult | HasPictures, session: str | None) -> list[Trial]:
    if session is not None:
        raise TuningError(
            "session: a {0} has its sessions, found {1!r:.80}",
            type(source).__name__,
            session,
            hint="plot its database to choose another one",
        )
    if isinstance(source, TuneResult):
        if source.kernels:
            raise TuningError(
                "the result is of {0} kernels", len(source.kernels),
                hint=f"plot one of them: result.kernels[{next(iter(source.kernels))!r}]",
            )  # fmt: skip
        return list(source.history)
    pictures = list(source.pictures.pictures.values())
    if len(pictures) > 1:
        named = ", ".join(short_id(p.started.session) for p in pictures)
        raise TuningError(
            "the run is of {0} programs", len(pictures),
            hint=f"plot its database, with session= one of {named}",
        )  # fmt: skip
    return [trial for picture in pictures for trial in picture.trials]
