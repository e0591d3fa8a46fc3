"""The pictures of what the upkeep of a database returns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from tilewright.lab.pictures.views import view_of
from tilewright.tuning_db import Measurement, ScheduleRecord, TuningDatabase, Workload

from .checks import checked, words
from .databases import HOSTILE, tuned


@pytest.fixture
def database(tmp_path: Path) -> TuningDatabase:
    return tuned(tmp_path / "tuning.db")


def shown(value: Any) -> str:
    assert value._repr_html_().startswith('<div class="tw">')
    return " ".join(" ".join(checked(view_of(value)).itertext()).split())


def test_records_that_differ(database: TuningDatabase) -> None:
    first, second, *_ = database.records(Measurement)
    text = shown(database.diff(first.id, second.id))
    diff = database.diff(first.id, second.id)
    assert f"measurements {first.id[:12]} and {second.id[:12]}" in text
    assert f"{len(diff.fields)} fields differ" in text
    assert all(name in text for name in diff.fields)
    assert "the same" in shown(database.diff(first.id, first.id))


def test_schedules_and_programs_differ_by_lines(database: TuningDatabase) -> None:
    schedules = [s for s in database.records(ScheduleRecord) if '"decision":[' in s.trace]
    first = next(s for s in schedules if '"decision":[8]' in s.trace)
    second = next(s for s in schedules if '"decision":[16]' in s.trace)
    main = checked(view_of(database.diff(first.id, second.id)))
    (old,), (new,) = ([words(e) for e in main.iter(tag)] for tag in ("del", "ins"))
    assert "decision=[8]" in old.replace(" ", "")
    assert "decision=[16]" in new.replace(" ", "")
    times = "Times: 1.11 ms (1.1 to 1.12) and 2.22 ms (2.2 to 2.24): 2.00x slower"
    assert f"{times} than the first, interleaved in 9 rounds." in words(main)
    (workload,) = database.records(Workload)
    other = replace(workload, id="ab" * 32, ir=workload.ir.replace("64", "32"), name=HOSTILE)
    database.put(other)
    main = checked(view_of(database.diff(workload.id, other.id)))
    assert any("32" in words(e) for e in main.iter("ins"))
    broken = ScheduleRecord('{"version":1,"steps":[{"op":"none","args":{}}]}', 1)
    database.put(broken)
    assert "it cannot be read" in shown(database.diff(first.id, broken.id))


def test_databases_that_differ(database: TuningDatabase, tmp_path: Path) -> None:
    with tw.TuningDatabase(tmp_path / "other.db") as other:
        text = shown(database.compare(other))
        assert database.location in text
        assert "measurement 9" in text
        measured = sorted(m.id for m in database.records(Measurement))
        assert f"{measured[0][:12]}, {measured[1][:12]}, {measured[2][:12]}, …" in text
    assert "the same records" in shown(database.compare(database))


def test_removals(tmp_path: Path) -> None:
    unused = ScheduleRecord('{"version":1,"steps":[]}', 1)
    with TuningDatabase(tmp_path / "unused.db") as database:
        database.put(unused)
        planned, done = database.prune(dry_run=True), database.prune()
    text = shown(planned)
    assert "to be deleted: 1 schedule" in text
    assert f"nothing refers to it schedule 1 {unused.id[:12]}" in text
    assert text.count("To be deleted") == 1
    assert "\x1b" not in shown(replace(planned, location=HOSTILE))
    assert "deleted: 1 schedule" in shown(done)
    with TuningDatabase(tmp_path / "empty.db") as empty:
        assert "nothing to delete" in shown(empty.prune(dry_run=True))
