"""What users brought into a session, rules, schedules and hints: what became of each."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ...base.durations import format_seconds
from ...base.text import count
from ...tir.ir import Func
from ...tuning_db.results import ComparedSchedule
from ...tuning_db.values import Outcome
from ..rules.rule import GroupKind, SketchRule
from ..rules.user_rules import SKETCH_RULES
from ..search.hints import HintCandidate, hint_candidates, matching
from ..search.search import Search
from ..search.sketch import Sketch
from ..tvm_records import HintRecords
from .events import Trial

_log = logging.getLogger(__name__)
_NO_TURN = "the session ended before its turn"
_ALL_MEASURED = "all its candidates are measured already"


class RuleUse(NamedTuple):
    """The number of trials of candidates by a rule; or the reason why no sketch has it.

    `untried` is why a rule that sketches have got no trial. `failed` of the trials have no time, of
    which `error` is that of the last one.
    """

    trials: int
    refusal: str | None
    untried: str | None = None
    failed: int = 0
    error: str | None = None


@dataclass
class OwnRules:
    """The rules by name, with the positions of their sketches, or the reason why they have none.

    Trials are counted while the session lasts.
    """

    rules: Mapping[str, tuple[int, ...] | str] = field(default_factory=dict)
    _has_candidate: Callable[[Sequence[int]], bool] = field(default=lambda _: False)
    _trials: Counter[int] = field(default_factory=Counter)
    _errors: list[tuple[int, str]] = field(default_factory=list)

    @staticmethod
    def of(search: Search, refusals: Mapping[str, str]) -> OwnRules:
        """Those that are registered, for the program of a search.

        `refusals` are the first reasons of rules that did not apply to it, or to a part of it.
        """

        def positions(rule: SketchRule) -> tuple[int, ...]:
            named = ({choice.rule for choice in sketch.choices} for sketch in search.sketches)
            return tuple(n for n, names in enumerate(named) if rule.name in names)

        rules = {
            name: positions(rule) or refusals.get(name, _no_sketch(rule))
            for name, rule in SKETCH_RULES.items()
        }
        return OwnRules(rules, search.has_candidate)

    def count(self, sketch: int, error: str | None = None) -> None:
        """Count a trial of a candidate of a sketch (its position), failed if it has an `error`."""
        self._trials[sketch] += 1
        if error is not None:
            self._errors.append((sketch, error))

    @property
    def sketches(self) -> list[tuple[int, ...]]:
        """The positions of the sketches of each rule that has some."""
        return [known for known in self.rules.values() if not isinstance(known, str)]

    @property
    def uses(self) -> dict[str, RuleUse]:
        """What became of each rule so far."""
        return {
            name: RuleUse(0, known) if isinstance(known, str) else self._use(known)
            for name, known in self.rules.items()
        }

    def _use(self, sketches: Sequence[int]) -> RuleUse:
        trials = sum(self._trials[s] for s in sketches)
        if trials:
            errors = [error for sketch, error in self._errors if sketch in sketches]
            return RuleUse(trials, None, None, len(errors), errors[-1] if errors else None)
        left = self._has_candidate(sketches)
        return RuleUse(0, None, _NO_TURN if left else _ALL_MEASURED)


def warn_of_unused(programs: Sequence[tuple[str, OwnRules]]) -> None:
    """Warn of each rule that applies to no program (name), with the reasons."""
    uses = [(program, rule, use) for program, own in programs for rule, use in own.uses.items()]
    used = {rule for _, rule, use in uses if use.refusal is None}
    for rule in dict.fromkeys(rule for _, rule, _ in uses if rule not in used):
        reasons = "; ".join(f"{program}: {use.refusal}" for program, r, use in uses if r == rule)
        _log.warning("the sketch rule %s applies to nothing in this session: %s", rule, reasons)


def rules_text(uses: Mapping[str, RuleUse], trials: int) -> str | None:
    """What became of each rule in a session of `trials`, as a phrase."""
    phrases = (
        f"{name}: {use.trials} of {trials} trials{_reason(use)}"
        if use.refusal is None
        else f"{name}: not for this program: {use.refusal}"
        for name, use in uses.items()
    )
    return "; ".join(phrases) or None


def _reason(use: RuleUse) -> str:
    if use.error is not None:
        last, *_ = use.error.split("\n", 1)
        return f", {use.failed} of which failed: {last}"
    return "" if use.untried is None else f": {use.untried}"


def _no_sketch(rule: SketchRule) -> str:
    if rule.kind is GroupKind.PROGRAM:
        return "no sketch has it"
    return f"no sketch has it; it is for groups of kind {rule.kind.name}"


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
        sketch_of = {o.schedule: o.sketch for o in self._search.observed}
        times = _times(self._search, trials, finals)
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
    return "; ".join(f"{name}: {_schedule_text(use, trials)}" for name, use in uses.items()) or None


def _schedule_text(use: ScheduleUse, trials: int) -> str:
    of = "" if not use.is_open else f", {use.trials} of {trials} trials of its open sizes"
    failed = ""
    if use.error is not None:
        first, *_ = use.error.split("\n", 1)
        failed = f", {use.failed} failed: {first}"
    if use.rank is None or use.seconds is None or use.ratio is None:
        return f"no time{of}{failed}" if use.failed else f"not measured: {_NO_TURN}"
    ratio = "the best" if use.rank == 1 else f"{use.ratio:.3g} times the time of the best"
    time = format_seconds(use.seconds)
    return f"rank {use.rank} of {use.ranked} schedules, {time}, {ratio}{of}{failed}"


class HintUse(NamedTuple):
    """What became of the records of other tuners that `tune` was given as hints.

    Of so many `records`, `matched` are of this program; `skipped` counts, by why, those that say
    nothing of tile sizes. The tile sizes of those that match gave `candidates`, of which `refitted`
    have other sizes: the nearest that are legal here. `trials` of the session were of candidates,
    `failed` of which have no time. `best` names the record (file and line) of the fastest one,
    `schedule` (id) with `seconds`; `ratio` is its time over that of the best of all, which it is if
    it `won`. These are `None` where no candidate has a time.
    """

    records: int
    skipped: Mapping[str, int]
    matched: int
    candidates: int
    refitted: int
    trials: int = 0
    failed: int = 0
    best: str | None = None
    schedule: str | None = None
    seconds: float | None = None
    ratio: float | None = None
    won: bool = False


class GivenHints:
    """The candidates by hints of a program, which a search begins with."""

    def __init__(self, search: Search, func: Func, given: HintRecords) -> None:
        self._search = search
        self._given = given
        matched = matching(given.hints, func)
        self._matched = len(matched)
        self._candidates: dict[str, HintCandidate] = {}
        for candidate in hint_candidates(search, matched) if matched else ():
            self._candidates[candidate.schedule] = candidate
            search.begin_with(candidate.trace)
        if not matched:
            _log.warning(
                "%s: none of %s matches it", func.name, count(given.records, "record of hints")
            )

    def use(
        self, trials: Sequence[Trial], finals: Sequence[ComparedSchedule], best: str | None
    ) -> HintUse:
        """What became of them, by the trials of the session, its finals, and the best schedule."""
        own = [t for t in trials if t.schedule in self._candidates]
        changed = sum(not candidate.exact for candidate in self._candidates.values())
        use = HintUse(
            self._given.records, self._given.skipped, self._matched, len(self._candidates), changed,
            len(own), sum(t.seconds is None for t in own),
        )  # fmt: skip
        times = _times(self._search, trials, finals)
        timed = sorted(
            (s for s in self._candidates if s in times), key=lambda s: (s != best, times[s])
        )
        if not timed:
            return use
        fastest, hint = timed[0], self._candidates[timed[0]].hint
        return use._replace(
            best=f"{hint.file}:{hint.line}",
            schedule=fastest,
            seconds=times[fastest],
            ratio=times[fastest] / times.get(best or "", min(times.values())),
            won=fastest == best,
        )


def hints_text(use: HintUse | None) -> str | None:
    """What became of hints, as a phrase; `None` of none."""
    if use is None:
        return None
    matched = f"{use.matched} of {count(use.records, 'record')} match"
    if not use.candidates:
        return matched
    text = f"{matched}, {count(use.candidates, 'candidate')} ({use.refitted} re-fitted)"
    if use.seconds is None or use.ratio is None:
        return f"{text}, none has a time"
    versus = "the best" if use.won else f"{use.ratio:.3g} times the time of the best"
    return f"{text}; fastest {use.best}: {format_seconds(use.seconds)}, {versus}"


def _times(
    search: Search, trials: Sequence[Trial], finals: Sequence[ComparedSchedule]
) -> dict[str, float]:
    """The times of the schedules of a program that have one; those of finals count."""
    times = {
        o.schedule: o.seconds
        for o in search.observed
        if o.outcome is Outcome.OK and o.seconds is not None
    }
    times |= {t.schedule: t.seconds for t in trials if t.seconds is not None}
    return times | {f.schedule: f.seconds for f in finals}
