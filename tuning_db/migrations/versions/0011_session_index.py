"""Whether a session has later finals is read from an index alone."""

from __future__ import annotations

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_index("ix_measurement_session", "measurement")
    op.create_index("ix_measurement_session_created", "measurement", ["session", "created"])
