"""What is pinned was checked: builds take a pin whatever its times, so it has to be right."""

from __future__ import annotations

from collections.abc import Sequence

from ..base.errors import DatabaseError
from ..base.text import short_id
from .values import ScheduleRecord, TargetRecord, Verification, Workload, verified


def require_verified(
    checks: Sequence[Verification],
    schedule: ScheduleRecord,
    workload: Workload,
    target: TargetRecord,
    *,
    unverified: bool,
) -> None:
    """Raise `DatabaseError` unless a schedule is verified; it may have no check if `unverified`."""
    known = verified(checks)
    if known or (known is None and unverified):
        return
    subject = short_id(schedule.id), workload.name, target.text
    if known is None:
        raise DatabaseError(
            "schedule {0} is not verified for {1} on {2}: no numeric check compared its results "
            "with those of the unscheduled program",
            *subject,
            hint="measure it first, which checks it; or pin it as it is: unverified=True",
        )
    failed = [short_id(check.id) for check in checks if not check.passed]
    raise DatabaseError(
        "schedule {0} of {1} on {2} computes other results than the unscheduled program: "
        "numeric check {3} failed",
        *subject,
        failed[0],
        hint="pin another schedule",
    )
