"""Sessions say how long was worked on them and how calm it was, measurements when and what for."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Unknown of what is there. The ids of measurements do not change.
    op.add_column("session", sa.Column("elapsed", sa.Double(), nullable=True))
    op.add_column("session", sa.Column("drift", sa.Double(), nullable=True))
    op.add_column("session", sa.Column("untuned", sa.Text(), nullable=True))
    op.add_column("measurement", sa.Column("elapsed", sa.Double(), nullable=True))
    op.add_column("measurement", sa.Column("trial", sa.Boolean(), nullable=True))
