"""Differences: of two records of a kind, and of two databases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, select

from ..display import html
from ..errors import DatabaseError
from ..ids import short_id
from ..texts import count
from .read import raw
from .removal import counted
from .tables import TABLES, pin
from .values import KINDS, AnyRecord, Json, Pin, to_plain


@dataclass(frozen=True)
class RecordDiff:
    """Two records of one kind, and the fields in which they differ.

    Fields of fields are named with dots (`search.batch`); a field that one has not is None there.
    """

    first: AnyRecord
    second: AnyRecord
    fields: Mapping[str, tuple[Json, Json]]

    _repr_html_ = html

    def __repr__(self) -> str:
        names = f"{self.first.kind}s {short_id(self.first.id)} and {short_id(self.second.id)}"
        return f"<RecordDiff of {names}: {count(len(self.fields), 'field')}>"


@dataclass(frozen=True)
class DatabaseDiff:
    """The ids of the records, by kind, that one of two databases has and the other has not.

    `pins` are the ids of pins that both have, of different schedules.
    """

    first: str
    second: str
    only_first: Mapping[str, tuple[str, ...]]
    only_second: Mapping[str, tuple[str, ...]]
    pins: tuple[str, ...]

    _repr_html_ = html

    def __repr__(self) -> str:
        first, second = (sum(map(len, o.values())) for o in (self.only_first, self.only_second))
        pins = f", and {count(len(self.pins), 'pin')}" if self.pins else ""
        return f"<DatabaseDiff: {first} records of the first alone, {second} of the second{pins}>"

    def __str__(self) -> str:
        lines = [
            f"only {name} has {counted({k: len(ids) for k, ids in only.items()})}"
            for name, only in ((self.first, self.only_first), (self.second, self.only_second))
            if only
        ]
        if self.pins:
            lines.append(f"both have {counted({Pin.kind: len(self.pins)})} of different schedules")
        return "\n".join(lines) or f"{self.first} and {self.second} have the same records"


def compare_records(first: AnyRecord, second: AnyRecord) -> RecordDiff:
    """The difference of two records. Raises `DatabaseError` if they are of different kinds."""
    if first.kind != second.kind:
        raise DatabaseError(
            "{0} {1} and {2} {3} are of different kinds",
            first.kind,
            short_id(first.id),
            second.kind,
            short_id(second.id),
            hint="name two schedules, two measurements, two sessions, ...",
        )
    one, two = (dict(_flat(to_plain(record), "")) for record in (first, second))
    names = dict.fromkeys((*one, *two))
    different = {n: (one.get(n), two.get(n)) for n in names if one.get(n) != two.get(n)}
    return RecordDiff(first, second, different)


def compare_databases(
    first: Connection, second: Connection, names: tuple[str, str]
) -> DatabaseDiff:
    """The difference of two databases."""
    only_first: dict[str, tuple[str, ...]] = {}
    only_second: dict[str, tuple[str, ...]] = {}
    for kind in KINDS:
        here, there = (_ids(connection, kind) for connection in (first, second))
        for only, ids in ((only_first, here - there), (only_second, there - here)):
            if ids:
                only[kind] = tuple(sorted(ids))
    pins = [dict(_pins(connection)) for connection in (first, second)]
    moved = (id for id in pins[0] if id in pins[1] and pins[0][id] != pins[1][id])
    return DatabaseDiff(*names, only_first, only_second, tuple(sorted(moved)))


def _flat(value: Mapping[str, Json], prefix: str) -> Iterator[tuple[str, Json]]:
    for name, field in value.items():
        if isinstance(field, dict):
            yield from _flat(field, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", field


def _ids(connection: Connection, kind: str) -> set[str]:
    return set(connection.execute(select(raw(TABLES[kind].c.id))).scalars())


def _pins(connection: Connection) -> Iterator[tuple[str, str]]:
    for row in connection.execute(select(raw(pin.c.id), raw(pin.c.schedule))):
        yield row[0], row[1]
