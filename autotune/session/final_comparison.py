"""The finals of a session: which schedules take part, and what their interleaved times say.

The fastest of the session and its rivals do (`finals.py`). Those of a session that is
resumed are built again from their records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...runtime.timer import DISTURBED_FINALS, turn_seconds
from ...schedule import Trace
from ...target import Target
from ...tir.ir import Func
from ...tuning_db.gains import Gain, Gains
from ...tuning_db.results import Baseline, ComparedSchedule
from ...tuning_db.values import ScheduleRecord
from ..config import MIN_FINALISTS, TuneConfig
from ..measure.any_measurer import AnyMeasurer
from ..measure.interchange import interchanged
from ..measure.measure_result import BuildRequest, MeasureResult
from ..records import schedule_record
from ..search.remembered import chosen
from ..search.search import Search
from ..search.sketch import Sketch, written
from .finals import (
    FAR,
    Fastest,
    Finalist,
    InterleavedTiming,
    SessionFinals,
    attempts,
    short_heat,
    wait_for_calm,
)
from .noise import DISTURBED, DriftMonitor
from .recorder import Earlier, Recorder


@dataclass(eq=False)
class FinalComparison:
    """The finals of a session.

    `earlier` are the fastest schedules of the calls that this one continues, the fastest first.
    `measured` is called with what was measured for the finals alone, and returns the finalist, if
    it may be one. `pause` is called to wait for a calm machine. `compared` are the finalists of
    finals that were recorded, the choice first, and `slowdown` is how many times as long the last
    finals took as the trials.
    """

    config: TuneConfig
    measurer: AnyMeasurer
    recorder: Recorder
    fastest: Fastest
    rivals: Rivals
    drift: DriftMonitor
    tolerance: float | None
    earlier: Sequence[Earlier]
    measured: Callable[[ScheduleRecord, Trace, MeasureResult], Finalist | None]
    pause: Callable[[], None]
    slowdown: float = 1.0
    compared: Sequence[ComparedSchedule] = ()

    @property
    def disturbed(self) -> bool:
        """Whether they took so long that they chose nothing."""
        return self.slowdown >= DISTURBED_FINALS

    def hold(self) -> SessionFinals | None:
        """Time the fastest and the rivals, and record it; `None` where nothing was compared."""
        if not self._add_earlier():
            return None
        near, config = self._near(), self.config
        if len(near) != 1 and not self._timing(near).rounds:
            return None
        self._try_rivals(near[0].seconds)
        limit = FAR * near[0].seconds
        joined = [*near, *(f for f in self.rivals.besides(near) if f.seconds <= limit)]
        if self._timing(joined).rounds:
            near = joined
        slow, rounds, extra = short_heat(
            self.rivals.besides(near),
            config.rounds,
            config.final_seconds / 4,
            config.measure.sample_seconds,
        )
        if len(near) + len(slow) < 2:
            return None
        finalists = [f for f in (*near, *slow) if f.checked or self._passes(f)]
        return self._compare(finalists, rounds, extra)

    def _add_earlier(self) -> bool:
        """Measure the fastest of earlier calls again; `False` on a disturbed machine.

        Finals without them would replace their times. One that fails now has no time any more.
        """
        if not self.earlier:
            return True
        chosen = self.earlier[: self._most(self.earlier[0].seconds)]
        results = self._measured_again(chosen)
        if (first := self.slowdown) > self.config.margin:
            wait_for_calm(self.pause)
            results = self._measured_again(chosen)
            self.slowdown = min(self.slowdown, first)
        if self.disturbed:
            return False
        for earlier, measured in results:
            finalist = self.measured(earlier.schedule, earlier.trace, measured)
            if finalist is not None:
                # Its time as it is expected now: one disturbed sample would put it out of finals
                # that outdate it.
                self.fastest.add(finalist._replace(seconds=earlier.seconds * self.slowdown))
                if measured.check is not None:  # by this toolchain it is the first
                    self.recorder.check(earlier.schedule.id, measured.check)
            else:
                self.recorder.rival(earlier.schedule, measured)
        return True

    def _measured_again(self, chosen: Sequence[Earlier]) -> list[tuple[Earlier, MeasureResult]]:
        """Measure schedules of earlier calls, and how many times as long as then they take."""
        requests = [BuildRequest(e.schedule.trace, e.trace.error_factor) for e in chosen]
        results = [(chosen[n], m) for n, m in self.measurer.measure(requests, None)]
        slower = [m.seconds / e.seconds for e, m in results if m.seconds is not None]
        self.slowdown = min(slower, default=1.0)
        return results

    def _try_rivals(self, best: float) -> None:
        """Measure the rivals that were no candidates of this session, where that is short.

        One that was faster in another session than this machine now shows takes no part: its
        record would be replaced.
        """
        short = self.config.final_seconds / 16
        for rival in self.rivals.untried if best <= short else ():
            if rival.baseline is Baseline.WRITTEN and self.measurer.await_reference() > short:
                continue
            request = BuildRequest(rival.schedule.trace, rival.trace.error_factor)
            known = self.recorder.known_seconds(rival.schedule.id)
            for _, measured in self.measurer.measure([request], best):
                if known is None:
                    self.recorder.rival(rival.schedule, measured)
                elif measured.seconds is None or measured.seconds >= DISTURBED * known:
                    continue
                self.measured(rival.schedule, rival.trace, measured)

    def _near(self) -> list[Finalist]:
        """The candidates that may be the fastest."""
        config, first = self.config, self.fastest.first
        if first is None:
            return []
        margin = config.margin * self.drift.spread
        least = 2 if self.drift.spread >= DISTURBED else 1
        return self.fastest.finalists(self._most(first.seconds), margin, least)

    def _most(self, first: float) -> int:
        """How many finalists there may be where the fastest takes `first` seconds."""
        config = self.config
        each = config.rounds * turn_seconds(first, config.measure.sample_seconds)
        count = max(MIN_FINALISTS, int(config.final_seconds / 4 / each))
        return min(config.finalists, count)

    def _passes(self, finalist: Finalist) -> bool:
        """Check the results of a finalist that was not checked yet; return whether they pass."""
        result = self.measurer.check(finalist.kernel)
        self.recorder.check(finalist.schedule.id, result)
        return result.passed and finalist.kernel.allows(result, self.tolerance)

    def _timing(
        self, finalists: Sequence[Finalist], first: int | None = None, extra: float = 0.0
    ) -> InterleavedTiming:
        config = self.config
        seconds, sample_seconds = config.final_seconds + extra, config.measure.sample_seconds
        return InterleavedTiming(finalists, config.rounds, seconds, sample_seconds, first)

    def _compare(
        self, finalists: Sequence[Finalist], first: int, extra: float
    ) -> SessionFinals | None:
        """Time kernels interleaved and record it; `None` if there is no time for that.

        Times that are several times those of the trials are not recorded: they would take their
        place. The timing is repeated once, after a pause.
        """
        result: SessionFinals | None = None
        for timing in attempts(lambda: self._timing(finalists, first, extra), self.pause):
            result = None
            try:
                timing.run(self.measurer.interleave)
            finally:
                self.slowdown = timing.slowdown
                if any(timing.samples) and not timing.disturbed:
                    timed = zip((f.schedule for f in finalists), timing.samples, strict=True)
                    result = self.recorder.finals(
                        [(s, row) for s, row in timed if row], self.measurer.environment
                    )
                    self.compared = () if result is None else result.comparison
        return result


# The rivals of a session's best schedule: the program as written, and the untuned build.
#
# They take part in the finals of every session that searches the built-in sketches, so that no
# schedule is called best that is slower, and the gain over them is measured.
#
# Wrong results of candidates and rivals of a session, in plain words.

_CAUTION = 0.9
"""Safety factor for lower bounds from times that were not interleaved."""


class Rival(NamedTuple):
    """A schedule to beat. If it `is_reference`, results are checked against the same program."""

    baseline: Baseline
    trace: Trace
    schedule: ScheduleRecord
    is_reference: bool = False


def rivals_of(func: Func, target: Target, search: Search | None) -> tuple[Rival, ...]:
    """The program as written, and the schedule that a build without records chooses.

    Without a search, no more sketches are made than that build makes.
    """
    by_rules = () if search is None else search.by_rules
    exact = [s for s in by_rules if not s.trace.inexact]
    untuned = chosen(func, target, "model", sketches=exact or None).trace
    opened = untuned.opened()
    known = () if search is None else search.sketches
    sketch = next((s for s in known if s.trace == opened), None)
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
