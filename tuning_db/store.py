"""The store: one tuning database, and the read-only layers under it.

The guarantees of `TuningDatabase` are written at the class; the contract tests hold every backend
to them.
"""

from __future__ import annotations

import os
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from typing import IO, Self, TypeAlias

from sqlalchemy import URL

from ..base.display import html
from ..base.errors import DatabaseError, system_errors
from ..base.process import InProcess
from . import json_lines, lookup, pins, removal, sessions, t4
from .arguments import READER, TUNER
from .canonical import Json
from .compare import DatabaseDiff, compare_databases
from .confirm import Wanted
from .connect import Opened, open_engine
from .lines import Inexact
from .pins import Pinned, require_verified
from .queries import Queries, leaving_out
from .read import Damage, Layers, every
from .removal import Removal
from .roles import grants
from .schema import prepare
from .sync import Synced, copy, require_taken
from .values import (
    AnyRecord,
    Pin,
    ScheduleRecord,
    Session,
    SessionStatus,
    TargetRecord,
    Workload,
    in_utc,
    utc_now,
)
from .write import in_order, write

Path: TypeAlias = str | os.PathLike[str]
PathOrURL: TypeAlias = Path | URL
Clock: TypeAlias = Callable[[], datetime]
_INSTEAD = "give the other process its path or URL: tw.TuningDatabase(path)"


class TuningDatabase(InProcess, Queries, error=DatabaseError, instead=_INSTEAD):
    """The results of tuning: a SQLite file by path, or any SQLite or PostgreSQL database by URL.

    Guarantees:

    - *Durable.* What a method has written when it returns survives the death of this and any other
      process (`kill -9`); a power cut may lose the last moments and damages nothing.
    - *All or nothing.* A call that raises has written nothing.
    - *Idempotent.* Records are immutable and known by content: writing one again changes nothing.
      Only sessions (their state) and pins (their schedule) change.
    - *Shared.* Any number of threads and processes may read and write at once. Writers take turns
      and wait for each other up to the busy timeout (30 s, or `?timeout=` of a SQLite URL); readers
      see the state of one moment. A forked child must open the database again.
    - *Fast.* `best` is a few seeks in indexes for the database and each layer, however many
      measurements there are.
    - *Inert.* Nothing that comes out of a database or an import is executed or unpickled, and what
      would run inside of one (triggers, rules, views) is refused when it is opened.
    - *Distrustful.* Records that are read are checked like imported ones. A damaged record is left
      out of lists, with a warning, and raises `DatabaseError` if it is asked for by its id.
    - Every failure is a `DatabaseError` that names the database, what was found and what to do.

    `create=False` refuses a database that is not there. A database of an older version is migrated
    when it is opened for writing. `layers` are databases consulted after this one (team, shipped):
    paths or URLs, opened read-only, uppermost first; writing goes to this database only. `clock`
    gives the time (UTC) that is written. It cannot be pickled: another process opens its path.
    """

    _repr_html_ = html

    def __init__(
        self,
        path_or_url: PathOrURL,
        *,
        create: bool = True,
        read_only: bool = False,
        layers: Sequence[PathOrURL] = (),
        clock: Clock = utc_now,
    ) -> None:
        self._clock: Callable[[], datetime] = lambda: in_utc(clock())
        self._layers: list[Opened] = []
        try:
            # The layers first: where one of them is missing, no database is created.
            for below in layers:
                self._layers.append(_opened(below, create=False, read_only=True))
            self._layers.insert(0, _opened(path_or_url, create, read_only))
        except BaseException:
            self.close()
            raise
        for layer in self._layers:
            weakref.finalize(self, layer.release).atexit = False

    def close(self) -> None:
        """Give the connections back. The database opens again on its next use.

        The file then holds everything, without a log beside it, unless somebody else reads it.
        """
        for layer in self._layers:
            layer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"TuningDatabase({self.location!r})"

    # Writing

    def put(self, *records: AnyRecord) -> int:
        """Write records in one transaction; return how many were new.

        They may be given in any order, and may refer to each other and to what is there already.
        Takes every kind of record; sessions and pins have methods of their own.
        """
        with self._layers[0].writing() as connection:
            return sum(write(connection, in_order(records), repin=False).values())

    def pin(
        self,
        workload: Workload | str,
        target: TargetRecord,
        schedule: ScheduleRecord | str,
        *,
        unverified: bool = False,
    ) -> Pinned:
        """Make a schedule the choice for a workload on a target, whatever times were measured.

        Those given by ids must be in this database or a layer. It holds for comparable targets
        also; a newer pin replaces an older one. The result says what it costs: its time over that
        of the recorded best. Printed, it is a few sentences.

        Raises `DatabaseError` for a schedule that is not verified there: builds would take it, and
        its results may be wrong. With `unverified` one is pinned of which no numeric check was
        made; one of which a check failed is not.
        """
        program = self.get(Workload, workload) if isinstance(workload, str) else workload
        record = self.get(ScheduleRecord, schedule) if isinstance(schedule, str) else schedule
        choice = Pin(program.id, target.id, record.id, self._clock())
        with self._over_layers() as (layers, damage):  # nobody adds or deletes a check now
            checks = lookup.checks_of(layers, program.id, target.comparable, record.id, damage)
            require_verified(checks, record, program, target, unverified=unverified)
            wanted = Wanted(program.id, target.comparable, damage=damage)
            return pins.pin(layers, program, target, record, choice, wanted)

    def unpin(self, workload: str, target: TargetRecord) -> bool:
        """Remove the pins of a workload (id) on comparable targets; return whether there were any.

        A pin of a layer then holds again.
        """
        with self._layers[0].writing(into_file=True) as connection:
            return pins.unpin(connection, workload, target)

    @contextmanager
    def _over_layers(self) -> Iterator[tuple[Layers, Damage]]:
        """Connections to write to this database, and to read the layers below it."""
        top, *below = self._layers
        with ExitStack() as stack:
            damage = stack.enter_context(leaving_out())
            layers = [stack.enter_context(layer.reading()) for layer in below]
            yield [stack.enter_context(top.writing(into_file=True)), *layers], damage

    # Sessions

    def start_session(
        self,
        workload: str,
        target: str,
        *,
        trials: int | None,
        seconds: float | None,
        seed: int,
        search: Mapping[str, Json],
        model: Mapping[str, Json],
        records: Sequence[AnyRecord] = (),
        preparing: bool = False,
    ) -> Session:
        """Begin a session of this process; the workload and target (ids) must have been put.

        Or they are among `records`, which are put in the same transaction: nothing that they name
        is pruned before the session runs. One that is `preparing` runs from `prepared_session` on.
        """
        now = self._clock()
        session = Session(
            workload=workload,
            target=target,
            trials=trials,
            seconds=seconds,
            seed=seed,
            search=search,
            model=model,
            started=now,
            nonce=uuid.uuid4().hex,
            elapsed=0.0,
            **sessions.running_here(now, preparing=preparing),
        )
        self.put(*records, session)
        return session

    def prepared_session(self, session: str, untuned: str | None = None) -> Session:
        """Let a session (id) run that was preparing.

        `untuned` is the schedule (id) that a build without records would choose, if it is known.
        """
        with self._layers[0].writing() as connection:
            return sessions.prepared(connection, session, untuned, self._clock())

    def heartbeat(
        self, session: str, elapsed: float | None = None, drift: float | None = None
    ) -> None:
        """Record that a session (id) is alive; 60 s after its last heartbeat it counts as dead.

        `elapsed` is its `duration` so far, by default that of before and the time since the last
        sign of life. `drift` is that of `Session`.
        """
        with self._layers[0].writing() as connection:
            sessions.heartbeat(connection, session, self._clock(), elapsed, drift)

    def finish_session(
        self,
        session: str,
        status: SessionStatus = SessionStatus.FINISHED,
        noise: str | None = None,
        elapsed: float | None = None,
    ) -> Session:
        """End a session (id): `FINISHED`, or `INTERRUPTED` where its budget was not used up.

        `noise` marks it, in plain words: the machine was not calm. A mark of before stays if there
        is none now. `elapsed` is as for `heartbeat`.
        """
        with self._layers[0].writing(into_file=True) as connection:
            return sessions.finish(connection, session, status, self._clock(), noise, elapsed)

    def unfinished_sessions(self, workload: str, target: str) -> list[Session]:
        """The sessions of that workload and target (ids) that did not finish, the last one first.

        They were interrupted, or their process is gone; a session that still runs is not returned.
        """
        with self._layers[0].reading() as connection, leaving_out() as damage:
            return sessions.unfinished(connection, workload, target, self._clock(), damage)

    def sessions_beside(self, since: datetime) -> list[Session]:
        """The sessions on which any process of this machine has worked since then."""
        with self._layers[0].reading() as connection, leaving_out() as damage:
            return sessions.beside(connection, in_utc(since), self._clock(), damage)

    def resume_session(
        self, session: str, *, preparing: bool = False, elapsed: float | None = None
    ) -> Session:
        """Continue an unfinished session (id) in this process; `preparing` as for its start.

        `elapsed` is its `duration` so far, by default as its record has it. If several processes
        try, one succeeds; the others get a `DatabaseError`.
        """
        with self._layers[0].writing() as connection:
            now = self._clock()
            return sessions.resume(connection, session, now, elapsed, preparing=preparing)

    # Moving records

    def merge(self, other: TuningDatabase | PathOrURL) -> dict[str, int]:
        """Take over every record of another database (without its layers), in one transaction.

        Merging again changes nothing. A pin of this database stays; of two states of a session the
        later one stays. Returns how many records of each kind were new. Every digest is computed
        again: a record that does not match its id is refused with a `DatabaseError`.
        """
        if not isinstance(other, TuningDatabase):
            with TuningDatabase(other, create=False, read_only=True) as opened:
                return self.merge(opened)
        self._require_two_connections(other)
        own = self._layers[0]
        with other._layers[0].reading() as source, own.writing(into_file=True) as connection:
            return write(connection, every(source), repin=False)

    def sync(self, other: TuningDatabase | PathOrURL) -> Synced:
        """Give this database and another one what they lack of each other (without layers).

        What both have is not read, and a record that is transferred is checked as in `merge`. Each
        portion of records is a transaction: what was interrupted goes on where it was, and doing it
        again changes nothing. Of two states of a session the later one stays; where both have
        pinned a schedule, each keeps its own. A path or URL is opened for writing.

        Raises `DatabaseError` in the end for records that are damaged or that a database refuses;
        all others are there then.
        """
        if not isinstance(other, TuningDatabase):
            with TuningDatabase(other) as opened:
                return self.sync(opened)
        self._require_two_connections(other)
        here, there = self._layers[0], other._layers[0]
        refused: dict[str, DatabaseError] = {}
        synced = Synced(copy(there, here, refused), copy(here, there, refused))
        require_taken(refused)
        return synced

    def compare(self, other: TuningDatabase | PathOrURL) -> DatabaseDiff:
        """What this database has that another one has not, and the reverse (without layers)."""
        if not isinstance(other, TuningDatabase):
            with TuningDatabase(other, create=False, read_only=True) as opened:
                return self.compare(opened)
        self._require_two_connections(other)
        names = (self.location, other.location)
        with self._layers[0].reading() as first, other._layers[0].reading() as second:
            return compare_databases(first, second, names)

    def _require_two_connections(self, other: TuningDatabase) -> None:
        """A database in memory has one connection: two transactions would wait for each other."""
        if other is self and self.location == "memory":
            raise DatabaseError("{0} is given as the other database, too", self.location)

    def export_lines(self, file: Path | IO[str]) -> int:
        """Write every record (without the layers') as JSON lines; return how many.

        A path is replaced only when the export is complete.
        """
        with self._layers[0].reading() as connection:
            return json_lines.export(connection, file)

    def import_lines(
        self,
        file: Path | IO[str],
        *,
        inexact: Inexact | None = None,
    ) -> dict[str, int]:
        """Take over the records of an export, in one transaction, as `merge` does.

        Schedules in files of versions 1 and 2 of the format do not name their inexact steps:
        `inexact` returns these for a trace (`autotune.records.inexact_steps`). Without it
        they name none, and builds set aside those that have some. Cost models in such files
        are skipped, with a warning.

        16 MB or more are read by two processes beside this one, if there are several processors.
        An open file, such as a pipe, is read to its end before anything is written, into a
        temporary file. The result and the errors are the same.

        Raises `DatabaseError` that names the line for anything else, and has then written nothing.
        """
        name = json_lines.name_of(file)
        with (
            json_lines.ready_to_import(file) as path,
            self._layers[0].writing(into_file=True) as connection,
        ):
            return json_lines.import_lines(connection, path, name, inexact)

    def export_t4(self, file: Path | IO[str]) -> int:
        """Write every record (without the layers') as a T4 file; return how many.

        T4 is the results format that tuners share: a result for each measurement, with the trace in
        its configuration. `import_t4` reads it back without a loss. A path is replaced only when
        the export is complete.
        """
        with self._layers[0].reading() as connection:
            return t4.export(connection, file)

    def import_t4(self, file: Path | IO[str], *, inexact: Inexact | None = None) -> dict[str, int]:
        """Take over the records of a T4 file that `export_t4` wrote, as `import_lines` does.

        Raises `DatabaseError` for anything else, the results of other tuners too: they name no
        program and schedule that could be checked.
        """
        return self.import_lines(t4.read_t4(file), inexact=inexact)

    # Upkeep

    def roles(self, reader: str = READER, tuner: str = TUNER, *, apply: bool = False) -> list[str]:
        """The SQL that makes roles of a server for readers and tuners, and gives them their rights.

        Readers look up, tuners also add records; to delete and to migrate is the owner's. With
        `apply` it is run, in one transaction; doing it again changes nothing. Users become members
        by `GRANT tilewright_tuner TO alice`.

        Raises `DatabaseError` for a file, and where this user may not.
        """
        own = self._layers[0]
        with own.writing() if apply else own.reading() as connection:
            statements = grants(connection, reader, tuner)
            for statement in statements if apply else ():
                connection.exec_driver_sql(statement)
        return statements

    def prune(self, *, dry_run: bool = False) -> Removal:
        """Delete what no lookup needs, in one transaction; with `dry_run`, say what that is.

        - measurements of finished sessions that were superseded by another session, unless the
          comparison of a best reads them,
        - sessions that ended and measured nothing,
        - schedules and environments that nothing refers to, if no session runs.

        `best`, `gains` and pins are what they were. Layers stay as they are, and a merge with a
        database that still has the records brings them back.
        """
        own = self._layers[0]
        with own.reading() if dry_run else own.writing(into_file=True) as connection:
            plan = removal.prunable(connection, self._clock())
            if not dry_run:
                removal.remove(connection, plan)
        reasons = {w: {k: tuple(i) for k, i in found.items()} for w, found in plan.items()}
        return Removal(self.location, reasons, not dry_run)


DatabaseOrPath: TypeAlias = TuningDatabase | PathOrURL
"""What functions take that read or write a database; `arguments.opened` opens it."""


def _opened(path_or_url: PathOrURL, create: bool, read_only: bool) -> Opened:
    opened = open_engine(path_or_url, create, read_only)
    try:
        with system_errors(DatabaseError, f"opening database {opened.location}"):
            prepare(opened, create and not read_only)
    except BaseException:
        opened.engine.dispose()
        raise
    return opened
