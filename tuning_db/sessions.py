"""Tuning sessions: started, kept alive by heartbeats, ended, found again after a kill."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import Connection, select, update

from ..base.errors import DatabaseError
from ..base.text import short_id
from .codec import check
from .read import COLUMNS, Damage, get, to_record, undamaged
from .tables import session
from .values import Session, SessionStatus

# A running session that was not heard of for so long is taken to be dead.
STALE_AFTER = timedelta(seconds=60)
AT_WORK = (SessionStatus.PREPARING, SessionStatus.RUNNING)
"""What a session is while a process works on it."""


def is_alive(session: Session, now: datetime) -> bool:
    """Whether a process still runs this session.

    On this host the process is looked up; for another host only the heartbeat is known. One in the
    future is of a clock that was wrong.
    """
    if session.status not in AT_WORK:
        return False
    elsewhere = session.host != socket.gethostname()
    return abs(now - session.heartbeat) < STALE_AFTER and (elsewhere or _runs(session.pid))


def running_here(now: datetime, *, preparing: bool) -> dict[str, Any]:
    """The state of a session that this process prepares or runs."""
    return {
        "status": SessionStatus.PREPARING if preparing else SessionStatus.RUNNING,
        "heartbeat": now,
        "ended": None,
        "host": socket.gethostname(),
        "pid": os.getpid(),
    }


def unfinished(
    connection: Connection, workload: str, target: str, now: datetime, damage: Damage
) -> list[Session]:
    """The sessions of that workload and target that are neither done nor alive, the last first."""
    wanted = (
        select(*COLUMNS["session"])
        .where(
            session.c.workload == workload,
            session.c.target == target,
            session.c.status != SessionStatus.FINISHED,
        )
        .order_by(session.c.started.desc(), session.c.id)
    )
    candidates = undamaged([connection], wanted, partial(to_record, Session), damage).values()
    return [c for c in candidates if not is_alive(c, now)]


def beside(connection: Connection, since: datetime, now: datetime, damage: Damage) -> list[Session]:
    """The sessions on which a process of this host has worked since then, the first one first.

    A heartbeat in the future is of a clock that was wrong, and says nothing.
    """
    wanted = (
        select(*COLUMNS["session"])
        .where(session.c.host == socket.gethostname(), session.c.heartbeat.between(since, now))
        .order_by(session.c.started, session.c.id)
    )
    return list(undamaged([connection], wanted, partial(to_record, Session), damage).values())


def resume(
    connection: Connection, id: str, now: datetime, elapsed: float | None, *, preparing: bool
) -> Session:
    """Make this process the one that runs a session. Raises if it is finished or runs elsewhere."""
    state = require(connection, id)
    if state.status is SessionStatus.FINISHED or is_alive(state, now):
        raise DatabaseError(
            "session {0} cannot be resumed: {1}, heard of at {2}, process {3} on {4}",
            short_id(id),
            state.status.value,
            state.heartbeat,
            state.pid,
            state.host,
        )
    elapsed = state.duration if elapsed is None else elapsed
    _set(connection, state, elapsed=elapsed, **running_here(now, preparing=preparing))
    return require(connection, id)


def prepared(connection: Connection, id: str, untuned: str | None, now: datetime) -> Session:
    """Let a session run that was prepared; a resumed one keeps what it began with."""
    state = require(connection, id)
    first = {} if state.untuned is not None else {"untuned": untuned}
    _set(connection, state, status=SessionStatus.RUNNING, **_alive(state, now), **first)
    return require(connection, id)


def heartbeat(
    connection: Connection, id: str, now: datetime, elapsed: float | None, drift: float | None
) -> None:
    """Record a sign of life. Without `elapsed`, the time since the last one is added."""
    drifted = {} if drift is None else {"drift": drift}
    state = require(connection, id)
    _set(connection, state, **_alive(state, now, elapsed), **drifted)


def finish(
    connection: Connection,
    id: str,
    status: SessionStatus,
    now: datetime,
    noise: str | None,
    elapsed: float | None,
) -> Session:
    if status in AT_WORK:
        raise DatabaseError("a session ends finished or interrupted, not {0}", status.value)
    state = require(connection, id)
    marked = {} if noise is None else {"noise": noise}
    _set(connection, state, status=status, ended=now, **_alive(state, now, elapsed), **marked)
    return require(connection, id)


def _alive(state: Session, now: datetime, elapsed: float | None = None) -> dict[str, Any]:
    """The fields that say that a session was at work until now."""
    if elapsed is None:
        since = (now - state.heartbeat).total_seconds() if state.status in AT_WORK else 0.0
        elapsed = state.duration + max(0.0, since)
    return {"heartbeat": now, "elapsed": elapsed}


def require(connection: Connection, id: str) -> Session:
    record = get(connection, Session, id)
    if record is None:
        raise DatabaseError("there is no session {0} in the database", short_id(id))
    return record


def _runs(pid: int) -> bool:
    import psutil  # those who only read do without

    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True  # it is there, and somebody else's


def _set(connection: Connection, state: Session, **values: Any) -> None:
    check(replace(state, **values))
    connection.execute(update(session).where(session.c.id == state.id).values(values))
