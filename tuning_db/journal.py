"""A database on a server, and a journal beside it for when the server is out of reach.

    with journalled(database) as database:      # a session of hours
        database.put(...)                       # durable at once, in the journal

What is written goes into the journal first, a small SQLite database in the user's folder of state,
and is sent on at once. While the server cannot be reached, or refuses, it waits there. Ids are
content: what is sent twice arrives once. Reads ask the journal alone meanwhile, which has all that
this process has written.

A process that is killed leaves its journal. The next session of the same database sends it, and so
does `tilewright db sync URL`.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from math import inf
from pathlib import Path
from typing import IO, Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import ColumnElement, Connection, and_, func, literal_column, or_, select, true

from ..base.errors import DatabaseError
from ..base.text import count
from .canonical import digest
from .connect import LOG, Opened, open_engine
from .queries import Queries
from .read import COLUMNS, to_record
from .schema import prepare
from .store import TuningDatabase
from .sync import copy, require_taken
from .tables import TABLES, measurement, verification
from .values import KINDS, AnyRecord, Session
from .write import write

P = ParamSpec("P")
R = TypeVar("R")

STATE = "TILEWRIGHT_STATE_DIR"
"""The variable that names the folder of journals, in place of one in XDG_STATE_HOME."""
PAUSES = (1.0, 60.0)
"""Seconds until a server that was lost is tried again: at first, doubled, and at most."""
_TRIED = 3
"""Records that are sent each alone before a server counts as one that refuses all."""
_ROW: ColumnElement[int] = literal_column("rowid")
_log = logging.getLogger(__name__)


@contextmanager
def journalled(database: TuningDatabase) -> Iterator[TuningDatabase]:
    """The database, beside a journal where it is on a server; one of a file is as it is.

    Where none can be kept, a warning says so, and the database is as it is too. What earlier
    processes left waiting for it is sent first. What still waits in the end is kept,
    and a warning says how to send it.
    """
    if database._layers[0].engine.dialect.name == "sqlite":
        yield database
        return
    try:
        deliver_waiting(database)
    except DatabaseError as error:
        _log.warning("what waits for %s is not sent now: %s", database.location, error)
    try:
        beside = JournalledDatabase(database)
    except (OSError, DatabaseError) as error:
        _log.warning(
            "no journal can be kept in %s, and a session ends where %s gets out of reach: %s",
            _folder(),
            database.location,
            error,
        )
        yield database
        return
    try:
        yield beside
    finally:
        beside.close()


def deliver_waiting(database: TuningDatabase) -> dict[str, int]:
    """Send what processes that ended left waiting for a database; return how many were new.

    Journals of processes that are at work are left to them. Where a record is refused, its journal
    is kept, and all others are sent. Raises `DatabaseError` for all of these in the end, and at
    once where the server is out of reach.
    """
    new = dict.fromkeys(KINDS, 0)
    left = {path.with_suffix(".db") for path in _folder().glob(f"{_key(database)}-*.lock")}
    failed: dict[str, DatabaseError] = {}
    for path in sorted({*waiting(database), *left}):
        with _held(path) as free:
            if not free or not path.exists():
                continue
            refused: dict[str, DatabaseError] = {}
            arrived = dict.fromkeys(KINDS, 0)
            try:
                with TuningDatabase(path, create=False) as journal:
                    arrived = copy(journal._layers[0], database._layers[0], refused)
            except DatabaseError as error:
                if error.data.get("unreachable"):
                    raise
                refused[path.name] = error
            failed |= refused
            if not refused:
                _remove(path)
            if not any(arrived.values()):
                continue
            new = {kind: number + arrived[kind] for kind, number in new.items()}
            _log.warning(
                "%s waited for %s, and have arrived", count(sum(arrived.values()), "record"),
                database.location,
            )  # fmt: skip
    require_taken(failed)
    return new


def waiting(database: TuningDatabase) -> list[Path]:
    """The journals of a database, those of processes at work too."""
    return sorted(_folder().glob(f"{_key(database)}-*.db"))


@dataclass(frozen=True)
class _Journal(Opened):
    """The journal, whose writes are sent on."""

    send: Callable[[], None] = lambda: None

    @contextmanager
    def writing(
        self, timeout: float = inf, *, into_file: bool = False, migrating: bool = False
    ) -> Iterator[Connection]:
        with super().writing(timeout, into_file=into_file, migrating=migrating) as connection:
            yield connection
        self.send()


def _or_from_the_journal(
    read: Callable[Concatenate[Any, P], R],
) -> Callable[Concatenate[Any, P], R]:
    """A method that asks the journal alone if the server is lost meanwhile."""

    @wraps(read)
    def call(self: JournalledDatabase, /, *arguments: P.args, **options: P.kwargs) -> R:
        try:
            return read(self, *arguments, **options)
        except DatabaseError as error:
            if not self._lose(error):
                raise
            return read(self, *arguments, **options)

    return call


class JournalledDatabase(TuningDatabase):
    """A database on a server that is written to by way of a journal; see this module.

    The first write has to arrive: what the server refuses from the beginning is raised. Sessions
    are resumed on the server, where one of several processes succeeds.
    """

    def __init__(self, team: TuningDatabase) -> None:
        self._clock = team._clock
        self._team = team
        self._sent: dict[str, int] = {}
        """The last row of each kind that arrived."""
        self._states: set[tuple[str, object]] = set()
        """The states of sessions that arrived."""
        self._arrived = False
        self._refused: set[str] = set()
        """The ids of records that the server refused, while it took others."""
        self._repairs = True
        """Whether to send all again where a reference is missing: until that is refused."""
        self._why: str | None = None
        """Why the server was lost; `None` while it is there."""
        self._pause, self._next_try = PAUSES[0], 0.0
        self._sending = threading.RLock()
        with ExitStack() as stack:
            _folder().mkdir(mode=0o700, parents=True, exist_ok=True)
            self._path = _new_path(team)
            while not stack.enter_context(_held(self._path)):  # by one who looks for old journals
                self._path = _new_path(team)
            opened = open_engine(self._path, create=True, read_only=False)
            prepare(opened, create=True)
            self._held = stack.pop_all()
        self._journal = _Journal(**{**vars(opened), "send": self._send_on})
        self._layers = [self._journal, *team._layers]

    @property
    def location(self) -> str:
        return self._team.location

    @property
    def waits(self) -> bool:
        """Whether the server was lost, or refuses what is written to it."""
        return self._why is not None

    @property
    def unreachable(self) -> bool:
        """Whether the server was lost: reads ask the journal alone."""
        return self._layers == [self._journal]

    def close(self) -> None:
        """Send what waits, and remove the journal; where that fails, keep it with a warning."""
        with self._sending:
            if self._layers is self._team._layers:
                return
            self._next_try = 0.0
            with suppress(DatabaseError):
                self._send_on()
            self._journal.close()
            if not self._arrived or (self._why is None and not self._refused):
                _remove(self._path)
            elif self._why is None:
                _log.warning(
                    "%s refused %s: they are kept in %s, and `tilewright db sync URL` sends them",
                    self.location,
                    count(len(self._refused), "record"),
                    self._path,
                )
            else:
                _log.warning(
                    "%s: %s; what was measured waits in %s: when it is there again, "
                    "`tilewright db sync URL` sends it, and so does the next session",
                    self.location,
                    self._why,
                    self._path,
                )
            self._held.close()
            self._layers = self._team._layers

    def resume_session(
        self, session: str, *, preparing: bool = False, elapsed: float | None = None
    ) -> Session:
        state = self._team.resume_session(session, preparing=preparing, elapsed=elapsed)
        with self._team._layers[0].reading() as source, Opened.writing(self._journal) as connection:
            write(connection, _of_session(source, state), repin=False)
            if not self.waits:  # all of it is there already
                rows = {kind: select(func.max(_ROW)).select_from(TABLES[kind]) for kind in KINDS}
                self._sent = {kind: connection.scalar(last) or 0 for kind, last in rows.items()}
        self._arrived = True
        return state

    def unfinished_sessions(self, workload: str, target: str) -> list[Session]:
        return self._team.unfinished_sessions(workload, target)

    def sessions_beside(self, since: datetime) -> list[Session]:
        try:
            return self._team.sessions_beside(since)
        except DatabaseError as error:
            if not self._lose(error):
                raise
            return super().sessions_beside(since)

    get = _or_from_the_journal(Queries.get)
    records = _or_from_the_journal(Queries.records)
    measurements = _or_from_the_journal(Queries.measurements)
    history = _or_from_the_journal(Queries.history)
    superseded = _or_from_the_journal(Queries.superseded)
    verifications = _or_from_the_journal(Queries.verifications)
    state = _or_from_the_journal(Queries.state)
    machine = _or_from_the_journal(Queries.machine)
    best = _or_from_the_journal(Queries.best)
    pinned = _or_from_the_journal(Queries.pinned)
    gains = _or_from_the_journal(Queries.gains)
    noise = _or_from_the_journal(Queries.noise)
    relatives = _or_from_the_journal(Queries.relatives)
    others = _or_from_the_journal(Queries.others)

    def _lose(self, error: DatabaseError) -> bool:
        """Leave the server out of reads, if an error says that it cannot be reached."""
        with self._sending:
            if not error.data.get("unreachable") or self.unreachable:
                return False
            self._wait(error)
            return True

    def _wait(self, error: DatabaseError) -> None:
        if self._why is None:
            _log.warning("what is measured waits in %s: %s", self._path, error.first_line)
            self._pause = PAUSES[0]
        self._why = error.first_line
        self._next_try = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, PAUSES[1])
        if error.data.get("unreachable"):
            self._layers = [self._journal]
            self._repairs = True

    def _send_on(self) -> None:
        """Send what waits, if it is time to try. Raises only while nothing has arrived."""
        with self._sending:
            if self._arrived and time.monotonic() < self._next_try:
                return
            try:
                sent = self._send()
            except DatabaseError as error:
                if not self._arrived:
                    raise
                self._wait(error)
                return
            self._arrived = self._arrived or sent > 0
            if self._why is not None:
                _log.warning("%s is there again: %s arrived", self.location, count(sent, "record"))
            self._why, self._layers = None, [self._journal, *self._team._layers]

    def _send(self) -> int:
        """Write what has not arrived to the server; return how much it is.

        It is one transaction. Where a reference is missing, what it refers to may have been deleted
        there: all of the journal is sent again. Where something is refused, each record is sent
        alone.
        """
        unsent, rows = self._read(self._sent)
        states = {(r.id, r.heartbeat) for r in unsent if isinstance(r, Session)} - self._states
        unsent = [r for r in unsent if not isinstance(r, Session) or (r.id, r.heartbeat) in states]
        self._refused -= {id for id, _ in states}  # a later state is another record
        arrived = len(unsent)
        try:
            self._write(unsent)
        except DatabaseError as error:
            if error.data.get("unreachable") or not self._arrived:
                raise
            misses = "record" in error.data  # as `write` names the one that refers to it
            if not misses or not self._write_again():
                arrived = self._write_singly(unsent)
        self._sent |= rows
        self._states |= states
        return arrived

    def _read(self, sent: Mapping[str, int]) -> tuple[list[AnyRecord], dict[str, int]]:
        """The records of the journal behind the rows that were sent, and the last row of each kind.

        All sessions are among them: their states change.
        """
        records: list[AnyRecord] = []
        rows: dict[str, int] = {}
        with self._journal.reading() as connection:
            for name, kind in KINDS.items():
                last = 0 if name == Session.kind else sent.get(name, 0)
                new = select(_ROW, *COLUMNS[name]).select_from(TABLES[name]).where(_ROW > last)  # noqa: SIM300
                for row in connection.execute(new.order_by(_ROW)):
                    records.append(to_record(kind, row[1:]))
                    rows[name] = row[0]
        return records, rows

    def _write(self, records: Sequence[AnyRecord]) -> None:
        if records:
            with self._team._layers[0].writing() as server:
                write(server, records, repin=False)

    def _write_again(self) -> bool:
        """Write all but what was refused, if that may help; return whether the server took it.

        Where it is refused, it is not tried again until the server was out of reach: the journal is
        long, and each write may miss what the server refuses.
        """
        if not self._repairs:
            return False
        try:
            self._write([r for r in self._read({})[0] if r.id not in self._refused])
        except DatabaseError as error:
            if error.data.get("unreachable"):
                raise
            self._repairs = False
        return self._repairs

    def _write_singly(self, records: Sequence[AnyRecord]) -> int:
        """Write each record in a transaction of its own; return how many the server took.

        Those that it refuses stay in the journal, and are not sent again by this process. Raises if
        it takes none of the first few.
        """
        refused: dict[str, DatabaseError] = {}
        for n, record in enumerate(records, 1):
            try:
                self._write([record])
            except DatabaseError as error:
                refused[record.id] = error
                if error.data.get("unreachable") or len(refused) == n == min(len(records), _TRIED):
                    raise
        self._refused |= refused.keys()
        if refused:
            _log.warning(
                "%s refuses %s, which stay in %s: %s", self.location,
                count(len(refused), "record"), self._path, next(iter(refused.values())).first_line,
            )  # fmt: skip
        return len(records) - len(refused)


def _of_session(source: Connection, session: Session) -> Iterator[AnyRecord]:
    """A session's records, and those that they refer to, parents first."""
    measured = measurement.c.session == session.id
    used = select(measurement.c.schedule).where(measured)
    ids = {name: table.c.id for name, table in TABLES.items()}
    wanted: dict[str, ColumnElement[bool]] = {
        "workload": ids["workload"] == session.workload,
        "target": true(),
        "toolchain": true(),
        "environment": true(),
        "schedule": or_(ids["schedule"].in_(used), ids["schedule"] == session.untuned),
        "session": ids["session"] == session.id,
        "verification": and_(
            verification.c.workload == session.workload, verification.c.schedule.in_(used)
        ),
        "measurement": measured,
    }
    for name, condition in wanted.items():
        for row in source.execute(select(*COLUMNS[name]).where(condition)).all():
            yield to_record(KINDS[name], row)


def _folder() -> Path:
    """The folder of journals."""
    named = os.environ.get(STATE) or os.environ.get("XDG_STATE_HOME", "")
    if os.path.isabs(named):
        return Path(named) / "tilewright" / "journals"
    return Path(os.path.expanduser("~")) / ".local" / "state" / "tilewright" / "journals"


def _key(database: TuningDatabase) -> str:
    """What tells journals of databases apart: their location, which has no password in it."""
    return digest(database.location)[:16]


def _new_path(database: TuningDatabase) -> Path:
    return _folder() / f"{_key(database)}-{os.getpid()}-{uuid.uuid4().hex[:8]}.db"


@contextmanager
def _held(journal: Path) -> Iterator[bool]:
    """Whether no other process holds a journal, and none does until the end.

    The lock of a process that died is free, and its file goes with the journal.
    """
    path = journal.with_suffix(".lock")
    lock = _lock(path)
    while lock is not None and not _is_at(path, lock):  # who held it before removed the file
        lock.close()
        lock = _lock(path)
    if lock is None:
        yield False
        return
    with lock:
        try:
            yield True
        finally:
            if not journal.exists():
                path.unlink(missing_ok=True)


def _lock(path: Path) -> IO[str] | None:
    """A file that is locked until it is closed; `None` if another process has locked it."""
    with ExitStack() as stack:
        file = stack.enter_context(open(path, "w"))
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        stack.pop_all()
        return file


def _is_at(path: Path, file: IO[str]) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _remove(journal: Path) -> None:
    for path in (journal, Path(f"{journal}{LOG}"), Path(f"{journal}-shm")):
        path.unlink(missing_ok=True)
