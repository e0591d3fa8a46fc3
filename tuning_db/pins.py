"""Pinning a schedule, with its price and what it replaces; removing a pin.

The recorded best is that of `TuningDatabase.best` without pins, of any compiler and without inexact
schedules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, select

from ..base.durations import change
from ..base.errors import DatabaseError
from ..base.text import short_id
from . import lookup
from .confirm import Wanted
from .read import Layers
from .results import Best, ComparedSchedule
from .tables import pin as pins
from .tables import target as targets
from .values import Measurement, Pin, ScheduleRecord, TargetRecord, Verification, Workload, verified
from .write import write


@dataclass(frozen=True)
class Pinned:
    """The result of pinning.

    `replaced` is the schedule (id) that was pinned until now, in the database or a layer; None if
    none was, or if it cannot be read. `measurement` is the usable one of the pinned schedule, and
    `best` the recorded best, which is exact; `inexact` names the inexact steps of the pinned one.
    """

    pin: Pin
    replaced: str | None
    measurement: Measurement | None
    best: Best | None
    inexact: str = ""

    @property
    def ratio(self) -> float | None:
        """The time of the pinned schedule over that of the recorded best; None if one has none.

        By the finals, where both took part.
        """
        own = None if self.measurement is None else self.measurement.seconds
        if own is None or self.best is None or self.best.seconds is None:
            return None
        if self._finalist is not None:
            return self._finalist.ratio / self.best.comparison[0].ratio
        return own / self.best.seconds

    @property
    def _finalist(self) -> ComparedSchedule | None:
        """The pinned schedule in the finals that the recorded best won, if it took part."""
        if self.best is None or self.measurement is None:
            return None
        own = self.pin.schedule, self.measurement.seconds
        return next((c for c in self.best.comparison if (c.schedule, c.seconds) == own), None)

    @property
    def price(self) -> str:
        """What the choice costs, as a sentence."""
        if self.measurement is None:
            return "It has no measured time that is verified, so its price is not known."
        time, finalist = str(self.measurement.time), self._finalist
        if self.best is None or self.ratio is None:
            return f"Its time is {time}, and no other usable one is recorded."
        if self.best.schedule.id == self.pin.schedule:
            return f"It is the recorded best: {time}."
        differs = change(self.ratio, interleaved=finalist is not None)
        best = f"schedule {short_id(self.best.schedule.id)}"
        which = "the best exact schedule" if self.inexact else "the recorded best"
        compared = differs.than(which) if differs.direction else f"as fast as {which}"
        if finalist is not None:  # its own time may contradict the ratio
            return f"It is {compared}, {best}: timed interleaved in {finalist.rounds_text}."
        return f"It is {compared}: {time} against {self.best.time} of {best}."

    @property
    def instead(self) -> str:
        """Which schedule was pinned until now, as the end of a sentence; empty if none was."""
        if self.replaced is None:
            return ""
        if self.replaced == self.pin.schedule:
            return ", as it was before"
        return f" instead of schedule {short_id(self.replaced)}"

    def __repr__(self) -> str:
        return f"<Pinned schedule {short_id(self.pin.schedule)}{self.instead}>"

    def __str__(self) -> str:
        return f"Schedule {short_id(self.pin.schedule)} is pinned{self.instead}. {self.price}"


def pin(
    layers: Layers,
    program: Workload,
    target: TargetRecord,
    schedule: ScheduleRecord,
    choice: Pin,
    wanted: Wanted,
) -> Pinned:
    """Write a pin into the uppermost layer, and compare it with what else there is."""
    top = layers[0]
    before = lookup.in_force(layers, program.id, target.comparable, wanted.damage)
    write(top, [program, target, schedule, choice], repin=True)
    if lookup.in_force([top], program.id, target.comparable, wanted.damage) is None:
        unpin(top, program.id, target)  # a damaged one hides the new one
        write(top, [choice], repin=True)
    best = lookup.best(layers, wanted, pins=False)
    measured = lookup.fastest_of(layers, wanted, schedule.id)
    replaced = None if before is None else before.schedule
    return Pinned(choice, replaced, measured, best, schedule.inexact)


def unpin(connection: Connection, workload: str, target: TargetRecord) -> bool:
    """Remove the pins of comparable targets; return whether there were any."""
    same = select(targets.c.id).where(targets.c.comparable == target.comparable)
    gone = pins.delete().where(pins.c.workload == workload, pins.c.target.in_(same))
    return connection.execute(gone).rowcount > 0


# What is pinned was checked: builds take a pin whatever its times, so it has to be right.


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
