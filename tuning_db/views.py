"""The views that people query by hand: `trials`, `sessions` and `best`, as SQL.

They are made behind the last migration, and dropped before the next, so that a migration never
meets one. One that somebody dropped is made again when the database is opened for writing.
Tilewright itself reads no view of a database, which may be somebody else's: it runs the text of
this file. `guard.check_views` refuses others of their names.

`best` has what `TuningDatabase.best` returns of this database alone, as far as SQL can express it:
of finalists the fastest of those with the most rounds, where that compares them within rounds and
returns the simplest of those that tie, and rows as they are, which that checks. What finals outdate
is said by `finals_rule.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from ..base.durations import LONGEST, SHORTEST
from ..base.errors import DatabaseError, TilewrightError

if TYPE_CHECKING:
    import pandas

_TRIALS = """
SELECT
    m.id, m.created, w.name AS workload, w.shape, t.text AS target, c.generation AS compiler,
    m.outcome, m.seconds, NULLIF(w.flops, 0) / NULLIF(m.seconds, 0) / 1e9 AS gflops,
    m.predicted, m.verified, m.elapsed,
    EXISTS (
        SELECT 1 FROM measurement AS later
        WHERE later.workload = m.workload AND later.schedule = m.schedule
            AND later.comparable = m.comparable AND later.toolchain = m.toolchain
            AND (later.created > m.created OR later.created = m.created AND later.id > m.id)
    ) AS superseded,
    s.generator AS rules, s.inexact, m.error, m.schedule, m.session, m.workload AS workload_id,
    m.target AS target_id
FROM measurement AS m
JOIN workload AS w ON w.id = m.workload
JOIN target AS t ON t.id = m.target
JOIN toolchain AS c ON c.id = m.toolchain
JOIN schedule AS s ON s.id = m.schedule
"""
_SESSIONS = """
SELECT
    s.id, s.started, s.ended, s.status, w.name AS workload, w.shape, t.text AS target,
    s.trials AS budget_trials, s.seconds AS budget_seconds, COALESCE(s.elapsed, {span}) AS elapsed,
    CASE WHEN count(DISTINCT m.trial) > s.trials THEN s.trials ELSE count(DISTINCT m.trial) END
        AS trials,
    count(m.id) AS measurements,
    count(CASE WHEN m.outcome <> 'ok' THEN 1 END) AS failures,
    min(CASE WHEN m.outcome = 'ok' THEN m.seconds END) AS fastest, s.noise, s.host,
    s.workload AS workload_id, s.target AS target_id
FROM session AS s
JOIN workload AS w ON w.id = s.workload
JOIN target AS t ON t.id = s.target
LEFT JOIN (
    SELECT
        id, session, outcome, seconds,
        -- as `tally.Trials` has it: of older versions, all but finals
        CASE
            WHEN trial OR trial IS NULL AND (
                outcome <> 'ok' OR count(CASE WHEN outcome = 'ok' THEN 1 END) OVER (
                    PARTITION BY session, workload, target, toolchain, created
                ) = 1
            ) THEN schedule
        END AS trial
    FROM measurement
) AS m ON m.session = s.id
GROUP BY s.id, w.id, t.id
"""
_SPAN = {  # as `Session.duration` has it of older versions
    "sqlite": "round((julianday(s.heartbeat) - julianday(s.started)) * 86400, 3)",
    "postgresql": "CAST(EXTRACT(EPOCH FROM s.heartbeat - s.started) AS double precision)",
}
_BEST = f"""
WITH choice AS (
    SELECT p.workload, p.schedule, t.comparable, row_number() OVER (
        PARTITION BY p.workload, t.comparable ORDER BY p.created DESC, p.id
    ) AS place
    FROM pin AS p JOIN target AS t ON t.id = p.target
),
valid AS (
    SELECT
        m.id, m.created, m.session, m.workload, m.target, m.toolchain, m.schedule, m.comparable,
        m.seconds, s.generator, s.inexact, c.generation, p.schedule AS pinned,
        length(m.samples) - length(replace(m.samples, ',', '')) AS rounds,
        EXISTS (
            SELECT 1 FROM measurement AS later
            WHERE later.workload = m.workload AND later.schedule = m.schedule
                AND later.comparable = m.comparable AND later.toolchain = m.toolchain
                AND (later.created > m.created OR later.created = m.created AND later.id > m.id)
        ) AS superseded
    FROM measurement AS m
    JOIN schedule AS s ON s.id = m.schedule
    JOIN toolchain AS c ON c.id = m.toolchain
    LEFT JOIN choice AS p
        ON p.workload = m.workload AND p.comparable = m.comparable AND p.place = 1
    WHERE m.outcome = 'ok' AND m.verified AND m.seconds BETWEEN {SHORTEST!r} AND {LONGEST!r}
),
finals AS (
    SELECT v.session, v.workload, v.target, v.toolchain, v.created
    FROM valid AS v
    WHERE v.inexact = ''
    GROUP BY v.session, v.workload, v.target, v.toolchain, v.created
    HAVING count(*) > 1
),
usable AS (
    SELECT v.* FROM valid AS v WHERE NOT v.superseded
),
compared AS (
    SELECT u.*, max(u.rounds) OVER (
        PARTITION BY u.session, u.workload, u.target, u.toolchain, u.created, u.inexact = ''
    ) AS most
    FROM usable AS u
),
ranked AS (
    SELECT u.*, row_number() OVER (
        PARTITION BY u.workload, u.comparable, u.generation ORDER BY u.seconds, u.id
    ) AS place
    FROM compared AS u
    WHERE u.schedule = u.pinned
        OR u.pinned IS NULL AND u.inexact = '' AND u.rounds = u.most AND NOT EXISTS (
            SELECT 1 FROM finals AS f
            WHERE f.session = u.session AND f.workload = u.workload AND f.target = u.target
                AND f.toolchain = u.toolchain AND f.created > u.created
        )
)
SELECT
    r.id, r.created, w.name AS workload, w.shape, t.text AS target, r.generation AS compiler,
    r.seconds, NULLIF(w.flops, 0) / r.seconds / 1e9 AS gflops, r.pinned IS NOT NULL AS pinned,
    r.generator AS rules, r.inexact, r.schedule, r.session, r.workload AS workload_id,
    r.target AS target_id
FROM ranked AS r
JOIN workload AS w ON w.id = r.workload
JOIN target AS t ON t.id = r.target
WHERE r.place = 1
"""
VIEWS = {"trials": _TRIALS, "sessions": _SESSIONS, "best": _BEST}


def query(name: str, dialect: str) -> str:
    """The rows of a view as a statement in the SQL of a dialect."""
    return VIEWS[name].replace("{span}", _SPAN[dialect]).strip()


def definition(name: str, dialect: str) -> str:
    """The statement that makes a view, as SQLite keeps it."""
    return f"CREATE VIEW {name} AS\n{query(name, dialect)}"


def make(connection: Connection, names: Iterable[str] = VIEWS) -> None:
    """Make views of a database of the current schema."""
    for name in names:
        connection.exec_driver_sql(definition(name, connection.dialect.name))


def drop(connection: Connection) -> None:
    """Drop the views that are there."""
    for name in VIEWS:
        connection.exec_driver_sql(f"DROP VIEW IF EXISTS {name}")


# Views as data frames of pandas, which the extra `plot` installs.

_KINDS = {
    "category": (
        "workload", "shape", "target", "compiler", "outcome", "rules", "inexact", "status", "host",
    ),
    "float64": ("seconds", "gflops", "predicted", "budget_seconds", "elapsed", "fastest"),
    "bool": ("verified", "superseded", "pinned"),
    "Int64": ("budget_trials", "trials", "measurements", "failures"),
    "string": ("error", "noise", "schedule", "session", "workload_id", "target_id"),
}  # fmt: skip
_TYPES = {name: kind for kind, names in _KINDS.items() for name in names}
_TIMES = ("created", "started", "ended")


def required_pandas(error: type[TilewrightError]) -> ModuleType:
    """The module `pandas`; raises `error` that says what to install where it is not."""
    try:
        return import_module("pandas")
    except ModuleNotFoundError as missing:
        raise error(
            "a data frame takes pandas, which is not installed",
            hint="pip install 'tilewright[plot]'",
        ) from missing


def frame(connection: Connection, view: str) -> pandas.DataFrame:
    """See `TuningDatabase.to_pandas`."""
    if view not in VIEWS:
        raise DatabaseError("there is no view {0!r:.80}; there are {1}", view, ", ".join(VIEWS))
    module = required_pandas(DatabaseError)
    rows = connection.exec_driver_sql(query(view, connection.dialect.name))
    data: pandas.DataFrame = module.DataFrame(rows.all(), columns=list(rows.keys()))
    data = data.set_index("id")
    for name in data.columns.intersection(list(_TIMES)):
        data[name] = module.to_datetime(data[name], utc=True, format="ISO8601")
    return data.astype({name: _TYPES[name] for name in data.columns if name not in _TIMES})
