"""Sessions in the database: a new one, or the unfinished one that is resumed."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ..tuning_db import TuningDatabase
from ..tuning_db.gains import UNTUNED_KEY, Baseline
from ..tuning_db.values import Session
from .budget import Budget, limits
from .config import TuneConfig
from .model.cost_model import PARAMETERS
from .recorder import Subject
from .rivals import Rival
from .search.search import Search

_log = logging.getLogger(__name__)


def unfinished_session(
    database: TuningDatabase, subject: Subject, budget: Budget
) -> Session | None:
    """The last session of a program and budget that did not finish.

    If there is none, a warning says why.
    """
    sessions = database.unfinished_sessions(subject.workload.id, subject.target.id)
    for session in sessions:
        if (session.trials, session.seconds) == (budget.trials, budget.seconds):
            return session
    why = "no session of it is unfinished"
    if sessions:
        other, this = (limits(b.trials, b.seconds) for b in (sessions[0], budget))
        why = f"its unfinished session has a budget of {other}, and this one {this}"
    _log.warning("%s: nothing to resume, a new session starts: %s", subject.workload.name, why)
    return None


def started_session(
    database: TuningDatabase,
    subject: Subject,
    budget: Budget,
    seed: int,
    config: TuneConfig,
    tolerance: float | None,
    search: Search,
    rivals: Sequence[Rival],
) -> Session:
    """A new session, whose record has all that it begins with."""
    return database.start_session(
        subject.workload.id,
        subject.target.id,
        trials=budget.trials,
        seconds=budget.seconds,
        seed=seed,
        search={**config.to_json(), "tolerance": tolerance},
        model={
            "features": search.target_model.feature_version,
            "base": None if search.base is None else search.base.to_json(),
            **PARAMETERS,
            UNTUNED_KEY: next(
                (r.schedule.id for r in rivals if r.baseline is Baseline.UNTUNED), None
            ),
        },
    )
