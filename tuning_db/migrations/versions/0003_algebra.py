"""The algebra of a schedule: what makes it equal to its program over the reals alone."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # There was no such step before: the schedules that are there are exact.
    column = sa.Column("algebra", sa.String(64), nullable=False, server_default="")
    op.add_column("schedule", column)
