"""The rivals of a session's best schedule: the program as written, and the untuned build.

They take part in the finals of every session that searches the built-in sketches, so that no
schedule is called best that is slower, and the gain over them is measured.

Wrong results of candidates and rivals of a session, in plain words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...schedule import Trace
from ...target import Target
from ...tir.ir import Func
from ...tuning_db.gains import Gain, Gains
from ...tuning_db.values import Baseline, ScheduleRecord
from ..measure.interchange import interchanged
from ..search.remembered import chosen
from ..search.search import Search
from ..search.sketch import Sketch, written
from .finals import FAR, Finalist
from .records import schedule_record

_CAUTION = 0.9
"""Safety factor for lower bounds from times that were not interleaved."""


class Rival(NamedTuple):
    """A schedule to beat. If it `is_reference`, results are checked against the same program."""

    baseline: Baseline
    trace: Trace
    schedule: ScheduleRecord
    is_reference: bool = False


def rivals_of(func: Func, target: Target, search: Search) -> tuple[Rival, ...]:
    """The program as written, and the schedule that a build without records chooses."""
    exact = [s for s in search.by_rules if not s.trace.inexact]
    untuned = chosen(func, target, "model", exact or None).trace
    opened = untuned.opened()
    sketch = next((s for s in search.sketches if s.trace == opened), None)
    plain = written(func, target)
    return (
        _rival(Baseline.WRITTEN, plain.trace.with_row(()), plain)._replace(
            is_reference=interchanged(func) is func
        ),
        _rival(Baseline.UNTUNED, untuned, sketch),
    )


class Rivals:
    """The rivals of a session, with what is known of them.

    `timed` are those that ran in this session, with their code, by the ids of their schedules.
    """

    def __init__(self, rivals: Sequence[Rival]) -> None:
        self.timed: dict[str, Finalist] = {}
        self._shortest: dict[str, float] = {}
        self._rivals = rivals
        self._ids = {r.schedule.id for r in rivals}
        self._tried: set[str] = set()

    def note(
        self, schedule: ScheduleRecord, finalist: Finalist | None, samples: Sequence[float]
    ) -> None:
        """Keep what became of a candidate, `None` if it failed, where it is a rival."""
        if schedule.id in self._ids:
            self._tried.add(schedule.id)
            if finalist is not None:
                self.timed[schedule.id] = finalist
                self._shortest[schedule.id] = min(samples)

    @property
    def untried(self) -> list[Rival]:
        """The rivals that were not built in this session."""
        return [r for r in self._rivals if r.schedule.id not in self._tried]

    def besides(self, finalists: Sequence[Finalist]) -> list[Finalist]:
        """The rivals that ran and are not among `finalists`."""
        ids = {f.schedule.id for f in finalists}
        return [f for id, f in self.timed.items() if id not in ids]

    def bounds(self, best: float, reference: float | None) -> Gains:
        """Lower bounds of the gains of a schedule that takes `best` seconds.

        They are by the shortest times of the trials, which a disturbance does not make longer, or
        by that of the `reference` where that is the program as written: one whose loops were
        interchanged may be faster or slower.
        """
        seconds: Mapping[Baseline, float | None] = {
            r.baseline: self._shortest.get(r.schedule.id, reference if r.is_reference else None)
            for r in self._rivals
        }
        return {
            baseline: Gain(_CAUTION * took / best, at_least=True)
            for baseline, took in seconds.items()
            if took is not None and _CAUTION * took >= FAR * best
        }


def _rival(baseline: Baseline, trace: Trace, sketch: Sketch | None) -> Rival:
    return Rival(
        baseline, trace, schedule_record(trace, "" if sketch is None else sketch.generator)
    )


class WrongResults:
    """How the results of rivals, and those of the last candidate, were wrong."""

    def __init__(self, rivals: Sequence[Rival]) -> None:
        self._rivals = rivals
        self._baselines: dict[Baseline, str] = {}
        self._last = ""

    def note(self, schedule: str, difference: str) -> None:
        """Keep how the results of a schedule (id) differ from those of the program."""
        self._last = difference
        wrong = (r.baseline for r in self._rivals if r.schedule.id == schedule)
        self._baselines.update(dict.fromkeys(wrong, difference))

    def text(self, wrong: int, trials: int) -> str | None:
        """Plain words where most of the trials, or a baseline, computed wrong results."""
        texts = [
            f"{baseline.phrase} computes wrong results, and is no baseline: {difference}"
            for baseline, difference in self._baselines.items()
        ]
        if 2 * wrong > trials:
            texts.append(
                f"{wrong} of {trials} candidates computed wrong results; the last: {self._last}"
            )
        return "\n".join(texts) or None
