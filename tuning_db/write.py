"""Writing records, one or a million of them: what `put`, `merge` and `import` have in common.

A record whose id is there already is left as it is, but for four kinds: of two states of one
session the one with the later heartbeat stays, of two pins the one put later where `repin` says so;
a workload whose family was unknown takes that of the one put later, and a schedule that named no
inexact steps those of the one put later.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import Any

from sqlalchemy import (
    ARRAY,
    JSON,
    BindParameter,
    Connection,
    Table,
    Text,
    and_,
    bindparam,
    column,
    exists,
    func,
    literal_column,
    not_,
    select,
    true,
    update,
)
from sqlalchemy import cast as cast_to
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import IntegrityError
from sqlalchemy.sql.elements import ColumnElement

from ..base.errors import DatabaseError
from ..base.process import collected_later
from ..base.text import short_id
from .canonical import canonical_json
from .codec import Row, check, to_row
from .read import location
from .tables import CHECKED, TABLES, measurement, target, verification
from .values import (
    KINDS,
    AnyRecord,
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


@collected_later()  # records live until their batch is written: collections would visit them
def write(
    connection: Connection, records: Iterable[AnyRecord | Row], repin: bool
) -> dict[str, int]:
    """Write records in the order given; return how many of each kind were new or changed.

    Raises `DatabaseError` for a record that `check` refuses, or that refers to one not there.
    """
    counts = dict.fromkeys(KINDS, 0)
    rows = (r if isinstance(r, Row) else _checked_row(r) for r in records)
    for kind, group in groupby(rows, key=lambda row: row.kind):
        for batch in _batches(group):
            counts[kind] += _write_batch(connection, kind, batch, repin)
    return counts


def _checked_row(record: AnyRecord) -> Row:
    check(record)
    return to_row(record)


def _batches(rows: Iterable[Row]) -> Iterator[dict[str, Row]]:
    """Batches by ids: PostgreSQL changes no row twice in a statement."""
    batch: dict[str, Row] = {}
    for row in rows:
        if len(batch) == BATCH or row.id in batch:
            yield batch
            batch = {}
        batch[row.id] = row
    if batch:
        yield batch


def _write_batch(connection: Connection, kind: str, batch: Mapping[str, Row], repin: bool) -> int:
    rows = list(batch.values())
    insert = _insert_rows if connection.dialect.name == "sqlite" else _insert_json
    try:
        with _undoable(connection):
            count = insert(connection, kind, rows, repin)
    except IntegrityError as error:
        raise _missing_reference(connection, kind, rows) or error from error
    _require_stored(connection, kind, batch)
    if kind == Verification.kind:
        verify(connection, [tuple(row.columns[name] for name in CHECKED) for row in rows])
    return count


def _insert_rows(connection: Connection, kind: str, rows: Sequence[Row], repin: bool) -> int:
    """Insert by a statement for a row, with the driver's values: SQLAlchemy converts each alone."""
    text, arrange = _for_rows(kind, repin)
    values = [arrange(row.columns) for row in rows]
    done = connection.exec_driver_sql(text, values, execution_options=_COUNTED)
    return done.rowcount


def _insert_json(connection: Connection, kind: str, rows: Sequence[Row], repin: bool) -> int:
    """Insert all by one statement, to which the rows are a JSON array."""
    statement = _from_json(kind, repin)
    count, size, some = 0, 0, list[str]()
    for n, row in enumerate(rows, 1):
        some.append(_json_of(row))
        size += len(some[-1])
        if n == len(rows) or size > _LARGEST_ARRAY:
            array = {_ROWS: f"[{','.join(some)}]"}
            count += connection.execute(statement, array, execution_options=_COUNTED).rowcount
            some, size = [], 0
    return count


def _json_of(row: Row) -> str:
    """The JSON object of a row, whose times have their zone there."""
    times = {n for n, type_ in field_types(row.kind).items() if type_.startswith("datetime")}
    columns = row.columns
    zoned = {name: f"{columns[name]}+00:00" for name in times if columns[name] is not None}
    return canonical_json({**columns, **zoned})


def verify(connection: Connection, checked: Collection[Sequence[str]]) -> None:
    """Say anew which measurements are verified, of those with values of `CHECKED`."""
    names = [f"{_BOUND}{name}" for name in CHECKED]
    if checked:
        connection.execute(_VERIFY, [dict(zip(names, row, strict=True)) for row in checked])


def _require_stored(connection: Connection, kind: str, ids: Collection[str]) -> None:
    """Raise `DatabaseError` unless records were stored: a trigger may have dropped them."""
    id = TABLES[kind].c.id
    if connection.dialect.name == "postgresql":  # by one parameter: psycopg parses long statements
        given = func.any(bindparam("ids", list(ids), type_=ARRAY(Text())))
        count = connection.execute(select(func.count(id)).where(id == given)).scalar_one()
    else:  # in the driver's form: SQLAlchemy takes longer for the parameters than SQLite
        among = f"SELECT count(id) FROM {kind} WHERE id IN ({', '.join('?' * len(ids))})"
        count = connection.exec_driver_sql(among, tuple(ids)).scalar_one()
    if count != len(ids):
        raise DatabaseError(
            "database {0} did not keep what was written: of {1} records of kind {2} it has {3}",
            location(connection),
            len(ids),
            kind,
            count,
            hint="a trigger or rule of somebody else's may be on its tables: drop it",
            refused=True,
        )


def _undoable(connection: Connection) -> AbstractContextManager[object]:
    """A context in which a statement that fails is undone, and the transaction goes on.

    SQLite does so by itself; a savepoint would hide a full disk, which ends the transaction.
    """
    return nullcontext() if connection.dialect.name == "sqlite" else connection.begin_nested()


# SQLAlchemy keeps the driver's count of inserted rows only where it is asked to.
_COUNTED = {"preserve_rowcount": True}


@cache
def _for_rows(kind: str, repin: bool) -> tuple[str, Callable[[Mapping[str, Any]], tuple[Any, ...]]]:
    """An insertion in the driver's form, and what puts the columns of a row in its order."""
    values = {c.name: _bind(TABLES[kind], c.name) for c in TABLES[kind].columns}
    statement = sqlite.insert(TABLES[kind]).values(_derived(kind, values))
    bound = sqlite.dialect(paramstyle="qmark")
    compiled = _or_change(statement, kind, repin).compile(dialect=bound)
    names = [name.removeprefix(_BOUND) for name in compiled.positiontup]
    return str(compiled), itemgetter(*names)


@cache
def _from_json(kind: str, repin: bool) -> Any:
    """An insertion of a JSON array."""
    from sqlalchemy.dialects import postgresql  # those with a file do without

    table = TABLES[kind]
    array = cast_to(bindparam(_ROWS, type_=Text()), JSON())
    columns = (column(c.name, c.type) for c in table.columns)
    new = func.json_to_recordset(array).table_valued(*columns, name="new")
    new = new.render_derived(with_types=True)
    values = _derived(kind, {c.name: new.c[c.name] for c in table.columns})
    statement = postgresql.insert(table).from_select(list(values), select(*values.values()))
    return _or_change(statement, kind, repin)


_ROWS = "rows"
_LARGEST_ARRAY = 16_000_000
"""Characters of records that are sent at once, and one more record."""
_BOUND = "v_"
"""What the parameters of columns begin with: their names are taken by the insert itself."""


def _bind(table: Table, name: str) -> BindParameter[Any]:
    return bindparam(f"{_BOUND}{name}", type_=table.c[name].type)


_DERIVED = ("comparable", "verified")
"""The columns of measurements that other records say."""


def _derived(kind: str, values: Mapping[str, ColumnElement[Any]]) -> dict[str, ColumnElement[Any]]:
    """The values of columns, with those that other records say."""
    if kind != Measurement.kind:
        return dict(values)
    comparable = select(target.c.comparable).where(target.c.id == values["target"])
    found = (comparable.scalar_subquery(), _is_verified(values))
    return {**values, **dict(zip(_DERIVED, found, strict=True))}


def _or_change(statement: Any, kind: str, repin: bool) -> Any:
    """An insertion that leaves what is there as it is, or changes it as its kind says."""
    if kind not in _CHANGES or (kind == Pin.kind and not repin):
        return statement.on_conflict_do_nothing(index_elements=["id"])
    names, changes = _CHANGES[kind]
    new = statement.excluded
    return statement.on_conflict_do_update(
        index_elements=["id"],
        set_={name: new[name] for name in names},
        where=changes(TABLES[kind].c, new),
    )


# No parameter: those are the values of a record.
_EMPTY: ColumnElement[str] = literal_column("''")
# The fields of kinds that may change, and whether those of a new record replace the old ones.
_CHANGES: dict[str, tuple[Collection[str], Callable[[Any, Any], ColumnElement[bool]]]] = {
    Session.kind: (Session.outside_id, lambda old, new: new.heartbeat > old.heartbeat),
    Workload.kind: (["family"], lambda old, new: and_(old.family == _EMPTY, new.family != _EMPTY)),
    ScheduleRecord.kind: (
        ["inexact"],
        lambda old, new: and_(old.inexact == _EMPTY, new.inexact != _EMPTY),
    ),
    Pin.kind: (["workload", "target", "schedule", "created"], lambda *_: true()),
}


CHANGING = {Session.kind: "heartbeat", Workload.kind: "family", ScheduleRecord.kind: "inexact"}
"""The field that tells states of one record apart, of the kinds whose later state replaces one."""


UPDATED = {kind: names for kind, (names, _) in _CHANGES.items()}
"""The fields of kinds that may change."""


def _is_verified(keys: Mapping[str, ColumnElement[Any]]) -> ColumnElement[bool]:
    """Whether at least one check of the keys, those of `CHECKED`, passed and none failed."""
    same = [verification.c[name] == keys[name] for name in CHECKED]
    passed = exists().where(*same, verification.c.passed)
    failed = exists().where(*same, not_(verification.c.passed))
    return and_(passed, not_(failed))


_KEYS = {name: _bind(verification, name) for name in CHECKED}
_VERIFY = (
    update(measurement)
    .where(*(measurement.c[name] == key for name, key in _KEYS.items()))
    .values(verified=_is_verified(_KEYS))
)


def _missing_reference(
    connection: Connection, kind: str, rows: Sequence[Row]
) -> DatabaseError | None:
    for row in rows:
        for key in TABLES[kind].foreign_keys:
            column, parent = key.parent, key.column.table
            wanted = row.columns[column.name]
            if connection.execute(select(parent.c.id).where(parent.c.id == wanted)).first() is None:
                return DatabaseError(
                    "{0} {1} refers to {2} {3}, which is not in the database",
                    kind,
                    short_id(row.id),
                    column.name,
                    short_id(wanted),
                    hint=f"put the {column.name} first, or in the same call",
                    record=row.id,
                )
    return None
