"""The family of a workload: what other sizes of the same program have in common."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Unknown of the workloads that are there, until one of them is put again.
    column = sa.Column("family", sa.String(64), nullable=False, server_default="")
    op.add_column("workload", column)
    op.create_index("ix_workload_family", "workload", ["family"])
