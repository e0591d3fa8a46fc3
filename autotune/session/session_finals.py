"""How the finals of a session ended, from its records: the comparison, and what was gained."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from ...base.errors import DatabaseError
from ...tuning_db import TuningDatabase
from ...tuning_db.gains import Gains, gains_of, untuned_of
from ...tuning_db.interleaved_comparison import compare_schedules
from ...tuning_db.values import (
    ComparedSchedule,
    Measurement,
    Outcome,
    ScheduleRecord,
    Session,
)


class SessionFinals(NamedTuple):
    """How finalists compare, the choice first, and its gains over the baselines among them."""

    comparison: tuple[ComparedSchedule, ...]
    gains: Gains

    @property
    def seconds(self) -> float:
        """The time of the choice."""
        return self.comparison[0].seconds


def session_finals(
    database: TuningDatabase, finalists: Sequence[Measurement]
) -> SessionFinals | None:
    """How interleaved measurements of a session compare; `None` for fewer than two.

    Those whose schedule is damaged are left out.
    """
    entries = []
    for measured in finalists:
        with suppress(DatabaseError):
            entries.append((measured, database.get(ScheduleRecord, measured.schedule)))
    if len(entries) < 2:
        return None
    untuned = untuned_of(database.get(Session, finalists[0].session))
    comparison = compare_schedules(entries, partial(_earlier, database, finalists[0]), untuned)
    choice = next(m for m, _ in entries if m.schedule == comparison[0].schedule)
    return SessionFinals(tuple(comparison), gains_of(choice, entries, untuned))


def _earlier(database: TuningDatabase, final: Measurement) -> dict[str, list[float]]:
    """The times of schedules (ids) that the session of a finalist measured before its finals."""
    times: dict[str, list[float]] = {}
    for m in database.measurements(session=final.session, outcome=Outcome.OK):
        same = (m.workload, m.target, m.toolchain) == (
            final.workload,
            final.target,
            final.toolchain,
        )
        if same and m.created < final.created:
            times.setdefault(m.schedule, []).extend(m.samples)
    return times
