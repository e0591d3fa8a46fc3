"""The commands that keep a database in order, as a user calls them."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tilewright.cli.main import main as command_line
from tilewright.tuning_db import ScheduleRecord, TuningDatabase, Workload

from .table_records import fill
from .tuning_db.samples import ARM, CPU, delete

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TuningDatabase:
    monkeypatch.chdir(tmp_path)
    return fill(tmp_path / "tuning.db")


@pytest.fixture
def run(
    db: TuningDatabase, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Run:
    """Run a command on the database; return its status, what it prints, and its errors."""

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["tilewright", "db", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            command_line()
        return int(ended.value.code or 0), *capfd.readouterr()

    return run


def test_prune_says_what_it_would_and_then_does(db: TuningDatabase, run: Run) -> None:
    out = run("prune")[1]
    assert "a session that ended and measured nothing" in out
    assert "Nothing was deleted. `--yes` deletes these." in out
    done = json.loads(run("prune", "--yes", "--json")[1])
    assert (done["database"], done["done"]) == (db.location, True)
    assert done["reasons"].keys() == {"a session that ended and measured nothing"}
    assert run("prune")[1] == "there is nothing to delete in tuning.db\n"


def test_pin(db: TuningDatabase, run: Run) -> None:
    _, other, *_ = db.measurements(workload="1" * 64)
    code, out, _ = run("pin", other.id[:8])
    assert code == 0
    assert out.startswith(f"pinned: schedule {other.schedule[:12]} for conv2d X:float32[1,64,")
    best = db.best(other.workload, CPU)
    assert best is not None
    assert (best.pinned, best.schedule.id) == (True, other.schedule)
    again = json.loads(run("pin", other.schedule[:12], "--json")[1])
    assert [(p["schedule"], p["replaced"]) for p in again] == [(other.schedule, other.schedule)]
    assert again[0]["price"] in out.replace("\n", " ")
    marked = [m for m in json.loads(run("list", "--json")[1]) if m["pinned"]]
    assert {m["schedule"] for m in marked} == {other.schedule}
    rows = [line for line in run("list")[1].splitlines() if ", pinned" in line]
    assert [row.split()[0] for row in rows] == [m["id"][:12] for m in marked]


def test_what_nobody_checked_is_not_pinned(db: TuningDatabase, run: Run) -> None:
    measured = db.measurements(workload="1" * 64)[0]
    delete(db, *(c.id for c in db.verifications(measured.workload, CPU, measured.schedule)))
    code, _, err = run("pin", measured.id)
    assert code == 1
    assert "is not verified for conv2d" in err


def test_what_cannot_be_pinned(db: TuningDatabase, run: Run) -> None:
    measured = db.measurements(workload="1" * 64)[0]
    unmeasured = ScheduleRecord('{"version":1,"steps":[]}', 1)
    elsewhere = db.get(Workload, "2" * 64)
    twice = dataclasses.replace(measured, workload=elsewhere.id)
    db.put(unmeasured, twice, ARM)
    for id, told in (
        (unmeasured.id, f"schedule {unmeasured.id[:12]} was not measured"),
        (measured.workload, "workload 111111111111 cannot be pinned: expected a measurement or"),
        (measured.schedule, "was measured of more than one program or target"),
    ):
        code, out, err = run("pin", id)
        assert (code, out) == (1, "")
        assert told in err
    hint = run("pin", measured.schedule)[2].partition("name a measurement: ")[2]
    assert set(hint.strip().split(", ")) == {measured.id[:12], twice.id[:12]}


def test_diff_of_databases(db: TuningDatabase, run: Run) -> None:
    with TuningDatabase("other.db") as other:
        other.merge(db)
        assert run("diff", "tuning.db", "other.db")[1].endswith("have the same records\n")
        measured = db.measurements(workload="1" * 64)
        db.pin("1" * 64, CPU, measured[0].schedule)
        other.pin("1" * 64, CPU, measured[1].schedule)
        gone = other.measurements()[0].id
        delete(other, gone)
    code, out, _ = run("diff", "tuning.db", "other.db")
    assert code == 0
    assert gone[:12] in out
    assert "pins of different schedules: " in out
    plain = json.loads(run("diff", "tuning.db", "other.db", "--json")[1])
    assert plain["only_first"] == {"measurement": [gone]}
    code, _, err = run("diff", "tuning.db", "missing.db")
    assert (code, "is no id: expected at least 4 hexadecimal digits" in err) == (1, True)


def test_diff_of_records(db: TuningDatabase, run: Run) -> None:
    one, two, *_ = db.measurements()
    assert "they are the same" in run("diff", one.id, one.id)[1]
    assert "their steps are the same" in run("diff", one.schedule, one.schedule)[1]
    assert "schedules " in run("diff", one.schedule, two.schedule)[1]
    plain = json.loads(run("diff", one.id, two.id, "--json")[1])
    assert plain["fields"]["schedule"] == [one.schedule, two.schedule]
    code, _, err = run("diff", one.id, one.schedule)
    assert code == 1
    assert "are of different kinds" in err


@pytest.mark.parametrize("words", ["prune --yes", "pin abcd"])
def test_a_locked_database(db: TuningDatabase, run: Run, words: str) -> None:
    with closing(sqlite3.connect(db.location)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        code, out, err = run(*words.split(), "--db", f"sqlite:///{db.location}?timeout=0.1")
    if words.startswith("pin"):
        assert "there is no record abcd" in err, "it is read before it is written"
    else:
        assert "is locked: another process is writing" in err
    assert (code, out) == (1, "")
