"""Two databases become one: each gets the records that it lacks, in portions.

Ids are content, so that what both have need not be read: only ids are compared. Every portion is a
transaction of its own, and parents come before what refers to them. A copy that is interrupted has
therefore done a part of the work, and the next one goes on where it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sqlalchemy import Connection, null, select

from .codec import instant
from .connect import Opened
from .read import COLUMNS, raw, to_record
from .tables import TABLES
from .values import KINDS, AnyRecord, Session
from .write import BATCH, CHANGING, write

PORTION = 2000
"""Records of a transaction, so that other writers need not wait long."""


class Synced(NamedTuple):
    """How many records of each kind the two databases got from each other."""

    received: dict[str, int]
    sent: dict[str, int]


def copy(source: Opened, destination: Opened) -> dict[str, int]:
    """Give a database what it lacks of another one; return how many records of each kind.

    Of two states of a session the later stays, and a pin of the destination stays.
    """
    counts = dict.fromkeys(KINDS, 0)
    with source.reading() as one:  # of one moment: what is referred to is there
        for kind in KINDS:
            with destination.reading() as other:
                ids = list(_missing(one, other, kind))
            for start in range(0, len(ids), PORTION):
                with destination.writing() as other:
                    some = _records(one, kind, ids[start : start + PORTION])
                    counts[kind] += write(other, some, repin=False)[kind]
    return counts


def _missing(source: Connection, destination: Connection, kind: str) -> Iterator[str]:
    """The ids of records that only the source has, or has in another state."""
    table = TABLES[kind]
    state = raw(table.c[CHANGING[kind]]) if kind in CHANGING else null()
    every = select(raw(table.c.id), state)
    read = instant if kind == Session.kind else lambda value: value
    with source.execute(every, execution_options={"yield_per": BATCH}) as rows:
        for batch in rows.partitions():
            ids = [id for id, _ in batch]
            there = destination.execute(every.where(table.c.id.in_(ids))).all()
            known = {id: read(value) for id, value in there}
            yield from (id for id, value in batch if id not in known or known[id] != read(value))


def _records(connection: Connection, kind: str, ids: Sequence[str]) -> Iterator[AnyRecord]:
    for start in range(0, len(ids), BATCH):
        wanted = TABLES[kind].c.id.in_(ids[start : start + BATCH])
        for row in connection.execute(select(*COLUMNS[kind]).where(wanted)).all():
            yield to_record(KINDS[kind], row)
