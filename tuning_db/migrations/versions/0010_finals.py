"""The views follow the rule of `finals_rule.py`: finals outdate trials whoever measures later."""

from __future__ import annotations

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # No table changes; the views are made behind the last migration.
    pass
