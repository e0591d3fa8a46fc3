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
from functools import partial
from typing import IO, Any, Self, TypeAlias, overload

from sqlalchemy import URL, Row, Select, func, select

from ..display import html
from ..errors import DatabaseError
from ..ids import FEWEST_DIGITS, short_id
from . import json_lines, lookup, near, sessions
from .arguments import Amount, Count, checked_arguments
from .confirm import Applies, Wanted
from .connect import Opened, open_engine
from .explain import Explanation, explain
from .failures import CallersError
from .gains import Gains
from .json_lines import Inexact
from .read import (
    COLUMNS,
    Damage,
    Layers,
    R,
    T,
    every,
    filters,
    get,
    newest_machine,
    order_key,
    ordered,
    pair,
    to_record,
    undamaged,
    with_prefix,
    with_schedule,
)
from .schema import prepare
from .tables import measurement
from .tables import pin as pins
from .tables import target as targets
from .tally import Tally, each, tally
from .values import (
    KINDS,
    AnyRecord,
    Best,
    Json,
    Machine,
    Measurement,
    Order,
    Outcome,
    Pin,
    Relative,
    ScheduleRecord,
    Session,
    SessionStatus,
    TargetRecord,
    Toolchain,
    Workload,
    in_utc,
    utc_now,
)
from .write import in_order, write

Path: TypeAlias = str | os.PathLike[str]
PathOrURL: TypeAlias = Path | URL
Clock: TypeAlias = Callable[[], datetime]
_MOST_NAMED = 5
"""Records that an error lists."""


@checked_arguments
class TuningDatabase:
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
    gives the time (UTC) that is written.
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

    @property
    def location(self) -> str:
        """The path or URL (without password) of the database itself, as errors name it."""
        return self._layers[0].location

    def close(self) -> None:
        """Give the connections back. The database opens again on its next use."""
        for layer in self._layers:
            layer.engine.dispose()

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

    def pin(self, workload: str, target: TargetRecord, schedule: str) -> Pin:
        """Make a schedule the choice for a workload on a target, whatever was measured.

        The workload and schedule (ids) must be in this database or a layer. It holds for comparable
        targets also; a newer pin replaces an older one.
        """
        choice = Pin(workload, target.id, schedule, self._clock())
        named: list[AnyRecord] = [
            self.get(Workload, workload),
            target,
            self.get(ScheduleRecord, schedule),
        ]
        with self._layers[0].writing() as connection:
            write(connection, [*named, choice], repin=True)
        return choice

    def unpin(self, workload: str, target: TargetRecord) -> bool:
        """Remove the pins of a workload on comparable targets; return whether there were any."""
        same = select(targets.c.id).where(targets.c.comparable == target.comparable)
        with self._layers[0].writing() as connection:
            gone = pins.delete().where(pins.c.workload == workload, pins.c.target.in_(same))
            return connection.execute(gone).rowcount > 0

    # Sessions

    def start_session(
        self,
        workload: str,
        target: str,
        *,
        trials: Count | None,
        seconds: Amount | None,
        seed: int,
        search: Mapping[str, Json],
        model: Mapping[str, Json],
    ) -> Session:
        """Begin a session of this process; the workload and target (ids) must have been put."""
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
            **sessions.running_here(now),
        )
        self.put(session)
        return session

    def heartbeat(self, session: str) -> None:
        """Record that a session (id) is alive; 60 s after its last heartbeat it counts as dead."""
        with self._layers[0].writing() as connection:
            sessions.heartbeat(connection, session, self._clock())

    def finish_session(
        self,
        session: str,
        status: SessionStatus = SessionStatus.FINISHED,
        noise: str | None = None,
    ) -> Session:
        """End a session (id): `FINISHED`, or `INTERRUPTED` where its budget was not used up.

        `noise` marks it, in plain words: the machine was not calm. A mark of before stays if there
        is none now.
        """
        with self._layers[0].writing() as connection:
            return sessions.finish(connection, session, status, self._clock(), noise)

    def unfinished_sessions(self, workload: str, target: str) -> list[Session]:
        """The sessions of that workload and target (ids) that did not finish, the last one first.

        They were interrupted, or their process is gone; a session that still runs is not returned.
        """
        with self._layers[0].reading() as connection, _leaving_out() as damage:
            return sessions.unfinished(connection, workload, target, self._clock(), damage)

    def resume_session(self, session: str) -> Session:
        """Continue an unfinished session (id) in this process.

        If several processes try, one succeeds; the others get a `DatabaseError`.
        """
        with self._layers[0].writing() as connection:
            return sessions.resume(connection, session, self._clock())

    # Reading

    def get(self, kind: type[R], id: str) -> R:
        """The record of a kind by its id, from the uppermost layer that has it.

        Raises `DatabaseError` if there is none, or if it is damaged.
        """
        for layer in self._layers:
            with layer.reading() as connection:
                record = get(connection, kind, id)
            if record is not None:
                return record
        raise DatabaseError("there is no {0} {1} in {2}", kind.kind, short_id(id), self.location)

    @overload
    def find(self, prefix: str) -> AnyRecord: ...
    @overload
    def find(self, prefix: str, kind: type[R]) -> R: ...
    def find(self, prefix: str, kind: type[R] | None = None) -> AnyRecord:
        """The one record whose id begins with `prefix` (at least 4 hex digits), of a kind or any.

        Raises `DatabaseError` if there is none, or more than one.
        """
        if len(prefix) < FEWEST_DIGITS or not set(prefix) <= set("0123456789abcdef"):
            raise DatabaseError(
                "{0!r:.80} is no id: expected at least {1} hexadecimal digits",
                prefix,
                FEWEST_DIGITS,
            )
        kinds = list(KINDS) if kind is None else [kind.kind]
        matches: dict[str, AnyRecord] = {}
        for layer in self._layers:
            with layer.reading() as connection:
                found = with_prefix(connection, prefix, kinds, _MOST_NAMED + 1)
                matches = {r.id: r for r in found} | matches
        if len(matches) == 1:
            return next(iter(matches.values()))
        if not matches:
            what = "record" if kind is None else kind.kind
            raise DatabaseError("there is no {0} {1} in {2}", what, short_id(prefix), self.location)
        shared = os.path.commonprefix(list(matches))  # noqa: RUF071 - no paths
        named = [f"{r.kind} {short_id(r.id, beyond=shared)}" for r in matches.values()]
        more = ", ..." if len(named) > _MOST_NAMED else ""
        raise DatabaseError(
            "{0} may be any of {1}{2}",
            prefix,
            ", ".join(named[:_MOST_NAMED]),
            more,
            hint="give more digits",
        )

    def records(self, kind: type[R]) -> list[R]:
        """Every record of a kind, of all layers, ordered by id, but for damaged ones."""
        every = select(*COLUMNS[kind.kind])
        by_id = self._intact(every, partial(to_record, kind))
        return [by_id[id] for id in sorted(by_id)]

    def measurements(
        self,
        *,
        workload: str | Sequence[str] | None = None,
        target: TargetRecord | None = None,
        session: str | None = None,
        schedule: str | None = None,
        outcome: Outcome | None = None,
        family: str | None = None,
        since: datetime | None = None,
        order: Order = Order.CREATED,
        limit: Count | None = None,
    ) -> list[Measurement]:
        """Measurements of all layers, newest first, that match all that is given.

        `workload` (one or several), `session` and `schedule` are ids; `target` stands for all
        comparable ones, and `family` for all workloads of it. Damaged ones are left out, with a
        warning. `limit` counts the first of the `order`.
        """
        conditions = filters(workload, target, session, schedule, outcome, family, since)
        wanted = select(*COLUMNS["measurement"]).where(*conditions)
        rows = self._listed(wanted, order, limit, lambda row: (to_record(Measurement, row), None))
        return [measured for measured, _ in rows]

    def history(
        self,
        *,
        workload: str | Sequence[str] | None = None,
        target: TargetRecord | None = None,
        session: str | None = None,
        schedule: str | None = None,
        outcome: Outcome | None = None,
        family: str | None = None,
        since: datetime | None = None,
        order: Order = Order.CREATED,
        limit: Count | None = None,
    ) -> list[tuple[Measurement, ScheduleRecord]]:
        """As `measurements`, each with its schedule: warms a search, trains a cost model."""
        conditions = filters(workload, target, session, schedule, outcome, family, since)
        return self._listed(with_schedule().where(*conditions), order, limit, pair)

    def _listed(
        self,
        wanted: Select[Any],
        order: Order,
        limit: Count | None,
        read: Callable[[Row[Any]], tuple[Measurement, T]],
    ) -> list[tuple[Measurement, T]]:
        """Measurements in an order, each with the second value that `read` returns."""
        entries = self._intact(ordered(wanted, order).limit(limit), read).values()
        return sorted(entries, key=lambda entry: order_key(order, entry[0]))[:limit]

    def _intact(self, statement: Select[Any], read: Callable[[Row[Any]], T]) -> dict[str, T]:
        with self._connections() as layers, _leaving_out() as damage:
            return undamaged(layers, statement, read, damage)

    def machine(self, target: str) -> Machine | None:
        """The newest description of a target (id) in all layers, or None.

        Of those of one time the uppermost counts, then the first by id. Damaged ones are left out,
        with a warning.
        """
        with self._connections() as layers, _leaving_out() as damage:
            return newest_machine(layers, target, damage)

    def trials(self, session: str) -> int:
        """How many schedules a session (id) has measured, of those recorded in this database.

        The finals measure some of them again, which are no further trials.
        """
        schedules = select(func.count(measurement.c.schedule.distinct()))
        with self._layers[0].reading() as connection:
            return connection.execute(
                schedules.where(measurement.c.session == session)
            ).scalar_one()

    def tally(self) -> list[Tally]:
        """How many measurements this database has (without layers), by session and outcome.

        They are counted in one pass, and not checked; those without a known outcome are left out.
        """
        with self._layers[0].reading() as connection:
            return list(tally(connection))

    def each(
        self,
        *,
        workload: str | None = None,
        target: TargetRecord | None = None,
        session: str | None = None,
        schedule: str | None = None,
        outcome: Outcome | None = None,
        family: str | None = None,
        since: datetime | None = None,
    ) -> Iterator[tuple[Measurement, str]]:
        """As `measurements`, one after the other, each with the generator of its schedule.

        The oldest comes first; those from before `since` are left out. They are those of this
        database without its layers, at one moment. Memory does not grow with their number.
        """
        conditions = filters(workload, target, session, schedule, outcome, family, since)
        with self._layers[0].reading() as connection, _leaving_out() as damage:
            yield from each(connection, conditions, damage)

    # Looking up

    def best(
        self,
        workload: str,
        target: TargetRecord,
        toolchain: Toolchain | None = None,
        *,
        tolerance: Amount | None = None,
        applies: Applies | None = None,
    ) -> Best | None:
        """The pinned schedule, else the fastest verified one or one that ties with it, or None.

        A measurement counts if it is of that workload (id), of a target of the same compat and perf
        class, of the same toolchain generation (if `toolchain` is given), ok, verified, and the
        last one of its schedule in its layer; within a session, final timings replace earlier ones.
        It is verified if at least one `Verification` of the same workload, target, schedule and
        toolchain passed and none failed, put before or after it. A check that failed in any layer
        refuses the schedule in all layers. Of equal times the upper layer's wins.

        If the fastest was timed interleaved with others, the simplest of those that tie with it is
        the choice (see `interleaved_comparison`).

        Schedules with inexact steps count where `tolerance` is given, and no check has found a
        larger error; a pinned one always does.

        A damaged record is ignored with a warning; a damaged pin raises `DatabaseError`. `applies`
        is called with the chosen schedule unless that is pinned, and returns why it does not apply
        to the program, or `None`. If it does not, the next best is tried, up to a hundred. What it
        raises is raised as it is.
        """
        with self._connections() as layers, _leaving_out() as damage:
            wanted = _wanted(workload, target, toolchain, tolerance, damage)
            return lookup.best(layers, wanted, applies)

    def gains(self, best: Best) -> Gains:
        """The gains of a result of `best` over the program as written and the untuned build.

        Those that were timed interleaved with it; empty for a best that is of no finals.
        """
        with self._connections() as layers, _leaving_out() as damage:
            return lookup.gains(layers, best, damage)

    def relatives(
        self,
        workload: Workload,
        target: TargetRecord,
        toolchain: Toolchain | None = None,
        *,
        workloads: Count = 4,
        schedules: Count = 8,
        tolerance: Amount | None = None,
    ) -> list[Relative]:
        """The best schedules of other sizes of a program, which need not be in the database.

        At most `schedules` of each of the nearest `workloads` of its family are returned: the
        nearest workload first, of each the fastest first. A measurement counts as for `best`.
        """
        with self._connections() as layers, _leaving_out() as damage:
            wanted = _wanted(workload.id, target, toolchain, tolerance, damage)
            return near.relatives(layers, workload, wanted, workloads, schedules)

    def others(
        self,
        workload: Workload,
        target: TargetRecord,
        toolchain: Toolchain,
        feature_version: str,
        *,
        workloads: Count = 32,
        each: Count = 32,
    ) -> list[Measurement]:
        """Measurements of programs of other families, those of one program together.

        At most `each` of the last tuned `workloads` are returned, the first by id: a random choice
        that is always the same. They are on a comparable target and toolchain, and have features of
        that version; failures are among them. A program of unknown family is a family by itself.
        """
        with self._connections() as layers, _leaving_out() as damage:
            return near.others(
                layers,
                workload,
                target.comparable,
                toolchain.generation,
                feature_version,
                workloads,
                each,
                damage,
            )

    def explain(
        self,
        workload: Workload | str,
        target: TargetRecord,
        toolchain: Toolchain | None = None,
        *,
        tolerance: Amount | None = None,
        applies: Applies | None = None,
    ) -> Explanation:
        """As `best`, with the records that were considered and why each was refused.

        Give the `Workload` itself to see near shapes also where it was never put.
        """
        id = workload if isinstance(workload, str) else workload.id
        with self._connections() as layers:
            wanted = _wanted(id, target, toolchain, tolerance, Damage())
            return explain(layers, workload, target, wanted, applies)

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
        with other._layers[0].reading() as source, self._layers[0].writing() as connection:
            return write(connection, every(source), repin=False)

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
        `inexact` returns these for a trace (`autotune.records.inexact_steps`). Without it they name
        none, and builds set aside those that have some. Cost models in such files are skipped, with
        a warning.

        Raises `DatabaseError` that names the line for anything else, and has then written nothing.
        """
        with self._layers[0].writing() as connection:
            return json_lines.import_lines(connection, file, inexact)

    @contextmanager
    def _connections(self) -> Iterator[Layers]:
        try:
            with ExitStack() as stack:
                yield [stack.enter_context(layer.reading()) for layer in self._layers]
        except CallersError as error:
            raise error.error from None


@contextmanager
def _leaving_out() -> Iterator[Damage]:
    """Collects the damaged records that a call leaves out, and logs them at its end."""
    damage = Damage()
    try:
        yield damage
    finally:
        damage.warn()


def _wanted(
    workload: str,
    target: TargetRecord,
    toolchain: Toolchain | None,
    tolerance: float | None,
    damage: Damage,
) -> Wanted:
    generation = None if toolchain is None else toolchain.generation
    return Wanted(workload, target.comparable, generation, tolerance, damage=damage)


def _opened(path_or_url: PathOrURL, create: bool, read_only: bool) -> Opened:
    opened = open_engine(path_or_url, create, read_only)
    try:
        prepare(opened, create and not read_only)
    except BaseException:
        opened.engine.dispose()
        raise
    return opened
