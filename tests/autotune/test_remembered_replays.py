"""Which schedules apply to the programs of their records: the remembered answers are the same."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tilewright import ops
from tilewright.autotune.records import workload_record
from tilewright.autotune.search import remembered_replays
from tilewright.autotune.search.remembered_replays import KIND, RememberedReplays, replays_of
from tilewright.codegen.disk_cache import LOCATION
from tilewright.tuning_db.values import ScheduleRecord, Workload

from ..hosts import processor
from ..measured import put_measured

WORKLOAD = workload_record(ops.add_relu_func(64))
FITS = ScheduleRecord('{"version":1,"steps":[]}', 1, "")
UNFIT = ScheduleRecord('{"version":1,"steps":[{"op":"explode","args":{}}]}', 1, "")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(LOCATION, str(tmp_path))
    return tmp_path / f"{KIND}s"


@pytest.fixture
def decided(monkeypatch: pytest.MonkeyPatch) -> list[Workload]:
    """The programs for which replays were made."""
    asked: list[Workload] = []

    def counted(workload: Workload) -> object:
        asked.append(workload)
        return replays_of(workload)

    monkeypatch.setattr(remembered_replays, "replays_of", counted)
    return asked


def test_an_answer_is_remembered(folder: Path, decided: list[Workload]) -> None:
    for _ in range(2):
        applies = RememberedReplays(WORKLOAD)
        assert applies(FITS) is None
        reason = applies(UNFIT)
        assert reason is not None
        assert "'explode'" in reason
    assert decided == [WORKLOAD]
    assert len(list(folder.iterdir())) == 2


def test_an_answer_is_of_one_program_and_one_schedule(
    folder: Path, decided: list[Workload]
) -> None:
    RememberedReplays(WORKLOAD)(FITS)
    other = workload_record(ops.add_relu_func(65))
    RememberedReplays(other)(FITS)
    RememberedReplays(WORKLOAD)(replace(FITS, inexact="winograd"))
    assert decided == [WORKLOAD, other, WORKLOAD]
    assert len(list(folder.iterdir())) == 3


def test_it_is_decided_anew_where_nothing_is_remembered(
    monkeypatch: pytest.MonkeyPatch, decided: list[Workload]
) -> None:
    monkeypatch.setenv(LOCATION, "")
    for _ in range(2):
        assert RememberedReplays(WORKLOAD)(FITS) is None
    assert decided == [WORKLOAD, WORKLOAD]


def test_a_damaged_answer_is_decided_anew(
    folder: Path, decided: list[Workload], caplog: pytest.LogCaptureFixture
) -> None:
    assert RememberedReplays(WORKLOAD)(UNFIT)
    (entry,) = folder.iterdir()
    entry.write_bytes(entry.read_bytes().replace(b"explode", b"exploit"))
    with caplog.at_level(logging.WARNING):
        assert "'explode'" in (RememberedReplays(WORKLOAD)(UNFIT) or "")
    assert "malformed" in caplog.text
    assert decided == [WORKLOAD, WORKLOAD]


def test_a_program_that_cannot_be_read_refuses_nothing(folder: Path) -> None:
    """As for builds: no build of that program looks it up."""
    assert RememberedReplays(replace(WORKLOAD, ir="def"))(UNFIT) is None
    assert len(list(folder.iterdir())) == 1


def test_a_false_answer_changes_nothing_that_is_built(
    folder: Path, decided: list[Workload], caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever writes the folder tells `db best` what it lists; a build decides for itself."""
    func, target = ops.add_relu_func(64), processor("cpu -threads=1")
    other = tw.Schedule(ops.softmax_func(6, 40))
    other.parallel(other.get_loops(other.get_block("Y"))[0])
    trace = other.trace.to_json()
    with tw.TuningDatabase("sqlite://") as database:
        put_measured(database, func, target, trace, 1e-9)
        (lie,) = database.records(ScheduleRecord)
        remembered_replays._shared(folder).put(remembered_replays._name(WORKLOAD, lie), b"")
        assert RememberedReplays(WORKLOAD)(lie) is None
        assert decided == []
        with pytest.raises(tw.NotTunedError, match="does not apply"):
            tw.build(func, target, database, allow=["record"])
        module = tw.build(func, target, database)
    a, b, found = (np.linspace(k, -1, 64, dtype="f4") for k in (1, 2, 0))
    module(a, b, found)
    np.testing.assert_array_equal(found, np.maximum(a + b, 0))
