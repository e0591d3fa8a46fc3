"""The first schema: ten tables, content digests as keys."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

KEY = sa.String(64)
TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    create(
        "workload",
        required("name", sa.Text()),
        required("ir", sa.Text()),
        required("shape", sa.Text()),
        required("flops", sa.BigInteger()),
        required("bytes", sa.BigInteger()),
    )
    create(
        "target",
        required("text", sa.Text()),
        required("compat", sa.Text()),
        required("perf", sa.Text()),
        required("facts", sa.Text()),
        required("comparable", sa.String(32)),
    )
    create("toolchain", required("generation", sa.Text()), required("versions", sa.Text()))
    create("environment", required("facts", sa.Text()))
    create(
        "schedule",
        required("trace", sa.Text()),
        required("trace_version", sa.BigInteger()),
        sa.Column("parent", KEY),
        required("generator", sa.Text()),
    )
    create(
        "session",
        required("workload", KEY),
        required("target", KEY),
        sa.Column("trials", sa.BigInteger()),
        sa.Column("seconds", sa.Double()),
        required("seed", sa.BigInteger()),
        required("search", sa.Text()),
        required("model", sa.Text()),
        required("started", TIME),
        required("nonce", sa.Text()),
        required("status", sa.String(20)),
        required("heartbeat", TIME),
        sa.Column("ended", TIME),
        required("host", sa.Text()),
        required("pid", sa.BigInteger()),
        references=("workload", "target"),
    )
    create(
        "verification",
        required("workload", KEY),
        required("target", KEY),
        required("schedule", KEY),
        required("toolchain", KEY),
        required("passed", sa.Boolean()),
        sa.Column("max_error", sa.Double()),
        required("tolerance", sa.Double()),
        required("created", TIME),
        references=("workload", "target", "schedule", "toolchain"),
    )
    create(
        "measurement",
        required("session", KEY),
        required("schedule", KEY),
        required("workload", KEY),
        required("target", KEY),
        required("toolchain", KEY),
        required("environment", KEY),
        required("outcome", sa.String(20)),
        sa.Column("seconds", sa.Double()),
        required("samples", sa.Text()),
        sa.Column("error", sa.Text()),
        required("created", TIME),
        sa.Column("features", sa.Text()),
        sa.Column("feature_version", sa.Text()),
        required("comparable", sa.String(32)),
        required("verified", sa.Boolean()),
        references=("session", "schedule", "workload", "target", "toolchain", "environment"),
    )
    create(
        "cost_model",
        required("target", KEY),
        required("feature_version", sa.Text()),
        required("model", sa.Text()),
        required("rows", sa.BigInteger()),
        required("created", TIME),
        references=("target",),
    )
    create(
        "pin",
        required("workload", KEY),
        required("target", KEY),
        required("schedule", KEY),
        required("created", TIME),
        references=("workload", "target", "schedule"),
    )
    index("workload", "name")
    index("target", "comparable")
    index("session", "workload", "target")
    index("verification", "workload", "schedule")
    op.create_index(
        "ix_measurement_best",
        "measurement",
        ["workload", "comparable", "outcome", "verified", "seconds"],
    )
    index("measurement", "schedule", "workload")
    index("measurement", "session")
    index("measurement", "created")
    index("cost_model", "target", "feature_version", "created")
    index("pin", "workload")


def required(name: str, kind: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=False)


def create(table: str, *columns: sa.Column[Any], references: tuple[str, ...] = ()) -> None:
    """A table with `id` as its key, and a reference to the table of the same name per column."""
    op.create_table(
        table,
        required("id", KEY),
        *columns,
        sa.PrimaryKeyConstraint("id", name=f"pk_{table}"),
        *(
            sa.ForeignKeyConstraint([name], [f"{name}.id"], name=f"fk_{table}_{name}")
            for name in references
        ),
    )


def index(table: str, *columns: str) -> None:
    op.create_index("_".join(["ix", table, *columns]), table, list(columns))
