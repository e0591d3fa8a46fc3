"""The tables, as typed SQLAlchemy models.

A column has the name and meaning of the field of the record in `values.py`; what is said here is
only what the records do not have: `comparable` and `verified`, which the store derives when it
writes and which make the lookup of the best measurement one seek in one index.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, ClassVar

from sqlalchemy import (
    BigInteger,
    Boolean,
    DateTime,
    Dialect,
    Enum,
    ForeignKey,
    Index,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeEngine

from .values import Json, Outcome, SessionStatus, canonical_json, parse_json

VERSION_TABLE = "tuning_db_revision"
HEAD = "0004"


class Instant(TypeDecorator[datetime]):
    """An aware datetime, kept in UTC (SQLite keeps no zone)."""

    impl: TypeEngine[Any] | type[TypeEngine[Any]] = DateTime(timezone=True)
    cache_ok: bool | None = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        value = value.astimezone(UTC)
        return value.replace(tzinfo=None) if dialect.name == "sqlite" else value

    def process_result_value(self, value: Any | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002 - SQLAlchemy passes it
        if value is None:
            return None
        moment: datetime = value
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


class JsonText(TypeDecorator[Any]):
    """A JSON value as canonical text, the same on every backend."""

    impl: TypeEngine[Any] | type[TypeEngine[Any]] = Text
    cache_ok: bool | None = True

    def process_bind_param(self, value: Any | None, dialect: Dialect) -> str | None:  # noqa: ARG002 - SQLAlchemy passes it
        return None if value is None else canonical_json(value)

    def process_result_value(self, value: Any | None, dialect: Dialect) -> Json:  # noqa: ARG002 - SQLAlchemy passes it
        return None if value is None else parse_json(value)


def _enum(kind: type[StrEnum]) -> Enum:
    return Enum(
        kind,
        native_enum=False,
        create_constraint=False,
        length=20,
        values_callable=lambda members: [m.value for m in members],
    )


class Base(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        str: Text,
        int: BigInteger,
        datetime: Instant,
        Mapping[str, Json]: JsonText,
        tuple[float, ...]: JsonText,
        Outcome: _enum(Outcome),
        SessionStatus: _enum(SessionStatus),
    }


def _id() -> Mapped[str]:
    return mapped_column(String(64), primary_key=True)


def _reference(table: str) -> Mapped[str]:
    return mapped_column(String(64), ForeignKey(f"{table}.id"))


class WorkloadRow(Base):
    __tablename__ = "workload"
    id: Mapped[str] = _id()
    name: Mapped[str] = mapped_column(index=True)
    ir: Mapped[str]
    shape: Mapped[str]
    flops: Mapped[int]
    bytes: Mapped[int]
    family: Mapped[str] = mapped_column(String(64), index=True)


class TargetRow(Base):
    __tablename__ = "target"
    id: Mapped[str] = _id()
    text: Mapped[str]
    compat: Mapped[str]
    perf: Mapped[str]
    facts: Mapped[Mapping[str, Json]]
    comparable: Mapped[str] = mapped_column(String(32), index=True)


class ToolchainRow(Base):
    __tablename__ = "toolchain"
    id: Mapped[str] = _id()
    generation: Mapped[str]
    versions: Mapped[Mapping[str, Json]]


class EnvironmentRow(Base):
    __tablename__ = "environment"
    id: Mapped[str] = _id()
    facts: Mapped[Mapping[str, Json]]


class ScheduleRow(Base):
    __tablename__ = "schedule"
    id: Mapped[str] = _id()
    trace: Mapped[str]
    trace_version: Mapped[int]
    generator: Mapped[str]
    inexact: Mapped[str] = mapped_column(Text)


class SessionRow(Base):
    __tablename__ = "session"
    id: Mapped[str] = _id()
    workload: Mapped[str] = _reference("workload")
    target: Mapped[str] = _reference("target")
    trials: Mapped[int | None]
    seconds: Mapped[float | None]
    seed: Mapped[int]
    search: Mapped[Mapping[str, Json]]
    model: Mapped[Mapping[str, Json]]
    started: Mapped[datetime]
    nonce: Mapped[str]
    status: Mapped[SessionStatus]
    heartbeat: Mapped[datetime]
    ended: Mapped[datetime | None]
    host: Mapped[str]
    pid: Mapped[int]
    __table_args__ = (Index(None, "workload", "target"),)


class VerificationRow(Base):
    __tablename__ = "verification"
    id: Mapped[str] = _id()
    workload: Mapped[str] = _reference("workload")
    target: Mapped[str] = _reference("target")
    schedule: Mapped[str] = _reference("schedule")
    toolchain: Mapped[str] = _reference("toolchain")
    passed: Mapped[bool] = mapped_column(Boolean)
    max_error: Mapped[float | None]
    tolerance: Mapped[float]
    created: Mapped[datetime]
    __table_args__ = (Index(None, "workload", "schedule"),)


class MeasurementRow(Base):
    __tablename__ = "measurement"
    id: Mapped[str] = _id()
    session: Mapped[str] = _reference("session")
    schedule: Mapped[str] = _reference("schedule")
    workload: Mapped[str] = _reference("workload")
    target: Mapped[str] = _reference("target")
    toolchain: Mapped[str] = _reference("toolchain")
    environment: Mapped[str] = _reference("environment")
    outcome: Mapped[Outcome]
    seconds: Mapped[float | None]
    samples: Mapped[tuple[float, ...]]
    error: Mapped[str | None]
    created: Mapped[datetime]
    features: Mapped[tuple[float, ...] | None]
    feature_version: Mapped[str | None]
    comparable: Mapped[str] = mapped_column(String(32))
    verified: Mapped[bool] = mapped_column(Boolean)
    __table_args__ = (
        Index("ix_measurement_best", "workload", "comparable", "outcome", "verified", "seconds"),
        Index(None, "schedule", "workload"),
        Index(None, "session"),
        Index(None, "created"),
    )


class PinRow(Base):
    __tablename__ = "pin"
    id: Mapped[str] = _id()
    workload: Mapped[str] = mapped_column(String(64), ForeignKey("workload.id"), index=True)
    target: Mapped[str] = _reference("target")
    schedule: Mapped[str] = _reference("schedule")
    created: Mapped[datetime]


TABLES: dict[str, Table] = dict(Base.metadata.tables)
