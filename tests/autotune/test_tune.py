"""Tuning sessions on recorded measurements: budgets, records, interrupts, finals, drift."""

from __future__ import annotations

import hashlib
import signal
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.event import listen

from tilewright import DatabaseError, TargetError, TuningDatabase, TuningError, tune
from tilewright.autotune.config import TuneConfig
from tilewright.autotune.measure.measure_result import MeasureResult
from tilewright.autotune.model.base_model import SHIPPED, named
from tilewright.autotune.model.cpu.estimate import FEATURES
from tilewright.autotune.model.cpu.model import MODEL, MODEL_FILE
from tilewright.autotune.result import TuneResult
from tilewright.autotune.running_time import running
from tilewright.autotune.search import search
from tilewright.autotune.search.search import Search
from tilewright.autotune.search.sketch import sketches
from tilewright.autotune.session import session as session_module
from tilewright.autotune.session import tuning_job as tuning
from tilewright.autotune.session.budget import Meter
from tilewright.autotune.session.events import Drift, Ended, Event, Final, Started, Trial
from tilewright.codegen.detect import resolve
from tilewright.codegen.disk_cache import LOCATION
from tilewright.runtime.measure.comparison import CheckResult
from tilewright.schedule import Trace
from tilewright.tuning_db import (
    Outcome,
    ScheduleRecord,
    Session,
    SessionStatus,
    Toolchain,
    Verdict,
    Verification,
    canonical,
)
from tilewright.tuning_db.interleaved_comparison import simplicity

from ..measured import put_measured
from .children import QUICK
from .conftest import prepared
from .kernels import matmul
from .recorded import Play, Recorded, ok

pytestmark = pytest.mark.usefixtures("given_machine", "remembered_choices", "sketched")
FAILED = MeasureResult(Outcome.CRASH, error="running it: signal 11")
LONG = replace(QUICK, final_seconds=2.0)
"""Finals that are played have time for all that they are asked."""


def run(db: TuningDatabase, callback: Callable[[Event], object] | None = None, **options: Any):  # type: ignore[no-untyped-def]
    options = {"trials": 8, "config": QUICK, **options}
    return tune(matmul(), "cpu -threads=1", database=db, callback=callback, **options)


def sessions(db: TuningDatabase) -> list[SessionStatus]:
    return [s.status for s in db.records(Session)]


def test_the_fastest_checked_candidate_is_the_best(db: TuningDatabase, play: Play) -> None:
    recorded = play(ok(3.0), FAILED, ok(2.0), ok(5.0))
    events: list[Event] = []
    result = run(db, events.append)
    assert result.best is not None
    assert result.best.seconds == 2.0
    assert result.trials == 8
    assert result.outcomes == {Outcome.OK: 7, Outcome.CRASH: 1}
    assert result.status is SessionStatus.FINISHED
    assert result.reason == "all 8 trials are done"
    assert not result.interrupted
    assert recorded.closed

    stored = db.get(type(db.measurements()[0]), result.best.measurement_id)
    assert (stored.seconds, stored.schedule) == (2.0, result.best.schedule_id)
    assert "sch.get_block(0)" in str(result.best.trace)
    generators = {s.generator for s in prepared()} | {"written"}
    assert {s.generator for s in db.records(ScheduleRecord)} <= generators
    assert {v.max_error for v in db.records(Verification)} == {1e-7}
    assert sorted(m.outcome for m in db.measurements()).count(Outcome.CRASH) == 1
    assert [m.error for m in db.measurements(outcome=Outcome.CRASH)] == [FAILED.error]

    assert isinstance(events[0], Started)
    assert isinstance(events[-1], Ended)
    trials = [e for e in events if isinstance(e, Trial)]
    assert [t.number for t in trials] == list(range(1, 9))
    assert [t.record for t in trials] == [True, False, True] + [False] * 5
    assert [t.best_seconds for t in trials] == [3.0, 3.0] + [2.0] * 6


def test_a_session_names_the_model_it_began_with(
    db: TuningDatabase, play: Play, tmp_path: Path
) -> None:
    path = tmp_path / "own.json"
    shipped = named(SHIPPED, MODEL)
    assert shipped is not None
    shipped.save(path)
    play(ok(1.0))
    for base in (SHIPPED, str(path), None):
        run(db, config=replace(QUICK, search=replace(QUICK.search, model=True, base=base)))
    run(db, config=replace(QUICK, search=replace(QUICK.search, model=False)))
    found = [s.model["base"] for s in sorted(db.records(Session), key=lambda s: s.started)]
    digests = [hashlib.sha256(p.read_bytes()).hexdigest() for p in (MODEL_FILE, path)]
    assert found == [
        {"origin": SHIPPED, "rows": shipped.rows, "digest": digests[0]},
        {"origin": str(path), "rows": shipped.rows, "digest": digests[1]},
        None,
        None,
    ]


def test_a_trace_is_written_once_and_never_read_back(
    db: TuningDatabase, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On its way from the search to the workers and the database, and back to the search."""
    monkeypatch.setenv(LOCATION, "")
    calls: Counter[str] = Counter()
    traces = canonical._TRACES

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def count(*args: Any, **options: Any) -> Any:
            calls[name] += name != "parsed" or args[0] == traces.decode
            return function(*args, **options)

        return count

    def trials(event: Event) -> None:
        if isinstance(event, Trial):
            told.append(calls.copy())

    monkeypatch.setattr(Trace, "to_data", counted("written", Trace.to_data))
    monkeypatch.setattr(canonical, "_parse", counted("parsed", canonical._parse))
    monkeypatch.setattr(Trace, "from_json", staticmethod(counted("read", Trace.from_json)))
    play(ok(2.0), ok(1.0), FAILED)
    told: list[Counter[str]] = []
    run(db, trials)
    assert +told[-1] == {"written": 8 + 2}, "candidates, and two rivals"
    records = db.records(ScheduleRecord)
    assert len(records) == 8
    calls.clear()
    told.clear()
    run(db, trials, seed=1)
    first, last = ({name: c[name] for name in ("parsed", "read")} for c in (told[0], told[-1]))
    assert last == first, "what is known is read once, before the first trial"
    assert first["read"] == 8 + 1, "and the best of it for the result"


def test_a_measurement_is_in_the_database_before_it_is_told(db: TuningDatabase, play: Play) -> None:
    play(ok(1.0))
    counts = []
    run(db, lambda e: counts.append(len(db.measurements())) if isinstance(e, Trial) else None)
    assert counts == list(range(1, 9))


def test_what_is_known_is_not_measured_again(db: TuningDatabase, play: Play) -> None:
    play(ok(2.0), ok(9.0))
    first = run(db)
    play(ok(4.0))
    events: list[Event] = []
    second = run(db, events.append, seed=1)
    assert first.best is not None
    assert second.best == first.best
    assert isinstance(events[0], Started)
    assert (events[0].known, events[0].best_seconds) == (8, 2.0)
    assert len({m.schedule for m in db.measurements()}) == 16


def test_what_other_tools_made_is_not_known(
    db: TuningDatabase, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(ok(1.0), ok(9.0))
    with monkeypatch.context() as patch:
        patch.setattr(tuning, "toolchain_record", lambda _: Toolchain(generation="llvm 1"))
        run(db)
    events: list[Event] = []
    result = run(db, events.append)
    assert isinstance(events[0], Started)
    assert (events[0].known, events[0].best_seconds) == (0, None)
    assert result.best is not None
    assert result.best.seconds == 9.0


UNFIT = {
    "an unknown primitive": '{"version":1,"steps":[{"op":"explode","args":{}}]}',
    "of a newer version": '{"version":99,"steps":[]}',
    "a block that there is not": (
        '{"version":1,"steps":[{"op":"get_block","args":{"block":7},"out":["b0"]}]}'
    ),
    "no steps": '{"version":1}',
}


@pytest.mark.parametrize("what", UNFIT)
def test_a_record_that_does_not_apply_is_not_the_time_to_beat(
    db: TuningDatabase, play: Play, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Said once in a session, and nothing is learned of it."""
    features = tuple(-10.0 + n for n in range(len(FEATURES)))
    put_measured(db, matmul(), resolve("cpu -threads=1"), UNFIT[what], 1e-9, features=features)
    events: list[Event] = []
    play(ok(3.0), ok(2.0))
    result = run(db, events.append)
    assert result.best is not None
    assert result.best.seconds == 2.0
    assert isinstance(events[0], Started)
    assert (events[0].best_seconds, events[0].known) == (None, 0)
    assert sum("set aside 1 of the best" in text for text in caplog.messages) == 1
    again = run(db, seed=1)
    assert again.best is not None
    assert again.best.seconds == 2.0


@pytest.mark.parametrize(
    "features",
    [(1.0,), (), (1e300,) * len(FEATURES), (-500.0, *[0.0] * (len(FEATURES) - 1))],
    ids=len,
)
def test_features_that_nothing_has_are_not_learned(
    db: TuningDatabase, play: Play, features: tuple[float, ...]
) -> None:
    """Their schedules are known all the same, and not measured again."""
    play(ok(1.0))
    run(db, trials=4)
    for n, measured in enumerate(db.measurements()):
        db.put(replace(measured, features=features, created=measured.created + timedelta(n + 1)))
    events: list[Event] = []
    options = replace(QUICK, search=replace(QUICK.search, model=True))
    result = run(db, events.append, seed=1, trials=4, config=options)
    assert result.trials == 4
    assert isinstance(events[0], Started)
    assert events[0].known == 4


def test_a_schedule_with_open_decisions_is_left_out(
    db: TuningDatabase, play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    trace = prepared()[0].trace.opened().to_json()
    put_measured(db, matmul(), resolve("cpu -threads=1"), trace, 5.0)
    play(ok(1.0))
    assert run(db, trials=1).trials == 1
    assert "leaves decisions open" in caplog.text


def test_a_schedule_that_cannot_be_read_is_left_out(
    db: TuningDatabase, play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    play(ok(1.0))
    run(db)
    (first, *_) = db.measurements()
    damaged = ScheduleRecord(trace='{"version": 99, "steps": []}', trace_version=99)
    db.put(damaged, replace(first, schedule=damaged.id))
    events: list[Event] = []
    run(db, events.append, seed=1)
    assert isinstance(events[0], Started)
    assert events[0].known == 8
    assert "cannot be read" in caplog.text


def test_a_search_without_candidates_ends_the_session(
    db: TuningDatabase, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Small(Search):
        def ask(self, count: int) -> Any:
            return super().ask(min(count, 3 - len(self._observed)))

    monkeypatch.setattr(tuning, "Search", Small)
    play(ok(1.0))
    result = run(db)
    assert result.reason == "the rules have no other schedule of this program, after 3 trials"
    assert result.status is SessionStatus.FINISHED
    assert result.best is not None


def test_nothing_that_ran_is_no_best(db: TuningDatabase, play: Play) -> None:
    play(FAILED)
    result = run(db)
    assert result.best is None
    assert str(result).startswith("no correct candidate after 8 trials (8 crash) in ")
    assert str(result).endswith(": all 8 trials are done\n  last error: running it: signal 11")


def test_seconds_end_a_session_within_a_batch(
    db: TuningDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]

    class Late(Recorded):
        def measure(self, traces: Any, best: float | None, meanwhile: Any = ()) -> Any:
            for k, found in enumerate(super().measure(traces, best, meanwhile)):
                if k == 2:
                    now[0] = 3.5
                yield found

    monkeypatch.setattr(tuning, "Measurer", Late([ok(1.0)]))
    monkeypatch.setattr(tuning, "Meter", lambda budget: Meter(budget, clock=lambda: now[0]))
    result = run(db, trials=None, seconds=3.0)
    assert result.reason == "the 3 seconds are over"
    assert result.trials == 3
    assert result.seconds == 3.5
    assert result.status is SessionStatus.FINISHED
    assert result.best is not None


def interrupting(number: int, error: BaseException) -> Callable[[Event], None]:
    def callback(event: Event) -> None:
        if isinstance(event, Trial) and event.number == number:
            raise error

    return callback


def test_what_a_callback_raises_ends_the_session(db: TuningDatabase, play: Play) -> None:
    recorded = play(ok(1.0))
    with pytest.raises(ZeroDivisionError):
        run(db, interrupting(3, ZeroDivisionError()))
    assert sessions(db) == [SessionStatus.INTERRUPTED]
    assert len(db.measurements()) == 3
    assert recorded.closed


def test_an_interrupted_session_has_a_result_and_is_resumed(
    db: TuningDatabase, play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    play(ok(1.0))
    result = run(db, interrupting(3, KeyboardInterrupt()))
    assert result.interrupted
    assert result.reason == "interrupted"
    assert result.trials == 3
    assert result.best is not None
    assert sessions(db) == [SessionStatus.INTERRUPTED]
    assert result.kept is not None
    assert result.kept.startswith("3 trials are kept in memory; resume=True (--resume) ")
    assert str(result).endswith(result.kept)

    events: list[Event] = []
    rest = run(db, events.append, resume=True)
    assert rest.session == result.session
    assert rest.trials == 5
    assert (result.earlier_trials, rest.earlier_trials) == (0, 3)
    assert " after 5 trials (5 ok; 3 more before the interruption) in " in str(rest)
    assert " after 3 trials (3 ok) in " in str(result)
    one = replace(result, trials=1, outcomes={Outcome.OK: 1})
    assert " after 1 trial (1 ok) in " in str(one)
    assert rest.kept is None
    assert isinstance(events[0], Started)
    assert events[0].done == 3
    assert sessions(db) == [SessionStatus.FINISHED]
    assert len({m.schedule for m in db.measurements()}) == 8

    new = run(db, resume=True)
    assert new.session != result.session
    assert new.trials == 8
    assert "nothing to resume, a new session starts: no session of it is unfinished" in caplog.text


def test_a_session_of_another_budget_is_not_resumed(
    db: TuningDatabase, play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    play(ok(1.0))
    result = run(db, interrupting(3, KeyboardInterrupt()))
    other = run(db, resume=True, trials=4, seconds=900)
    assert other.session != result.session
    assert other.trials == 4
    assert (
        "its unfinished session has a budget of 8 trials, and this one 4 trials or 900 s"
    ) in caplog.text


@pytest.mark.parametrize(
    ("before", "now", "why"),
    [
        (None, 1e-3, "its unfinished session has no tolerance, and this one a tolerance of 0.001"),
        (1e-3, None, "its unfinished session has a tolerance of 0.001, and this one no tolerance"),
        (
            1e-3,
            1e-2,
            "its unfinished session has a tolerance of 0.001, and this one a tolerance of 0.01",
        ),
    ],
)
def test_a_session_of_another_tolerance_is_not_resumed(
    db: TuningDatabase,
    play: Play,
    caplog: pytest.LogCaptureFixture,
    before: float | None,
    now: float | None,
    why: str,
) -> None:
    """What may be its best is another question: it says how much schedules may err."""
    play(ok(1.0))
    result = run(db, interrupting(3, KeyboardInterrupt()), tolerance=before)
    assert result.kept is not None
    assert ("budget and tolerance" in result.kept) is (before is not None)
    other = run(db, resume=True, tolerance=now)
    assert other.session != result.session
    assert why in caplog.text
    again = run(db, resume=True, tolerance=before)
    assert (again.session, again.trials) == (result.session, 5)
    recorded = {s.id: s.search["tolerance"] for s in db.records(Session)}
    assert recorded == {result.session: before, other.session: now}


def test_a_session_of_another_compiler_generation_is_not_resumed(
    db: TuningDatabase,
    play: Play,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its times are not comparable, and one session would have two kinds of them."""
    play(ok(1.0))
    result = run(db, interrupting(3, KeyboardInterrupt()))
    (old,) = db.records(Toolchain)
    new = Toolchain("llvm 99", {"llvmlite": "0.99"})
    with monkeypatch.context() as patched:
        patched.setattr(tuning, "toolchain_record", lambda _: new)
        other = run(db, resume=True)
    assert other.session != result.session
    assert (
        f"its unfinished session has times of {old.generation}, and they are not comparable with "
        "those of llvm 99"
    ) in caplog.text
    assert run(db, resume=True).session == result.session, "the old compiler goes on"


def test_an_interrupt_from_the_keyboard_is_noticed_between_measurements(
    db: TuningDatabase, play: Play
) -> None:
    play(ok(1.0))
    before = signal.getsignal(signal.SIGINT)

    def callback(event: Event) -> None:
        if isinstance(event, Trial) and event.number == 2:
            signal.raise_signal(signal.SIGINT)

    result = run(db, callback)
    assert result.interrupted
    assert result.trials == 2
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_interrupt_is_not_held_back(db: TuningDatabase, play: Play) -> None:
    play(ok(1.0))
    reached = []

    def callback(event: Event) -> None:
        if isinstance(event, Trial):
            signal.raise_signal(signal.SIGINT)
            reached.append(event.number)
            signal.raise_signal(signal.SIGINT)
            reached.append(event.number)

    assert run(db, callback).interrupted
    assert reached == [1]


def test_other_threads_may_tune(db: TuningDatabase, play: Play) -> None:
    play(ok(1.0))
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(run(db)))
    thread.start()
    thread.join()
    assert results[0].trials == 8


def test_finals_have_the_last_word(db: TuningDatabase, play: Play) -> None:
    def interleaved(count: int, rounds: int) -> list[tuple[float, ...]]:
        assert rounds == (5 if count == 1 else 9)
        return [(0.02,) * rounds] if count == 1 else [(0.03,) * rounds, (0.011,) * rounds]

    play(ok(0.0105), ok(0.01), ok(0.5), interleaved=interleaved)
    events: list[Event] = []
    result = run(db, events.append, config=LONG)
    (final,) = [e for e in events if isinstance(e, Final)]
    assert [s.seconds for s in final.comparison] == [0.011, 0.03]
    assert result.best is not None
    assert result.best.seconds == 0.011
    assert result.best.schedule_id == final.comparison[0].schedule
    assert result.best.comparison == final.comparison
    assert result.trials == 8
    assert len(db.measurements()) == 10
    (session,) = db.records(Session)
    assert db.trials(session.id) == 8


def test_what_lost_to_the_finalists_does_not_win_by_a_machine_that_became_slow(
    db: TuningDatabase, play: Play
) -> None:
    def interleaved(count: int, rounds: int) -> list[tuple[float, ...]]:
        if count == 1:
            return [(0.01,) * rounds]
        return [(t,) * rounds for t in (0.021, 0.02, 0.03)[:count]]

    play(ok(0.012), ok(0.0105), ok(0.01), ok(0.5), interleaved=interleaved)
    events: list[Event] = []
    result = run(db, events.append)
    (final,) = [e for e in events if isinstance(e, Final)]
    assert [s.seconds for s in final.comparison] == [0.02, 0.021, 0.03]
    assert min(m.seconds or 1 for m in db.measurements()) == 0.01
    assert result.best is not None
    assert result.best.seconds == 0.02


@pytest.mark.parametrize("fastest", [0, 1, 2])
def test_of_finalists_that_tie_the_simplest_is_the_best(
    play: Play, fastest: int, tmp_path: Path
) -> None:
    """Whichever of them was faster by less than can be told: in the result and in the database."""

    def interleaved(count: int, rounds: int) -> list[tuple[float, ...]]:
        noise = [1.0 + ((2 * n) % 5 - 2) * 0.01 for n in range(rounds)]
        rows = [[0.011 * (1.0 + (n - 4) * 1e-3) for n in range(rounds)] for _ in range(3)]
        for other in {0, 1, 2} - {fastest}:
            rows[other] = [1.002 * t * f for t, f in zip(rows[other], noise, strict=True)]
        rows[0][3] *= 7  # a round that something else disturbed
        return [tuple(row) for row in [*rows, [0.0115] * rounds][:count]]

    play(ok(0.0108), ok(0.0106), ok(0.0104), ok(0.011), ok(0.5), interleaved=interleaved)
    events: list[Event] = []
    with TuningDatabase(tmp_path / "tuning.db") as db:
        result = run(db, events.append, config=LONG)
        again = run(db, trials=1, seed=1, config=LONG)
        first = [t.schedule for t in events if isinstance(t, Trial)][:3]
        simplest = min((db.get(ScheduleRecord, id) for id in first), key=simplicity)
    (final,) = [e for e in events if isinstance(e, Final)]
    assert result.best is not None
    assert result.best.schedule_id == final.comparison[0].schedule == simplest.id
    assert again.best is not None
    assert again.best.schedule_id == result.best.schedule_id
    assert result.best.comparison == final.comparison
    assert [s.verdict for s in final.comparison].count(Verdict.FASTEST) == 1
    assert [s.verdict for s in final.comparison].count(Verdict.TIE) == 2
    assert final.comparison[3].verdict is Verdict.SLOWER


def test_an_interrupt_in_finals_keeps_what_was_timed(db: TuningDatabase, play: Play) -> None:
    heats = []

    def interleaved(count: int, rounds: int) -> list[tuple[float, ...]]:
        if count == 1:
            return [(0.01,) * rounds]
        heats.append(rounds)
        if len(heats) == 2:
            raise KeyboardInterrupt
        return [(0.01, 0.0108) * rounds, (0.0108, 0.01) * rounds]

    play(ok(0.0105), ok(0.01), ok(0.5), interleaved=interleaved)
    result = run(db, config=LONG)
    assert heats == [9, 18]
    assert result.interrupted
    assert result.best is not None
    assert [s.rounds for s in result.best.comparison] == [18, 18]


def test_one_that_was_never_the_best_is_checked_before_finals(
    db: TuningDatabase, play: Play
) -> None:
    asked = []

    def interleaved(count: int, rounds: int) -> list[tuple[float, ...]]:
        asked.append(count)
        return [(t,) * rounds for t in (0.01, 0.009)[:count]]

    recorded = play(ok(0.01), ok(0.0105), ok(0.5), interleaved=interleaved)
    result = run(db)
    assert asked == [1, 2]
    assert result.best is not None
    assert result.best.seconds == 0.009
    asked.clear()
    recorded = play(ok(0.008), ok(0.0081), ok(0.5), interleaved=interleaved)
    recorded.verdict = CheckResult(False, 1.0, 1e-5, "C[0] is 1, expected 2")
    result = run(db, seed=1)
    assert asked == [1]
    assert result.best is not None
    assert result.best.seconds == 0.008
    assert [v.passed for v in db.records(Verification)].count(False) == 1


def test_finals_without_one_that_is_right_are_none(db: TuningDatabase, play: Play) -> None:
    play(ok(0.001), ok(0.5))
    first = run(db)
    asked = []

    def interleaved(count: int, rounds: int) -> list[tuple[float, ...]]:
        asked.append(count)
        return [(0.01,) * rounds]

    recorded = play(ok(0.008), ok(0.0081), ok(0.5), interleaved=interleaved)
    recorded.verdict = CheckResult(False, 1.0, 1e-5, "C[0] is 1, expected 2")
    assert run(db, seed=1).best == first.best
    assert asked == [1]
    assert [v.passed for v in db.records(Verification)].count(False) == 2


def test_finals_of_slow_kernels_are_short_or_none(db: TuningDatabase, play: Play) -> None:
    asked: list[tuple[int, int]] = []

    def interleaved(count: int, rounds: int) -> list[tuple[float, ...]]:
        asked.append((count, rounds))
        return [(0.3,) * rounds] * count

    play(ok(0.31), ok(0.3), ok(0.5), interleaved=interleaved)
    run(db, config=LONG)
    assert asked == [(1, 5), (2, 3)]
    asked.clear()
    play(ok(0.29), ok(2.0), interleaved=interleaved)
    run(db, config=TuneConfig(**{**vars(QUICK), "final_seconds": 0.1}))
    assert (2, 1) not in asked


def test_drift_of_the_machine_is_seen(db: TuningDatabase, play: Play) -> None:
    times = iter([1.0, 1.5, 0.9])
    play(ok(1.0), ok(2.0), interleaved=lambda count, rounds: [(next(times),) * rounds])
    events: list[Event] = []
    result = run(db, events.append, trials=12, config=TuneConfig(**{**vars(QUICK), "calm": 4}))
    assert result.drift == (1.5, 0.9)
    assert [e.ratio for e in events if isinstance(e, Drift)] == [1.5, 0.9]


def test_a_path_is_a_database_that_is_created(tmp_path: Path, play: Play) -> None:
    play(ok(3.0), ok(2.0))
    path = tmp_path / "new.db"
    result = tune(matmul(), "cpu -threads=1", database=path, trials=2, config=QUICK)
    with TuningDatabase(path, create=False) as kept:
        assert kept.get(Session, result.session).status is SessionStatus.FINISHED


@pytest.mark.parametrize("end", ["finished", "interrupted", "failed", "background"])
def test_the_file_alone_holds_a_session_that_ended(tmp_path: Path, play: Play, end: str) -> None:
    """While the result is there, and another program has the database open."""

    def raise_at_second(event: Event) -> None:
        if isinstance(event, Trial) and event.number == 2:
            raise KeyboardInterrupt if end == "interrupted" else ValueError("of a callback")

    file, copy = tmp_path / "tuning.db", tmp_path / "copy.db"
    play(ok(1.0))
    with TuningDatabase(file) as beside:
        if end == "failed":
            with pytest.raises(ValueError, match="of a callback"):
                run(beside, raise_at_second)
        elif end == "background":
            running = tune(
                matmul(), "cpu -threads=1", database=file, trials=8, config=QUICK, background=True
            )
            assert running.result().trials == 8
        else:
            result = run(beside, raise_at_second if end == "interrupted" else None)
            assert result.trials == (2 if end == "interrupted" else 8)
        copy.write_bytes(file.read_bytes())
        with TuningDatabase(copy, create=False, read_only=True) as copied:
            difference = copied.compare(beside)
            assert not difference.only_first
            assert not difference.only_second


def test_pauses_of_a_session_are_not_counted() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    times = [start + timedelta(seconds=s) for s in (0, 2, 5, 3605, 3606)]
    assert running(times) == 2 + 3 + 60 + 1


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"func": matmul}, TuningError, "expected a program (Func) to tune, or schedules"),
        ({"database": 3}, TuningError, "or the path or URL of one, found 3"),
        ({"trials": 0}, TuningError, "trials=0 is no budget"),
        ({"target": "gpu"}, TargetError, "unknown target kind"),
        ({"target": "cpu -mcpu=neoverse-n1"}, TargetError, "this machine is"),
    ],
)
def test_nonsense_is_refused_before_anything_is_done(
    db: TuningDatabase, change: dict[str, Any], error: type[Exception], says: str
) -> None:
    options: dict[str, Any] = {"func": matmul(), "database": db, **change}
    with pytest.raises(error) as refused:
        tune(**options)
    assert says in str(refused.value)
    assert db.records(Session) == []


# Several programs


class Played:
    """A measurer for each program, in the order in which they are made."""

    def __init__(self, *recorded: Recorded) -> None:
        self._next = iter(recorded)

    def __call__(self, *_: Any, **__: Any) -> Recorded:
        return next(self._next)


def several(
    monkeypatch: pytest.MonkeyPatch, db: TuningDatabase, *recorded: Recorded, **options: Any
) -> list[Any]:
    monkeypatch.setattr(search, "sketches", sketches)
    monkeypatch.setattr(tuning, "Measurer", Played(*recorded))
    options = {"trials": 24, "config": QUICK, **options}
    results: list[Any] = tune([matmul(), matmul(8)], "cpu -threads=1", database=db, **options)
    return results


def test_programs_that_share_a_budget_do_not_disturb_one_another(
    db: TuningDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(*_: Any, others: Callable[[], list[Session]], **__: Any) -> str:
        return f"beside {others()}"

    monkeypatch.setattr(session_module, "noise_text", asked)
    results = several(monkeypatch, db, Recorded([ok(9.0)]), Recorded([ok(1.0)]))
    assert [result.noise for result in results] == ["beside []"] * 2


def test_a_budget_goes_where_it_gains_most(
    db: TuningDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[Event] = []
    slow, fast = several(
        monkeypatch, db, Recorded([ok(9.0)]), Recorded([ok(1.0)]), callback=events.append
    )
    assert (slow.trials, fast.trials) == (20, 4)
    assert (slow.best.seconds, fast.best.seconds) == (9.0, 1.0)
    assert {r.reason for r in (slow, fast)} == {"all 24 trials are done"}
    assert [(e.program, e.programs) for e in events if isinstance(e, Started)] == [(0, 2), (1, 2)]
    trials = [e for e in events if isinstance(e, Trial)]
    assert [t.number for t in trials] == list(range(1, 25))
    assert [t.program for t in trials] == [0] * 4 + [1] * 4 + [0] * 16
    assert sorted(e.program for e in events if isinstance(e, Ended)) == [0, 1]
    assert len(db.measurements(session=slow.session)) == 20
    assert len(db.measurements(session=fast.session)) == 4
    for result in (slow, fast):
        assert sum(vars(result.spent).values()) == pytest.approx(result.seconds)


def test_each_program_counts_its_own_trials(
    db: TuningDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Small(search.Search):
        def ask(self, count: int) -> Any:
            return super().ask(min(count, 3 - len(self._observed)))

    monkeypatch.setattr(tuning, "Search", Small)
    results = several(monkeypatch, db, Recorded([ok(9.0)]), Recorded([ok(1.0)]))
    assert [r.trials for r in results] == [3, 3]
    reason = "the rules have no other schedule of this program, after 3 trials"
    assert {r.reason for r in results} == {reason}


def test_weights_count(db: TuningDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = Recorded([ok(9.0)]), Recorded([ok(1.0)])
    slow, fast = several(monkeypatch, db, *measured, weights=[1, 100])
    assert (slow.trials, fast.trials) == (4, 20)


def test_each_program_gets_a_share_of_a_small_budget(
    db: TuningDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = several(monkeypatch, db, Recorded([ok(9.0)]), Recorded([ok(1.0)]), trials=3)
    assert (one.trials, other.trials) == (1, 2)


@pytest.mark.parametrize(("seconds", "trials"), [(None, 128), (30.0, None)])
def test_by_default_each_program_has_64_trials_and_seconds_have_no_other_limit(
    db: TuningDatabase, monkeypatch: pytest.MonkeyPatch, seconds: float | None, trials: int | None
) -> None:
    measured = Recorded([ok(9.0)]), Recorded([ok(1.0)])
    stopped = interrupting(1, KeyboardInterrupt())
    several(monkeypatch, db, *measured, callback=stopped, trials=None, seconds=seconds)
    assert [session.trials for session in db.records(Session)] == [trials] * 2


def test_an_interrupt_ends_all_and_all_are_resumed(
    db: TuningDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = Recorded([ok(9.0)]), Recorded([ok(1.0)])
    stopped = interrupting(6, KeyboardInterrupt())
    first = several(monkeypatch, db, *measured, callback=stopped)
    assert [r.trials for r in first] == [4, 2]
    assert all(r.interrupted for r in first)
    assert sessions(db) == [SessionStatus.INTERRUPTED] * 2
    rest = several(monkeypatch, db, *measured, resume=True)
    assert [r.session for r in rest] == [r.session for r in first]
    assert sum(r.trials for r in rest) == 18
    assert sessions(db) == [SessionStatus.FINISHED] * 2


def test_a_program_at_its_roofline_leaves_its_share(
    db: TuningDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    done, rest = several(
        monkeypatch, db, Recorded([ok(1e-12)]), Recorded([ok(1.0)]), stop_at=0.9, weights=[1e15, 1]
    )
    assert (done.trials, rest.trials) == (4, 20)
    assert "of the roofline" in done.reason
    assert rest.reason == "all 24 trials are done"


def test_rules_end_a_session(db: TuningDatabase, play: Play) -> None:
    play(ok(1e-12))
    result = run(db, stop_at=0.9, trials=100)
    assert result.trials == 4
    assert "of the roofline" in result.reason
    assert result.status is SessionStatus.FINISHED
    play(ok(1e-12))
    assert run(db, stop_at=0.9, seed=1).trials == 0


def test_a_session_ends_when_little_is_to_be_expected(
    db: TuningDatabase, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]

    def callback(event: Event) -> None:
        now[0] += isinstance(event, Trial)

    play(ok(1.0))
    monkeypatch.setattr(tuning, "Meter", lambda budget: Meter(budget, clock=lambda: now[0]))
    result = run(db, callback, min_gain=0.045, trials=100)
    assert result.trials == 20  # 0.8 / 20 is the first that is less
    assert "expected to gain 0.04 of the time, below min_gain" in result.reason
    assert result.status is SessionStatus.FINISHED


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"func": [matmul(), matmul()]},
            "matmul (A:float32[16,16] B:float32[16,16] C:float32[16,16]) is there twice",
        ),
        ({"func": [matmul(), 3]}, "expected programs (Func) that share a budget, found 'int'"),
        ({"func": [matmul(), matmul(8)], "trials": 1}, "1 trials are not enough for 2 programs"),
        ({"weights": [1, 2]}, "2 weights for 1 programs"),
        ({"weights": [0.0]}, "weights: expected numbers of more than 0, found 0.0"),
        ({"stop_at": 2}, "stop_at=2: expected a share"),
        ({"min_gain": 0}, "min_gain=0: expected a share"),
    ],
)
def test_options_of_several_programs_are_checked(
    db: TuningDatabase, change: dict[str, Any], says: str
) -> None:
    options: dict[str, Any] = {"func": matmul(), "database": db, **change}
    with pytest.raises(TuningError) as refused:
        tune(**options)
    assert says in str(refused.value)
    assert db.records(Session) == []


def test_options_that_are_none_are_refused() -> None:
    with pytest.raises(TuningError, match="expected batch, rounds and calm of at least 1, found 0"):
        TuneConfig(batch=0)


@pytest.mark.parametrize(("scale", "finalists"), [(1e-3, 8), (1.0, 5)])
def test_finalists_are_as_many_as_there_is_time_for(
    db: TuningDatabase, play: Play, scale: float, finalists: int
) -> None:
    counts = []

    def interleaved(count: int, rounds: int) -> list[tuple[float, ...]]:
        counts.append(count)
        return [(0.01 * scale * (1 + n),) * rounds for n in range(count)]

    play(*(ok(scale * (0.0100 + n * 1e-4)) for n in range(8)), interleaved=interleaved)
    run(db, config=LONG)
    assert max(counts) == finalists


@pytest.mark.parametrize(("drift", "finalists"), [(1.0, 2), (1.3, 3), (1 / 1.3, 3)])
def test_the_margin_of_finals_is_as_wide_as_the_machine_drifts(
    db: TuningDatabase, play: Play, drift: float, finalists: int
) -> None:
    counts = []

    def interleaved(count: int, rounds: int) -> list[tuple[float, ...]]:
        counts.append(count)
        if count == 1:
            return [(0.01 * drift ** (len(counts) > 1),) * rounds]
        return [(0.01 * (1 + n),) * rounds for n in range(count)]

    play(ok(0.01), ok(0.0105), ok(0.0125), ok(0.5), interleaved=interleaved)
    run(db, trials=48)
    assert counts.count(1) >= 2
    assert max(counts) == finalists


def test_a_disk_that_is_full_keeps_what_was_told_and_the_session_is_resumed(
    tmp_path: Path, play: Play
) -> None:
    def grow_no_more(connection: sqlite3.Connection, _: object) -> None:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count={pages + 8}")

    def tuned(db: TuningDatabase, *, resume: bool) -> TuneResult:
        play(ok(2e-3))
        return tune(
            matmul(),
            "cpu -threads=1",
            database=db,
            trials=40,
            resume=resume,
            callback=lambda event: told.append(event.schedule) if isinstance(event, Trial) else 0,
            config=QUICK,
        )

    told: list[str] = []
    place = tmp_path / "tuning.db"
    with TuningDatabase(place) as db:
        db.close()
        listen(db._layers[0].engine, "connect", grow_no_more)
        with pytest.raises(DatabaseError, match="cannot grow: the disk is full") as refused:
            tuned(db, resume=False)
    assert 0 < len(told) < 40
    some = "1 trial is" if len(told) == 1 else f"{len(told)} trials are"
    assert f"{some} kept in {place}; resume=True" in str(refused.value)
    with TuningDatabase(place) as db:
        assert {m.schedule for m in db.measurements()} == set(told), "and nothing else is"
        result = tuned(db, resume=True)
        assert (result.status, len(set(told))) == (SessionStatus.FINISHED, 40)
        assert len(db.records(Session)) == 1


def test_a_database_is_given_by_its_name(tmp_path: Path) -> None:
    wanted = (
        r"found 3 arguments; expected at most 2 \(func, target\), and others by name\n.*database="
    )
    with pytest.raises(TuningError, match=wanted):
        tune(matmul(8), "cpu", tmp_path / "x.db")  # type: ignore[call-overload]
