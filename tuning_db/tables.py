"""The tables: a column for each field of the records in `values.py`, of the same name and meaning.

Two columns are derived when a record is written: `comparable` and `verified`. They make the lookup
of the best measurement one seek in one index.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Dialect,
    Double,
    Enum,
    ForeignKey,
    Index,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    TypeDecorator,
)
from sqlalchemy.types import TypeEngine

from .canonical import canonical_json
from .values import DIGESTS, KINDS, Outcome, SessionStatus, field_types

CHECKED = ("workload", "target", "schedule", "toolchain")
"""The columns that name what a numeric check verifies: measurements with the same values."""
VERSION_TABLE = "tuning_db_revision"
HEAD = "0011"


class JsonText(TypeDecorator[Any]):
    """A JSON value as canonical text, the same on every backend; a text is such already."""

    impl: TypeEngine[Any] | type[TypeEngine[Any]] = Text
    cache_ok: bool | None = True

    def process_bind_param(self, value: Any | None, dialect: Dialect) -> str | None:  # noqa: ARG002 - SQLAlchemy passes it
        return value if value is None or isinstance(value, str) else canonical_json(value)


def _enum(kind: type[StrEnum]) -> Enum:
    return Enum(
        kind,
        native_enum=False,
        create_constraint=False,
        length=20,
        values_callable=lambda members: [m.value for m in members],
    )


# By the annotations of fields.
_TYPES: dict[str, TypeEngine[Any]] = {
    "str": Text(),
    "int": BigInteger(),
    "float": Double(),
    "bool": Boolean(),
    "datetime": DateTime(timezone=True),
    "tuple[float, ...]": JsonText(),
    "tuple[str, ...]": JsonText(),
    "Mapping[str, float]": JsonText(),
    "Mapping[str, Json]": JsonText(),
    "Outcome": _enum(Outcome),
    "SessionStatus": _enum(SessionStatus),
}
_DERIVED: dict[str, dict[str, TypeEngine[Any]]] = {
    "target": {"comparable": String(32)},
    "measurement": {"comparable": String(32), "verified": Boolean()},
}
INDICES = {
    "workload": [Index(None, "name"), Index(None, "family")],
    "target": [Index(None, "comparable")],
    "machine": [Index(None, "target", "created")],
    "session": [Index(None, "workload", "target")],
    "verification": [Index(None, "workload", "schedule")],
    "measurement": [
        Index("ix_measurement_best", "workload", "comparable", "outcome", "verified", "seconds"),
        Index(None, "schedule", "workload"),
        Index(None, "created"),
        Index(None, "session", "created"),
    ],
    "pin": [Index(None, "workload")],
}
"""By kind, in the order in which they are made: of two that serve alike SQLite takes the later."""
METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _column(name: str, annotation: str) -> Column[Any]:
    kind = annotation.removesuffix(" | None")
    return Column(
        name,
        String(64) if name in DIGESTS else _TYPES[kind],
        *([ForeignKey(f"{name}.id")] if name in KINDS else []),
        primary_key=name == "id",
        nullable=kind != annotation,
    )


def _table(kind: str) -> Table:
    fields = {"id": "str", **field_types(kind)}
    return Table(
        kind,
        METADATA,
        *(_column(name, annotation) for name, annotation in fields.items()),
        *(Column(name, type_, nullable=False) for name, type_ in _DERIVED.get(kind, {}).items()),
        *INDICES.get(kind, ()),
    )


TABLES = {kind: _table(kind) for kind in KINDS}
machine = TABLES["machine"]
measurement = TABLES["measurement"]
pin = TABLES["pin"]
schedule = TABLES["schedule"]
session = TABLES["session"]
target = TABLES["target"]
toolchain = TABLES["toolchain"]
verification = TABLES["verification"]
workload = TABLES["workload"]

REVISION = Table(
    VERSION_TABLE,
    MetaData(),  # alembic's own: no migration makes it
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc"),
)
"""One row: the revision of the schema."""
