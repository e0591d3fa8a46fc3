"""Two databases get what they lack of each other, in portions, whatever interrupts it."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from pathlib import Path

import pytest

from tilewright.base.errors import DatabaseError
from tilewright.tuning_db import Session, SessionStatus, TuningDatabase, Workload, sync
from tilewright.tuning_db.write import write

from .conftest import Place
from .samples import (
    BASE,
    CPU,
    MATMUL,
    ONE_OF_EACH,
    SESSION,
    SOFTMAX,
    WIDER,
    delete,
    measurement,
    schedule,
    verification,
    verified,
)
from .test_transfer import dump


def test_both_get_what_they_lack(new_place: Place, tmp_path: Path) -> None:
    with TuningDatabase(tmp_path / "mine.db") as mine, TuningDatabase(new_place()) as team:
        mine.put(*ONE_OF_EACH)
        team.put(*BASE, WIDER, *verified(8, 3.0, workload=WIDER), schedule(16), verification(16))
        team.put(measurement(16, 0.5))
        found = mine.sync(team)
        assert (found.received["workload"], found.received["measurement"]) == (1, 2)
        assert (found.sent["machine"], found.sent["measurement"], found.sent["pin"]) == (1, 1, 1)
        assert dump(mine) == dump(team)
        for one, other in ((mine, team), (team, mine)):
            assert not any(one.sync(other).received.values())
            assert not any(one.sync(other).sent.values())
        for db in (mine, team):
            best = db.best(MATMUL.id, CPU, pins=False)
            assert best is not None
            assert best.seconds == 0.125


def test_of_two_states_the_later_stays(new_place: Place, tmp_path: Path) -> None:
    later = dataclasses.replace(
        SESSION, heartbeat=SESSION.heartbeat + timedelta(seconds=9), status=SessionStatus.FINISHED
    )
    named = dataclasses.replace(MATMUL, family="f" * 64)
    with TuningDatabase(tmp_path / "mine.db") as mine, TuningDatabase(new_place()) as team:
        mine.put(*BASE)
        team.put(*BASE[1:-1], named, later)
        assert mine.sync(team).received["session"] == 1
        for db in (mine, team):
            assert db.get(Session, SESSION.id).status is SessionStatus.FINISHED
            assert db.get(Workload, MATMUL.id).family == named.family
        assert not any(mine.sync(team).received.values())


def test_pins_stay_where_they_differ(new_place: Place, tmp_path: Path) -> None:
    with TuningDatabase(tmp_path / "mine.db") as mine, TuningDatabase(new_place()) as team:
        for db, tile in ((mine, 8), (team, 16)):
            db.put(*BASE, *verified(8, 1.0), *verified(16, 2.0))
            db.pin(MATMUL.id, CPU, schedule(tile).id)
        mine.sync(team)
        pins = [db.pinned(MATMUL.id, CPU) for db in (mine, team)]
        assert [pin and pin.schedule for pin in pins] == [schedule(8).id, schedule(16).id]


def test_what_was_interrupted_goes_on(
    new_place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync, "PORTION", 3)
    with TuningDatabase(tmp_path / "mine.db") as mine, TuningDatabase(new_place()) as team:
        mine.put(*BASE, *(record for n in range(10) for record in verified(n + 1, 1.0)))
        portions = []

        def interrupted(*arguments: object, **options: object) -> dict[str, int]:
            portions.append(arguments)
            if len(portions) == 8:
                raise KeyboardInterrupt
            return write(*arguments, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(sync, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            mine.sync(team)
        arrived = sum(team.counts().values())
        assert 0 < arrived < sum(mine.counts().values())
        sent = sum(mine.sync(team).sent.values())
        assert arrived + sent == sum(mine.counts().values())
        assert dump(mine) == dump(team)


def test_what_is_refused_holds_back_no_other(new_place: Place, tmp_path: Path) -> None:
    with TuningDatabase(tmp_path / "mine.db") as mine, TuningDatabase(new_place()) as team:
        mine.put(*BASE, *(record for n in range(10) for record in verified(n + 1, 1.0 + n)))
        damaged, missing = schedule(3).id, measurement(3, 3.0).id
        with mine._layers[0].writing() as connection:
            connection.exec_driver_sql("UPDATE schedule SET trace = '[]' WHERE id = ?", (damaged,))
        team.put(*BASE, SOFTMAX)
        with pytest.raises(DatabaseError) as caught:
            mine.sync(team)
        refused = {damaged, missing, verification(3).id}
        assert set(caught.value.data["refused"]) == refused
        assert sum(mine.counts().values()) - sum(team.counts().values()) == len(refused)
        assert mine.get(Workload, SOFTMAX.id) == SOFTMAX


@pytest.mark.parametrize("damaged", ["mine", "team"])
def test_a_session_with_a_damaged_time_holds_back_no_other(damaged: str, tmp_path: Path) -> None:
    paths = {name: tmp_path / f"{name}.db" for name in ("mine", "team")}
    with TuningDatabase(paths["mine"]) as mine, TuningDatabase(paths["team"]) as team:
        mine.put(*BASE, *verified(8, 1.0))
        team.put(*BASE)
        with {"mine": mine, "team": team}[damaged]._layers[0].writing() as connection:
            connection.exec_driver_sql("UPDATE session SET heartbeat = '2026-99-99'")
        with pytest.raises(DatabaseError) as caught:
            mine.sync(team)
        assert caught.value.data["record"] == SESSION.id
        assert team.measurements() == [measurement(8, 1.0)]


def test_a_damaged_record_is_refused_by_name(new_place: Place, tmp_path: Path) -> None:
    with TuningDatabase(tmp_path / "mine.db") as mine, TuningDatabase(new_place()) as team:
        mine.put(*BASE, *verified(8, 1.0))
        with mine._layers[0].writing() as connection:
            connection.exec_driver_sql("UPDATE measurement SET seconds = 2.0")
        with pytest.raises(DatabaseError) as caught:
            mine.sync(team)
        assert caught.value.data["record"] == measurement(8, 1.0).id
        delete(mine, measurement(8, 1.0).id)
        mine.sync(team)
        assert team.measurements() == []
