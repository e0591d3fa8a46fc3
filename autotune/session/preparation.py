"""Sessions before their first trial: their heartbeats, and their results if they end so early."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import NamedTuple, Self

from ...base.errors import TilewrightError
from ...target import Target
from ...tir.ir import Func
from ...tuning_db import TuningDatabase
from ...tuning_db.values import Session, SessionStatus
from ..model.target_model import model_for
from ..result import Spent, TuneResult
from ..search import history
from ..search.replay import Replays
from .recorder import BEAT, kept_text
from .records import target_record, toolchain_record, workload_record

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


def interrupted_result(
    database: TuningDatabase,
    func: Func,
    target: Target,
    begun: Begun,
    elapsed: float,
    tolerance: float | None,
) -> TuneResult:
    """End a session that is interrupted while it is prepared; return its result.

    `elapsed` is its duration. The best is that of earlier sessions.
    """
    session = database.finish_session(begun.session.id, SessionStatus.INTERRUPTED, elapsed=elapsed)
    workload, record = workload_record(func), target_record(target)
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
        reason="interrupted",
        session=session.id,
        seconds=session.duration,
        spent=Spent(0.0, 0.0, 0.0, 0.0, 0.0, other=new, earlier=begun.seconds),
        roofline=model_for(target).roofline(func, target),
        drift=(),
        gains={} if best is None else best.gains,
        noise=None,
        kept=kept_text(database, session.id),
        earlier_trials=database.trials(session.id),
        pinned=None if pin is None else pin.schedule,
    )
