"""The gains of tuning: the times of baselines over that of the best, of one interleaved comparison.

A session times two baselines with its finalists: the program as written, and the schedule that a
build without records would choose (`Session.untuned`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor, log10

from ..base.durations import change, format_change_between, format_changes, format_ratio
from .interleaved_comparison import TimeRatio, is_as_written, time_ratio
from .results import Baseline, Verdict
from .values import Measurement, ScheduleRecord, Session

_WIDE = 1.5
"""From this ratio of its ends on, an interval is printed."""
UNTUNED_KEY = "untuned"
"""The key in `Session.model` of what is `Session.untuned` now, in sessions of older versions."""


@dataclass(frozen=True)
class Gain:
    """How many times as long as the best a baseline takes.

    `ratio` is the median over the rounds in which both were timed. `interval` contains the true
    ratio with a confidence of 95%; it is None if there were too few rounds. With `at_least`, the
    baseline took too long to be timed beside the best, and `ratio` is a lower bound.

    `verdict` says whether the ratio is a gain: the baseline is `SLOWER`, a `TIE`, `UNSETTLED`
    where noise hides which, or `FASTEST` if it is faster than the best
    (`TimeRatio.mutual_verdict`). `same_code` says that it shares the samples of the best: its
    machine code is the same, and was timed once.
    """

    ratio: float
    interval: tuple[float, float] | None = None
    at_least: bool = False
    verdict: Verdict = Verdict.SLOWER
    same_code: bool = False

    def __repr__(self) -> str:
        verdict = "" if self.verdict is Verdict.SLOWER else f", {self.verdict}"
        if self.at_least:
            return f"<Gain more than {_at_least(self)}{verdict}>"
        return f"<Gain {format_change_between(1 / self.ratio, _of_best(self))}{verdict}>"

    @staticmethod
    def of(compared: TimeRatio, *, same_code: bool = False) -> Gain:
        """The gain by the times of a baseline over those of the best."""
        verdict = compared.mutual_verdict
        return Gain(compared.ratio, compared.interval, verdict=verdict, same_code=same_code)


Gains = Mapping[str, Gain]
"""Gains by the baselines."""


def untuned_of(session: Session | None) -> object:
    """The schedule (id) that a build without records would choose, if the session knows."""
    return None if session is None else session.untuned or session.model.get(UNTUNED_KEY)


def gains_of(
    best: Measurement, entries: Sequence[tuple[Measurement, ScheduleRecord]], untuned: object
) -> Gains:
    """The gains of `best` over the baselines among interleaved measurements.

    `untuned` is the id of the schedule that a build without records chooses, if it is known.
    """
    gains: dict[Baseline, Gain] = {}
    for measured, schedule in entries:
        compared = time_ratio(measured.samples, best.samples)
        gain = Gain.of(compared, same_code=measured.samples == best.samples)
        if is_as_written(schedule):
            gains[Baseline.WRITTEN] = gain
        if measured.schedule == untuned:
            gains[Baseline.UNTUNED] = gain
    return {baseline: gains[baseline] for baseline in Baseline if baseline in gains}


def gains_text(gains: Gains, *, explained: bool = False) -> str | None:
    """The gains as a phrase about the best (`6.21x faster than the program as written`), if any.

    Only a gain is a number: a tie, as in finals, is `as fast as`, and what noise hides is `not told
    apart from`. Both have the interval, as has a number whose interval is wide. Of too few rounds
    for an interval it is `about 4.10x faster`. It may be `explained` what the untuned build is.
    """
    names = {b: b.phrase for b in Baseline}
    if explained:
        names[Baseline.UNTUNED] += " (tw.build without a record)"
    phrases = (_phrase(names[Baseline(baseline)], gain) for baseline, gain in gains.items())
    return ", ".join(phrases) or None


def gain_cell(gain: Gain) -> str:
    """The gain for a column of the best against a baseline: `6.21x faster`, `>130x faster`, `tie`.

    The interval is there where it is wide, as in sentences. What noise hides is `not told apart`.
    """
    if gain.at_least:
        return f">{_at_least(gain)}"
    if gain.verdict is Verdict.TIE:
        return "tie"
    if gain.verdict is Verdict.UNSETTLED:
        return "not told apart"
    return _number(gain)


def _phrase(baseline: str, gain: Gain) -> str:
    if gain.at_least:
        return f"more than {_at_least(gain)} than {baseline}"
    if gain.same_code:
        return f"the same machine code as {baseline}"
    interval = _of_best(gain)
    if gain.verdict is Verdict.TIE:
        between = "" if interval is None else f": {format_changes(*interval)}"
        return f"as fast as {baseline} (a tie{between})"
    if gain.verdict is Verdict.UNSETTLED:
        between = "too few rounds" if interval is None else format_changes(*interval)
        return f"not told apart from {baseline} ({between})"
    return f"{'about ' if interval is None else ''}{_number(gain, baseline)}"


def _number(gain: Gain, than: str = "") -> str:
    """How the best compares with a baseline, with its interval where that is wide."""
    interval = _of_best(gain)
    if interval is not None and interval[1] > _WIDE * interval[0]:
        return format_change_between(1 / gain.ratio, interval, than)
    differs = change(1 / gain.ratio, interleaved=True)
    return differs.than(than) if than else str(differs)


def _at_least(gain: Gain) -> str:
    """A lower bound in two digits, not rounded up: `130x faster`."""
    unit = 10.0 ** (floor(log10(gain.ratio)) - 1)
    return f"{format_ratio(floor(gain.ratio / unit) * unit)}x faster"


def _of_best(gain: Gain) -> tuple[float, float] | None:
    """The interval of the time of the best over that of the baseline."""
    return None if gain.interval is None else (1 / gain.interval[1], 1 / gain.interval[0])
