"""Schedules name their inexact steps; what nothing reads is gone: their parents, cost models."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # What was derived from the names of steps is what the records say themselves from now on.
    column = sa.Column("inexact", sa.Text(), nullable=False, server_default="")
    op.add_column("schedule", column)
    op.execute("UPDATE schedule SET inexact = algebra")
    op.drop_column("schedule", "algebra")
    # The id of a schedule never was of its parent.
    op.drop_column("schedule", "parent")
    op.drop_table("cost_model")
