"""What pinning a schedule and removing a pin change: the price, what is replaced, what is next.

The recorded best is that of `TuningDatabase.best` without pins, of any compiler and without inexact
schedules.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, select

from ..base.durations import change
from ..base.errors import DatabaseError
from ..base.text import short_id
from . import lookup
from .confirm import Wanted
from .read import Layers
from .tables import pin as pins
from .tables import target as targets
from .values import Best, ComparedSchedule, Measurement, Pin, ScheduleRecord, TargetRecord, Workload
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


@dataclass(frozen=True)
class Unpinned:
    """The result of removing the pins of a workload: true if there were any.

    `next` is what `best` returns now; None if there is no usable record, or for a `problem`: a pin
    of a layer that is damaged.
    """

    removed: int
    next: Best | None
    problem: str | None = None

    def __bool__(self) -> bool:
        return self.removed > 0

    @property
    def next_text(self) -> str:
        """Which schedule builds take now, as a sentence."""
        if self.problem is not None:
            return f"Builds fail: {self.problem}."
        if self.next is None:
            return "No usable record is left, so builds choose a schedule without one."
        schedule = f"schedule {short_id(self.next.schedule.id)}"
        time = "" if self.next.time is None else f": {self.next.time}"
        if self.next.pinned:
            return f"Builds take {schedule} now, which {self.next.layer} pins{time}."
        return f"Builds take the recorded best now, {schedule}{time}."

    def __repr__(self) -> str:
        return f"<Unpinned: {self._what}>"

    def __str__(self) -> str:
        return f"{self._what[0].upper()}{self._what[1:]}. {self.next_text}"

    @property
    def _what(self) -> str:
        if not self.removed:
            return "nothing was pinned"
        return "the pin was removed" if self.removed == 1 else f"{self.removed} pins were removed"


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
        _remove(top, program.id, target)  # a damaged one hides the new one
        write(top, [choice], repin=True)
    best = lookup.best(layers, wanted, pins=False)
    measured = lookup.fastest_of(layers, wanted, schedule.id)
    replaced = None if before is None else before.schedule
    return Pinned(choice, replaced, measured, best, schedule.inexact)


def unpin(layers: Layers, workload: str, target: TargetRecord, wanted: Wanted) -> Unpinned:
    """Remove the pins of comparable targets from the uppermost layer, and say what is next."""
    removed = _remove(layers[0], workload, target)
    try:
        return Unpinned(removed, lookup.best(layers, wanted))
    except DatabaseError as error:
        if "record" not in error.data:
            raise
        return Unpinned(removed, None, error.first_line)


def _remove(connection: Connection, workload: str, target: TargetRecord) -> int:
    same = select(targets.c.id).where(targets.c.comparable == target.comparable)
    gone = pins.delete().where(pins.c.workload == workload, pins.c.target.in_(same))
    return connection.execute(gone).rowcount
