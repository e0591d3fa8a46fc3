"""The contract of the store, on every backend: what is put is there, once, and comes back equal."""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Callable
from datetime import timedelta, timezone
from pathlib import Path

import pytest

from tilewright.base.errors import DatabaseError
from tilewright.tuning_db import (
    AnyRecord,
    Machine,
    Measurement,
    Order,
    Outcome,
    Reason,
    ScheduleRecord,
    Session,
    TuningDatabase,
    Workload,
)
from tilewright.tuning_db.read import get
from tilewright.tuning_db.values import KINDS

from ..refusals import refused
from .samples import (
    ARM,
    BASE,
    CPU,
    HOST,
    LLVM,
    MACHINE,
    MATMUL,
    NOON,
    ONE_OF_EACH,
    SAME_CPU,
    SESSION,
    SLOW_CPU,
    SOFTMAX,
    WIDER,
    Clock,
    fill,
    measurement,
    schedule,
    timed,
    verification,
)


def test_every_record_comes_back_equal(place: str) -> None:
    with TuningDatabase(place) as db:
        assert db.put(*ONE_OF_EACH) == len(ONE_OF_EACH)
    with TuningDatabase(place) as db:
        for record in ONE_OF_EACH:
            back = db.get(type(record), record.id)
            assert back == record
            assert back.id == record.id
            assert db.records(type(record)) == [record]


def test_every_optional_field_comes_back(db: TuningDatabase) -> None:
    machine = dataclasses.replace(
        MACHINE,
        rates={"\u00e9": 1e-30, "x" * 64: 1e30},
        odd=tuple("\U0001f600" * 1000 for _ in range(100)),
    )
    full = dataclasses.replace(
        measurement(8, None),
        error="signal 11: \u00e9\u4e2d\U0001f600 {0} %s ' \" ; --",
        features=(0.1, -1e300, 5e-324, 0.0),
        feature_version="1",
    )
    program = dataclasses.replace(MATMUL, id="d" * 64, flops=2**63 - 1, ir="\u00e9\n" * 1000)
    child = ScheduleRecord('["x"]', 3, schedule(8).id, "crossover")
    db.put(full, schedule(8), program, child, machine)
    assert db.get(Machine, machine.id) == machine
    assert db.get(Measurement, full.id) == full
    assert db.get(Workload, program.id) == program
    assert db.get(ScheduleRecord, child.id) == child


def test_put_takes_any_order_and_counts_what_is_new(place: str) -> None:
    with TuningDatabase(place) as db:
        assert db.put(*reversed(ONE_OF_EACH)) == len(ONE_OF_EACH)
        assert db.put(*ONE_OF_EACH) == 0
        assert db.put(measurement(8, 0.125), measurement(8, 0.25)) == 1
        assert db.put() == 0
        assert len(db.measurements()) == 2


def test_the_first_of_two_records_with_one_id_stays(db: TuningDatabase) -> None:
    renamed = dataclasses.replace(MATMUL, name="mm")
    assert db.put(renamed) == 0
    assert db.get(Workload, MATMUL.id) == MATMUL


def test_more_than_a_batch_goes_in(db: TuningDatabase) -> None:
    many = [measurement(8, 1.0 + n) for n in range(700)]
    assert db.put(schedule(8), *many, many[0]) == 701
    assert db.put(*many) == 0
    assert len(db.measurements(session=SESSION.id)) == 700


@pytest.mark.parametrize(
    "missing", ["session", "schedule", "workload", "target", "toolchain", "environment"]
)
def test_a_reference_to_nothing_is_refused_and_nothing_is_written(
    db: TuningDatabase, missing: str
) -> None:
    lost = dataclasses.replace(measurement(8, 1.0), **{missing: "0" * 64})  # type: ignore[arg-type]
    with refused(DatabaseError, "000000000000", missing):
        db.put(schedule(8), measurement(8, 2.0), lost)
    assert db.records(Measurement) == []
    assert db.records(ScheduleRecord) == []


def test_a_bad_record_among_good_ones_writes_nothing(db: TuningDatabase) -> None:
    bad = dataclasses.replace(measurement(8, 1.0), outcome=Outcome.CRASH)
    with refused(DatabaseError, "crash", "1.0"):
        db.put(schedule(8), measurement(8, 2.0), bad)
    assert db.records(ScheduleRecord) == []


def test_measurements_are_filtered_and_newest_first(db: TuningDatabase) -> None:
    other = dataclasses.replace(SESSION, nonce="4567")
    first = measurement(8, 1.0)
    second = measurement(16, 2.0, target=SAME_CPU, after=1)
    third = measurement(16, None, target=ARM, after=2)
    fourth = dataclasses.replace(measurement(8, 4.0, workload=WIDER, after=3), session=other.id)
    db.put(schedule(8), schedule(16), other, third, first, fourth, second)
    assert db.measurements() == [fourth, third, second, first]
    assert db.measurements(limit=2) == [fourth, third]
    assert db.measurements(workload=MATMUL.id) == [third, second, first]
    assert db.measurements(target=CPU) == [fourth, second, first]
    assert db.measurements(target=SLOW_CPU) == []
    assert db.measurements(session=other.id) == [fourth]
    assert db.measurements(schedule=schedule(16).id) == [third, second]
    assert db.measurements(outcome=Outcome.CRASH) == [third]
    assert db.measurements(workload=MATMUL.id, target=CPU, limit=1) == [second]
    assert db.history(outcome=Outcome.CRASH) == [(third, schedule(16))]
    assert db.trials(SESSION.id) == 2, "one of its two schedules was measured again"


def test_measurements_in_another_order(db: TuningDatabase) -> None:
    db.put(schedule(8), verification(8))
    slow, fast, failed, tied = (
        measurement(8, seconds, after=after)
        for seconds, after in ((0.5, 1), (0.25, 2), (None, 3), (0.25, 4))
    )
    db.put(slow, fast, failed, tied)
    assert db.measurements(order=Order.TIME) == [tied, fast, slow, failed]
    assert db.measurements(order=Order.TIME, limit=2) == [tied, fast]
    assert db.measurements(order=Order.OUTCOME) == [failed, tied, fast, slow]
    assert [m for m, _ in db.history(order=Order.TIME, limit=1)] == [tied]
    with TuningDatabase("sqlite://", layers=[db.location], clock=Clock()) as above:
        if "://" in db.location:
            return  # the location has no password
        fill(above)
        faster = measurement(8, 0.125)
        above.put(schedule(8), faster)
        assert above.measurements(order=Order.TIME, limit=3) == [faster, tied, fast]


def test_measurements_since_a_moment_and_of_some_workloads(db: TuningDatabase) -> None:
    old, new = measurement(8, 1.0), measurement(8, 1.0, after=60, workload=WIDER)
    other = measurement(8, 1.0, after=90, workload=SOFTMAX)
    db.put(schedule(8), old, new, other)
    assert db.measurements(since=NOON + timedelta(seconds=60)) == [other, new]
    elsewhere = timezone(timedelta(hours=-3))
    assert db.measurements(since=(NOON + timedelta(seconds=61)).astimezone(elsewhere)) == [other]
    assert db.measurements(workload=[MATMUL.id, WIDER.id]) == [new, old]
    assert db.measurements(workload=(MATMUL.id,)) == [old]
    assert db.measurements(workload=[]) == []
    with pytest.raises(DatabaseError):
        db.measurements(since=NOON.replace(tzinfo=None))


def test_the_newest_description_of_a_target(db: TuningDatabase) -> None:
    assert db.machine(CPU.id) is None
    newer = dataclasses.replace(MACHINE, odd=(), created=MACHINE.created + timedelta(seconds=1))
    other = dataclasses.replace(newer, target=ARM.id, rates={"clock": 1e9})
    assert db.put(newer, MACHINE, other) == 3
    assert db.put(newer, MACHINE, other) == 0
    assert db.machine(CPU.id) == newer
    assert db.machine(ARM.id) == other
    assert db.machine(SAME_CPU.id) is None, "another target, whose times are comparable"


def test_of_descriptions_of_one_time_the_first_by_id_counts(db: TuningDatabase) -> None:
    twin = dataclasses.replace(MACHINE, odd=())
    db.put(MACHINE, twin)
    assert db.machine(CPU.id) == min(MACHINE, twin, key=lambda m: m.id)


@pytest.mark.parametrize(
    ("rates", "told"),
    [
        ({"": 1.0}, "the name '', expected an identifier of 64 characters at most"),
        ({"\0": 1.0}, "an identifier"),
        ({"\ud800": 1.0}, "an identifier"),
        ({"clock rate": 1.0}, "an identifier"),
        ({"x" * 65: 1.0}, "an identifier"),
        ({f"x{n}": 1.0 for n in range(101)}, "has 101 numbers, expected 100 at most"),
    ],
)
def test_rates_have_plain_names_and_are_few(
    db: TuningDatabase, rates: dict[str, float], told: str
) -> None:
    with pytest.raises(DatabaseError, match=f"machine.rates .*{told}"):
        db.put(CPU, dataclasses.replace(MACHINE, rates=rates))
    assert not db.records(Machine)


def test_a_description_of_nothing_is_refused(db: TuningDatabase) -> None:
    lost = dataclasses.replace(MACHINE, target="0" * 64)
    with refused(DatabaseError, "machine", "target", "000000000000"):
        db.put(MACHINE, lost)
    assert db.records(Machine) == []


def test_the_newest_description_of_all_layers(new_place: Callable[[], str]) -> None:
    team, newer = new_place(), dataclasses.replace(MACHINE, created=MACHINE.created + timedelta(1))
    with TuningDatabase(team) as below:
        below.put(CPU, newer)
    with TuningDatabase(new_place(), layers=[team]) as db:
        assert db.machine(CPU.id) == newer
        newest = dataclasses.replace(newer, created=newer.created + timedelta(1))
        db.put(CPU, MACHINE)
        assert db.machine(CPU.id) == newer
        db.put(newest)
        assert db.machine(CPU.id) == newest


def test_get_of_what_is_not_there(db: TuningDatabase) -> None:
    with pytest.raises(DatabaseError):
        db.get(Measurement, "0" * 64)


def test_find_by_the_first_digits_of_an_id(db: TuningDatabase) -> None:
    assert db.find("aaaa") == MATMUL
    assert db.find(CPU.id) == CPU
    assert db.find(LLVM.id[:12]) == LLVM
    with refused(DatabaseError, "record", "00001111"):
        db.find("00001111")
    with pytest.raises(DatabaseError):
        db.find("aaa")
    with refused(DatabaseError, "%%%%%"):
        db.find("%%%%%")
    db.put(dataclasses.replace(MATMUL, id="a" * 14 + "b" * 50))
    with pytest.raises(DatabaseError):
        db.find("aaaa")


def test_find_of_one_kind(db: TuningDatabase) -> None:
    assert db.find("aaaa", Workload) == MATMUL
    with refused(DatabaseError, "session", "aaaa"):
        db.find("aaaa", Session)
    alike = [dataclasses.replace(MATMUL, id=f"{n:x}".rjust(2, "b") * 32) for n in range(0xE0, 0xE8)]
    db.put(*(dataclasses.replace(w, id="bbbb" + w.id[4:]) for w in alike))
    with pytest.raises(DatabaseError):
        db.find("bbbb", Workload)


def test_two_databases_do_not_see_each_other(new_place: Callable[[], str]) -> None:
    with TuningDatabase(new_place()) as one, TuningDatabase(new_place()) as two:
        one.put(*BASE)
        assert two.records(Session) == []


def test_a_closed_database_opens_again(db: TuningDatabase) -> None:
    db.close()
    assert db.get(Workload, MATMUL.id) == MATMUL


def test_opening_twice_and_with_create_false(place: str) -> None:
    with pytest.raises(DatabaseError, match="no tuning database at|is empty"):
        TuningDatabase(place, create=False)
    TuningDatabase(place).close()
    with TuningDatabase(place, create=False) as db:
        assert db.put(MATMUL) == 1


def test_read_only_reads_and_refuses_to_write(place: str) -> None:
    with pytest.raises(DatabaseError, match="no tuning database at|is empty"):
        TuningDatabase(place, read_only=True)
    with TuningDatabase(place) as db:
        db.put(*ONE_OF_EACH)
    with TuningDatabase(place, read_only=True) as db:
        assert db.get(Workload, MATMUL.id) == MATMUL
        assert db.best(MATMUL.id, CPU) is not None
        writes: list[Callable[[], object]] = [
            lambda: db.put(WIDER),
            lambda: db.pin(MATMUL.id, CPU, schedule(8).id),
            lambda: db.unpin(MATMUL.id, CPU),
            lambda: db.heartbeat(SESSION.id),
            lambda: db.finish_session(SESSION.id),
            lambda: db.resume_session(SESSION.id),
            lambda: db.merge(place),
        ]
        for write in writes:
            with pytest.raises(DatabaseError, match="is open read-only"):
                write()


def test_many_threads_write_and_read_at_once(db: TuningDatabase) -> None:
    db.put(schedule(8), verification(8))
    failures: list[BaseException] = []

    def work(worker: int) -> None:
        try:
            for n in range(10):
                mine = measurement(8, 1.0 + worker + n / 100)
                assert db.put(mine) == 1
                assert db.get(Measurement, mine.id) == mine
                assert db.best(MATMUL.id, CPU) is not None
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(db.measurements(session=SESSION.id)) == 60


def test_checks_and_measurements_that_are_written_at_once_find_each_other(
    db: TuningDatabase,
) -> None:
    db.put(*(schedule(n) for n in range(20)))
    meet = threading.Barrier(2)

    def work(record: Callable[[int], AnyRecord]) -> None:
        for n in range(20):
            meet.wait()
            db.put(record(n))

    halves = (lambda n: measurement(n, 1.0 + n), verification)
    threads = [threading.Thread(target=work, args=(half,)) for half in halves]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {group.reason for group in db.explain(MATMUL, CPU).refused} == {Reason.NOT_CHOSEN}


def test_a_reader_sees_one_state(db: TuningDatabase) -> None:
    with db._layers[0].reading() as connection:
        assert get(connection, Workload, "d" * 64) is None
        db.put(dataclasses.replace(MATMUL, id="d" * 64))
        assert get(connection, Workload, "d" * 64) is None
    assert db.get(Workload, "d" * 64).name == MATMUL.name


def test_records_of_every_kind_are_read(db: TuningDatabase) -> None:
    db.put(*ONE_OF_EACH)
    listed: list[AnyRecord] = [record for kind in KINDS.values() for record in db.records(kind)]
    assert {record.id for record in listed} >= {record.id for record in ONE_OF_EACH}
    assert HOST in listed


def test_a_database_in_memory(clock: Clock) -> None:
    with TuningDatabase("sqlite://", clock=clock) as db:
        db.put(*ONE_OF_EACH)
        assert db.location == "memory"
        assert db.best(MATMUL.id, CPU) is not None


def test_the_password_is_not_shown(new_place: Callable[[], str]) -> None:
    place = new_place()
    with TuningDatabase(place) as db:
        assert "secret" not in repr(db)
    with pytest.raises(DatabaseError) as refused:
        TuningDatabase("postgresql+psycopg://me:secret@127.0.0.1:1/none")
    assert "secret" not in str(refused.value)
    assert "cannot be reached" in str(refused.value) or "psycopg" in str(refused.value)


@pytest.mark.parametrize("number", [-1, -1e-9, float("nan")])
@pytest.mark.parametrize(
    ("method", "arguments", "name"),
    [
        ("measurements", (), "limit"),
        ("history", (), "limit"),
        ("relatives", (MATMUL, CPU), "schedules"),
        ("relatives", (MATMUL, CPU), "workloads"),
        ("others", (MATMUL, CPU, LLVM, "1"), "each"),
        ("others", (MATMUL, CPU, LLVM, "1"), "workloads"),
        ("best", (MATMUL.id, CPU), "tolerance"),
        ("explain", (MATMUL, CPU), "tolerance"),
        ("heartbeat", (SESSION.id,), "elapsed"),
        ("heartbeat", (SESSION.id,), "drift"),
        ("finish_session", (SESSION.id,), "elapsed"),
    ],
)
def test_numbers_that_no_query_or_record_takes(
    db: TuningDatabase, method: str, arguments: tuple[object, ...], name: str, number: float
) -> None:
    fill(db)
    with pytest.raises(DatabaseError, match=rf"{name} is "):
        getattr(db, method)(*arguments, **{name: number})
    assert db.get(Session, SESSION.id) == SESSION


def test_a_path_that_is_no_utf_8(tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff?%.db")
    with TuningDatabase(path) as db:
        db.put(MATMUL)
    with TuningDatabase(path, create=False, read_only=True) as db:
        assert db.get(Workload, MATMUL.id) == MATMUL


def test_a_tally_counts_by_session_and_outcome(db: TuningDatabase) -> None:
    db.put(schedule(8), schedule(16), measurement(8, 2.0), measurement(8, 1.0, after=2))
    db.put(measurement(16, None, after=1))
    same = (SESSION.id, MATMUL.id, CPU.id, LLVM.id)
    assert sorted(db.tally()) == [(*same, Outcome.CRASH, 1, 1), (*same, Outcome.OK, 2, 1)]


def test_a_tally_counts_trials_among_measurements(db: TuningDatabase) -> None:
    """Neither finals nor what was timed again is a trial more; its last outcome counts."""

    def trial(tile: int, seconds: float | None, after: int) -> Measurement:
        return dataclasses.replace(measurement(tile, seconds, after=after), trial=True)

    finals = [
        dataclasses.replace(timed(schedule(tile), 1.0, after=9)[0], trial=False)
        for tile in (8, 16, 32)
    ]
    db.put(schedule(8), schedule(16), schedule(32), *finals)
    db.put(trial(8, 2.0, 0), trial(16, 2.0, 1), trial(16, None, 2), trial(8, 2.5, 3))
    same = (SESSION.id, MATMUL.id, CPU.id, LLVM.id)
    assert sorted(db.tally()) == [(*same, Outcome.CRASH, 1, 1), (*same, Outcome.OK, 6, 1)]
    assert db.trials(SESSION.id) == 2


def test_each_measurement_comes_with_its_generator_the_oldest_first(db: TuningDatabase) -> None:
    many = [measurement(8, 1.0 + n, after=-n) for n in range(1200)]
    db.put(schedule(8), schedule(16), *many, measurement(16, None, after=9))
    found = list(db.each(session=SESSION.id))
    assert [m for m, _ in found] == [*reversed(many), measurement(16, None, after=9)]
    assert {generator for _, generator in found} == {"tiling/random"}
    assert [m for m, _ in db.each(outcome=Outcome.CRASH)] == [measurement(16, None, after=9)]
    assert list(db.each(session="0" * 64)) == []
