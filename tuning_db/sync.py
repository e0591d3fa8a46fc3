"""Two databases become one: each gets the records that it lacks, in portions.

Ids are content, so that what both have need not be read: only ids are compared. Every portion is a
transaction of its own, and parents come before what refers to them. A copy that is interrupted has
therefore done a part of the work, and the next one goes on where it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import Connection, null, select

from ..base.errors import DatabaseError
from ..base.text import count
from .codec import instant
from .connect import Opened
from .failures import sensible
from .read import COLUMNS, location, raw, to_record
from .tables import TABLES
from .values import KINDS, AnyRecord, Session
from .write import BATCH, CHANGING, write

PORTION = 2000
"""Records of a transaction, so that other writers need not wait long."""
_MOST_REFUSED = 1000
"""Records that a database refuses before it counts as one that refuses all."""
_SHOWN = 3
"""Reasons that an error lists."""


class Synced(NamedTuple):
    """How many records of each kind the two databases got from each other."""

    received: dict[str, int]
    sent: dict[str, int]


def copy(source: Opened, destination: Opened, refused: dict[str, DatabaseError]) -> dict[str, int]:
    """Give a database what it lacks of another one; return how many records of each kind.

    Of two states of a session the later stays, and a pin of the destination stays. Records that are
    damaged, or that the destination refuses, hold back no others: they are added to `refused`, by
    their ids, with why. Raises `DatabaseError` for all else that goes wrong.
    """
    counts = dict.fromkeys(KINDS, 0)
    with source.reading() as one:  # of one moment: what is referred to is there
        for kind in KINDS:
            with destination.reading() as other:
                ids = list(_missing(one, other, kind))
            for start in range(0, len(ids), PORTION):
                some = list(_records(one, kind, ids[start : start + PORTION], refused))
                counts[kind] += _write(destination, some, refused)
    return counts


def require_taken(refused: Mapping[str, DatabaseError]) -> None:
    """Raise `DatabaseError` for what was `refused`, if anything was, with all ids in its data."""
    if not refused:
        return
    error, *others = refused.values()
    if not others:
        raise error
    reasons = [error.first_line for error in refused.values()][:_SHOWN]
    raise DatabaseError(
        "{0} are refused: {1}{2}",
        count(len(refused), "record"),
        "; ".join(reasons),
        f"; and {len(refused) - _SHOWN} more" if len(refused) > _SHOWN else "",
        refused=list(refused),
    )


def _write(
    destination: Opened, records: Sequence[AnyRecord], refused: dict[str, DatabaseError]
) -> int:
    """Write records in one transaction, those of a half in one where it is refused."""
    if not records:
        return 0
    try:
        with destination.writing() as other:
            return sum(write(other, records, repin=False).values())
    except DatabaseError as error:
        if not error.data.keys() & {"refused", "record"}:
            raise  # it is not about records
        if len(records) == 1:
            refused[records[0].id] = error
            if len(refused) > _MOST_REFUSED:
                require_taken(refused)
            return 0
    half = len(records) // 2
    return sum(_write(destination, some, refused) for some in (records[:half], records[half:]))


def _missing(source: Connection, destination: Connection, kind: str) -> Iterator[str]:
    """The ids of records that only the source has, or has in another state."""
    table = TABLES[kind]
    state = raw(table.c[CHANGING[kind]]) if kind in CHANGING else null()
    every = select(raw(table.c.id), state)
    read = _moment if kind == Session.kind else lambda value: value
    with source.execute(every, execution_options={"yield_per": BATCH}) as rows:
        for batch in rows.partitions():
            ids = [id for id, _ in batch]
            there = destination.execute(every.where(table.c.id.in_(ids))).all()
            known = {id: read(value) for id, value in there}
            yield from (id for id, value in batch if id not in known or known[id] != read(value))


def _moment(value: object) -> object:
    """A time, or what is damaged as it is: the record with it is read, and refused alone."""
    try:
        return instant(value)
    except DatabaseError:
        return value


def _records(
    connection: Connection, kind: str, ids: Sequence[str], refused: dict[str, DatabaseError]
) -> Iterator[AnyRecord]:
    for start in range(0, len(ids), BATCH):
        wanted = TABLES[kind].c.id.in_(ids[start : start + BATCH])
        for row in connection.execute(select(*COLUMNS[kind]).where(wanted)).all():
            try:
                with sensible(location(connection)):
                    yield to_record(KINDS[kind], row)
            except DatabaseError as error:
                refused[row.id] = error
