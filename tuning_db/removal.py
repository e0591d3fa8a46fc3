"""Deleting the records that a database can do without, in one transaction.

`prune` leaves what lookups return as it is. A measurement that was superseded goes only if nothing
compares with it: the finals of a session read what the session measured before, and the gains of a
best those that were timed interleaved with it, superseded or not. The last finals of a session
stay: they outdate what came before them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import islice
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, and_, not_, select

from ..base.display import html
from ..base.errors import DatabaseError
from ..base.text import count
from .finals_rule import FINALS, in_finals
from .read import COLUMNS, among, location, raw, to_record
from .sessions import AT_WORK, is_alive
from .tables import TABLES, measurement, session
from .usable import SAME, superseded
from .values import KINDS, Session, SessionStatus
from .write import BATCH

Ids = dict[str, list[str]]
"""Ids by the kind of record."""
_UNNEEDED = ("environment", "schedule")
"""Kinds that say nothing where nothing refers to them."""
_REFERENCES: dict[str, list[Column[Any]]] = {
    kind: [
        column
        for table in TABLES.values()
        for column in table.columns
        if any(key.column.table.name == kind for key in column.foreign_keys)
    ]
    for kind in _UNNEEDED
}
"""The columns that refer to records of a kind."""


class RemovalReason(StrEnum):
    """Why `prune` deletes records."""

    SUPERSEDED = "measured again later, in another session"
    EMPTY = "a session that ended and measured nothing"
    UNUSED = "nothing refers to it"


@dataclass(frozen=True)
class Removal:
    """What `prune` has deleted, or would delete if it is not `done`.

    `reasons` has the ids of records by reason and kind. `str()` is a line for each reason.
    """

    location: str
    reasons: Mapping[RemovalReason, Mapping[str, tuple[str, ...]]]
    done: bool

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
        return "\n".join(lines)


def counted(counts: Mapping[str, int]) -> str:
    """`3 measurements, 1 schedule`."""
    return ", ".join(count(n, kind) for kind, n in counts.items())


def prunable(connection: Connection, now: datetime) -> dict[RemovalReason, Ids]:
    """What `TuningDatabase.prune` deletes, by the reason. Nothing that is left refers to it."""
    alive = {s.id for s in _sessions(connection) if is_alive(s, now)}
    old = list(connection.execute(_SUPERSEDED).scalars())
    empty = [id for id in connection.execute(_EMPTY).scalars() if id not in alive]
    plan: dict[RemovalReason, Ids] = {
        RemovalReason.SUPERSEDED: {measurement.name: old} if old else {},
        RemovalReason.EMPTY: {session.name: empty} if empty else {},
    }
    if not alive:  # a session that runs may refer to any of them next
        unused = {kind: _unused(connection, kind, {*old, *empty}) for kind in _UNNEEDED}
        plan[RemovalReason.UNUSED] = {kind: ids for kind, ids in unused.items() if ids}
    return {why: ids for why, ids in plan.items() if ids}


def remove(connection: Connection, plan: Mapping[RemovalReason, Ids]) -> None:
    """Delete what `prunable` returned, those that refer to others first."""
    for ids in plan.values():
        for kind, of_kind in ids.items():
            table, rest = TABLES[kind], iter(of_kind)
            while some := list(islice(rest, BATCH)):
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


def _unused(connection: Connection, kind: str, gone: AbstractSet[str]) -> list[str]:
    """The records of a kind that nothing refers to, but for records (ids) that are gone."""
    used = set[str]()
    for column in _REFERENCES[kind]:
        rows = connection.execute(select(raw(column.table.c.id), raw(column)))
        used |= {row[1] for row in rows if row[0] not in gone}
    table = TABLES[kind]
    ids = connection.execute(select(raw(table.c.id)).order_by(table.c.id)).scalars()
    return [id for id in ids if id not in used]
