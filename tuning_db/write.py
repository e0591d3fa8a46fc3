"""Writing records, one or a million of them: what `put`, `merge` and `import` have in common.

A record whose id is there already is left as it is, but for four kinds: of two states of one
session the one with the later heartbeat stays, of two pins the one put later where `repin` says so;
a workload whose family was unknown takes that of the one put later, and a schedule that named no
inexact steps those of the one put later.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from importlib import import_module
from itertools import groupby, islice
from typing import Any

from sqlalchemy import (
    BindParameter,
    Connection,
    Table,
    and_,
    bindparam,
    exists,
    func,
    not_,
    select,
    true,
    update,
)
from sqlalchemy.exc import IntegrityError
from sqlalchemy.sql.elements import ColumnElement

from ..base.errors import DatabaseError
from ..base.text import short_id
from .codec import check
from .read import location
from .tables import CHECKED, TABLES, JsonText, measurement, target, verification
from .values import (
    KINDS,
    AnyRecord,
    Digested,
    Measurement,
    Pin,
    ScheduleRecord,
    Session,
    Verification,
    Workload,
    field_types,
)

BATCH = 500
_RANK = {kind: rank for rank, kind in enumerate(KINDS)}


def in_order(records: Iterable[AnyRecord]) -> list[AnyRecord]:
    """The records sorted so that each comes after those it refers to.

    Within a kind they are in the order of ids, so that two writers cannot wait for each other.
    """
    return sorted(records, key=lambda record: (_RANK[record.kind], record.id))


def write(connection: Connection, records: Iterable[AnyRecord], repin: bool) -> dict[str, int]:
    """Write records in the order given; return how many of each kind were new or changed.

    Raises `DatabaseError` for a record that `check` refuses, or that refers to one not there.
    """
    counts = dict.fromkeys(KINDS, 0)
    for kind, group in groupby(records, key=lambda record: record.kind):
        while batch := list(islice(group, BATCH)):
            counts[kind] += _write_batch(connection, kind, batch, repin)
    return counts


def _write_batch(connection: Connection, kind: str, batch: list[AnyRecord], repin: bool) -> int:
    for record in batch:
        check(record)
    rows = [_row(record) for record in batch]
    statement = _insert(connection.dialect.name, kind, repin)
    try:
        with _undoable(connection):
            done = connection.execute(statement, rows, execution_options=_COUNTED)
    except IntegrityError as error:
        raise _missing_reference(connection, kind, batch) or error from error
    _require_stored(connection, kind, {record.id for record in batch})
    if kind == Verification.kind:
        verify(connection, [tuple(getattr(record, name) for name in CHECKED) for record in batch])
    return done.rowcount


def verify(connection: Connection, checked: Collection[Sequence[str]]) -> None:
    """Say anew which measurements are verified, of those with values of `CHECKED`."""
    names = [f"v_{name}" for name in CHECKED]
    if checked:
        connection.execute(_VERIFY, [dict(zip(names, row, strict=True)) for row in checked])


def _require_stored(connection: Connection, kind: str, ids: Collection[str]) -> None:
    """Raise `DatabaseError` unless records were stored: a trigger may have dropped them."""
    table = TABLES[kind]
    stored = select(func.count()).select_from(table).where(table.c.id.in_(ids))
    count = connection.execute(stored).scalar_one()
    if count != len(ids):
        raise DatabaseError(
            "database {0} did not keep what was written: of {1} records of kind {2} it has {3}",
            location(connection),
            len(ids),
            kind,
            count,
            hint="a trigger or rule of somebody else's may be on its tables: drop it",
        )


def _undoable(connection: Connection) -> AbstractContextManager[object]:
    """A context in which a statement that fails is undone, and the transaction goes on.

    SQLite does so by itself; a savepoint would hide a full disk, which ends the transaction.
    """
    return nullcontext() if connection.dialect.name == "sqlite" else connection.begin_nested()


# SQLAlchemy keeps the driver's count of inserted rows only where it is asked to.
_COUNTED = {"preserve_rowcount": True}


def _row(record: AnyRecord) -> dict[str, Any]:
    """The values of `_bind`'s parameters."""
    row = {bound: getattr(record, name) for bound, name in _bound(record.kind)}
    for bound, name in _texts(record.kind):
        if isinstance(record, Digested) and row[bound] is not None:
            row[bound] = record.text_of(name, row[bound])
    return row


@cache
def _bound(kind: str) -> list[tuple[str, str]]:
    """The columns of a kind that records have, each behind the parameter that it is bound to."""
    names = (column.name for column in TABLES[kind].columns)
    has = {*field_types(kind), *dir(KINDS[kind])}
    return [(f"v_{name}", name) for name in names if name in has]


@cache
def _texts(kind: str) -> list[tuple[str, str]]:
    """As `_bound`, those that are stored as JSON texts."""
    columns = TABLES[kind].c
    return [(b, name) for b, name in _bound(kind) if isinstance(columns[name].type, JsonText)]


def _bind(table: Table, name: str) -> BindParameter[Any]:
    # A prefix, since plain column names are taken by the insert itself.
    return bindparam(f"v_{name}", type_=table.c[name].type)


@cache
def _insert(dialect: str, kind: str, repin: bool) -> Any:
    table = TABLES[kind]
    values: dict[str, Any] = {c.name: _bind(table, c.name) for c in table.columns}
    if kind == Measurement.kind:
        comparable = select(target.c.comparable).where(target.c.id == _bind(table, "target"))
        values["comparable"] = comparable.scalar_subquery()
        values["verified"] = _is_verified()
    statement = import_module(f"sqlalchemy.dialects.{dialect}").insert(table).values(values)
    if kind not in _CHANGES or (kind == Pin.kind and not repin):
        return statement.on_conflict_do_nothing(index_elements=["id"])
    names, changes = _CHANGES[kind]
    new = statement.excluded
    return statement.on_conflict_do_update(
        index_elements=["id"],
        set_={name: new[name] for name in names},
        where=changes(table.c, new),
    )


# The fields of kinds that may change, and whether those of a new record replace the old ones.
_CHANGES: dict[str, tuple[Collection[str], Callable[[Any, Any], ColumnElement[bool]]]] = {
    Session.kind: (Session.outside_id, lambda old, new: new.heartbeat > old.heartbeat),
    Workload.kind: (["family"], lambda old, new: and_(old.family == "", new.family != "")),
    ScheduleRecord.kind: (["inexact"], lambda old, new: and_(old.inexact == "", new.inexact != "")),
    Pin.kind: (["workload", "target", "schedule", "created"], lambda *_: true()),
}


CHANGING = {Session.kind: "heartbeat", Workload.kind: "family", ScheduleRecord.kind: "inexact"}
"""The field that tells states of one record apart, of the kinds whose later state replaces one."""


UPDATED = {kind: names for kind, (names, _) in _CHANGES.items()}
"""The fields of kinds that may change."""


def _is_verified() -> ColumnElement[bool]:
    """Whether at least one check of the bound keys passed and none failed."""
    same = [verification.c[name] == _bind(verification, name) for name in CHECKED]
    passed = exists().where(*same, verification.c.passed)
    failed = exists().where(*same, not_(verification.c.passed))
    return and_(passed, not_(failed))


_VERIFY = (
    update(measurement)
    .where(*(measurement.c[name] == _bind(verification, name) for name in CHECKED))
    .values(verified=_is_verified())
)


def _missing_reference(
    connection: Connection, kind: str, batch: Sequence[AnyRecord]
) -> DatabaseError | None:
    for record in batch:
        for key in TABLES[kind].foreign_keys:
            column, parent = key.parent, key.column.table
            wanted = getattr(record, column.name)
            if connection.execute(select(parent.c.id).where(parent.c.id == wanted)).first() is None:
                return DatabaseError(
                    "{0} {1} refers to {2} {3}, which is not in the database",
                    kind,
                    short_id(record.id),
                    column.name,
                    short_id(wanted),
                    hint=f"put the {column.name} first, or in the same call",
                    record=record.id,
                )
    return None
