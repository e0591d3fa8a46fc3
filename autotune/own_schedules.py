"""The schedules that `tune` was given, in a session: what became of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..base.durations import format_seconds
from ..tuning_db.values import ComparedSchedule, Outcome
from .search.search import Search
from .search.sketch import Sketch
from .session.events import Trial

_NO_TURN = "not measured: the session ended before its turn"


class ScheduleUse(NamedTuple):
    """How a schedule that `tune` was given ranked.

    `is_open` says whether it has decisions, which were searched. `trials` of the session were of
    its candidates, `failed` of which have no time; `error` is that of the last of these. The
    fastest of its candidates is `schedule` (id) with `seconds`: it has the `rank`, from 1 on, among
    the `ranked` schedules of the program that have a time, by these times, and the best first. All
    are `None` where none of its candidates has a time.
    """

    is_open: bool
    trials: int
    failed: int = 0
    error: str | None = None
    schedule: str | None = None
    seconds: float | None = None
    rank: int | None = None
    ranked: int | None = None
    ratio: float | None = None
    """Its time over that of the best."""


class OwnSchedules:
    """The schedules by name, with the positions of their sketches in a search."""

    def __init__(self, search: Search, given: Sequence[Sketch]) -> None:
        self._search = search
        self._given = {
            sketch.name: (
                bool(sketch.variables),
                {n for n, s in enumerate(search.sketches) if s.trace == sketch.trace},
            )
            for sketch in given
        }

    def uses(
        self, trials: Sequence[Trial], finals: Sequence[ComparedSchedule], best: str | None
    ) -> dict[str, ScheduleUse]:
        """What became of each, by the trials of the session, its finals, and the best schedule."""
        if not self._given:
            return {}
        observed = self._search.observed
        sketch_of = {o.schedule: o.sketch for o in observed}
        times = {
            o.schedule: o.seconds
            for o in observed
            if o.outcome is Outcome.OK and o.seconds is not None
        }
        times |= {t.schedule: t.seconds for t in trials if t.seconds is not None}
        times |= {f.schedule: f.seconds for f in finals}
        order = sorted(times, key=lambda s: (s != best, times[s]))

        def use(is_open: bool, sketches: set[int]) -> ScheduleUse:
            own = [t for t in trials if sketch_of.get(t.schedule) in sketches]
            failed = [t for t in own if t.seconds is None]
            error = failed[-1].error if failed else None
            counted = ScheduleUse(is_open, len(own), len(failed), error)
            place = next((n for n, s in enumerate(order) if sketch_of.get(s) in sketches), None)
            if place is None:
                return counted
            found, seconds = order[place], times[order[place]]
            return counted._replace(
                schedule=found, seconds=seconds, rank=place + 1, ranked=len(order),
                ratio=seconds / times[order[0]],
            )  # fmt: skip

        return {name: use(*given) for name, given in self._given.items()}


def schedules_text(uses: Mapping[str, ScheduleUse], trials: int) -> str | None:
    """What became of each schedule in a session of `trials`, as a phrase; `None` of none."""
    return "; ".join(f"{name}: {_text(use, trials)}" for name, use in uses.items()) or None


def _text(use: ScheduleUse, trials: int) -> str:
    of = "" if not use.is_open else f", {use.trials} of {trials} trials of its open sizes"
    failed = ""
    if use.error is not None:
        first, *_ = use.error.split("\n", 1)
        failed = f", {use.failed} failed: {first}"
    if use.rank is None or use.seconds is None or use.ratio is None:
        return f"no time{of}{failed}" if use.failed else _NO_TURN
    ratio = "the best" if use.rank == 1 else f"{use.ratio:.3g} times the time of the best"
    time = format_seconds(use.seconds)
    return f"rank {use.rank} of {use.ranked} schedules, {time}, {ratio}{of}{failed}"
