"""Databases as data frames."""

from __future__ import annotations

import sys

import pytest

from tilewright.base.errors import DatabaseError
from tilewright.tuning_db import TuningDatabase

from ..refusals import refused
from .samples import (
    CPU,
    MATMUL,
    NOON,
    ONE_OF_EACH,
    SESSION,
    SLOW_CPU,
    measurement,
    schedule,
    verification,
)


def test_trials_sessions_and_best(db: TuningDatabase) -> None:
    pytest.importorskip("pandas", reason="pandas is of the extra `plot`")
    fast, failed = measurement(8, 1.0), measurement(16, None, target=SLOW_CPU)
    db.put(schedule(8), schedule(16), verification(8), fast, failed)
    trials = db.to_pandas()
    assert trials.index.name == "id"
    assert set(trials.index) == {fast.id, failed.id}
    assert trials.loc[fast.id, "created"] == fast.created
    assert str(trials.dtypes["created"]).endswith(", UTC]")
    kinds = {name: str(trials.dtypes[name]) for name in ("outcome", "seconds", "verified", "error")}
    assert kinds == {
        "outcome": "category",
        "seconds": "float64",
        "verified": "bool",
        "error": "string",
    }
    assert trials.groupby("target", observed=True)["seconds"].min()[CPU.text] == 1.0
    assert trials.loc[failed.id, "error"] == "signal 11"
    sessions = db.to_pandas("sessions")
    assert sessions[["trials", "failures"]].to_numpy().tolist() == [[2, 1]]
    assert sessions.loc[SESSION.id, "started"] == NOON
    best = db.to_pandas("best")
    assert best.index.tolist() == [fast.id]
    assert best["gflops"].tolist() == [pytest.approx(MATMUL.flops / 1e9)]


@pytest.mark.parametrize("view", ["trials", "sessions", "best"])
def test_an_empty_database_has_the_columns(place: str, view: str) -> None:
    pytest.importorskip("pandas", reason="pandas is of the extra `plot`")
    with TuningDatabase(place) as db:
        empty = db.to_pandas(view)
        db.put(*ONE_OF_EACH)
        full = db.to_pandas(view)
    assert (len(empty), len(full)) == (0, 1)
    assert list(empty.columns) == list(full.columns)


def test_values_that_do_not_belong_there(db: TuningDatabase) -> None:
    pytest.importorskip("pandas", reason="pandas is of the extra `plot`")
    if "://" in db.location:
        pytest.skip("PostgreSQL's columns take no such value")
    db.put(*ONE_OF_EACH)
    for value in ("seconds = 'fast'", "created = 'soon'"):
        with db._layers[0].writing() as connection:
            connection.exec_driver_sql(f"UPDATE measurement SET {value}")
        with pytest.raises(DatabaseError):
            db.to_pandas()


def test_what_is_missing_is_named(db: TuningDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    with refused(DatabaseError, "best trials"):
        db.to_pandas("best trials")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(DatabaseError):
        db.to_pandas()
