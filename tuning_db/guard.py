"""Checks that a database has nothing beside rows that runs, or that stands in for a table of ours.

A trigger may swallow what is written, and a view in the place of a table give rows without end. A
key may replace one row by another, and a reference delete rows when a migration drops a table. None
of these is ever made here, so that whatever of the kind is on our tables is refused by name when a
database is opened; other tables and views of somebody's own are left alone. Of the views that we
make (`views.py`) only ours are accepted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import BindParameter, Connection, bindparam, text

from ..base.errors import DatabaseError
from ..base.text import MAX_LENGTH, excerpt
from . import views
from .read import location
from .tables import TABLES, VERSION_TABLE

_OURS = [*TABLES, VERSION_TABLE]
_NAMES: BindParameter[Any] = bindparam("names", _OURS, expanding=True)
_VIEWS: BindParameter[Any] = bindparam("views", list(views.VIEWS), expanding=True)
_SQLITE_OBJECTS = text("""
    SELECT type, name, tbl_name, sql FROM sqlite_master WHERE lower(tbl_name) IN :names
    """).bindparams(_NAMES)
_SQLITE_COLUMNS = text("""
    SELECT m.name, x.name, x.type, x.hidden
    FROM sqlite_master AS m, pragma_table_xinfo(m.name) AS x
    WHERE m.type = 'table' AND m.name IN :names
    """).bindparams(_NAMES)
_SQLITE_TABLES = text("SELECT name, sql FROM sqlite_master WHERE type = 'table'")
_SQLITE_REFERENCES = text("""
    SELECT m.name, x.seq, x."from", x."table", x."to", x.on_update, x.on_delete
    FROM sqlite_master AS m, pragma_foreign_key_list(m.name) AS x WHERE m.type = 'table'
    """)
_SQLITE_KEYS = text("""
    SELECT m.name, group_concat(x.name || ' ' || x.coll, ', '), i.partial
    FROM sqlite_master AS m, pragma_index_list(m.name) AS i, pragma_index_xinfo(i.name) AS x
    WHERE m.type = 'table' AND i."unique" AND x.key GROUP BY m.name, i.name
    """)
_POSTGRES_TABLES = text("""
    SELECT c.relname, c.relkind, t.tgname, r.rulename
    FROM pg_class AS c
    LEFT JOIN pg_trigger AS t ON t.tgrelid = c.oid AND NOT t.tgisinternal
    LEFT JOIN pg_rewrite AS r ON r.ev_class = c.oid
    WHERE c.relname IN :names AND pg_table_is_visible(c.oid)
    """).bindparams(_NAMES)
_POSTGRES_COLUMNS = text("""
    SELECT c.relname, a.attname, format_type(a.atttypid, NULL), a.attgenerated <> ''
    FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid
    WHERE c.relname IN :names AND pg_table_is_visible(c.oid)
        AND a.attnum > 0 AND NOT a.attisdropped
    """).bindparams(_NAMES)
_SQLITE_VIEWS = text("""
    SELECT name, type, tbl_name, sql FROM sqlite_master WHERE lower(tbl_name) IN :views
    ORDER BY type DESC, name
    """).bindparams(_VIEWS)
_POSTGRES_VIEWS = text("""
    SELECT c.relname, c.relkind, min(t.tgname), min(r.rulename) FILTER (WHERE r.ev_type <> '1'),
        count(d.objid)
    FROM pg_class AS c
    LEFT JOIN pg_trigger AS t ON t.tgrelid = c.oid AND NOT t.tgisinternal
    LEFT JOIN pg_rewrite AS r ON r.ev_class = c.oid
    LEFT JOIN pg_depend AS d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
        AND d.refobjid <> c.oid AND d.refclassid <> 'pg_constraint'::regclass AND NOT (
            d.refclassid = 'pg_class'::regclass AND EXISTS (
                SELECT 1 FROM pg_class AS ours
                WHERE ours.oid = d.refobjid AND ours.relname IN :names
                    AND ours.relkind = 'r' AND pg_table_is_visible(ours.oid)
            )
        )
    WHERE c.relname IN :views AND pg_table_is_visible(c.oid)
    GROUP BY c.relname, c.relkind ORDER BY c.relname
    """).bindparams(_NAMES, _VIEWS)
_RELATIONS = {
    "v": "view", "m": "materialized view", "f": "foreign table", "S": "sequence", "i": "index",
    "I": "index", "c": "type",
}  # fmt: skip
# How SQLite compares the values of a column, by what its declared type contains.
_AFFINITIES = (
    (("INT",), "integer"),
    (("CHAR", "CLOB", "TEXT"), "text"),
    (("REAL", "FLOA", "DOUB"), "real"),
)


def check_objects(connection: Connection) -> None:
    """Raise `DatabaseError` for a trigger or rule on a table of ours, or a view in its place.

    Nothing of ours has been read yet when this is called: a view would be evaluated.
    """
    if connection.dialect.name == "sqlite":
        for kind, name, on, sql in connection.execute(_SQLITE_OBJECTS):
            if kind in ("trigger", "view"):
                raise _foreign(connection, kind, name, on)
            if kind == "table" and str(sql).upper().startswith("CREATE VIRTUAL"):
                raise _foreign(connection, "virtual table", name, on)
        return
    encoding = connection.exec_driver_sql("SHOW server_encoding").scalar_one()
    if encoding != "UTF8":
        raise DatabaseError(
            "database {0} has the encoding {1}; expected UTF8, which holds every name",
            location(connection),
            encoding,
            hint="take another one: CREATE DATABASE tuning ENCODING 'UTF8' TEMPLATE template0",
        )
    for on, relation, trigger, rule in connection.execute(_POSTGRES_TABLES):
        if relation in _RELATIONS:
            raise _foreign(connection, _RELATIONS[relation], on, on)
        for kind, name in (("trigger", trigger), ("rule", rule)):
            if name is not None:
                raise _foreign(connection, kind, name, on)


def check_columns(connection: Connection) -> None:
    """Raise `DatabaseError` for tables whose columns are not those of this schema."""
    dialect = connection.dialect
    sqlite = dialect.name == "sqlite"
    columns = _SQLITE_COLUMNS if sqlite else _POSTGRES_COLUMNS
    present: dict[str, dict[str, str]] = {}
    for table, column, declared, computed in connection.execute(columns):
        if computed:
            raise DatabaseError(
                "database {0}: column {1} of table {2} is computed; expected stored values",
                location(connection),
                excerpt(column),
                table,
                hint=_HINT,
            )
        kind = _affinity(declared) if sqlite else declared
        present.setdefault(table, {})[column] = kind
    for name, ours in TABLES.items():
        types = {c.name: c.type.compile(dialect) for c in ours.columns}
        expected = {c: _affinity(t) if sqlite else _plain_type(t) for c, t in types.items()}
        found = set(present.get(name, {}).items())
        if found != set(expected.items()):
            raise DatabaseError(
                "database {0}: table {1} has the further columns {2}, and lacks {3}",
                location(connection),
                name,
                _listed(found - set(expected.items())),
                _listed(set(expected.items()) - found),
                hint=_HINT,
            )


def check_views(connection: Connection) -> list[str]:
    """The views of ours that are not there.

    Raises `DatabaseError` for what has the name of one and is another one.

    Nothing of ours reads it, but people do. SQLite has the text of a view. PostgreSQL has it in
    words of its own; there it must be a view of our tables alone that calls no function of anybody.
    """
    present = set[str]()
    if connection.dialect.name == "sqlite":
        for name, kind, on, sql in connection.execute(_SQLITE_VIEWS):
            if kind != "view" or sql != views.definition(name.lower(), "sqlite"):
                raise _foreign(connection, kind, name, on)
            present.add(name.lower())
        return [name for name in views.VIEWS if name not in present]
    for name, relation, trigger, rule, foreign in connection.execute(_POSTGRES_VIEWS):
        if relation != "v" or foreign > 0:
            raise _foreign(connection, _RELATIONS.get(relation, "table"), name, name)
        for kind, of_view in (("trigger", trigger), ("rule", rule)):
            if of_view is not None:
                raise _foreign(connection, kind, of_view, name)
        present.add(name)
    return [name for name in views.VIEWS if name not in present]


def constraints(connection: Connection) -> dict[str, frozenset[str]]:
    """The constraints of each table of an SQLite database on its rows, in words."""
    found: dict[str, set[str]] = {}
    for table, sql in connection.execute(_SQLITE_TABLES):
        clause = re.search(r"\bCONFLICT\b", str(sql), re.IGNORECASE)
        found[table] = set() if clause is None else {"an ON CONFLICT clause"}
    for table, place, column, other, to, updated, deleted in connection.execute(_SQLITE_REFERENCES):
        reference = f"a reference from {column} to {other} ({to})"
        when = f", ON UPDATE {updated} ON DELETE {deleted}"
        found[table].add(f"{reference}{when if when != _NO_ACTION else ''}{' more' * place}")
    for table, columns, partial in connection.execute(_SQLITE_KEYS):
        found[table].add(f"a key of {columns}{' in part' * partial}")
    return {table: frozenset(demands) for table, demands in found.items()}


_NO_ACTION = ", ON UPDATE NO ACTION ON DELETE NO ACTION"


def check_constraints(connection: Connection, expected: Mapping[str, frozenset[str]]) -> None:
    """Raise `DatabaseError` for tables of an SQLite database with other demands than `expected`.

    A reference that deletes rows, or a key that replaces them, would lose what was put there. In
    PostgreSQL no key replaces rows, and no table is dropped that others refer to.
    """
    present = constraints(connection)
    for table, demands in expected.items():
        different = present.get(table, frozenset()) ^ demands
        if different:
            more, missing = sorted(different - demands), sorted(different & demands)
            raise DatabaseError(
                "database {0}: table {1} has {2}; expected {3}",
                location(connection),
                table,
                excerpt("; ".join(more) or "none", _LISTED),
                excerpt("; ".join(missing) or "none", _LISTED),
                hint=_HINT,
            )


_HINT = "it was changed by something else: take its records from a copy"
_LISTED = 500
"""Characters of a list of columns or demands: those of the largest table of ours are fewer."""


def _foreign(connection: Connection, kind: str, name: str, on: str) -> DatabaseError:
    ours = on.lower() in views.VIEWS
    plain = name.isascii() and name.isidentifier() and len(name) <= MAX_LENGTH
    remove = f"DROP {kind.upper()} {name}" if plain else "drop it"
    return DatabaseError(
        "database {0} has a {1} {2!r} {3} {4} {5}; Tilewright makes {6}",
        location(connection),
        kind,
        excerpt(name),
        "on" if kind in ("trigger", "rule") else "in the place of",
        "view" if ours else "table",
        on,
        "another" if ours and kind == "view" else "none",
        hint=f"if it is yours to change: {remove}; else take another copy",
    )


def _affinity(declared: str) -> str:
    declared = declared.upper()
    for parts, affinity in _AFFINITIES:
        if any(part in declared for part in parts):
            return affinity
    return "numeric" if declared else "none"


def _plain_type(declared: str) -> str:
    """A type as PostgreSQL's catalogue spells it."""
    return declared.lower().partition("(")[0].replace("varchar", "character varying")


def _listed(columns: Iterable[tuple[str, str]]) -> str:
    return excerpt(", ".join(" ".join(column) for column in sorted(columns)) or "none", _LISTED)
