"""Differences: of two records of a kind, and of two databases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from sqlalchemy import Connection, select

from ..base.display import html
from ..base.durations import MeasuredTime, format_change_between
from ..base.errors import DatabaseError
from ..base.text import count, short_id
from .canonical import Json
from .finals_rule import finals_key
from .interleaved_comparison import time_ratio
from .read import raw
from .removal import counted
from .tables import TABLES, pin
from .values import KINDS, AnyRecord, Measurement, Pin, to_plain


@dataclass(frozen=True)
class TimeDiff:
    """The last times of two schedules, or those of two measurements; None of one that did not run.

    `ratio` is how many times as long the second takes: the median over the `rounds` in which both
    were timed interleaved, the last time that they were, with its `interval`. It is None if they
    never were: times of different moments are not comparable. `then` are the times in those
    rounds, where one was measured again later.
    """

    first: MeasuredTime | None
    second: MeasuredTime | None
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    rounds: int = 0
    then: tuple[MeasuredTime | None, MeasuredTime | None] | None = None

    def __repr__(self) -> str:
        return f"<TimeDiff {self}>"

    def __str__(self) -> str:
        both = " and ".join("not measured" if t is None else str(t) for t in self.times)
        return f"{both}: {self.ratio_text}" if all(self.times) else both

    @property
    def times(self) -> tuple[MeasuredTime | None, MeasuredTime | None]:
        return self.first, self.second

    @property
    def ratio_text(self) -> str:
        """How the second compares with the first, which it names; or why that is not known.

        `2.00x slower than the first (1.90x to 2.10x), interleaved in 9 rounds`.
        """
        if self.ratio is None:
            return "not from the same comparison"
        differs = format_change_between(self.ratio, self.interval, than="the first")
        then = "" if self.then is None else " in which they took {} and {}".format(*self.then)
        return f"{differs}, interleaved in {count(self.rounds, 'round')}{then}"


@dataclass(frozen=True)
class RecordDiff:
    """Two records of one kind, and the fields in which they differ.

    Fields of fields are named with dots (`search.batch`); a field that one has not is None there.
    `times` are those of two different schedules or measurements.
    """

    first: AnyRecord
    second: AnyRecord
    fields: Mapping[str, tuple[Json, Json]]
    times: TimeDiff | None = None

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


def compare_times(first: Sequence[Measurement], second: Sequence[Measurement]) -> TimeDiff:
    """The times of two schedules by their measurements, which are `ok`, the newest first.

    They are of one program on one target, if there is one on which both ran.
    """
    moments = {finals_key(m): m for m in second}
    beside = next(((m, moments[finals_key(m)]) for m in first if finals_key(m) in moments), None)
    places = set(map(_PLACE, second))
    shared = next((m for m in first if _PLACE(m) in places), None) if beside is None else beside[0]

    def last(measured: Sequence[Measurement]) -> MeasuredTime | None:
        here = (m for m in measured if shared is None or _PLACE(m) == _PLACE(shared))
        return next((m.time for m in here), None)

    now = last(first), last(second)
    if beside is None:
        return TimeDiff(*now)
    ratio = time_ratio(beside[1].samples, beside[0].samples)
    then = beside[0].time, beside[1].time
    return TimeDiff(
        *now,
        ratio=ratio.ratio,
        interval=ratio.interval,
        rounds=min(len(m.samples) for m in beside),
        then=None if then == now else then,
    )


_PLACE = attrgetter("workload", "target")


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
