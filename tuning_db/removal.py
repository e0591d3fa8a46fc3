"""Deleting records: what depends on them, and what a database can do without.

All of it happens in one transaction. What is left is as if the deleted records had never been put:
references hold, and measurements are verified if checks are left that say so.

`prune` leaves what lookups return as it is. A measurement that was superseded goes only if nothing
compares with it: the finals of a session read what the session measured before, and the gains of a
best those that were timed interleaved with it, superseded or not. The last finals of a session
stay: they outdate what came before them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import islice
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, and_, func, not_, select

from ..base.display import html
from ..base.errors import DatabaseError
from ..base.text import count, short_id
from .codec import instant
from .finals_rule import FINALS, in_finals
from .lookup import SAME, superseded
from .read import COLUMNS, among, get, is_text, location, raw, to_record
from .sessions import AT_WORK, is_alive
from .tables import CHECKED, TABLES, measurement, session, toolchain, verification
from .values import KINDS, Session, SessionStatus
from .write import BATCH, verify

Ids = dict[str, list[str]]
"""Ids by the kind of record, parents first."""
_REFERENCES: dict[str, list[Column[Any]]] = {
    kind: [
        column
        for table in TABLES.values()
        for column in table.columns
        if any(key.column.table.name == kind for key in column.foreign_keys)
    ]
    for kind in KINDS
}
"""The columns that refer to records of a kind."""
_UNNEEDED = ("environment", "schedule")
"""Kinds that say nothing where nothing refers to them."""


class RemovalReason(StrEnum):
    """Why `prune` deletes records; the first reason that applies counts."""

    DAMAGED = "damaged"
    SUPERSEDED = "measured again later, in another session"
    OLD_COMPILER = "of a compiler that measures nothing any more"
    EMPTY = "a session that ended and measured nothing"
    UNUSED = "nothing refers to it"
    ASKED = "asked for"
    DEPENDENT = "refers to another one of them"


@dataclass(frozen=True)
class Removal:
    """What `delete` or `prune` has deleted, or would delete if it is not `done`.

    `reasons` has the ids of records by reason and kind, `layers` the locations of layers that still
    have some of them. `str()` is a line for each reason.
    """

    location: str
    reasons: Mapping[RemovalReason, Mapping[str, tuple[str, ...]]]
    done: bool
    layers: tuple[str, ...] = ()

    _repr_html_ = html

    @property
    def counts(self) -> dict[str, int]:
        """How many records of each kind."""
        counts: dict[str, int] = {}
        for ids in self.reasons.values():
            for kind, of_kind in ids.items():
                counts[kind] = counts.get(kind, 0) + len(of_kind)
        return {kind: counts[kind] for kind in KINDS if kind in counts}

    def __repr__(self) -> str:
        word = "done" if self.done else "dry run"
        return f"<Removal, {word}: {counted(self.counts) or 'nothing'}; print it>"

    def __str__(self) -> str:
        if not self.reasons:
            return f"there is nothing to delete in {self.location}"
        word = "deleted from" if self.done else "to be deleted from"
        lines = [f"{word} {self.location}: {counted(self.counts)}"]
        for why, ids in self.reasons.items():
            lines.append(
                f"  {counted({kind: len(of_kind) for kind, of_kind in ids.items()})}: {why}"
            )
        lines += [f"  {layer} has some of them too, and is read-only" for layer in self.layers]
        return "\n".join(lines)


def counted(counts: Mapping[str, int]) -> str:
    """`3 measurements, 1 schedule`."""
    return ", ".join(count(n, kind) for kind, n in counts.items())


def with_dependents(connection: Connection, ids: Mapping[str, Iterable[str]]) -> Ids:
    """The records of some ids by kind, and all that refer to them."""
    reached = {kind: dict.fromkeys(ids.get(kind, ())) for kind in KINDS}
    for kind in KINDS:
        for column in _REFERENCES[kind]:
            for some in _batches(reached[kind]):
                id = raw(column.table.c.id)
                rows = connection.execute(select(id).where(among(column, some)))
                reached[column.table.name] |= dict.fromkeys(rows.scalars())
    return {kind: list(of_kind) for kind, of_kind in reached.items() if of_kind}


def remove(connection: Connection, ids: Ids) -> None:
    """Delete records and nothing else, children first."""
    checked = set[tuple[str, ...]]()
    columns = [verification.c[name] for name in CHECKED]
    for some in _batches(ids.get(verification.name, ())):
        rows = connection.execute(select(*columns).where(among(verification.c.id, some)))
        checked |= {tuple(row) for row in rows if all(map(is_text, row))}
    for kind in reversed(KINDS):
        table = TABLES[kind]
        for some in _batches(ids.get(kind, ())):
            done = connection.execute(table.delete().where(among(table.c.id, some)))
            if done.rowcount != len(some):
                raise DatabaseError(
                    "database {0} did not delete all: {1} of {2} records of kind {3}",
                    location(connection),
                    done.rowcount,
                    len(some),
                    kind,
                    hint="a trigger or rule of somebody else's may be on its tables: drop it",
                )
    verify(connection, sorted(checked))


def any_of(connection: Connection, ids: Ids) -> bool:
    """Whether a database has any of some records."""
    for kind, of_kind in ids.items():
        id = raw(TABLES[kind].c.id)
        for some in _batches(of_kind):
            if connection.execute(select(id).where(among(id, some)).limit(1)).first() is not None:
                return True
    return False


def require_ended(connection: Connection, ids: Ids, now: datetime) -> None:
    """Raise `DatabaseError` if a session among some records runs."""
    for id in ids.get(Session.kind, ()):
        if not is_text(id):
            continue
        try:
            state = get(connection, Session, id)
        except DatabaseError:
            continue  # a damaged one is no process's
        if state is not None and is_alive(state, now):
            raise DatabaseError(
                "session {0} runs, in process {1} on {2}: it is not deleted, nor what it refers to",
                short_id(id),
                state.pid,
                state.host,
                hint="end it first",
            )


def prunable(
    connection: Connection, now: datetime, unused_since: datetime | None, damaged: bool
) -> dict[RemovalReason, Ids]:
    """What `TuningDatabase.prune` deletes, by the reason."""
    running = [s for s in _sessions(connection) if is_alive(s, now)]
    if running and unused_since is not None:
        raise DatabaseError(
            "session {0} runs, and may use any compiler: those that nothing is measured with any "
            "more cannot be told",
            short_id(running[0].id),
            hint="prune without unused_since, or when no session runs",
        )
    wanted: dict[RemovalReason, Mapping[str, Iterable[str]]] = {}
    if damaged:
        wanted[RemovalReason.DAMAGED] = {kind: list(_damaged(connection, kind)) for kind in KINDS}
    wanted[RemovalReason.SUPERSEDED] = {
        measurement.name: connection.execute(_SUPERSEDED).scalars().all()
    }
    if unused_since is not None:
        wanted[RemovalReason.OLD_COMPILER] = {
            toolchain.name: _old_compilers(connection, unused_since)
        }
    alive = {s.id for s in running}
    empty = connection.execute(_EMPTY).scalars()
    wanted[RemovalReason.EMPTY] = {session.name: [id for id in empty if id not in alive]}
    plan = _by_reason(connection, wanted)
    if not running:
        unused = {kind: _unused(connection, kind, plan) for kind in _UNNEEDED}
        plan |= {RemovalReason.UNUSED: {kind: ids for kind, ids in unused.items() if ids}}
    return {why: ids for why, ids in plan.items() if ids}


def requested(connection: Connection, ids: Mapping[str, Iterable[str]]) -> dict[RemovalReason, Ids]:
    """What `TuningDatabase.delete` deletes, by the reason."""
    return {w: i for w, i in _by_reason(connection, {RemovalReason.ASKED: ids}).items() if i}


def together(plan: Mapping[RemovalReason, Ids]) -> Ids:
    """The ids of all reasons."""
    kinds = {kind: [id for ids in plan.values() for id in ids.get(kind, ())] for kind in KINDS}
    return {kind: ids for kind, ids in kinds.items() if ids}


def _by_reason(
    connection: Connection, wanted: Mapping[RemovalReason, Mapping[str, Iterable[str]]]
) -> dict[RemovalReason, Ids]:
    """Each record by the first reason, and those that refer to them by the last."""
    told = {kind: set[str]() for kind in KINDS}
    plan: dict[RemovalReason, Ids] = {}
    for why, ids in wanted.items():
        new = {
            k: [i for i in dict.fromkeys(of_kind) if i not in told[k]] for k, of_kind in ids.items()
        }
        plan[why] = {kind: of_kind for kind, of_kind in new.items() if of_kind}
        for kind, of_kind in new.items():
            told[kind].update(of_kind)
    more = with_dependents(connection, told)
    dependents = {kind: [id for id in ids if id not in told[kind]] for kind, ids in more.items()}
    plan[RemovalReason.DEPENDENT] = {kind: ids for kind, ids in dependents.items() if ids}
    return plan


def _prunable() -> ColumnElement[bool]:
    last, partner, latest, final = (measurement.alias() for _ in range(4))
    counted_elsewhere = (
        select(last.c.id)
        .where(
            *(last.c[name] == measurement.c[name] for name in SAME),
            last.c.session != measurement.c.session,
            not_(superseded(last)),
        )
        .exists()
    )
    compared = (
        select(partner.c.id)
        .where(
            *(partner.c[name] == measurement.c[name] for name in FINALS),
            not_(superseded(partner)),
        )
        .exists()
    )
    # Which finals are the last of a session does not change.
    before_the_last = (
        select(latest.c.id)
        .where(
            latest.c.session == measurement.c.session,
            latest.c.workload == measurement.c.workload,
            latest.c.created > measurement.c.created,
        )
        .exists()
    )
    # Superseded or not, the last ones outdate what came before them.
    later_finals = (
        select(final.c.id)
        .where(
            *(final.c[name] == measurement.c[name] for name in FINALS[:-1]),
            final.c.created > measurement.c.created,
            in_finals(final),
        )
        .exists()
    )
    outdates = and_(in_finals(measurement), not_(later_finals))
    # An unfinished one may be resumed, and counts its trials.
    finished = measurement.c.session.in_(
        select(session.c.id).where(session.c.status == SessionStatus.FINISHED)
    )
    return and_(counted_elsewhere, not_(compared), before_the_last, not_(outdates), finished)


_SUPERSEDED = select(measurement.c.id).where(_prunable()).order_by(measurement.c.id)
_EMPTY = (
    select(session.c.id)
    .where(~select(measurement.c.id).where(measurement.c.session == session.c.id).exists())
    .order_by(session.c.id)
)


def _sessions(connection: Connection) -> Iterator[Session]:
    """The sessions that say they run; damaged ones are left out."""
    wanted = select(*COLUMNS["session"]).where(session.c.status.in_(AT_WORK))
    for row in connection.execute(wanted).all():
        try:
            yield to_record(Session, row)
        except DatabaseError:
            continue


def _old_compilers(connection: Connection, since: datetime) -> list[str]:
    """The toolchains of generations that measured nothing since, but for the one used last."""
    rows = connection.execute(
        select(raw(toolchain.c.generation), func.max(raw(measurement.c.created)).label("last"))
        .join(measurement, measurement.c.toolchain == toolchain.c.id)
        .group_by(toolchain.c.generation)
    )
    last = {row[0]: instant(row[1]) for row in rows}
    newest = max(last.values(), default=since)
    old = [name for name, moment in last.items() if moment < since and moment < newest]
    ids = select(raw(toolchain.c.id)).where(among(toolchain.c.generation, old))
    ids = ids.order_by(toolchain.c.id)
    return list(connection.execute(ids).scalars())


def _damaged(connection: Connection, kind: str) -> Iterator[str]:
    for row in connection.execute(select(*COLUMNS[kind]), execution_options={"yield_per": BATCH}):
        try:
            to_record(KINDS[kind], row)
        except DatabaseError:
            yield row[0]


def _unused(connection: Connection, kind: str, plan: Mapping[RemovalReason, Ids]) -> list[str]:
    """The records of a kind that nothing refers to once a plan is carried out."""
    going = {name: set(ids) for name, ids in together(plan).items()}
    used = going.get(kind, set()).copy()
    for column in _REFERENCES[kind]:
        gone = going.get(column.table.name, set())
        rows = connection.execute(select(raw(column.table.c.id), raw(column)))
        used |= {row[1] for row in rows if row[0] not in gone}
    table = TABLES[kind]
    ids = connection.execute(select(raw(table.c.id)).order_by(table.c.id)).scalars()
    return [id for id in ids if id not in used]


def _batches(ids: Iterable[str]) -> Iterator[Sequence[str]]:
    rest = iter(ids)
    while some := list(islice(rest, BATCH)):
        yield some
