"""The picture of a session of a database: its course, predictions, failures and decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import htpy as h

from ...autotune.result import slower_finals_text
from ...autotune.session.budget import budget_text
from ...autotune.session.events import Trial
from ...autotune.session.finals import SessionFinals
from ...autotune.session.session_history import SessionHistory
from ...base.durations import format_seconds
from ...base.errors import TilewrightError
from ...base.text import count, format_si, short_id
from ...schedule import Trace
from ...tuning_db import (
    ComparedSchedule,
    Measurement,
    ScheduleRecord,
    Session,
    TuningDatabase,
    Workload,
)
from ...tuning_db.gains import gains_text
from .database import moment, schedule, seconds_cell
from .decisions import DecisionNames, decisions_chart
from .page import text
from .programs import Tuned
from .tables import Cell, Column, Row, table
from .trials import convergence, failures, finals, gains, lead, predictions, remarks

_GENERATOR = 160
"""Characters of the name of a generator."""
_FEW_OF_MANY = 200
"""Candidates whose decisions are drawn: the fastest, and others evenly by rank."""
_FASTEST = 50


class Timed(NamedTuple):
    """A schedule that ran: what a table shows of it. `id` is that of the measurement.

    What was no trial of the session has no `elapsed`.
    """

    seconds: float
    id: str
    schedule: str
    generator: str
    predicted: float | None
    elapsed: float | None


@dataclass
class SessionTrials:
    """The measurements of a session: trials in order, those that ran, the last finals.

    `trial_seconds` is the time of the fastest trial, `own_seconds` that of the finals or else it.
    """

    tried: list[Trial] = field(default_factory=list)
    timed: list[Timed] = field(default_factory=list)
    finals: SessionFinals | None = None
    in_finals: Mapping[str, tuple[Measurement, str]] = field(default_factory=dict)
    trial_seconds: float | None = None
    own_seconds: float | None = None

    @property
    def comparison(self) -> Sequence[ComparedSchedule]:
        """How the finalists compare, the choice first; empty without finals."""
        return () if self.finals is None else self.finals.comparison

    @property
    def outcomes(self) -> str:
        """How many trials there were, by outcome."""
        counts = Counter({"ok": len(self.timed)})
        counts += Counter(t.outcome.value for t in self.tried if t.seconds is None)
        named = ", ".join(f"{n:,} {outcome}" for outcome, n in counts.items())
        return f"{count(len(self.tried), 'trial')} ({named or 'none'})"


def session_trials(database: TuningDatabase, session: Session) -> SessionTrials:
    """Read the measurements of a session."""
    history, trials = SessionHistory(database, session), SessionTrials()
    for trial, measured, generator in history.read():
        trials.tried.append(trial)
        if trial.seconds is not None:
            more = (trial.schedule, generator, trial.predicted, trial.elapsed)
            trials.timed.append(Timed(trial.seconds, measured.id, *more))
    trials.timed.sort()
    trials.finals, trials.own_seconds = history.finals, history.own_seconds
    trials.trial_seconds, trials.in_finals = history.trial_seconds, history.in_finals
    return trials


def session_section(
    database: TuningDatabase, session: Session, tuned: Tuned, *, rows: int, heading: h.Node
) -> h.Element:
    """The picture of a session of a program; `rows` are those of the table of measurements."""
    trials = session_trials(database, session)
    best = tuned.best
    here = best if tuned.session == session.id else None
    gained = tuned.gains if trials.finals is None else trials.finals.gains
    ranked = _ranked(trials)
    facts = _facts(session)
    return h.section(".result")[
        heading,
        h.p(".soft")[text(", ".join(filter(None, (tuned.target, tuned.generation, facts))))],
        _headline(trials, session, tuned),
        h.div(".grid")[
            convergence(trials.tried, trials.comparison),
            predictions(trials.tried),
            gains(gained) if here is not None or trials.finals is not None else None,
            failures(trials.tried),
        ],
        finals(trials.comparison),
        _decisions(database, ranked, tuned.workload),
        _fastest(ranked, trials.comparison, rows),
        schedule(best.schedule) if best is not None else None,
    ]


def _facts(session: Session) -> str:
    budget = budget_text(session.trials, session.seconds) or "unlimited"
    return (
        f"session {short_id(session.id)} of {moment(session.started)} (UTC), {session.status}; "
        f"budget {budget}, {format_seconds(session.duration)} used"
    )


def _headline(trials: SessionTrials, session: Session, tuned: Tuned) -> h.Node:
    elsewhere_noise = None if tuned.session == session.id else tuned.noise
    troubles = remarks(session.noise, elsewhere_noise, tuned.trouble, kind="bad")
    own = trials.own_seconds
    if tuned.best is None:
        what = "no correct candidate" if trials.tried else "nothing was measured"
        fastest = None if own is None else f"fastest trial {format_seconds(own)}, unverified"
        return [lead(what, fastest), remarks(trials.outcomes), troubles]
    best = tuned.best
    rate = None if tuned.rate is None else format_si(tuned.rate, "FLOP/s")
    elsewhere = None
    if best.measurement is not None and tuned.session != session.id:
        its = "" if own is None else f"; this session's: {format_seconds(own)}"
        elsewhere = f"The best is of session {short_id(tuned.session)}{its}."
    slower = slower_finals_text(trials.trial_seconds, trials.comparison)
    return [
        lead(str(best.time or "no usable time"), rate, best.how * best.pinned),
        remarks(gains_text(tuned.gains, explained=True), trials.outcomes, elsewhere, slower),
        troubles,
    ]


def _ranked(trials: SessionTrials) -> list[Timed]:
    """The schedules of a session by the time that each has everywhere, as a lookup ranks them.

    Finals replace trials: their order is that of the comparison, before what did not reach them.
    """
    timed = {t.schedule: t for t in trials.timed}
    for id, (measured, generator) in trials.in_finals.items():
        assert measured.seconds is not None, "what ran has a time"
        trial = timed.get(id) or Timed(0.0, "", id, generator, None, None)
        timed[id] = trial._replace(seconds=measured.seconds, id=measured.id)
    first = [timed.pop(c.schedule) for c in trials.comparison]
    return first + sorted(timed.values())


def _decisions(
    database: TuningDatabase, timed: Sequence[Timed], workload: Workload | None
) -> h.Node:
    """The decisions of the sketch that the fastest candidate is of."""
    if not timed:
        return None
    same = [t for t in timed if t.generator == timed[0].generator]
    stride = -(-len(same) // _FEW_OF_MANY)
    candidates = []
    for one in [*same[:_FASTEST], *same[_FASTEST::stride]]:
        try:
            record = database.get(ScheduleRecord, one.schedule)
            candidates.append((Trace.from_json(record.trace), one.seconds))
        except TilewrightError:
            continue
    title = f"Decisions against time: {timed[0].generator}"
    return decisions_chart(candidates, title, DecisionNames.of(workload))


def _fastest(timed: Sequence[Timed], comparison: Sequence[ComparedSchedule], most: int) -> h.Node:
    if not timed:
        return None
    compared = {c.schedule: f"{'chosen; ' * (n == 0)}{c}" for n, c in enumerate(comparison)}
    columns = [
        Column("schedule"),
        Column("time", number=True),
        *([Column("finals: vs the fastest")] if compared else []),
        Column("predicted", number=True),
        Column("after", number=True),
        Column("measurement"),
        Column("generator"),
    ]
    body: list[Row] = [
        (
            short_id(t.schedule),
            seconds_cell(t.seconds),
            *([text(compared.get(t.schedule, ""))] if compared else []),
            seconds_cell(t.predicted),
            Cell("", 0) if t.elapsed is None else Cell(f"{t.elapsed:.1f} s", t.elapsed),
            short_id(t.id),
            text(t.generator, _GENERATOR),
        )
        for t in timed[:most]
    ]
    shown = "" if len(body) == len(timed) else f": {len(body):,} of {len(timed):,}"
    return table(f"The fastest schedules{shown}", columns, body, sortable=True)
