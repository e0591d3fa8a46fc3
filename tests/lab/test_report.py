"""The page of a database: what is on it, how large it is, and what a hostile one does to it."""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path

import html5lib
import pytest

import tilewright as tw
from tilewright.base.text import format_bytes
from tilewright.cli.main import main
from tilewright.lab import report as report_module
from tilewright.lab.pictures.arguments import trials_of
from tilewright.lab.pictures.database import view
from tilewright.lab.pictures.session import session_trials
from tilewright.lab.report import report
from tilewright.lab.workbench.records import listed
from tilewright.tuning_db import (
    Measurement,
    Outcome,
    ScheduleRecord,
    Session,
    SessionStatus,
    TuningDatabase,
    Workload,
)

from .checks import checked, words
from .databases import CPU, HOST, HOSTILE, LLVM, NOON, Tuning, tuned


@pytest.fixture
def database(tmp_path: Path) -> TuningDatabase:
    return tuned(tmp_path / "tuning.db")


def shown(page: str) -> str:
    """The text of a page, which is valid and has one script: the one for tables."""
    document = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(page)
    assert len(list(document.iter("script"))) == 1
    assert all(c.isprintable() or c in "\n\t" for c in page)
    return " ".join(" ".join(document.find(".//main").itertext()).split())


def test_a_page_has_the_tables_and_each_program_in_full(database: TuningDatabase) -> None:
    text = shown(report(database, now=NOON))
    (session,) = database.records(Session)
    for expected in (
        f"Tuning database {database.location}, read at 2026-03-01 12:00 (UTC) by Tilewright",
        "9 measurements, of which 6 trials · 1 program · 1 session",
        f"session {session.id[:12]} of 2026-03-01 12:00 (UTC), finished; budget 64 trials, "
        "8 s used",
        "1.11 ms (1.1 to 1.12) · 472 MFLOP/s",
        "7.27x faster than the program as written, "
        "2.00x faster than the untuned build (tw.build without a record)",
        "6 trials (4 ok, 1 crash, 1 build_timeout)",
        "finals: 1.11 ms",
        "Rank correlation 1.00",
        "crash: signal 11 1",
        "Decisions against time: tiling(vector=True)",
        "The fastest schedules",
        "The schedule: 4 steps",
    ):
        assert expected in text


def test_a_page_of_a_session(tmp_path: Path) -> None:
    tuning = Tuning(tmp_path / "tuning.db")
    first, second = tuning.start(), tuning.start()
    tuning.trial(first, 2, 4e-3)
    tuning.trial(second, 4, 2e-3)
    text = shown(report(tuning.database, first, now=NOON))
    assert f"Session {first.id[:12]}" in text
    assert f"The best is of session {second.id[:12]}; this session's: 4 ms." in text
    assert "1 trial (1 ok)" in text


def test_an_empty_session_and_one_of_failures_only(tmp_path: Path) -> None:
    tuning = Tuning(tmp_path / "tuning.db")
    session = tuning.start()
    assert "nothing was measured" in shown(report(tuning.database, session))
    assert "No trial ran to its end." in shown(report(tuning.database, session))
    assert "no measurements" not in shown(report(tuning.database))
    for tile in (2, 4, 8):
        tuning.trial(session, tile, None, "signal 11")
    for page in (report(tuning.database, session), report(tuning.database)):
        assert "no correct candidate" in shown(page)
        assert "crash: signal 11 3" in shown(page)


def test_finals_are_no_trials(database: TuningDatabase) -> None:
    (session,) = database.records(Session)
    trials = session_trials(database, session)
    assert [t.seconds for t in trials.tried] == [8e-3, 4e-3, None, None, 2e-3, 1e-3]
    assert [t.best_seconds for t in trials.tried] == [8e-3, 4e-3, 4e-3, 4e-3, 2e-3, 1e-3]
    assert [t.seconds for t in trials.timed] == [1e-3, 2e-3, 4e-3, 8e-3]
    finals = [c.seconds for c in trials.comparison]
    assert finals == pytest.approx([1.111e-3, 2.222e-3, 8.08e-3])


def test_finals_of_a_session_that_was_beaten(database: TuningDatabase, tmp_path: Path) -> None:
    (session,) = database.records(Session)
    tuning = Tuning(tmp_path / "tuning.db")
    tuning.now = NOON + timedelta(days=1)
    tuning.trial(tuning.start(), 4, 1e-4)
    text = shown(report(tuning.database, session))
    assert "chosen; fastest" in text
    assert "the untuned build 2.00x slower" in text
    assert "The best is of session" in text


def test_a_session_that_was_disturbed_is_named_where_its_best_is(
    database: TuningDatabase, tmp_path: Path
) -> None:
    """In the list of programs, and in the picture of a later session, and of a lookup."""
    (first,) = database.records(Session)
    tuning = Tuning(tmp_path / "tuning.db")
    tuning.now = NOON + timedelta(days=1)
    tuning.trial(later := tuning.start(), 4, 5e-3)
    assert "not calm" not in shown(report(tuning.database))
    noise = f"something else is running {HOSTILE}"
    tuning.database.finish_session(first.id, SessionStatus.FINISHED, noise=noise)
    says = f"Session {first.id[:12]}, which measured it, was not calm: something else is running"
    best = tuning.database.best(tuning.workload.id, CPU, LLVM)
    assert best is not None
    assert str(tuning.database.noise(best)).startswith(says)
    assert "1.11 ms (1.1 to 1.12), not calm" in shown(report(tuning.database))
    assert says in shown(report(tuning.database, later))
    story = tuning.database.explain(tuning.workload, CPU, LLVM)
    assert f"\n  {says}" in str(story)
    assert says in words(checked(view(story)))
    tuning.database.pin(tuning.workload.id, CPU, tuning.schedule(32).id, unverified=True)
    pinned = tuning.database.best(tuning.workload.id, CPU, LLVM)
    assert pinned is not None
    assert tuning.database.noise(pinned) is None, "nothing measured it"


def test_the_schedules_of_a_session_have_their_one_time_and_order(
    database: TuningDatabase,
) -> None:
    """That of finals where there is one, as a lookup and the lab's records have it."""
    (session,) = database.records(Session)
    (workload,) = database.records(Workload)
    best = database.best(workload.id, CPU, LLVM)
    assert best is not None
    page = report(database, session)
    document = html5lib.HTMLParser(namespaceHTMLElements=False).parse(page)
    tables = [t for t in document.iter("table") if "The fastest" in "".join(t.itertext())]
    (rows,) = ([["".join(c.itertext()) for c in r] for r in t.iter("tr")] for t in tables)
    assert [row[1:3] for row in rows] == [
        ["time", "finals: vs the fastest"],
        ["1.11 ms", "chosen; fastest"],
        ["2.22 ms", "2.00x slower, untuned"],
        ["8.08 ms", "7.27x slower, as written"],
        ["4 ms", ""],
    ]
    assert [row[0] for row in rows[1:4]] == [c.schedule[:12] for c in best.comparison]
    assert best.measurement is not None
    assert rows[1][5] == best.measurement.id[:12]
    records = listed(database, workload, tw.Target.parse(CPU.text))
    assert [row[0] for row in rows[1:]] == [record["id"] for record, *_ in records]


def test_a_session_shows_its_finals_though_a_schedule_is_pinned(database: TuningDatabase) -> None:
    (session,) = database.records(Session)
    slow = next(m for m, _ in database.history(session=session.id) if m.seconds == 4e-3)
    database.pin(session.workload, CPU, slow.schedule)
    text = shown(report(database, session))
    assert "finals: 1.11 ms" in text
    assert "chosen; fastest" in text


def many(tuning: Tuning, count: int) -> Session:
    """A session of so many trials, a fifth of which fail."""
    session = tuning.start(trials=None)
    schedules = tuning.schedules(count)
    records = []
    for n in range(count):
        seconds = None if n % 5 == 0 else 1e-3 * (1 + n * 7919 % 1000 / 100)
        records.append(
            Measurement(
                session=session.id,
                schedule=schedules[n].id,
                workload=session.workload,
                target=CPU.id,
                toolchain=LLVM.id,
                environment=HOST.id,
                outcome=Outcome.CRASH if seconds is None else Outcome.OK,
                seconds=seconds,
                samples=() if seconds is None else (seconds,),
                error=f"signal {n % 200}" if seconds is None else None,
                created=NOON + timedelta(milliseconds=20 * n),
                predicted=None if seconds is None else seconds * (1 + n % 7 / 10),
            )
        )
    tuning.database.put(*schedules, *records)
    return session


@pytest.mark.parametrize("count", [3_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_many_measurements_stay_a_page_to_mail(tmp_path: Path, count: int) -> None:
    tuning = Tuning(tmp_path / "tuning.db")
    session = many(tuning, count)
    for page, rows in (
        (report(tuning.database, session), "1,000"),
        (report(tuning.database), "30"),
    ):
        assert len(page.encode()) < 1_000_000
        text = shown(page)
        assert f"{count:,} trials ({count * 4 // 5:,} ok, {count // 5:,} crash)" in text
        assert f"marks stand for {count * 4 // 5:,} trials" in text
        assert f"The fastest schedules: {rows} of {count * 4 // 5:,}" in text


def test_a_sketch_without_decisions_has_no_picture_of_them(tmp_path: Path) -> None:
    tuning = Tuning(tmp_path / "tuning.db")
    session = tuning.start()
    tuning.trial(session, 0, 4e-3)
    assert "Decisions against time" not in shown(report(tuning.database, session))
    tuning.trial(session, 2, 3e-3)
    assert "Decisions against time" not in shown(report(tuning.database, session))
    tuning.trial(session, 4, 2e-3)
    assert "Decisions against time" in shown(report(tuning.database, session))


def test_failures_for_many_reasons_are_summed_up(tmp_path: Path) -> None:
    tuning = Tuning(tmp_path / "tuning.db")
    session = many(tuning, 200)
    assert "other: 28 more reasons 28" in shown(report(tuning.database, session))


def test_failures_have_one_reason_everywhere(tmp_path: Path) -> None:
    """Two that differ after more characters than are shown are two, in the report and live."""
    tuning = Tuning(tmp_path / "tuning.db")
    session = tuning.start()
    for tile, end in ((2, "a"), (4, "b"), (8, "b")):
        tuning.trial(session, tile, None, f"{'x' * 300}{end}\nits stack")
    (picture,) = tw.open_run(tuning.database).pictures.pictures.values()
    trials = session_trials(tuning.database, session)
    expected = [f"{'x' * 300}{end}" for end in "abb"]
    assert [t.reason for t in picture.trials] == [t.reason for t in trials.tried] == expected
    page = shown(report(tuning.database, session))
    assert page.count("crash: xxx") == 2
    assert "x" * 300 not in page


def test_a_resumed_session_has_one_count_and_one_clock(tmp_path: Path) -> None:
    """The report, plots and `open_run` leave out what was measured again, and the time between."""
    tuning = Tuning(tmp_path / "tuning.db")
    session = tuning.start(trials=2)
    tuning.trial(session, 2, 4e-3)
    tuning.database.finish_session(session.id, SessionStatus.INTERRUPTED)
    tuning.now += timedelta(days=1)
    tuning.database.resume_session(session.id)
    tuning.trial(session, 2, 3e-3)
    tuning.trial(session, 4, 2e-3)
    tuning.trial(session, 8, 1e-3)  # the budget does not pay for it
    tuning.end(session)
    (picture,) = tw.open_run(tuning.database).pictures.pictures.values()
    assert [(t.elapsed, t.seconds) for t in picture.trials] == [(1.0, 4e-3), (3.0, 2e-3)]
    assert trials_of(tuning.database) == picture.trials
    assert picture.elapsed == 5.0
    text = shown(report(tuning.database, tuning.database.get(Session, session.id), now=NOON))
    assert "2 trials (2 ok)" in text
    assert "budget 2 trials, 5 s used" in text


def test_programs_beyond_the_limit_are_left_to_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuning = Tuning(tmp_path / "tuning.db")
    for n in range(3):
        workload = Workload(str(n) * 64, f"program{n}", "", "", 0, 0)
        tuning.database.put(workload)
        tuning.trial(tuning.start(workload), 2, 1e-3)
    monkeypatch.setattr(report_module, "LIMIT", 1)
    text = shown(report(tuning.database))
    assert "2 more programs are not shown in full" in text
    assert f"tilewright report {tuning.database.location} --session ID" in text
    assert "program2" in text
    monkeypatch.setattr(report_module, "_PROGRAMS", 2)
    assert "Programs: 2 of 3" in shown(report(tuning.database))


def test_a_hostile_database_is_only_text(tmp_path: Path) -> None:
    tuning = Tuning(tmp_path / "tuning.db")
    workload = Workload("a" * 64, HOSTILE, HOSTILE, HOSTILE, 1, 1)
    bad = ScheduleRecord(json.dumps({"version": HOSTILE}), 1, HOSTILE, "")
    tuning.database.put(workload, bad)
    session = tuning.start(workload)
    tuning.trial(session, 2, None, HOSTILE)
    tuning.trial(session, 4, 1e-3)
    for page in (report(tuning.database), report(tuning.database, session)):
        assert "<script>document.title = 'run'" in shown(page)
        assert "script-src &#39;sha256-" in page


def test_damaged_rows_are_left_out(
    database: TuningDatabase, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (session,) = database.records(Session)
    with database._layers[0].writing() as connection:
        connection.exec_driver_sql("UPDATE measurement SET seconds = 1e-9 WHERE seconds = 0.002")
        connection.exec_driver_sql("UPDATE workload SET name = ?", (HOSTILE * 100_000,))
    text = shown(report(database, session))
    assert f"program {session.workload[:12]}" in text
    assert "5 trials (3 ok" in text
    assert "is damaged" in caplog.text or "damaged records" in caplog.text
    shown(report(database))


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["tilewright", "report", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_the_command_writes_a_page_and_replaces_it(
    database: TuningDatabase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "page.html"
    (session,) = database.records(Session)
    assert run(monkeypatch, database.location, "-o", out) == 0
    assert capfd.readouterr().err == f"{out}: {format_bytes(out.stat().st_size)}\n"
    assert "Tuning database" in shown(out.read_text())
    assert run(monkeypatch, database.location, "-o", out, "--session", session.id[:6]) == 0
    assert f"Session {session.id[:12]}" in shown(out.read_text())
    capfd.readouterr()
    assert run(monkeypatch, database.location, "-o", "-") == 0
    assert "Tuning database" in shown(capfd.readouterr().out)
    assert {p.name for p in tmp_path.iterdir()} <= {"page.html"} | {
        f"tuning.db{end}" for end in ("", "-wal", "-shm")
    }


def test_the_command_replaces_no_other_file(
    database: TuningDatabase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for place in (database.location, tmp_path):
        assert run(monkeypatch, database.location, "-o", place) == 1
        error = capfd.readouterr().err
        assert f"{place} is there, and is no page: it is not replaced" in error
        assert "hint: name another file" in error
    assert database.measurements()
    assert run(monkeypatch, database.location, "-o", tmp_path / "none" / "page.html") == 1
    assert "cannot write" in capfd.readouterr().err
    assert run(monkeypatch, tmp_path / "none.db") == 1
    assert not (tmp_path / "none.db").exists()
