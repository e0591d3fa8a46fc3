"""From here on databases have views, which are made behind the last migration: see `views.py`."""

from __future__ import annotations

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # No table changes.
    pass
