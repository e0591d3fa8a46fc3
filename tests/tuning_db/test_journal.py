"""A server that gets out of reach in mid-session: nothing measured is lost, nothing is doubled."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

import pytest
from sqlalchemy import Connection, text

import tilewright as tw
from tilewright import ops
from tilewright.autotune.session import tuning_job
from tilewright.autotune.session.events import Event, Trial
from tilewright.base.errors import DatabaseError
from tilewright.cli.main import main as command_line
from tilewright.tuning_db import (
    AnyRecord,
    Measurement,
    ScheduleRecord,
    Session,
    SessionStatus,
    TuningDatabase,
)
from tilewright.tuning_db.journal import (
    STATE,
    JournalledDatabase,
    deliver_waiting,
    journalled,
    waiting,
)
from tilewright.tuning_db.write import write

from ..autotune.children import QUICK
from ..autotune.recorded import Simulated
from .conftest import Place
from .proxy import Proxy
from .samples import BASE, CPU, LLVM, MATMUL, SESSION, measurement, schedule, verified

NO_SCHEDULE = f"ADD CONSTRAINT odd CHECK (id <> '{schedule(8).id}')"

pytestmark = pytest.mark.parametrize("new_place", ["postgresql"], indirect=True)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(STATE, str(tmp_path / "state"))
    monkeypatch.setattr("tilewright.tuning_db.journal.PAUSES", (0.0, 0.0))
    return tmp_path / "state"


@pytest.fixture
def team(place: str) -> Iterator[TuningDatabase]:
    """The database itself, whatever is between it and a session."""
    with TuningDatabase(place) as opened:
        yield opened


@pytest.fixture
def proxy(team: TuningDatabase, place: str, tmp_path: Path) -> Iterator[Proxy]:
    folder = tmp_path / "p"
    folder.mkdir()
    with Proxy(place, folder) as between:
        yield between


def journals(state: Path) -> list[str]:
    return [path.name for path in state.rglob("*") if path.is_file()]


def arrived(team: TuningDatabase) -> set[str]:
    return {m.id for m in team.measurements()}


def test_what_is_measured_meanwhile_arrives_once(
    team: TuningDatabase, proxy: Proxy, state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with TuningDatabase(proxy.url) as far, journalled(far) as db:
        assert isinstance(db, JournalledDatabase)
        db.put(*BASE, *verified(8, 1.0))
        session = db.start_session(
            MATMUL.id, CPU.id, trials=9, seconds=None, seed=0, search={}, model={}
        )
        assert len(arrived(team)) == 1
        proxy.cut()
        for n in range(5):
            db.put(schedule(9 + n), measurement(9 + n, 0.5 - n / 100))
            db.heartbeat(session.id)
            best = db.best(MATMUL.id, CPU, LLVM)
            assert best is not None
            assert best.schedule.id == schedule(8).id
            assert (db.unreachable, db.waits) == (True, True)
        assert db.put(schedule(9)) == 0
        assert len(db.measurements(session=SESSION.id)) == 6
        assert len(arrived(team)) == 1
        proxy.join()
        db.put(schedule(7), measurement(7, 0.4))
        assert (db.unreachable, db.waits) == (False, False)
        assert len(arrived(team)) == 7
        db.finish_session(session.id)
    assert team.get(Session, session.id).status is SessionStatus.FINISHED
    assert len(team.records(Measurement)) == 7
    assert journals(state) == []
    assert "is there again" in caplog.text


def test_what_never_arrived_waits_for_the_next_session(
    team: TuningDatabase, proxy: Proxy, state: Path
) -> None:
    with TuningDatabase(proxy.url) as far:
        with journalled(far) as db:
            db.put(*BASE)
            proxy.cut()
            db.put(*verified(8, 1.0))
        assert len(waiting(far)) == 1
        assert arrived(team) == set()
        proxy.join()
        with journalled(far) as db:
            assert arrived(team) == {measurement(8, 1.0).id}
            assert db.best(MATMUL.id, CPU, LLVM) is not None
        assert sum(deliver_waiting(far).values()) == 0
    assert journals(state) == []


KILLED = """
import sys
from tests.tuning_db.samples import *
from tilewright.tuning_db import TuningDatabase
from tilewright.tuning_db.journal import journalled
with TuningDatabase(sys.argv[1]) as far, journalled(far) as db:
    db.put(*BASE, schedule(8))
    print("there", flush=True)
    for n, _ in enumerate(sys.stdin):
        db.put(measurement(8, 1.0 + n))
        print(measurement(8, 1.0 + n).id, flush=True)
"""


def test_a_session_killed_while_the_server_is_away(
    team: TuningDatabase,
    proxy: Proxy,
    root: Path,
    place: str,
    state: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, proxy.url],
        cwd=root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "there\n"
        proxy.cut()
        child.stdin.write("\n" * 5)
        child.stdin.flush()
        said = {child.stdout.readline().strip() for _ in range(5)}
        assert len(said) == 5
        with TuningDatabase(place) as near:
            assert sum(deliver_waiting(near).values()) == 0, "it is another place, and at work"
        child.kill()
    assert arrived(team) == set()
    proxy.join()
    monkeypatch.setattr(sys, "argv", ["tilewright", "db", "sync", proxy.url])
    with pytest.raises(SystemExit) as ended:
        command_line()
    assert not ended.value.code
    assert capsys.readouterr().out == "new: 5 measurements\n"
    assert arrived(team) == said
    assert journals(state) == []


def test_what_the_server_refuses_later_waits_too(
    team: TuningDatabase, place: str, state: Path
) -> None:
    """It is read-only, as one of which another has taken the place; nothing measured is lost."""
    with TuningDatabase(place) as opened, journalled(opened) as db:
        assert isinstance(db, JournalledDatabase)
        db.put(*BASE, *verified(8, 1.0))
        with read_only(team):
            opened.close()  # new connections have it
            db.put(measurement(8, 2.0))
            assert (db.unreachable, db.waits) == (False, True)
        opened.close()
        db.put(measurement(8, 3.0))
        assert (db.unreachable, db.waits) == (False, False)
    assert len(arrived(team)) == 3


def test_a_refused_record_holds_back_no_other(
    team: TuningDatabase, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It stays in the journal, and arrives when the server takes it."""
    with TuningDatabase(place) as opened:
        with journalled(opened) as db:
            db.put(*BASE, *verified(8, 1.0))
            run(team, "ALTER TABLE measurement ADD CONSTRAINT odd CHECK (seconds <> 2)")
            db.put(measurement(8, 2.0))
            db.put(measurement(8, 3.0))
            assert isinstance(db, JournalledDatabase)
            assert (db.unreachable, db.waits) == (False, False)
            assert arrived(team) == {measurement(8, 1.0).id, measurement(8, 3.0).id}
        assert len(waiting(opened)) == 1
        assert str(waiting(opened)[0]) in caplog.text
        run(team, "ALTER TABLE measurement DROP CONSTRAINT odd")
        assert sum(deliver_waiting(opened).values()) == 1
    assert len(arrived(team)) == 3


@pytest.mark.parametrize(
    "odd", ["measurement ADD CONSTRAINT odd CHECK (seconds > 3)", f"schedule {NO_SCHEDULE}"]
)
def test_what_is_refused_is_not_sent_with_each_put(
    odd: str, team: TuningDatabase, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write sends what is new, however long the journal is."""
    sent: list[int] = []

    def counted(server: Connection, records: Sequence[AnyRecord], repin: bool) -> dict[str, int]:
        sent[-1] += len(records)
        return write(server, records, repin)

    monkeypatch.setattr("tilewright.tuning_db.journal.write", counted)
    with TuningDatabase(place) as opened, journalled(opened) as db:
        sent.append(0)
        db.put(*BASE, schedule(7), measurement(7, 4.0))
        run(team, f"ALTER TABLE {odd}")
        sent.append(0)
        db.put(schedule(8), schedule(9), measurement(8, 1.0))
        for n in range(4):  # a reference that is missing is looked for at the first
            sent.append(0)
            db.put(schedule(10 + n), measurement(8, 2.0 + n / 4))
        assert sent[3:] == [4] * 3  # together, then each alone
    assert arrived(team) == {measurement(7, 4.0).id}
    assert schedule(13).id in {s.id for s in team.records(ScheduleRecord)}


def test_a_refused_record_does_not_hinder_a_repair(team: TuningDatabase, place: str) -> None:
    """What was deleted on the server is sent again without what it refused before."""
    with TuningDatabase(place) as opened, journalled(opened) as db:
        db.put(*BASE, *verified(8, 1.0))
        run(team, "ALTER TABLE measurement ADD CONSTRAINT odd CHECK (seconds <> 2)")
        db.put(schedule(9), measurement(8, 2.0))
        for table in ("measurement", "verification", "session"):
            run(team, f"DELETE FROM {table}")
        db.put(measurement(8, 3.0))
        assert arrived(team) == {measurement(8, 1.0).id, measurement(8, 3.0).id}


def test_a_refused_journal_holds_back_no_other(
    team: TuningDatabase, place: str, state: Path
) -> None:
    with TuningDatabase(place) as opened, journalled(opened):
        name = waiting(opened)[0].stem.rpartition("-")[0]
    for n in range(3):
        with TuningDatabase(state / "tilewright" / "journals" / f"{name}-{n}.db") as journal:
            journal.put(*BASE, schedule(8), measurement(8, 1.0 + n))
    run(team, "ALTER TABLE measurement ADD CONSTRAINT odd CHECK (seconds <> 1)")
    with pytest.raises(DatabaseError) as caught:
        deliver_waiting(team)
    assert "unreachable" not in caught.value.data
    assert arrived(team) == {measurement(8, 2.0).id, measurement(8, 3.0).id}
    (kept,) = waiting(team)
    assert kept.stem == f"{name}-0"
    run(team, "ALTER TABLE measurement DROP CONSTRAINT odd")
    assert sum(deliver_waiting(team).values()) == 1
    assert journals(state) == []


def test_what_was_deleted_on_the_server_is_sent_again(
    team: TuningDatabase, place: str, state: Path
) -> None:
    """A measurement arrives, though its session is gone, which the journal has."""
    with TuningDatabase(place) as opened, journalled(opened) as db:
        db.put(*BASE, *verified(8, 1.0))
        for table in ("measurement", "verification", "session"):
            run(team, f"DELETE FROM {table}")
        db.put(measurement(8, 2.0))
        assert arrived(team) == {measurement(8, 1.0).id, measurement(8, 2.0).id}
    assert team.get(Session, SESSION.id) == SESSION
    assert journals(state) == []


def test_the_lock_of_a_process_that_died_goes(place: str, state: Path) -> None:
    with TuningDatabase(place) as opened, journalled(opened):
        (journal,) = waiting(opened)
        left = journal.with_name(f"{journal.stem.rpartition('-')[0]}-0.lock")
        left.touch()
        assert sum(deliver_waiting(opened).values()) == 0
        assert not left.exists()
        assert journal.with_suffix(".lock").exists()
    assert journals(state) == []


@pytest.mark.parametrize("removes", [True, False])
def test_a_lock_that_others_take_before_its_owner(
    removes: bool, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They look for journals just after a session made its lock: it still holds its own."""
    flock = fcntl.flock
    with TuningDatabase(place) as opened, ExitStack() as rivals:

        def late(file: IO[str], operation: int) -> None:
            monkeypatch.setattr(fcntl, "flock", flock)
            if removes:
                deliver_waiting(opened)
                assert not Path(file.name).exists()
            else:
                flock(rivals.enter_context(open(file.name)), operation)
            flock(file, operation)

        monkeypatch.setattr(fcntl, "flock", late)
        with journalled(opened) as db:
            assert fcntl.flock is flock
            assert isinstance(db, JournalledDatabase)
            (journal,) = waiting(opened)
            assert sum(deliver_waiting(opened).values()) == 0
            assert waiting(opened) == [journal]
            with open(journal.with_suffix(".lock")) as lock, pytest.raises(BlockingIOError):
                flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def run(team: TuningDatabase, statement: str) -> None:
    with team._layers[0].engine.begin() as connection:
        connection.execute(text(statement))


@contextmanager
def read_only(team: TuningDatabase) -> Iterator[None]:
    """Transactions of new connections only read."""
    try:
        set_read_only(team, "on")
        yield
    finally:
        set_read_only(team, "off")


def set_read_only(team: TuningDatabase, value: str) -> None:
    with team._layers[0].engine.begin() as connection:
        connection.execute(text("SET TRANSACTION READ WRITE"))
        connection.execute(
            text(f"ALTER ROLE CURRENT_USER SET default_transaction_read_only = {value}")
        )


def test_a_server_that_refuses_from_the_beginning(place: str, proxy: Proxy, state: Path) -> None:
    with TuningDatabase(proxy.url) as far, journalled(far) as db:
        proxy.cut()
        assert db.records(Session) == []
        for _ in range(2):
            with pytest.raises(DatabaseError) as caught:
                db.put(*BASE)
            assert caught.value.data["unreachable"]
    assert journals(state) == []


def test_where_no_journal_can_be_kept(
    place: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(STATE, "/proc/nowhere")
    with TuningDatabase(place) as opened, journalled(opened) as db:
        assert db is opened
    assert "no journal" in caplog.text


def test_a_session_is_resumed_where_it_was(team: TuningDatabase, place: str, proxy: Proxy) -> None:
    team.put(*BASE, *verified(8, 1.0))
    with TuningDatabase(proxy.url) as far, journalled(far) as db:
        (found,) = db.unfinished_sessions(MATMUL.id, CPU.id)
        db.resume_session(found.id)
        proxy.cut()
        assert db.trials(found.id) == 1
        db.put(measurement(8, 2.0))
        assert len(db.measurements(session=found.id)) == 2
        proxy.join()
        db.finish_session(found.id)
    assert len(arrived(team)) == 2
    assert team.get(Session, found.id).status is SessionStatus.FINISHED


def test_files_need_no_journal(new_place: Place, tmp_path: Path, state: Path) -> None:
    with TuningDatabase(tmp_path / "file.db") as opened, journalled(opened) as db:
        assert db is opened
    assert journals(state) == []


def test_a_tuning_goes_on_without_the_server(
    team: TuningDatabase, proxy: Proxy, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated = Simulated(lambda trace: 1e-3 / len(trace))
    monkeypatch.setattr(tuning_job, "Measurer", simulated)

    def see(event: Event) -> None:
        if isinstance(event, Trial) and event.number == 2:
            proxy.cut()

    result = tw.tune(
        ops.add_relu_func(64),
        "cpu -threads=1",
        database=proxy.url,
        trials=6,
        config=QUICK,
        callback=see,
        progress=False,
    )
    assert result.best is not None
    assert result.trials > 3
    assert len(result.finals) > 1
    assert 0 < len(arrived(team)) < 4
    proxy.join()
    deliver_waiting(TuningDatabase(proxy.url))
    assert team.trials(result.session) == result.trials
    assert len(arrived(team)) == result.trials + len(result.finals)
    assert team.get(Session, result.session).status is SessionStatus.FINISHED
    again = tw.explain(ops.add_relu_func(64), "cpu -threads=1", database=team)
    assert again.best is not None
    assert again.best.schedule.id == result.best.schedule_id
    assert journals(state) == []
