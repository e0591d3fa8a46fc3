"""Machines: measured descriptions of targets."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "machine",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("target", sa.String(64), nullable=False),
        sa.Column("rates", sa.Text(), nullable=False),
        sa.Column("odd", sa.Text(), nullable=False),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_machine"),
        sa.ForeignKeyConstraint(["target"], ["target.id"], name="fk_machine_target"),
    )
    op.create_index("ix_machine_target_created", "machine", ["target", "created"])
