"""Pictures of the trials of a session: convergence, predictions, finals, gains and failures.

They are made of results of this process and of records of a database alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import htpy as h
import numpy as np
import numpy.typing as npt

from ...autotune.session.events import Trial
from ...base.durations import format_seconds
from ...base.text import short_id
from ...tuning_db.gains import Gains, gains_text
from ...tuning_db.results import Baseline, ComparedSchedule, Verdict
from ...tuning_db.values import Outcome
from .bars import Interval, bars, intervals
from .charts import Layer, chart
from .page import text
from .scales import Axis, plottable
from .tables import Column

CLOCK = Axis("seconds since the first trial", "{:g} s".format, zero=True)
CALL = Axis("time of a call", format_seconds, logarithmic=True)
_SQUEEZED = 4.0
"""How many times as far from the fastest as the other finalists a baseline is still on the axis."""
_REASONS = 12
"""Reasons of failures that are listed."""
_FEW = 3
"""Points from which on a correlation says anything."""
Point: TypeAlias = tuple[float, float]


def convergence(trials: Sequence[Trial], comparison: Sequence[ComparedSchedule] = ()) -> h.Element:
    """The times of trials and the best so far against wall-clock.

    Also that of the finals, by their `comparison`.
    """
    timed, best = times_and_best(trials)
    layers = [Layer("trials", timed, "cloud"), Layer("best so far", best, "steps")]
    if comparison and best:
        final = comparison[0].seconds
        name = f"finals: {format_seconds(final)}"
        layers.append(Layer("finals", [(best[-1][0], final)], "points", [name]))
    return chart("Best so far", CLOCK, CALL, *layers, empty="No trial ran to its end.")


def times_and_best(trials: Sequence[Trial]) -> tuple[list[Point], list[Point]]:
    """The times of trials, and the best so far, against the seconds since the first trial.

    What comes before it, the measuring of the machine above all, tries nothing.
    """
    began = trials[0].elapsed if trials else 0.0
    timed = [(t.elapsed - began, t.seconds) for t in trials if t.seconds is not None]
    return timed, improvements((t.elapsed - began, t.best_seconds) for t in trials)


def improvements(bests: Iterable[tuple[float, float | None]]) -> list[Point]:
    """The points at which the best time changes, and the last one."""
    points: list[Point] = []
    last: Point | None = None
    for elapsed, best in bests:
        if best is None:
            continue
        last = (elapsed, best)
        if not points or points[-1][1] != best:
            points.append(last)
    return [*points, last] if last is not None and points[-1] != last else points


def predictions(trials: Sequence[Trial]) -> h.Element:
    """The times that the cost model expected, against the measured ones."""
    pairs = [
        (t.predicted, t.seconds)
        for t in trials
        if t.predicted is not None and t.seconds is not None
    ]
    rank = rank_correlation(pairs)
    note = f"Rank correlation {rank:.2f}; 1 is the right order." if rank is not None else None
    return chart(
        "Predicted against measured",
        Axis("predicted", format_seconds, logarithmic=True),
        Axis("measured", format_seconds, logarithmic=True),
        Layer("trials", pairs, "cloud"),
        diagonal=True,
        notes=[note] if note is not None else [],
        empty="No trial that ran had a prediction.",
    )


def rank_correlation(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Spearman's rank correlation; `None` for fewer than three pairs, or all equal ones."""
    finite = [p for p in pairs if all(map(plottable, p))]
    if len(finite) < _FEW:
        return None
    ranks = [_ranks(np.array(column)) for column in zip(*finite, strict=True)]
    if any(np.ptp(r) == 0 for r in ranks):
        return None
    return float(np.corrcoef(*(r.tolist() for r in ranks))[0, 1])


def _ranks(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Ranks from 0, equal values sharing their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts + 1) / 2)[inverse]


def finals(comparison: Sequence[ComparedSchedule]) -> h.Node:
    """The finalists with their ratios and intervals, the choice first; nothing without finals.

    Baselines are named. Those that are much slower than the others are off the axis.
    """
    if not comparison:
        return None
    longest = _longest(comparison)
    rows = [
        Interval(
            ", ".join([short_id(c.schedule), *(b.phrase for b in c.baselines)]),
            ["" if c.shown_time is None else format_seconds(c.seconds)],
            c.ratio,
            (1.0, 1.0) if c.verdict is Verdict.FASTEST else c.interval,
            f"{'chosen; ' if n == 0 else ''}{c.versus}",
            off=bool(c.baselines) and c.ratio > longest,
        )
        for n, c in enumerate(comparison)
    ]
    head = [Column("schedule"), Column("time", number=True)]
    axis = Axis("times as long as the fastest", "{:.4g}".format)
    return intervals("Finals: timed interleaved", rows, head=head, axis=axis, beside=1.0)


def _longest(comparison: Sequence[ComparedSchedule]) -> float:
    """The ratio from which on a baseline would leave too little of the axis to the others.

    Where there are no other finalists, these are the choice and the faster baseline.
    """
    others = [c.interval[1] if c.interval else c.ratio for c in comparison if not c.baselines]
    if len(others) < 2:
        others += sorted(c.ratio for c in comparison if c.ratio > 1)[:1]
    return 1 + _SQUEEZED * (max(others, default=1.0) - 1)


def gains(found: Gains) -> h.Node:
    """The gains over the baselines with their intervals; nothing where none is known."""
    if not found:
        return None
    rows = [
        Interval(
            Baseline(name).phrase,
            [],
            gain.ratio,
            gain.interval,
            gains_text({name: gain}) or "",
        )
        for name, gain in found.items()
    ]
    axis = Axis("times as long as the best", "{:.3g}".format, logarithmic=True)
    return intervals("Gain", rows, head=[Column("")], axis=axis, beside=1.0)


def failures(trials: Iterable[Trial]) -> h.Node:
    """Failed trials by outcome and reason, the most frequent first; nothing where none failed."""
    counts = Counter((str(t.outcome), t.reason) for t in trials if t.outcome is not Outcome.OK)
    if not counts:
        return None
    shown = counts.most_common(_REASONS)
    named = [(f"{outcome}: {why}" if why else outcome, n) for (outcome, why), n in shown]
    if others := len(counts) - len(shown):
        rest = counts.total() - sum(n for _, n in shown)
        named.append((f"other: {others:,} more reasons", rest))
    return bars("Failures by reason", named, head=("reason", "trials"), write="{:,.0f}".format)


def lead(best: str, *facts: str | None) -> h.Element:
    """The line of a result that is read first."""
    more = [f" · {text(fact)}" for fact in facts if fact]
    return h.p(".lead")[h.strong[text(best)], more]


def remarks(*sentences: str | None, kind: str = "") -> h.Node:
    """Sentences, a paragraph for each line."""
    lines = [line for sentence in sentences if sentence for line in sentence.splitlines()]
    return [h.p(class_=kind or None)[text(line)] for line in lines]
