"""Sessions on a machine that was not calm are marked, and measurements have their predictions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Unknown of what is there. The ids of measurements do not change.
    op.add_column("session", sa.Column("noise", sa.Text(), nullable=True))
    op.add_column("measurement", sa.Column("predicted", sa.Double(), nullable=True))
