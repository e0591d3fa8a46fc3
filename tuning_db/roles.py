"""Roles of a database on a server: readers look up, tuners add, the owner migrates and deletes.

Whoever made the tables owns them. A reader selects. A tuner also inserts, and updates what may
change of a record: the state of a session, a pin, whether a measurement is verified. Neither
deletes anything or changes a table. What later versions make (views, tables) both may read.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, text

from ..base.errors import DatabaseError
from .read import location
from .tables import TABLES, VERSION_TABLE
from .values import Measurement
from .views import VIEWS
from .write import UPDATED

_LONGEST_NAME = 63
"""Bytes of a name in PostgreSQL, which cuts longer ones."""


def grants(connection: Connection, reader: str, tuner: str) -> list[str]:
    """The statements that make the roles and give them their rights, to be run by the owner.

    Raises `DatabaseError` for a database without roles, and for a name that is none.
    """
    if connection.dialect.name != "postgresql":
        raise DatabaseError(
            "database {0} is a file, and has no roles",
            location(connection),
            hint="who may write to it is said by the permissions of the file and its folder",
        )
    for name in (reader, tuner):
        if not 0 < len(name.encode()) <= _LONGEST_NAME or "\0" in name:
            raise DatabaseError("{0!r:.80} is no name of a role", name)
    quote = connection.dialect.identifier_preparer.quote
    there = set(connection.scalars(text("SELECT rolname FROM pg_roles")))
    schema = quote(connection.scalar(text("SELECT current_schema()")))
    first, second = quote(reader), quote(tuner)
    both, records = f"{first}, {second}", _listed(schema, list(TABLES))
    everything = _listed(schema, [*TABLES, *VIEWS, VERSION_TABLE])
    return [
        *(f"CREATE ROLE {quote(name)} NOLOGIN" for name in (reader, tuner) if name not in there),
        f"GRANT USAGE ON SCHEMA {schema} TO {both}",
        f"REVOKE ALL ON {everything} FROM PUBLIC, {both}",
        f"GRANT SELECT ON {everything} TO {both}",
        f"GRANT INSERT ON {records} TO {second}",
        *(
            f"GRANT UPDATE ({', '.join(sorted(columns))}) ON {schema}.{table} TO {second}"
            for table, columns in {**UPDATED, Measurement.kind: ["verified"]}.items()
        ),
        f"ALTER DEFAULT PRIVILEGES IN SCHEMA {schema} GRANT SELECT ON TABLES TO {both}",
    ]


def _listed(schema: str, names: Sequence[str]) -> str:
    return ", ".join(f"{schema}.{name}" for name in names)
