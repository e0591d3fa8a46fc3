"""Sessions in the database: a new one, or the unfinished one that is resumed."""

from __future__ import annotations

import logging

from ...target import Target
from ...tuning_db import TuningDatabase
from ...tuning_db.values import Session, TargetRecord, Toolchain, Workload
from ..config import TuneConfig
from ..model.base_model import named
from ..model.cost_model import PARAMETERS
from ..model.target_model import model_for
from .budget import Budget, budget_text
from .session_history import tolerance_of

_log = logging.getLogger(__name__)


def unfinished_session(
    database: TuningDatabase,
    workload: Workload,
    target: TargetRecord,
    toolchain: Toolchain,
    budget: Budget,
    tolerance: float | None,
) -> Session | None:
    """The last session of a program, budget and tolerance that did not finish.

    Its times are comparable with those of the toolchain. If there is none, a warning says why.
    """
    why = "no session of it is unfinished"
    for n, session in enumerate(database.unfinished_sessions(workload.id, target.id)):
        generation = _generation(database, session)
        if (session.trials, session.seconds) != (budget.trials, budget.seconds):
            other, this = (budget_text(b.trials, b.seconds) for b in (session, budget))
            reason = f"its unfinished session has a budget of {other}, and this one {this}"
        elif generation not in (None, toolchain.generation):
            reason = (
                f"its unfinished session has times of {generation}, and they are not comparable "
                f"with those of {toolchain.generation}"
            )
        elif tolerance_of(session) != tolerance:
            other, this = (_tolerance_text(t) for t in (tolerance_of(session), tolerance))
            reason = f"its unfinished session has {other}, and this one {this}"
        else:
            return session
        why = why if n else reason
    _log.warning("%s: nothing to resume, a new session starts: %s", workload.name, why)
    return None


def _tolerance_text(tolerance: float | None) -> str:
    """The tolerance of a session as words."""
    return "no tolerance" if tolerance is None else f"a tolerance of {tolerance!r}"


def _generation(database: TuningDatabase, session: Session) -> str | None:
    """The generation of the toolchain that a session last measured with; `None` before that."""
    last = database.measurements(session=session.id, limit=1)
    return database.get(Toolchain, last[0].toolchain).generation if last else None


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
