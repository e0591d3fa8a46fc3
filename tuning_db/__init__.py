"""The tuning database: results of tuning, in a SQL database of strings and numbers only.

    db = TuningDatabase("tuning.db", layers=["team.db"])        # a path, or any SQLAlchemy URL

    workload = Workload(id=structural_hash, name="matmul", ir=text, shape="A:float32[8,8] ...",
                        flops=1024, bytes=768)
    target = TargetRecord(text="cpu -mcpu=cascadelake -threads=2", compat="x86_64 avx512f ...",
                          perf="Xeon 8275CL, 2 threads")
    toolchain = Toolchain(generation="llvm 22", versions={"llvmlite": "0.50.0"})
    environment = Environment(facts={"host": "a", "load": 0.1})
    db.put(workload, target, toolchain, environment)            # any order, idempotent
    db.put(Machine(target=target.id, rates={"clock": 2.6e9}, odd=(), created=utc_now()))
    db.machine(target.id)                                       # the newest description, or None

    unfinished = db.unfinished_sessions(workload.id, target.id)  # the last one first
    session = (db.resume_session(unfinished[0].id) if unfinished else
               db.start_session(workload.id, target.id, trials=64, seconds=None, seed=0,
                                search={"population": 512}, model={"trees": 100}))
    done = db.trials(session.id)                                # what its budget has paid for
    known = db.history(workload=workload.id, target=target)     # [(Measurement, ScheduleRecord)]

    schedule = ScheduleRecord(trace=json_text, trace_version=1, generator="tiling")
    db.put(schedule, Measurement(                               # durable when it returns
        session=session.id, schedule=schedule.id, workload=workload.id, target=target.id,
        toolchain=toolchain.id, environment=environment.id, outcome=Outcome.OK,
        seconds=median, samples=samples, error=None, created=utc_now()))
    db.put(Verification(workload=workload.id, target=target.id, schedule=schedule.id,
                        toolchain=toolchain.id, passed=True, max_error=1e-6, tolerance=1e-4,
                        created=utc_now()))
    db.heartbeat(session.id)                                    # every few seconds
    db.finish_session(session.id)                               # or SessionStatus.INTERRUPTED

    best = db.best(workload.id, target, toolchain)              # Best | None
    best.schedule.trace, best.seconds, best.measurement.id, best.pinned, best.layer
    print(db.explain(workload, target, toolchain))              # why that one, or why none
    db.noise(best)                                              # what disturbed its session
    db.gains(best)                                              # {Baseline: Gain} of its finals

    db.measurements(limit=20), db.records(Workload), db.get(Session, id), db.find("5e88")
    db.pin(workload.id, target, schedule.id), db.merge("other.db")
    db.verifications(workload.id, target, schedule.id)          # numeric checks, by id
    db.export_lines("records.jsonl"), db.import_lines("records.jsonl")
    db.diff("5e88", "07aa"), db.compare("other.db"), print(db.prune(dry_run=True))

`TuningDatabase.best` says which measurements count. Finalists are timed interleaved and put with
one `created`; `best.comparison` says how they compare.

A database may be somebody else's. `best` leaves out what is damaged, and what `applies` refuses:

    best = db.best(workload.id, target, toolchain, applies=replays)   # why not, or None, of each

Records (`values.py`) are frozen and equal by content; `record.id` is the digest of it, and fields
that name other records hold their ids; `to_plain(record)` (also of a `Best` or an `Explanation`) is
ready for `json.dumps`. Sessions are resumed by target id, so a target's facts should be the same in
every run. Every failure is a `DatabaseError`. The guarantees are at `TuningDatabase`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .canonical import Json, canonical_json
    from .compare import DatabaseDiff, RecordDiff
    from .explain import Explanation, Near, Reason, Refused
    from .gains import Gain
    from .outcome import Outcome
    from .pins import Pinned
    from .removal import Removal, RemovalReason
    from .results import Baseline, Best, ComparedSchedule, Relative, Verdict
    from .store import TuningDatabase
    from .values import (
        AnyRecord,
        Environment,
        Machine,
        Measurement,
        Order,
        Pin,
        ScheduleRecord,
        Session,
        SessionStatus,
        TargetRecord,
        Toolchain,
        Verification,
        Workload,
        to_plain,
        utc_now,
    )

__all__ = [
    "AnyRecord",
    "Baseline",
    "Best",
    "ComparedSchedule",
    "DatabaseDiff",
    "Environment",
    "Explanation",
    "Gain",
    "Json",
    "Machine",
    "Measurement",
    "Near",
    "Order",
    "Outcome",
    "Pin",
    "Pinned",
    "Reason",
    "RecordDiff",
    "Refused",
    "Relative",
    "Removal",
    "RemovalReason",
    "ScheduleRecord",
    "Session",
    "SessionStatus",
    "TargetRecord",
    "Toolchain",
    "TuningDatabase",
    "Verdict",
    "Verification",
    "Workload",
    "canonical_json",
    "to_plain",
    "utc_now",
]

# Loaded on first use: those who need only the records, or one enumeration, do without SQLAlchemy.
_HOMES = {
    "Baseline": ".results",
    "Best": ".results",
    "ComparedSchedule": ".results",
    "DatabaseDiff": ".compare",
    "Explanation": ".explain",
    "Gain": ".gains",
    "Near": ".explain",
    "Outcome": ".outcome",
    "Pinned": ".pins",
    "Reason": ".explain",
    "RecordDiff": ".compare",
    "Refused": ".explain",
    "Json": ".canonical",
    "Relative": ".results",
    "Removal": ".removal",
    "RemovalReason": ".removal",
    "TuningDatabase": ".store",
    "Verdict": ".results",
    "canonical_json": ".canonical",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, ".values"), __name__), name)


def __dir__() -> list[str]:
    return __all__
