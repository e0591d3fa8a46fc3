"""A session as its database has it: what runs elsewhere, or ran before, is shown as here.

The records of a session are read as the events that its own process told, so that all displays
serve both. Nothing is written, and no target or program is needed.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from textwrap import indent

from ...base.display import html
from ...base.errors import DatabaseError, checked_call
from ...base.hints import Hinted
from ...base.process import InProcess
from ...base.text import LINE, short_id
from ...tuning_db import TuningDatabase
from ...tuning_db.arguments import opened
from ...tuning_db.results import Best
from ...tuning_db.sessions import is_alive
from ...tuning_db.store import DatabaseOrPath
from ...tuning_db.values import Session, SessionStatus, TargetRecord, Toolchain, Workload
from ..result import instead_text
from ..session.budget import budget_text
from ..session.events import Drift, Ended, Event, Started, Waiting
from ..session.finals import SessionFinals
from ..session.session_history import SessionHistory, tolerance_of
from .picture import Pictures

_PREPARING = "measuring this machine and preparing the search"


_INSTEAD = 'open it there: tw.open_run("tuning.db", session)'


@checked_call(DatabaseError, 'tw.open_run("tuning.db")')
def open_run(database: DatabaseOrPath, session: str | None = None) -> RecordedRun:
    """The session of a database with that id, or its beginning; the newest if none is given.

    It may run in any process on any machine, or be over. A path or URL is opened read-only.

    Raises `DatabaseError` if there is no such session.
    """
    store = opened(database, DatabaseError)
    if session is not None:
        return RecordedRun(store, store.find(session, Session))
    sessions = store.records(Session)
    if not sessions:
        raise DatabaseError(
            "there is no session in {0} yet",
            store.location,
            hint="tw.tune and `tilewright tune` begin one",
            awaited=True,
        )
    return RecordedRun(store, max(sessions, key=lambda s: s.started))


class RecordedRun(InProcess, Hinted, error=DatabaseError, instead=_INSTEAD):
    """A session that is read from a database; `poll` reads what is new.

    `session` is its record as last read, `pictures` its state for displays: at the end with the
    recorded best of its program and target. A session that was over goes on when its records say
    so: it was resumed, or its process was only asleep. `best` is what a build would take now for
    these.
    """

    def __init__(self, database: TuningDatabase, session: Session) -> None:
        self.session = session
        self._database = database
        self._file = _identity(database)
        self._workload = database.get(Workload, session.workload)
        self._target = database.get(TargetRecord, session.target)
        self._toolchain: Toolchain | None = None
        self._pictures = Pictures()
        self._history = SessionHistory(database, session)
        self._finals: SessionFinals | None = None
        self._told: Session | None = None
        """What its record was when it was last said to be over."""
        self._drift: float | None = None

    @property
    def pictures(self) -> Pictures:
        """Its state now."""
        self.poll()
        return self._pictures

    @property
    def running(self) -> bool:
        """Whether a process works on it now, as far as this machine can know.

        Raises `DatabaseError` if the database cannot be read now.
        """
        self.session = self._database.get(Session, self.session.id)
        return is_alive(self.session, datetime.now(UTC))

    @property
    def done(self) -> bool:
        """Whether it has ended, or its process is gone; raises as `running` does."""
        return not self.running

    @property
    def gone(self) -> str | None:
        """What became of the database's file since it was opened; `None` if it is there."""
        now = _identity(self._database)
        if now == self._file:
            return None
        return "was deleted" if now is None else "was replaced by another file"

    @property
    def best(self) -> Best | None:
        """The schedule that a build would take now; `None` while none is pinned or verified."""
        return self._look_up(pins=True)

    @property
    def how_to_go_on(self) -> str | None:
        """What continues a session that did not finish; `None` while it runs and if it did."""
        if self.running or self.session.status is SessionStatus.FINISHED:
            return None
        target = self._target.text
        given = _arguments_of(self.session)
        values = "".join(f"{name}={value!r}, " for name, value in given.items())
        options = "".join(f"--{name} {value!r} " for name, value in given.items())
        return (
            "To go on, tune the same program for the same target with the same budget, and resume: "
            f"tw.tune(func, {target!r}, {values}resume=True, database=db), or "
            f"tilewright tune FILE.py:FUNCTION --target {shlex.quote(target)} {options}--resume "
            f"--db {shlex.quote(self._database.location)}"
        )

    def poll(self) -> list[Event]:
        """The events since the last call, from the beginning at first.

        Raises `DatabaseError` if the database has gone, see `gone`, or cannot be read now.
        """
        if (gone := self.gone) is not None:
            raise DatabaseError("database {0} {1}", self._database.location, gone)
        events = list(self._news())
        for event in events:
            self._pictures.add(event)
        return events

    def __repr__(self) -> str:
        pictures = indent(self.pictures.text(LINE - 3), "  ")
        over = self.session.status if self.session.ended is not None else "not running"
        state = "running" if self._told is None else over
        return f"<RecordedRun {short_id(self.session.id)}, {state}:\n{pictures}>"

    _repr_html_ = html

    def _news(self) -> Iterator[Event]:
        if not self._pictures.pictures:
            yield self._started()
        # First the state, then the measurements: what it says has ended is then complete.
        over = self.done
        before = self._history.last
        for recorded in self._history.read():
            yield recorded.trial
        if (toolchain := self._history.toolchain) is not None:
            self._toolchain = self._database.get(Toolchain, toolchain)
        if (drift := self.session.drift) is not None and drift != self._drift:
            self._drift = drift
            yield Drift(drift, self.session.duration)
        measured = self._history.last != before
        finals = self._history.finals if measured else self._finals
        if finals is not self._finals:
            self._finals = finals
            yield self._history.final()
        if over:
            if measured or self._told != self.session:
                self._told = self.session
                yield self._ended(self._look_up(pins=False))
        else:
            self._told = None
            yield Waiting(self._whereabouts(), self.session.duration)

    def _look_up(self, *, pins: bool) -> Best | None:
        """The best by now; without `pins` the recorded one."""
        return self._database.best(
            self.session.workload,
            self._target,
            self._toolchain,
            tolerance=tolerance_of(self.session),
            pins=pins,
        )

    def _started(self) -> Started:
        session = self.session
        return Started(
            session=session.id,
            workload=f"{self._workload.name} {self._workload.shape}",
            target=self._target.text,
            trials=session.trials,
            seconds=session.seconds,
            done=0,
            known=0,
            flops=self._workload.flops,
            best_seconds=None,
        )

    def _ended(self, best: Best | None) -> Ended:
        session = self.session
        measured = None if best is None else best.measurement
        return Ended(
            reason=self._why_it_ended(),
            interrupted=session.status is not SessionStatus.FINISHED,
            trials=self._history.trials,
            best=None if best is None else best.time,
            elapsed=session.duration,
            best_session=None if measured is None else measured.session,
            own_seconds=self._history.own_seconds,
            noise=session.noise,
            kept=self.how_to_go_on,
            pinned=None if best is None else instead_text(self._pinned, best.schedule.id),
        )

    @property
    def _pinned(self) -> str | None:
        pin = self._database.pinned(self.session.workload, self._target)
        return None if pin is None else pin.schedule

    def _why_it_ended(self) -> str:
        session = self.session
        if session.status is SessionStatus.PREPARING:
            gone = f"its process ({session.pid} on {session.host}) is gone"
            return f"{gone}; it was {_PREPARING}"
        if session.status is SessionStatus.RUNNING:
            return f"its process ({session.pid} on {session.host}) is gone"
        if session.status is SessionStatus.INTERRUPTED and not self._history.trials:
            return "interrupted before its first trial"
        return session.status

    def _whereabouts(self) -> str:
        session = self.session
        doing = _PREPARING if session.status is SessionStatus.PREPARING else "running"
        budget = budget_text(session.trials, session.seconds)
        return f"{doing} on {session.host}, process {session.pid}; budget {budget}"


def _arguments_of(session: Session) -> dict[str, float]:
    """The arguments of `tune` that a session was given: one that resumes it is given them too.

    The budget and the tolerance say which session is resumed; the seed is that of each call.
    """
    given = {
        "trials": session.trials,
        "seconds": session.seconds,
        "seed": session.seed or None,
        "tolerance": tolerance_of(session),
    }
    return {name: value for name, value in given.items() if value is not None}


def _identity(database: TuningDatabase) -> tuple[int, int] | None:
    """Which file a database is; `None` if there is none, as for one in memory or on a server."""
    with suppress(OSError, ValueError):
        found = Path(database.location).stat()
        return found.st_dev, found.st_ino
    return None
