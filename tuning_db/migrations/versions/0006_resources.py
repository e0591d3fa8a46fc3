"""What the compiler reports of the kernels that were measured."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Unknown of the measurements that are there, whose ids do not change.
    op.add_column("measurement", sa.Column("resources", sa.Text(), nullable=True))
