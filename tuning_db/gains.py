"""The gains of tuning: the times of baselines over that of the best, of one interleaved comparison.

A session times two baselines with its finalists: the program as written, and the schedule that a
build without records would choose (`Session.untuned`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor, log10

from ..durations import contained, format_ratio
from .interleaved_comparison import TimeRatio, is_as_written, time_ratio
from .values import Baseline, Measurement, ScheduleRecord, Session, Verdict

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
        bound = "more than " if self.at_least else ""
        ends = " to ".join(format_ratio(end, 3) for end in self.interval or ())
        between = f" ({ends})" if ends else ""
        verdict = "" if self.verdict is Verdict.SLOWER else f", {self.verdict}"
        return f"<Gain {bound}{format_ratio(self.ratio, 3)}{between}{verdict}>"

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
    """The gains as a phrase (`6.2x the program as written, 1.3x the untuned build`), if any.

    Only a gain is a number: a tie, as in finals, is `as fast as`, and what noise hides is `not told
    apart from`. Both have the interval, as has a number whose interval is wide. Of too few rounds
    for an interval it is `about 4.1x`. It may be `explained` what the untuned build is.
    """
    names = {b: b.phrase for b in Baseline}
    if explained:
        names[Baseline.UNTUNED] += " (tw.build without a record)"
    phrases = (_phrase(names[Baseline(baseline)], gain) for baseline, gain in gains.items())
    return ", ".join(phrases) or None


def gain_cell(gain: Gain) -> str:
    """The gain for a column of numbers: `6.21`, `3.3 (1.3 to 5)`, `>130` or `tie`.

    The interval is there where it is wide, as in sentences. What noise hides is `not told apart`.
    """
    if gain.at_least:
        return f">{format_ratio(_rounded_down(gain.ratio))}"
    if gain.verdict is Verdict.TIE:
        return "tie"
    if gain.verdict is Verdict.UNSETTLED:
        return "not told apart"
    number = f"{gain.ratio:.0f}" if gain.ratio >= 999.5 else format_ratio(gain.ratio, 3)
    if gain.interval is None or not _is_wide(gain.interval):
        return number
    number, between = contained((gain.ratio, number), gain.interval, _ends(gain.interval))
    return f"{number} ({between})"


def _phrase(baseline: str, gain: Gain) -> str:
    if gain.at_least:
        return f"more than {format_ratio(_rounded_down(gain.ratio))}x {baseline}"
    if gain.same_code:
        return f"the same machine code as {baseline}"
    if gain.verdict is Verdict.TIE:
        between = "" if gain.interval is None else f": {_between(gain.interval)}"
        return f"as fast as {baseline} (a tie{between})"
    if gain.verdict is Verdict.UNSETTLED:
        between = "too few rounds" if gain.interval is None else f"{_between(gain.interval)} times"
        return f"not told apart from {baseline} ({between})"
    digits = 2 if gain.ratio < 1.095 else 1 if gain.ratio < 9.95 else 0
    number = f"{gain.ratio:.{digits}f}"
    if gain.interval is None:
        return f"about {number}x {baseline}"
    if not _is_wide(gain.interval):
        return f"{number}x {baseline}"
    number, between = contained((gain.ratio, number), gain.interval, _ends(gain.interval))
    return f"{number}x ({between}) {baseline}"


def _is_wide(interval: tuple[float, float]) -> bool:
    low, high = interval
    return high > _WIDE * low


def _between(interval: tuple[float, float]) -> str:
    return " to ".join(_ends(interval))


def _ends(interval: tuple[float, float]) -> list[str]:
    low, high = interval
    narrow = high < _WIDE * low
    return [f"{end:.2f}" if narrow and end < 9.95 else _end(end) for end in interval]


def _end(value: float) -> str:
    return format_ratio(value) if value < 99.5 else f"{value:.0f}"


def _rounded_down(ratio: float) -> float:
    """A ratio to two digits, not rounded up."""
    unit = 10.0 ** (floor(log10(ratio)) - 1)
    return floor(ratio / unit) * unit
