"""Sessions before their first trial: their heartbeats, and their results if they end so early.

Sessions in the database: a new one, or the unfinished one that is resumed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import NamedTuple, Self

from ...base.errors import TilewrightError
from ...target import Target
from ...tir.ir import Func
from ...tuning_db import TuningDatabase
from ...tuning_db.values import Session, SessionStatus, TargetRecord, Toolchain, Workload
from ..config import TuneConfig
from ..model.base_model import named
from ..model.cost_model import PARAMETERS
from ..model.target_model import model_for
from ..records import toolchain_record, workload_record
from ..result import Spent, TuneResult
from ..search import history
from ..search.replay import Replays
from .budget import Budget, budget_text
from .recorder import BEAT, kept_text
from .session_history import tolerance_of

_log = logging.getLogger(__name__)


class Begun(NamedTuple):
    """A session, and the seconds that it was worked on by the calls that this one continues."""

    session: Session
    seconds: float


class Heartbeats:
    """A context manager: a thread calls `beat` every `BEAT` seconds.

    One step of a preparation may take longer than a session without heartbeats counts as alive.
    """

    def __init__(self, beat: Callable[[], None]) -> None:
        self._beat = beat
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tilewright-heartbeat", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(BEAT):
            try:
                self._beat()
            except TilewrightError as error:  # what prepares meets it too, if it lasts
                _log.warning("no heartbeat was written: %s", error)


def result_without_trials(
    database: TuningDatabase,
    func: Func,
    target: Target,
    record: TargetRecord,
    begun: Begun,
    elapsed: float,
    tolerance: float | None,
    reason: str,
    status: SessionStatus,
) -> TuneResult:
    """End a session that ends before it is prepared; return its result.

    `elapsed` is its duration. The best is that of earlier sessions.
    """
    session = database.finish_session(begun.session.id, status, elapsed=elapsed)
    workload = workload_record(func)
    best = history.best_known(
        database, workload, record, toolchain_record(target), tolerance, replays=Replays(func)
    )
    pin = database.pinned(workload.id, record)
    new = max(0.0, session.duration - begun.seconds)
    return TuneResult(
        best=best,
        workload=f"{workload.name} {workload.shape}",
        target=record.text,
        flops=workload.flops,
        trials=0,
        outcomes={},
        error=None,
        status=session.status,
        reason=reason,
        session=session.id,
        seconds=session.duration,
        spent=Spent(0.0, 0.0, 0.0, 0.0, 0.0, other=new, earlier=begun.seconds),
        roofline=model_for(target).roofline(func, target),
        drift=(),
        gains={} if best is None else best.gains,
        noise=None,
        kept=kept_text(database, session.id) if status is SessionStatus.INTERRUPTED else None,
        earlier_trials=database.trials(session.id),
        pinned=None if pin is None else pin.schedule,
    )


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
