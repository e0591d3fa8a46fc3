"""A server of a team: who may do what, many writers at once, TLS, and what errors say of rights."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, make_url, text

from tilewright.base.errors import DatabaseError
from tilewright.tuning_db import (
    Measurement,
    Pin,
    ScheduleRecord,
    Session,
    SessionStatus,
    TuningDatabase,
)
from tilewright.tuning_db.journal import STATE, journalled
from tilewright.tuning_db.tables import HEAD

from .conftest import Place, binaries, server
from .samples import (
    BASE,
    CPU,
    LLVM,
    MATMUL,
    ONE_OF_EACH,
    SESSION,
    measurement,
    schedule,
    verified,
)

pytestmark = pytest.mark.parametrize("new_place", ["postgresql"], indirect=True)
As = Callable[[str], str]
_NUMBER = itertools.count()


@pytest.fixture
def as_user(place: str, postgres: Engine) -> Iterator[As]:
    """The URL of the database for a new user of a role: `reader` or `tuner`."""
    mark = f"{os.getpid()}_{next(_NUMBER)}"
    names = {role: f"{role}_{mark}" for role in ("reader", "tuner")}
    with TuningDatabase(place) as owned:
        owned.put(*BASE, *verified(8, 1.0))
        first = owned.roles(names["reader"], names["tuner"], apply=True)
        again = owned.roles(names["reader"], names["tuner"], apply=True)
        assert [s for s in first if not s.startswith("CREATE ROLE")] == again
    users = {role: f"user_{name}" for role, name in names.items()}
    with postgres.begin() as connection:
        for role, user in users.items():
            connection.execute(text(f"CREATE ROLE {user} LOGIN IN ROLE {names[role]}"))
    yield lambda role: make_url(place).set(username=users[role]).render_as_string(False)
    with postgres.begin() as connection:
        for name in (*users.values(), *names.values()):
            connection.execute(text(f"DROP OWNED BY {name}"))
            connection.execute(text(f"DROP ROLE {name}"))


def lacks(right: str, on: str, call: Callable[[], object]) -> None:
    with pytest.raises(DatabaseError) as caught:
        call()
    assert (caught.value.data["right"], caught.value.data["on"]) == (right, on)


def test_readers_look_up_and_do_not_write(as_user: As, place: str) -> None:
    for options in ({}, {"read_only": True}):
        with TuningDatabase(as_user("reader"), **options) as db:  # type: ignore[arg-type]
            best = db.best(MATMUL.id, CPU, LLVM)
            assert best is not None
            assert len(db.to_pandas("trials")) == 1
            assert db.explain(MATMUL, CPU, LLVM).best == best
    with TuningDatabase(as_user("reader")) as db:
        lacks("INSERT", "schedule", lambda: db.put(schedule(9)))
        lacks("UPDATE", "session", lambda: db.heartbeat(SESSION.id))
        lacks("INSERT", "workload", lambda: db.pin(MATMUL.id, CPU, schedule(8).id))
    with TuningDatabase("sqlite://", layers=[as_user("reader")]) as mine:
        assert mine.best(MATMUL.id, CPU, LLVM) is not None
        assert sum(mine.merge(as_user("reader")).values()) > 0


def test_tuners_add_and_do_not_delete(as_user: As, place: str, tmp_path: Path) -> None:
    with TuningDatabase(as_user("tuner")) as db:
        db.put(*ONE_OF_EACH, *verified(16, 0.5))
        session = db.start_session(
            MATMUL.id, CPU.id, trials=9, seconds=None, seed=0, search={}, model={}
        )
        db.heartbeat(session.id)
        assert db.finish_session(session.id).status is SessionStatus.FINISHED
        db.resume_session(SESSION.id)
        db.pin(MATMUL.id, CPU, schedule(16).id)
        db.pin(MATMUL.id, CPU, schedule(8).id)
        lacks("DELETE", "pin", lambda: db.unpin(MATMUL.id, CPU))
        with TuningDatabase(tmp_path / "mine.db") as mine:
            mine.sync(db)
            mine.put(*verified(32, 0.25))
            assert mine.sync(db).sent["measurement"] == 1
            assert sum(map(sum, (mine.sync(db)[n].values() for n in (0, 1)))) == 0
        with db._layers[0].engine.begin() as connection, pytest.raises(Exception, match="denied"):
            connection.execute(text("DELETE FROM measurement"))
    with TuningDatabase(place) as owned:
        assert owned.unpin(MATMUL.id, CPU)
        assert owned.get(Measurement, measurement(32, 0.25).id).seconds == 0.25
        assert owned.records(Pin) == []


def test_a_reader_learns_at_once_that_it_cannot_tune(
    as_user: As, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(STATE, str(tmp_path))
    with TuningDatabase(as_user("reader")) as db, journalled(db) as beside:
        lacks("INSERT", "schedule", lambda: beside.put(schedule(9)))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_migrations_need_the_owner(as_user: As, place: str) -> None:
    with TuningDatabase(place) as owned, owned._layers[0].engine.begin() as connection:
        connection.execute(text("UPDATE tuning_db_revision SET version_num = '0010'"))
        index = "ix_measurement_session"
        connection.execute(text(f"ALTER INDEX {index}_created RENAME TO {index}"))
    lacks("ownership", "trials", lambda: TuningDatabase(as_user("tuner")))
    with pytest.raises(DatabaseError):
        TuningDatabase(as_user("reader"), read_only=True)
    with TuningDatabase(place) as owned, owned._layers[0].engine.begin() as connection:
        revision = connection.scalar(text("SELECT version_num FROM tuning_db_revision"))
    assert revision == HEAD
    with TuningDatabase(as_user("reader")) as db:
        assert len(db.to_pandas("best")) == 1, "views that a migration makes again are for all"


def test_files_have_no_roles(tmp_path: Path, new_place: Place) -> None:
    with TuningDatabase(tmp_path / "file.db") as db, pytest.raises(DatabaseError):
        db.roles()


def test_many_writers_at_once_lose_nothing(place: str) -> None:
    writers, each = 16, 3
    with TuningDatabase(place) as db:
        db.put(*BASE)
    failures: list[BaseException] = []

    def tune(number: int) -> None:
        try:
            with TuningDatabase(place) as db:
                session = db.start_session(
                    MATMUL.id, CPU.id, trials=each, seconds=None, seed=0, search={}, model={}
                )
                for n in range(each):
                    db.put(*verified(1 + number * each + n, 1.0))
                db.finish_session(session.id)
        except BaseException as error:  # noqa: BLE001 - it is of another thread
            failures.append(error)

    threads = [threading.Thread(target=tune, args=(n,)) for n in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with TuningDatabase(place) as db:
        assert len(db.records(ScheduleRecord)) == writers * each
        assert len(db.measurements()) == writers * each
        assert sum(s.status is SessionStatus.FINISHED for s in db.records(Session)) == writers


def test_a_database_that_is_migrated_while_it_is_in_use(place: str) -> None:
    """What an older version has open is not written to any more, and nothing is lost."""
    with TuningDatabase(place) as db:
        db.put(*BASE, *verified(8, 1.0))
        with db._layers[0].engine.begin() as connection:
            connection.execute(text("UPDATE tuning_db_revision SET version_num = '9999'"))
        with pytest.raises(DatabaseError) as caught:
            db.put(*verified(16, 0.5))
        assert caught.value.data["revision"] == "9999"
        assert [m.id for m in db.measurements()] == [measurement(8, 1.0).id]


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A key and a certificate of `localhost`, signed by itself."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl, which makes the certificate")
    folder = tmp_path_factory.mktemp("certificate")
    key, certificate = folder / "server.key", folder / "server.crt"
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    words += ["-nodes", "-days", "2", "-subj", "/CN=localhost"]
    words += ["-addext", "subjectAltName=DNS:localhost"]
    subprocess.run(
        [*words, "-keyout", key, "-out", certificate], check=True, stderr=subprocess.DEVNULL
    )
    return key, certificate


def test_tls_by_options_of_the_url(
    certified: tuple[Path, Path], new_place: Place, tmp_path: Path
) -> None:
    found = binaries()
    if found is None:
        pytest.skip("no PostgreSQL of this machine, whose server is given a certificate")
    with server(found, tls=certified) as url:
        whole = make_url(url)
        checked = {"sslmode": "verify-full", "sslrootcert": str(certified[1])}
        with TuningDatabase(whole.update_query_dict(checked)) as db:
            db.put(*BASE)
            with db._layers[0].reading() as connection:
                used = text("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
                assert connection.scalar(used)
        other = tmp_path / "other.crt"
        shutil.copy(certified[1], other)
        other.write_bytes(b"")
        for wrong in ({**checked, "sslrootcert": str(other)}, {"sslmode": "disable"}):
            with pytest.raises(DatabaseError) as caught:
                TuningDatabase(whole.update_query_dict(wrong))
            assert caught.value.data["unreachable"]
