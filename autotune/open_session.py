"""Sessions in the database: a new one, or the unfinished one that is resumed."""

from __future__ import annotations

import logging

from ..target import Target
from ..tuning_db import TuningDatabase
from ..tuning_db.values import Session, TargetRecord, Workload
from .budget import Budget, budget_text
from .config import TuneConfig
from .model.base_model import named
from .model.cost_model import PARAMETERS
from .model.target_model import model_for

_log = logging.getLogger(__name__)


def unfinished_session(
    database: TuningDatabase, workload: Workload, target: TargetRecord, budget: Budget
) -> Session | None:
    """The last session of a program and budget that did not finish.

    If there is none, a warning says why.
    """
    sessions = database.unfinished_sessions(workload.id, target.id)
    for session in sessions:
        if (session.trials, session.seconds) == (budget.trials, budget.seconds):
            return session
    why = "no session of it is unfinished"
    if sessions:
        other, this = (budget_text(b.trials, b.seconds) for b in (sessions[0], budget))
        why = f"its unfinished session has a budget of {other}, and this one {this}"
    _log.warning("%s: nothing to resume, a new session starts: %s", workload.name, why)
    return None


def started_session(
    database: TuningDatabase,
    workload: Workload,
    record: TargetRecord,
    target: Target,
    budget: Budget,
    seed: int,
    config: TuneConfig,
    tolerance: float | None,
) -> Session:
    """A new session, which is preparing: its record is there before the machine is measured."""
    model = model_for(target)
    base = named(config.search.base, model) if config.search.model else None
    return database.start_session(
        workload.id,
        record.id,
        records=(workload, record),
        preparing=True,
        trials=budget.trials,
        seconds=budget.seconds,
        seed=seed,
        search={**config.to_json(), "tolerance": tolerance},
        model={
            "features": model.feature_version,
            "base": None if base is None else base.to_json(),
            **PARAMETERS,
        },
    )
