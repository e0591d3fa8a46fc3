"""The contract of `best`: the fastest verified, comparable measurement; layers and pins over it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Select, event

from tilewright.base.errors import DatabaseError
from tilewright.base.text import short_id
from tilewright.tuning_db import (
    AnyRecord,
    Best,
    Measurement,
    Outcome,
    Pin,
    Reason,
    ScheduleRecord,
    TuningDatabase,
    lookup,
    usable,
)
from tilewright.tuning_db.confirm import Wanted
from tilewright.tuning_db.near import distance
from tilewright.tuning_db.pins import require_verified

from .samples import (
    ARM,
    BASE,
    CPU,
    LLVM,
    MATMUL,
    NOON,
    OLD_LLVM,
    SAME_CPU,
    SESSION,
    SLOW_CPU,
    WIDER,
    Clock,
    fill,
    measurement,
    schedule,
    verification,
    verified,
    winograd,
)

Place = Callable[[], str]


def seconds(best: Best | None) -> float | None:
    return None if best is None else best.seconds


@pytest.fixture
def team(new_place: Place, clock: Clock) -> Iterator[TuningDatabase]:
    """A second database, to be a layer of others."""
    with TuningDatabase(new_place(), clock=clock) as opened:
        fill(opened)
        yield opened


def url(db: TuningDatabase) -> str:
    location = db.location
    return location if "://" in location else f"sqlite:///{location}"


def test_nothing_at_first(db: TuningDatabase) -> None:
    assert db.best(MATMUL.id, CPU) is None
    assert db.best("0" * 64, CPU) is None


def test_the_fastest_verified_wins(db: TuningDatabase) -> None:
    db.put(*verified(8, 2.0), *verified(16, 1.0), *verified(32, 3.0))
    best = db.best(MATMUL.id, CPU)
    assert best == Best(schedule(16), measurement(16, 1.0), pinned=False, layer=db.location)
    assert best is not None
    assert best.seconds == 1.0


def test_verification_counts_whenever_it_comes(new_place: Place) -> None:
    """In one call or three, in any order, the outcome is the same."""
    parts: list[AnyRecord] = [measurement(8, 2.0), verification(8), measurement(8, 1.0, after=1)]
    for order in permutations(parts):
        with TuningDatabase(new_place()) as db:
            db.put(*BASE, schedule(8))
            for part in order:
                db.put(part)
            assert seconds(db.best(MATMUL.id, CPU)) == 1.0


def test_what_is_not_verified_does_not_count(db: TuningDatabase) -> None:
    db.put(*verified(8, 2.0), schedule(16), measurement(16, 1.0))
    assert seconds(db.best(MATMUL.id, CPU)) == 2.0


def test_a_check_of_something_else_does_not_verify(db: TuningDatabase) -> None:
    db.put(
        schedule(8),
        schedule(16),
        measurement(8, 1.0),
        verification(16),
        verification(8, workload=WIDER),
        verification(8, target=SAME_CPU),
        verification(8, toolchain=OLD_LLVM),
    )
    assert db.best(MATMUL.id, CPU) is None
    db.put(verification(8))
    assert seconds(db.best(MATMUL.id, CPU)) == 1.0


def test_one_failed_check_refuses(db: TuningDatabase) -> None:
    db.put(*verified(8, 1.0), *verified(16, 2.0))
    db.put(verification(8, passed=False))
    assert seconds(db.best(MATMUL.id, CPU)) == 2.0
    db.put(dataclasses.replace(verification(8), tolerance=0.5))
    db.put(measurement(8, 0.5))
    assert seconds(db.best(MATMUL.id, CPU)) == 2.0


def test_the_last_measurement_of_a_schedule_speaks_for_it(db: TuningDatabase) -> None:
    db.put(*verified(8, 1.0), *verified(16, 1.5))
    again = measurement(8, 2.0, after=1)
    db.put(again)
    assert seconds(db.best(MATMUL.id, CPU)) == 1.5
    db.put(measurement(16, 2.5, after=2))
    best = db.best(MATMUL.id, CPU)
    assert best is not None
    assert best.measurement == again
    db.put(measurement(8, None, outcome=Outcome.RUN_TIMEOUT, after=3))
    assert seconds(db.best(MATMUL.id, CPU)) == 2.5


def test_a_later_measurement_elsewhere_supersedes_nothing(db: TuningDatabase) -> None:
    db.put(*verified(8, 1.0))
    db.put(measurement(8, 9.0, workload=WIDER, after=1), measurement(8, 9.0, target=ARM, after=1))
    db.put(measurement(8, 9.0, toolchain=OLD_LLVM, after=1))
    assert seconds(db.best(MATMUL.id, CPU)) == 1.0


def test_of_two_measurements_of_one_moment_one_counts_always(db: TuningDatabase) -> None:
    db.put(*verified(8, 1.0), measurement(8, 2.0))
    best = db.best(MATMUL.id, CPU)
    assert best is not None
    assert best.measurement is not None
    assert best.measurement.id == max(measurement(8, 1.0).id, measurement(8, 2.0).id)


def test_failures_do_not_count(db: TuningDatabase) -> None:
    db.put(*verified(8, 1.0))
    db.put(schedule(16), verification(16))
    for outcome in Outcome:
        if outcome is not Outcome.OK:
            db.put(measurement(16, None, outcome=outcome))
    assert seconds(db.best(MATMUL.id, CPU)) == 1.0


def test_only_comparable_targets_count(db: TuningDatabase) -> None:
    db.put(*verified(8, 2.0, target=SAME_CPU))
    db.put(*verified(16, 1.0, target=SLOW_CPU), *verified(32, 0.5, target=ARM))
    assert seconds(db.best(MATMUL.id, CPU)) == 2.0
    assert seconds(db.best(MATMUL.id, SLOW_CPU)) == 1.0
    assert seconds(db.best(MATMUL.id, ARM)) == 0.5


def test_only_that_workload_counts(db: TuningDatabase) -> None:
    db.put(*verified(8, 1.0, workload=WIDER))
    assert db.best(MATMUL.id, CPU) is None


def test_only_that_generation_of_the_toolchain_counts_where_one_is_given(
    db: TuningDatabase,
) -> None:
    db.put(*verified(8, 1.0, toolchain=OLD_LLVM), *verified(16, 2.0))
    newer = dataclasses.replace(LLVM, versions={"llvmlite": "0.50.1"})
    assert seconds(db.best(MATMUL.id, CPU)) == 1.0
    assert seconds(db.best(MATMUL.id, CPU, LLVM)) == 2.0
    assert seconds(db.best(MATMUL.id, CPU, newer)) == 2.0
    assert seconds(db.best(MATMUL.id, CPU, OLD_LLVM)) == 1.0


def test_a_tie_is_decided_the_same_way_always(db: TuningDatabase) -> None:
    db.put(*verified(8, 1.0), *verified(16, 1.0))
    best = db.best(MATMUL.id, CPU)
    assert best is not None
    assert best.measurement is not None
    assert best.measurement.id == min(measurement(8, 1.0).id, measurement(16, 1.0).id)


def test_a_pin_wins(db: TuningDatabase, clock: Clock) -> None:
    db.put(*verified(8, 1.0), *verified(16, 2.0), schedule(32))
    pin = db.pin(MATMUL.id, CPU, schedule(16).id).pin
    assert (pin.schedule, pin.created) == (schedule(16).id, clock.now)
    best = db.best(MATMUL.id, SAME_CPU)
    assert best == Best(schedule(16), measurement(16, 2.0), pinned=True, layer=db.location)
    assert seconds(db.best(MATMUL.id, SLOW_CPU)) is None
    clock.tick()
    db.pin(MATMUL.id, CPU, schedule(32).id, unverified=True)
    assert db.best(MATMUL.id, CPU) == Best(schedule(32), None, True, db.location, verified=None)
    clock.tick()
    db.pin(MATMUL.id, SAME_CPU, schedule(8).id)
    assert db.best(MATMUL.id, CPU) == Best(schedule(8), measurement(8, 1.0), True, db.location)
    assert db.unpin(MATMUL.id, CPU)
    assert db.best(MATMUL.id, CPU) == Best(schedule(8), measurement(8, 1.0), False, db.location)
    assert not db.unpin(MATMUL.id, CPU)


def test_a_pin_says_what_it_costs_and_replaces(db: TuningDatabase, clock: Clock) -> None:
    fast, slow, unmeasured = (short_id(schedule(tile).id) for tile in (8, 16, 32))
    db.put(*verified(8, 1e-3), *verified(16, 2e-3), schedule(32), schedule(64))
    first = db.pin(MATMUL.id, CPU, schedule(16).id)
    assert (first.replaced, first.ratio) == (None, 2.0)
    assert str(first) == (
        f"Schedule {slow} is pinned. "
        f"It is 2.00x slower than the recorded best: 2 ms against 1 ms of schedule {fast}."
    )
    clock.tick()
    second = db.pin(MATMUL.id, SAME_CPU, schedule(32).id, unverified=True)
    assert (second.replaced, second.ratio) == (schedule(16).id, None)
    assert str(second) == (
        f"Schedule {unmeasured} is pinned instead of schedule {slow}. "
        "It has no measured time that is verified, so its price is not known."
    )
    clock.tick()
    third = db.pin(MATMUL.id, CPU, schedule(8).id)
    assert (third.replaced, third.ratio) == (schedule(32).id, 1.0)
    assert third.price == "It is the recorded best: 1 ms."
    assert db.pin(MATMUL.id, CPU, schedule(8).id).instead == ", as it was before"
    assert db.pinned(MATMUL.id, SAME_CPU) == third.pin
    assert (db.pinned(MATMUL.id, ARM), db.pinned(WIDER.id, CPU)) == (None, None)


def test_an_inexact_pin_is_compared_with_exact_schedules(db: TuningDatabase) -> None:
    inexact, measured, check = winograd(4, 1e-3, 0.5)
    db.put(inexact, measured, check)
    alone = db.pin(MATMUL.id, CPU, inexact.id)
    assert alone.price == "Its time is 1 ms, and no other usable one is recorded."
    db.put(*verified(8, 2e-3))
    assert db.pin(MATMUL.id, CPU, inexact.id).price == (
        "It is 2.00x faster than the best exact schedule: "
        f"1 ms against 2 ms of schedule {short_id(schedule(8).id)}."
    )


def test_a_pin_of_a_layer_is_next(tmp_path: Path) -> None:
    team = TuningDatabase(tmp_path / "team.db")
    fill(team)
    team.put(*verified(8, 1e-3), *verified(16, 2e-3))
    team.pin(MATMUL.id, CPU, schedule(16).id)
    with TuningDatabase(tmp_path / "own.db", layers=[tmp_path / "team.db"]) as own:
        assert own.pin(MATMUL.id, CPU, schedule(8).id).replaced == schedule(16).id
        assert own.unpin(MATMUL.id, SAME_CPU)
        best = own.best(MATMUL.id, CPU)
        assert best is not None
        assert (best.schedule, best.layer) == (schedule(16), team.location)
        own.pin(MATMUL.id, CPU, schedule(8).id)
        with team._layers[0].writing() as connection:
            connection.exec_driver_sql(f"UPDATE pin SET id = '{'f' * 64}'")
        assert own.unpin(MATMUL.id, CPU), "though that of the layer is damaged"
        assert own.records(Pin) == []


def test_a_pin_of_what_is_not_verified(db: TuningDatabase) -> None:
    db.put(schedule(8), measurement(8, 1.0), schedule(16), verification(16, passed=False))
    with pytest.raises(DatabaseError):
        db.pin(MATMUL.id, CPU, schedule(8).id)
    verification(16, passed=False).id[:12]
    for unverified in (False, True):
        with pytest.raises(DatabaseError):
            db.pin(MATMUL.id, CPU, schedule(16).id, unverified=unverified)
    assert db.records(Pin) == []
    db.put(verification(8))
    db.pin(MATMUL.id, CPU, schedule(8).id)
    db.put(verification(8, passed=False))
    best = db.best(MATMUL.id, CPU)
    assert best is not None
    assert (best.pinned, best.verified, best.measurement) == (True, False, None)


def test_no_check_comes_or_goes_while_one_is_pinned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = f"sqlite:///{tmp_path / 'tuning.db'}?timeout=0"
    with TuningDatabase(place) as db, TuningDatabase(place) as other:
        fill(db)
        db.put(schedule(8), verification(8))

        def meanwhile(*args: Any, **options: Any) -> None:
            require_verified(*args, **options)
            with pytest.raises(DatabaseError):
                other.put(verification(8, passed=False))
            with pytest.raises(DatabaseError):
                other.prune()

        monkeypatch.setattr("tilewright.tuning_db.store.require_verified", meanwhile)
        db.pin(MATMUL.id, CPU, schedule(8).id)
        assert [p.schedule for p in db.records(Pin)] == [schedule(8).id]


@pytest.mark.parametrize("other", [{"target": SLOW_CPU}, {"workload": WIDER}], ids=str)
def test_checks_elsewhere_verify_nothing_here(db: TuningDatabase, other: dict[str, Any]) -> None:
    db.put(*verified(8, 1.0, **other))
    with pytest.raises(DatabaseError):
        db.pin(MATMUL.id, CPU, schedule(8).id)


def test_one_compiler_that_passes_is_enough_for_a_pin(db: TuningDatabase) -> None:
    db.put(schedule(8), verification(8, passed=False, toolchain=OLD_LLVM), verification(8))
    db.pin(MATMUL.id, SAME_CPU, schedule(8).id)
    assert {c.passed for c in db.verifications(MATMUL.id, CPU, schedule(8).id)} == {True, False}


def test_records_are_pinned_and_written_at_once(db: TuningDatabase) -> None:
    novel = ScheduleRecord('{"version":1,"steps":[]}', 1)
    program = dataclasses.replace(MATMUL, id="7" * 64)
    with pytest.raises(DatabaseError):
        db.pin(program, CPU, novel)
    with pytest.raises(DatabaseError):
        db.get(ScheduleRecord, novel.id)
    db.pin(program, CPU, novel, unverified=True)
    best = db.best(program.id, CPU)
    assert best is not None
    assert best.schedule == novel


def test_a_pin_of_what_is_not_there(db: TuningDatabase) -> None:
    with pytest.raises(DatabaseError):
        db.pin(MATMUL.id, CPU, schedule(8).id)
    db.put(schedule(8))
    with pytest.raises(DatabaseError):
        db.pin("0" * 64, CPU, schedule(8).id)


def test_layers_are_read_too(db: TuningDatabase, team: TuningDatabase) -> None:
    team.put(*verified(8, 1.0), *verified(16, 2.0, workload=WIDER))
    db.put(*verified(32, 1.5), *verified(64, 3.0, workload=WIDER))
    with TuningDatabase(url(db), layers=[url(team)]) as both:
        assert both.best(MATMUL.id, CPU) == Best(
            schedule(8), measurement(8, 1.0), pinned=False, layer=team.location
        )
        assert seconds(both.best(WIDER.id, CPU)) == 2.0
        assert both.get(type(schedule(8)), schedule(8).id) == schedule(8)
        assert both.find(schedule(8).id) == schedule(8)
        assert len(both.measurements()) == 4
        assert len(both.records(type(MATMUL))) == 3
        both.put(*verified(128, 0.5))
        assert seconds(both.best(MATMUL.id, CPU)) == 0.5
    assert seconds(team.best(MATMUL.id, CPU)) == 1.0, "layers are never written"


def test_on_a_tie_the_upper_layer_wins(db: TuningDatabase, team: TuningDatabase) -> None:
    db.put(*verified(8, 1.0))
    team.put(*verified(8, 1.0))
    with TuningDatabase(url(db), layers=[url(team)]) as both:
        best = both.best(MATMUL.id, CPU)
        assert best is not None
        assert best.layer == db.location
        assert len(both.measurements()) == 1


def test_a_failed_check_in_one_layer_refuses_in_all(
    db: TuningDatabase, team: TuningDatabase
) -> None:
    team.put(*verified(8, 1.0), *verified(16, 2.0))
    db.put(schedule(8), verification(8, passed=False))
    with TuningDatabase(url(db), layers=[url(team)]) as both:
        assert seconds(both.best(MATMUL.id, CPU)) == 2.0
        assert seconds(both.best(MATMUL.id, CPU, LLVM)) == 2.0
    with TuningDatabase(url(team), layers=[url(db)]) as both:
        assert seconds(both.best(MATMUL.id, CPU)) == 2.0


def test_a_check_that_failed_on_another_target_does_not_refuse(
    db: TuningDatabase, team: TuningDatabase
) -> None:
    team.put(*verified(8, 1.0), *verified(16, 2.0))
    db.put(schedule(8), verification(8, passed=False, target=ARM))
    with TuningDatabase(url(db), layers=[url(team)]) as both:
        assert seconds(both.best(MATMUL.id, CPU)) == 1.0


def test_pins_of_upper_layers_come_first(db: TuningDatabase, team: TuningDatabase) -> None:
    team.put(*verified(8, 1.0), *verified(16, 2.0))
    team.pin(MATMUL.id, CPU, schedule(16).id)
    with TuningDatabase(url(db), layers=[url(team)]) as both:
        assert both.best(MATMUL.id, CPU) == Best(
            schedule(16), measurement(16, 2.0), pinned=True, layer=team.location
        )
        both.pin(MATMUL.id, CPU, schedule(8).id)
        assert both.best(MATMUL.id, CPU) == Best(
            schedule(8), measurement(8, 1.0), pinned=True, layer=db.location
        )


def test_a_layer_that_is_not_there(new_place: Place) -> None:
    with pytest.raises(DatabaseError, match="no tuning database at|is empty"):
        TuningDatabase(new_place(), layers=[new_place()])


@pytest.mark.parametrize(
    ("tolerance", "expected"), [(None, 2.0), (1e-6, 2.0), (1e-5, 1.0), (1e-3, 1.0)]
)
def test_inexact_schedules_need_to_be_tolerated(
    db: TuningDatabase, tolerance: float | None, expected: float
) -> None:
    db.put(*verified(8, 2.0), *winograd(9, 1.0, 1e-5))
    assert seconds(db.best(MATMUL.id, CPU, tolerance=tolerance)) == expected


def test_the_largest_error_that_was_found_counts(db: TuningDatabase) -> None:
    made, measured, check = winograd(9, 1.0, 1e-5)
    worse = dataclasses.replace(check, max_error=1e-3, tolerance=1e-2)
    db.put(made, measured, check, worse)
    assert db.best(MATMUL.id, CPU, tolerance=1e-4) is None
    assert seconds(db.best(MATMUL.id, CPU, tolerance=1e-2)) == 1.0


def test_a_comparison_is_among_what_is_tolerated(db: TuningDatabase) -> None:
    made, measured, check = winograd(9, 1.0, 1e-5)
    at_once = dataclasses.replace(measurement(8, 2.0), created=measured.created)
    db.put(schedule(8), at_once, verification(8), made, measured, check)
    exact = db.best(MATMUL.id, CPU)
    assert (seconds(exact), exact and exact.comparison) == (2.0, ())
    both = db.best(MATMUL.id, CPU, tolerance=1e-4)
    assert both is not None
    assert (both.seconds, len(both.comparison)) == (1.0, 2)


def test_inexact_schedules_of_other_sizes_need_to_be_tolerated(db: TuningDatabase) -> None:
    db.put(dataclasses.replace(MATMUL, family="f" * 64))
    db.put(*winograd(9, 1.0, 1e-5))
    wanted = dataclasses.replace(WIDER, family="f" * 64)
    assert db.relatives(wanted, CPU) == []
    assert len(db.relatives(wanted, CPU, tolerance=1e-4)) == 1


def test_a_pin_is_a_word_for_inexact_schedules_too(db: TuningDatabase) -> None:
    made, measured, check = winograd(9, 1.0, 1e-5)
    db.put(*verified(8, 0.5), made, measured, check)
    db.pin(MATMUL.id, CPU, made.id)
    assert seconds(db.best(MATMUL.id, CPU)) == 1.0


def in_turns(tile: int, seconds: float) -> Measurement:
    """A measurement of a comparison a minute after the trials."""
    return dataclasses.replace(measurement(tile, seconds), created=NOON + timedelta(seconds=60))


def test_the_last_comparison_of_a_session_speaks_for_it(db: TuningDatabase) -> None:
    db.put(*verified(8, 1.0), *verified(16, 1.5), *verified(32, 1.8))
    assert seconds(db.best(MATMUL.id, CPU)) == 1.0
    db.put(in_turns(8, 2.0))
    assert seconds(db.best(MATMUL.id, CPU)) == 1.5, "one alone was compared with nothing"
    db.put(in_turns(16, 2.5))
    assert seconds(db.best(MATMUL.id, CPU)) == 2.0
    reasons = {r.reason: (r.count, r.seconds) for r in db.explain(MATMUL.id, CPU).refused}
    assert reasons == {
        Reason.SUPERSEDED: (2, 1.0),
        Reason.OUTDATED: (1, 1.8),
        Reason.NOT_CHOSEN: (1, 2.5),
    }
    best = db.best(MATMUL.id, CPU)
    assert best is not None
    assert len(best.comparison) == 2
    other = dataclasses.replace(SESSION, nonce="another")
    measured = dataclasses.replace(measurement(64, 1.9), session=other.id)
    db.put(other, schedule(64), measured, verification(64))
    assert seconds(db.best(MATMUL.id, CPU)) == 1.9, "another session's trials are no part of it"


def test_a_comparison_of_which_too_little_is_usable_decides_nothing(
    new_place: Callable[[], str],
) -> None:
    place = new_place()
    with TuningDatabase(place) as below:
        fill(below)
        below.put(*verified(8, 1.0), *verified(16, 1.5), *verified(32, 1.8))
        below.put(in_turns(8, 2.0), in_turns(16, 2.5))
    with TuningDatabase(new_place(), layers=[place]) as db:
        fill(db)
        assert seconds(db.best(MATMUL.id, CPU)) == 2.0
        db.put(schedule(8), verification(8, passed=False))
        assert seconds(db.best(MATMUL.id, CPU)) == 1.8


@pytest.mark.parametrize("given", [{}, {"generation": "llvm 22"}, {"tolerance": 1e-3}])
def test_the_lookup_is_one_seek_in_the_index(filled_file: Path, given: dict[str, object]) -> None:
    """Whatever the number of measurements: SQLite's plan names the index, and all its columns."""
    with TuningDatabase(filled_file) as db, db._layers[0].reading() as connection:
        pages, first = (
            plan(connection, statement(frozenset(given), *more), given)
            for statement, more in ((usable._page, (1, 0)), (usable._first, ()))
        )
    equal = "workload=? AND comparable=? AND outcome=? AND verified=?"
    assert f"ix_measurement_best ({equal} AND seconds>? AND seconds<?)" in pages[0]
    assert all("SCAN toolchain" in step for step in pages if "SCAN" in step)  # there are few
    later = "COVERING INDEX ix_measurement_session_created (session=? AND created>?)"
    assert any(later in step for step in first)


def plan(connection: Connection, statement: Select[Any], given: dict[str, object]) -> list[str]:
    """The steps of a statement in SQLite."""
    compiled = statement.compile(connection.engine)
    values = compiled.construct_params(
        {"workload": MATMUL.id, "comparable": CPU.comparable, **given}
    )
    steps = connection.exec_driver_sql(
        f"EXPLAIN QUERY PLAN {compiled}", tuple(values[n] for n in compiled.positiontup or ())
    )
    return [row[3] for row in steps]


@pytest.mark.parametrize(
    ("shape", "other", "expected"),
    [
        ("A[64,64]", "A[64,64]", 0.0),
        ("A[63,64]", "A[127,64]", 1.0),
        ("A[127,0]", "A[63,1]", 2.0),
        ("A[64]", "A[64,64]", None),
        ("A[64]", "B[64]", None),
    ],
)
def test_distance_of_shapes(shape: str, other: str, expected: float | None) -> None:
    assert distance(shape, other) == expected
    assert distance(other, shape) == expected


def test_finals_of_many_sessions_at_the_same_moments_are_read_once(
    db: TuningDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a lookup takes as long as the square of their number."""
    reads: list[object] = []

    def finalists_of(connection: Connection, moment: object, wanted: Wanted) -> object:
        reads.append(moment)
        return read(connection, moment, wanted)

    read = lookup._finalists_of
    monkeypatch.setattr(lookup, "_finalists_of", finalists_of)
    for n in range(8):
        session = dataclasses.replace(SESSION, nonce=f"session {n}")
        db.put(session)
        for k, after in enumerate((0, 1, 1, 2, 2)):  # a trial, and finals twice
            tile, moment = 100 * n + k, NOON + timedelta(seconds=after)
            timed = dataclasses.replace(measurement(tile, 1.0 + after), session=session.id)
            db.put(schedule(tile), verification(tile), dataclasses.replace(timed, created=moment))
    assert seconds(db.best(MATMUL.id, CPU, LLVM)) == 3.0
    assert len(reads) == len(set(reads)) > 0


def test_most_lookups_are_one_statement_that_stays_prepared(db: TuningDatabase) -> None:
    """A lookup on a server waits for it once; psycopg prepares what it has run a few times."""
    db.put(*verified(8, 1.0), *verified(9, 2.0))
    engine = db._layers[0].engine
    statements: list[str] = []

    @event.listens_for(engine, "before_cursor_execute")
    def note(_c: object, _cursor: object, statement: str, *_: object) -> None:
        if statement != "BEGIN":
            statements.append(statement)

    for _ in range(8):
        assert seconds(db.best(MATMUL.id, CPU, LLVM)) == 1.0
    assert len(statements) == 8
    if engine.dialect.name == "postgresql":
        with db._layers[0].reading() as connection:
            prepared = connection.exec_driver_sql("SELECT statement FROM pg_prepared_statements")
            assert any(" found " in statement for statement in prepared.scalars())


def test_a_lookup_is_in_a_transaction_if_it_is_more_than_one_statement(db: TuningDatabase) -> None:
    db.put(*verified(8, 1.0), *verified(9, 2.0))
    levels: list[object] = []

    @event.listens_for(db._layers[0].engine, "before_cursor_execute")
    def note(connection: Connection, *_: object) -> None:
        levels.append(connection.get_execution_options().get("isolation_level"))

    db.best(MATMUL.id, CPU, LLVM)
    if db._layers[0].engine.dialect.name == "sqlite":
        assert len(levels) == 2  # BEGIN is one
        return
    assert levels == ["AUTOCOMMIT"]
    db.pin(MATMUL.id, CPU, schedule(9).id)
    levels.clear()
    best = db.best(MATMUL.id, CPU, LLVM)
    assert best is not None
    assert best.pinned
    assert levels[0] == "AUTOCOMMIT"  # the second is refused
    assert set(levels[1:]) == {"REPEATABLE READ"}


def test_a_pin_of_what_has_no_usable_measurement(db: TuningDatabase) -> None:
    """The statement that says where nothing is pinned returns no row then."""
    db.put(schedule(8), verification(8))
    db.pin(MATMUL.id, CPU, schedule(8).id)
    best = db.best(MATMUL.id, CPU, LLVM)
    assert best is not None
    assert (best.pinned, best.measurement, best.schedule.id) == (True, None, schedule(8).id)
