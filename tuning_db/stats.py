"""What a database holds, in numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Column, Connection, func, select

from ..base.display import html
from ..base.errors import DatabaseError
from .codec import instant
from .read import COLUMNS, raw, to_record
from .removal import counted
from .tables import TABLES, measurement, target, toolchain
from .tally import tally
from .values import Outcome, Session

_TOLD = ("workload", "session", "measurement")
"""Kinds of records that the `repr` of numbers counts."""


@dataclass(frozen=True)
class Stats:
    """The numbers of one database, without its layers.

    `records` counts by kind, the others count measurements: by outcome, by the text of the target
    and by the generation of the compiler. `trials` of them are trials, by outcome: the others are
    finals and what they compare with. `first` and `last` are the times of measurements, None
    where there are none. `seconds` is the duration of all sessions, and `size` what the database
    takes, in bytes; `free` bytes of it are given back by `compact`.
    """

    location: str
    records: Mapping[str, int]
    outcomes: Mapping[Outcome, int]
    trials: Mapping[Outcome, int]
    targets: Mapping[str, int]
    compilers: Mapping[str, int]
    first: datetime | None
    last: datetime | None
    seconds: float
    size: int
    free: int

    _repr_html_ = html

    def __repr__(self) -> str:
        counts = counted({kind: n for kind, n in self.records.items() if kind in _TOLD})
        return f"<Stats: {counts or 'no records'}>"


def stats(connection: Connection, location: str) -> Stats:
    """The numbers of a database. Values that are damaged count for nothing."""
    texts = dict(_pairs(connection, target.c.id, target.c.text))
    generations = dict(_pairs(connection, toolchain.c.id, toolchain.c.generation))
    outcomes, trials = Counter[Outcome](), Counter[Outcome]()
    targets, compilers = Counter[str](), Counter[str]()
    for row in tally(connection):
        outcomes[row.outcome] += row.measurements
        trials[row.outcome] += row.trials
        targets[texts.get(row.target, row.target)] += row.measurements
        compilers[generations.get(row.toolchain, row.toolchain)] += row.measurements
    created = raw(measurement.c.created)
    first, last = connection.execute(select(func.min(created), func.max(created))).one()
    size, free = _bytes(connection)
    return Stats(
        location=location,
        records={
            kind: connection.execute(select(func.count()).select_from(table)).scalar_one()
            for kind, table in TABLES.items()
        },
        outcomes=dict(outcomes.most_common()),
        trials={outcome: n for outcome, n in trials.most_common() if n},
        targets=dict(targets.most_common()),
        compilers=dict(compilers.most_common()),
        first=_moment(first),
        last=_moment(last),
        seconds=sum(_durations(connection)),
        size=size,
        free=free,
    )


def _durations(connection: Connection) -> Iterator[float]:
    """The duration of each session."""
    for row in connection.execute(select(*COLUMNS["session"])):
        with suppress(DatabaseError):
            yield to_record(Session, row).duration


def _pairs(connection: Connection, *columns: Column[Any]) -> list[tuple[Any, Any]]:
    rows = connection.execute(select(*map(raw, columns)))
    return [(row[0], row[1]) for row in rows]


def _moment(value: object) -> datetime | None:
    with suppress(DatabaseError):
        return instant(value)
    return None


def _bytes(connection: Connection) -> tuple[int, int]:
    """What the database takes, and what of it is free."""
    if connection.dialect.name == "sqlite":
        size, pages, free = (
            int(connection.exec_driver_sql(f"PRAGMA {name}").scalar_one())
            for name in ("page_size", "page_count", "freelist_count")
        )
        return size * pages, size * free
    sizes = (func.pg_total_relation_size(name) for name in TABLES)
    return sum(connection.execute(select(*sizes)).one()), 0
