"""What a tuning database is asked: records by id, lists of them, the best schedule and why.

`TuningDatabase` (`store.py`) is this and what writes. The guarantees are written there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, overload

from sqlalchemy import Row, Select, or_, select

from ..base.errors import DatabaseError
from ..base.hints import Hinted
from ..base.text import short_id
from . import lookup, near
from .arguments import require_amounts
from .compare import RecordDiff, compare_records, compare_times
from .confirm import Applies, Wanted
from .connect import Opened, SecondStatement
from .explain import Explanation, explain
from .failures import CallersError
from .gains import Gains
from .read import (
    COLUMNS,
    Damage,
    Layers,
    R,
    T,
    filters,
    get,
    newest_machine,
    order_key,
    ordered,
    pair,
    raw,
    to_record,
    undamaged,
    unique,
    with_prefix,
    with_schedule,
)
from .results import Best, Relative
from .tables import TABLES, measurement
from .tables import workload as programs
from .tally import Place, Tally, count_trials, counts, each, places, tally
from .usable import SUPERSEDED
from .values import (
    KINDS,
    AnyRecord,
    Machine,
    Measurement,
    Order,
    Outcome,
    Pin,
    ScheduleRecord,
    TargetRecord,
    Toolchain,
    Verification,
    Workload,
)
from .views import frame

if TYPE_CHECKING:
    import pandas


_OF_PIN = ("schedule", "created")
"""What a pin says beside its id, which stays when another schedule is pinned."""
_TOGETHER = 500
"""Ids that one query asks about."""


class Queries(Hinted):
    """The methods of a database and its layers that only read."""

    _layers: list[Opened]
    """The database itself, then those below it."""

    @property
    def location(self) -> str:
        """The path or URL (without password) of the database itself, as errors name it."""
        return self._layers[0].location

    @property
    def locations(self) -> tuple[str, ...]:
        """Those of the database itself and of its layers."""
        return tuple(layer.location for layer in self._layers)

    def get(self, kind: type[R], id: str) -> R:
        """The record of a kind by its id, from the uppermost layer that has it.

        Raises `DatabaseError` if there is none, or if it is damaged.
        """
        for layer in self._layers:
            with layer.reading(alone=True) as connection:
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
        name = None if kind is None else kind.kind
        matches: dict[str, str] = {}
        for layer in self._layers:
            with layer.reading() as connection:
                matches |= with_prefix(connection, prefix, name)
        id = unique(matches, prefix, self.location, name)
        return self.get(KINDS[matches[id]], id)

    def schedule_of(self, record: AnyRecord) -> ScheduleRecord | None:
        """The schedule that a record is, or that a measurement or a pin is of; `None` for others.

        Raises `DatabaseError` if it is not in the database.
        """
        if isinstance(record, Measurement | Pin):
            return self.get(ScheduleRecord, record.schedule)
        return record if isinstance(record, ScheduleRecord) else None

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
        limit: int | None = None,
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
        limit: int | None = None,
    ) -> list[tuple[Measurement, ScheduleRecord]]:
        """As `measurements`, each with its schedule: warms a search, trains a cost model."""
        conditions = filters(workload, target, session, schedule, outcome, family, since)
        return self._listed(with_schedule().where(*conditions), order, limit, pair)

    def superseded(self, ids: Sequence[str]) -> set[str]:
        """Those of measurements (ids) whose schedule was measured again later.

        Their times are not those that a lookup compares, however short they are.
        """
        with self._connections() as layers:
            return {
                id
                for connection in layers
                for start in range(0, len(ids), _TOGETHER)
                for id in connection.scalars(
                    select(measurement.c.id).where(
                        measurement.c.id.in_(ids[start : start + _TOGETHER]), SUPERSEDED
                    )
                )
            }

    def verifications(
        self, workload: str, target: TargetRecord, schedule: str
    ) -> list[Verification]:
        """The numeric checks of a schedule of a workload (ids) on comparable targets, by id.

        Those of all layers; `verified` of `tuning_db.values` says what they amount to. Damaged ones
        are left out, with a warning.
        """
        of = (workload, target.comparable, schedule)
        return self._ask(lambda layers, damage: lookup.checks_of(layers, *of, damage))

    def _listed(
        self,
        wanted: Select[Any],
        order: Order,
        limit: int | None,
        read: Callable[[Row[Any]], tuple[Measurement, T]],
    ) -> list[tuple[Measurement, T]]:
        """Measurements in an order, each with the second value that `read` returns."""
        require_amounts(limit=limit)
        entries = self._intact(ordered(wanted, order).limit(limit), read).values()
        return sorted(entries, key=lambda entry: order_key(order, entry[0]))[:limit]

    def _intact(self, statement: Select[Any], read: Callable[[Row[Any]], T]) -> dict[str, T]:
        return self._ask(lambda layers, damage: undamaged(layers, statement, read, damage))

    def state(self, families: Sequence[str], workloads: Sequence[str]) -> str:
        """A digest (SHA-256, hex) of what lookups of programs read, by their families and ids.

        It is another one after measurements, numeric checks or pins of these were added, removed or
        changed, in any layer.
        """
        total = hashlib.sha256()
        ids = select(raw(programs.c.id)).where(
            or_(programs.c.family.in_(families), programs.c.id.in_(workloads))
        )
        with self._connections() as layers:
            for connection in layers:
                total.update(b"layer\n")
                for kind, more in (("measurement", ()), ("verification", ()), ("pin", _OF_PIN)):
                    of = TABLES[kind].c
                    read = (raw(of[name]) for name in ("id", *more))
                    rows = select(*read).where(of.workload.in_(ids)).order_by(of.id)
                    for row in connection.execute(rows):
                        total.update(f"{kind} {tuple(row)!r}\n".encode())
        return total.hexdigest()

    def machine(self, target: str) -> Machine | None:
        """The newest description of a target (id) in all layers, or None.

        Of those of one time the uppermost counts, then the first by id. Damaged ones are left out,
        with a warning.
        """
        with self._connections() as layers, leaving_out() as damage:
            return newest_machine(layers, target, damage)

    def trials(self, session: str) -> int:
        """How many trials of a session (id) are recorded in this database.

        Finals measure some of their schedules again, and what they are compared with; those are no
        trials.
        """
        with self._layers[0].reading() as connection:
            return count_trials(connection, session)

    def tally(self) -> list[Tally]:
        """How many measurements this database has (without layers), by session and outcome.

        Also how many of them are trials, as `trials` counts them. They are counted in one pass, and
        not checked; those without a known outcome are left out.
        """
        with self._layers[0].reading() as connection:
            return list(tally(connection))

    def counts(self) -> dict[str, int]:
        """How many records of each kind this database has (without layers)."""
        with self._layers[0].reading() as connection:
            return counts(connection)

    def places(self, today: Callable[[str], Toolchain | None]) -> list[Place]:
        """What this database has (without layers) by target and generation of the compiler.

        `today` returns the tools of today for the text of a target, `None` where it knows none.
        """
        with self._layers[0].reading() as connection, leaving_out() as damage:
            return places(connection, today, damage)

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
    ) -> Generator[tuple[Measurement, str], None, None]:
        """As `measurements`, one after the other, each with the generator of its schedule.

        The oldest comes first; those from before `since` are left out. They are those of this
        database without its layers, at one moment. Memory does not grow with their number.
        """
        conditions = filters(workload, target, session, schedule, outcome, family, since)
        with self._layers[0].reading() as connection, leaving_out() as damage:
            yield from each(connection, conditions, damage)

    def to_pandas(self, view: str = "trials") -> pandas.DataFrame:
        """A view as a data frame, a row for each record, by its id: `trials`, `sessions` or `best`.

        Of this database, without layers. Columns are those of the views in SQL: times in seconds,
        moments in UTC, texts that repeat as categories. Rows are as they are in the database: of a
        value that does not belong in its column `DatabaseError` is raised. So it is where pandas,
        which the extra `plot` installs, is missing.
        """
        with self._layers[0].reading() as connection:
            return frame(connection, view)

    def diff(self, first: str, second: str) -> RecordDiff:
        """The fields in which two records differ, by their ids or any beginning of them.

        Of different schedules and measurements also their times. Raises `DatabaseError` if they are
        of different kinds.
        """
        difference = compare_records(self.find(first), self.find(second))
        one, two = difference.first, difference.second
        if one == two or not isinstance(one, ScheduleRecord | Measurement):
            return difference
        return replace(difference, times=compare_times(self._runs(one), self._runs(two)))

    def _runs(self, record: AnyRecord) -> list[Measurement]:
        """The measurements of a schedule that ran, or this one if it did."""
        if isinstance(record, Measurement):
            return [record] if record.outcome is Outcome.OK else []
        return self.measurements(schedule=record.id, outcome=Outcome.OK)

    # Looking up

    def best(
        self,
        workload: str,
        target: TargetRecord,
        toolchain: Toolchain | None = None,
        *,
        tolerance: float | None = None,
        applies: Applies | None = None,
        pins: bool = True,
    ) -> Best | None:
        """The pinned schedule, else the fastest verified one or one that ties with it, or None.

        A measurement counts if it is of that workload (id), of a target of the same compat and perf
        class, of the same toolchain generation and versions of primitives (if `toolchain` is
        given), ok, verified, and the last one of its schedule in all layers; within a session,
        final timings replace earlier ones (see `tuning_db/finals_rule.py`).
        It is verified if at least one `Verification` of the same workload, target, schedule and
        toolchain passed and none failed, put before or after it. A check that failed in any layer
        refuses the schedule in all layers. Of equal times the upper layer's wins.

        Without `pins` it is the recorded best: what it would be if nothing were pinned.

        Of those that were timed interleaved, only the choice competes with others: the simplest of
        those that tie with the fastest (see `interleaved_comparison`).

        Schedules with inexact steps count where `tolerance` is given, and no check has found a
        larger error; a pinned one always does.

        A damaged record is ignored with a warning; a damaged pin raises `DatabaseError`. `applies`
        is called with the chosen schedule unless that is pinned, and returns why it does not apply
        to the program, or `None`. If it does not, the next best is tried, up to a hundred. What it
        raises is raised as it is.
        """

        def best(layers: Layers, damage: Damage) -> Best | None:
            wanted = _wanted(workload, target, toolchain, tolerance, damage)
            return lookup.best(layers, wanted, applies, pins=pins)

        return self._ask(best)

    def pinned(self, workload: str, target: TargetRecord) -> Pin | None:
        """The pin of a workload (id) on comparable targets that `best` takes, or None.

        A damaged one is left out, with a warning.
        """
        of = (workload, target.comparable)
        return self._ask(lambda layers, damage: lookup.in_force(layers, *of, damage))

    def gains(self, best: Best) -> Gains:
        """The gains of a result of `best` over the program as written and the untuned build.

        Those that were timed interleaved with it; empty for a best that is of no finals.
        """
        with self._connections() as layers, leaving_out() as damage:
            return lookup.gains(layers, best, damage)

    def noise(self, best: Best) -> str | None:
        """What disturbed the session that measured a result of `best`, in plain words.

        None if its machine was calm, and where the session is not known.
        """
        with self._connections() as layers, leaving_out() as damage:
            return lookup.noise(layers, best, damage)

    def relatives(
        self,
        workload: Workload,
        target: TargetRecord,
        toolchain: Toolchain | None = None,
        *,
        workloads: int = 4,
        schedules: int = 8,
        tolerance: float | None = None,
    ) -> list[Relative]:
        """The best schedules of other sizes of a program, which need not be in the database.

        At most `schedules` of each of the nearest `workloads` of its family are returned: the
        nearest workload first, of each the fastest first. A measurement counts as for `best`; the
        finalists that lost to a choice follow it.
        """
        require_amounts(workloads=workloads, schedules=schedules)
        with self._connections() as layers, leaving_out() as damage:
            wanted = _wanted(workload.id, target, toolchain, tolerance, damage)
            return near.relatives(layers, workload, wanted, workloads, schedules)

    def others(
        self,
        workload: Workload,
        target: TargetRecord,
        toolchain: Toolchain,
        feature_version: str,
        *,
        workloads: int = 32,
        each: int = 32,
    ) -> list[Measurement]:
        """Measurements of programs of other families, those of one program together.

        At most `each` of the last tuned `workloads` are returned, the first by id: a random choice
        that is always the same. They are on a comparable target and toolchain, and have features of
        that version; failures are among them. A program of unknown family is a family by itself.
        """
        require_amounts(workloads=workloads, each=each)
        with self._connections() as layers, leaving_out() as damage:
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
        tolerance: float | None = None,
        applies: Applies | None = None,
    ) -> Explanation:
        """As `best`, with the records that were considered and why each was refused.

        Give the `Workload` itself to see near shapes also where it was never put.
        """
        id = workload if isinstance(workload, str) else workload.id
        with self._connections() as layers:
            wanted = _wanted(id, target, toolchain, tolerance, Damage())
            return explain(layers, workload, target, wanted, applies)

    def _ask(self, read: Callable[[Layers, Damage], T]) -> T:
        """The result of `read`, of one state of each layer.

        It is asked without a transaction first, for what takes one statement of a layer.
        """
        with leaving_out() as damage:
            with suppress(SecondStatement), self._connections(alone=True) as layers:
                return read(layers, damage)
            with self._connections() as layers:
                return read(layers, damage)

    @contextmanager
    def _connections(self, *, alone: bool = False) -> Iterator[Layers]:
        try:
            with ExitStack() as stack:
                yield [stack.enter_context(layer.reading(alone=alone)) for layer in self._layers]
        except CallersError as error:
            raise error.error from None


@contextmanager
def leaving_out() -> Iterator[Damage]:
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
    require_amounts(tolerance=tolerance)
    return Wanted(workload, target.comparable, toolchain, tolerance, damage=damage)
