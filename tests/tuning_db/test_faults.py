"""Faults, each made for real: kills, two writers, locks, full disks, damaged and foreign files."""

from __future__ import annotations

import dataclasses
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import event

from tilewright.base.errors import DatabaseError
from tilewright.tuning_db import Measurement, TuningDatabase
from tilewright.tuning_db.write import write

from ..refusals import refused
from .samples import BASE, CPU, MATMUL, SESSION, fill, measurement, schedule, verified


@contextmanager
def child(root: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A process that runs a task of `children.py`."""
    command = [sys.executable, "-m", "tests.tuning_db.children", *arguments]
    with subprocess.Popen(
        command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str], lines: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline().rstrip("\n") for _ in range(lines)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A SQLite database with one good measurement, closed."""
    path = tmp_path / "tuning.db"
    with TuningDatabase(path) as db:
        db.put(*BASE, *verified(8, 1.0))
    return path


def test_a_killed_writer_loses_no_measurement_that_it_recorded(place: str, root: Path) -> None:
    with child(root, "write", place, "0", "1000000") as writer:
        recorded = said(writer, 40)
        writer.kill()
        assert writer.stdout is not None
        recorded += [line for line in writer.stdout.read().split("\n") if len(line) == 64]
    assert len(recorded) >= 40
    with TuningDatabase(place) as db:
        kept = {record.id for record in db.measurements()}
        assert set(recorded) <= kept
        assert len(kept) <= len(recorded) + 1
        assert db.best(MATMUL.id, CPU) is not None


def test_two_processes_create_and_write_at_once(place: str, root: Path) -> None:
    with (
        child(root, "write", place, "0", "30") as one,
        child(root, "write", place, "30", "30") as two,
    ):
        recorded = {*said(one, 30), *said(two, 30)}
    with TuningDatabase(place) as db:
        assert {record.id for record in db.measurements()} == recorded
        assert len(recorded) == 60


def test_a_lock_held_for_too_long(place: str, root: Path) -> None:
    with TuningDatabase(place) as db:
        db.put(*BASE, *verified(8, 1.0))
    impatient = f"{place}?timeout=0.1" if place.startswith("sqlite") else place
    with child(root, "hold", place) as holder, TuningDatabase(impatient) as db:
        db._layers[0] = dataclasses.replace(db._layers[0], timeout=0.1)
        assert said(holder, 1) == ["locked"]
        with pytest.raises(DatabaseError):
            db.put(measurement(8, 2.0))
        assert db.best(MATMUL.id, CPU) is not None, "readers do not wait"
        holder.kill()
        holder.wait()
        assert db.put(measurement(8, 2.0)) == 1


def test_a_writer_that_was_stopped_is_ended_by_a_server(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-Z in an import, say: all other writers would wait for it."""
    if place.startswith("sqlite"):
        pytest.skip("SQLite has no server")
    monkeypatch.setattr("tilewright.tuning_db.connect._MOST_IDLE", 0.2)
    with (
        TuningDatabase(place) as stopped,
        TuningDatabase(place) as other,
        refused(DatabaseError),
        stopped._layers[0].writing() as connection,
    ):
        time.sleep(0.5)
        other.put(*BASE)
        write(connection, BASE, repin=False)


def test_a_forked_child_is_told_to_open_its_own(file: Path, root: Path) -> None:
    with child(root, "fork", str(file)) as forking:
        (line,) = said(forking, 1)
    assert f"database {file} was opened by process {forking.pid} and is used in its fork" in line


def test_a_full_disk_keeps_what_was_recorded(tmp_path: Path) -> None:
    with TuningDatabase(tmp_path / "small.db") as db:
        fill(db)
        db.put(schedule(8))
        db.close()

        @event.listens_for(db._layers[0].engine, "connect")
        def limit(connection: sqlite3.Connection, _: object) -> None:
            pages = connection.execute("PRAGMA page_count").fetchone()[0]
            connection.execute(f"PRAGMA max_page_count={pages + 8}")

        recorded = []
        with pytest.raises(DatabaseError) as refused:
            for n in range(10_000):
                db.put(measurement(8, 1.0 + n))
                recorded.append(measurement(8, 1.0 + n).id)
        assert "cannot grow: the disk is full" in str(refused.value)
        assert len(recorded) > 0
        assert {record.id for record in db.records(Measurement)} == set(recorded)
    with TuningDatabase(tmp_path / "small.db") as db:
        assert len(db.measurements(session=SESSION.id)) == len(recorded)
        assert db.put(measurement(8, 0.5)) == 1


_LIMITED = """
import resource
from tests.tuning_db.samples import fill, measurement, schedule
from tilewright.base.errors import DatabaseError
from tilewright.tuning_db import TuningDatabase
with TuningDatabase({place!r}) as db:
    fill(db)
    db.put(schedule(8))
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
    count = 0
    try:
        while True:
            db.put(measurement(8, 1.0 + count))
            count += 1
    except DatabaseError as error:
        print(count, error)
"""


def test_a_limit_of_file_sizes_keeps_what_was_recorded(tmp_path: Path, root: Path) -> None:
    place = tmp_path / "small.db"
    done = subprocess.run(
        [sys.executable, "-c", _LIMITED.format(place=str(place))],
        cwd=root,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=300,
    )
    count, _, said = done.stdout.partition(" ")
    assert "cannot grow: the disk is full, or a limit of file sizes is reached" in said
    assert "ulimit -f" in said
    with TuningDatabase(place) as db:
        assert len(db.measurements(session=SESSION.id)) == int(count) > 0


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A folder that other users can reach, which pytest's are not."""
    folder = Path(tempfile.mkdtemp(prefix="tilewright-"))
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("file_mode", "folder_mode", "named"), [(0o444, 0o777, "tuning.db"), (0o666, 0o555, "")]
)
def test_what_is_read_only_is_read(
    shared_folder: Path, root: Path, file_mode: int, folder_mode: int, named: str
) -> None:
    folders = (root, *root.parents)
    if os.geteuid() == 0 and not all(f.stat().st_mode & stat.S_IXOTH for f in folders):
        pytest.skip("as root, it takes a checkout that other users can reach")
    path = shared_folder / "tuning.db"
    with TuningDatabase(path) as db:
        db.put(*BASE, *verified(8, 1.0))
    path.chmod(file_mode)
    shared_folder.chmod(folder_mode)
    with child(root, "read_only", str(path)) as reader:
        refused, best, best_of_layer = said(reader, 3)
    assert refused == f"database {path} cannot be written: {shared_folder / named} is read-only"
    assert (best, best_of_layer) == ("True", "True")


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match=r"there is no tuning database at .*none\.db\n  hint"):
        TuningDatabase(tmp_path / "none.db", create=False)
    with pytest.raises(DatabaseError, match=r"no\.db: there is no directory .*/no\n  hint: mkdir"):
        TuningDatabase(tmp_path / "no" / "no.db")
    with refused(DatabaseError, tmp_path):
        TuningDatabase(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"kernel,ms\n", "is not a tuning database, or truncated: it has 10 bytes"),
        (
            b"kernel,ms\n" * 5000,
            "is not a tuning database: expected a SQLite file, found something",
        ),
        (b"\0" * 50_000, "is not a tuning database: expected a SQLite file, found something"),
    ],
)
def test_what_is_no_database_is_left_alone(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "other.db"
    path.write_bytes(content)
    for read_only in (False, True):
        with pytest.raises(DatabaseError, match=message):
            TuningDatabase(path, read_only=read_only)
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_an_empty_file_is_a_new_database_only_where_one_may_be_created(tmp_path: Path) -> None:
    path = tmp_path / "empty.db"
    path.touch()
    with pytest.raises(DatabaseError):
        TuningDatabase(path, create=False)
    with refused(DatabaseError, path):
        TuningDatabase(path, read_only=True)
    assert path.stat().st_size == 0
    with TuningDatabase(path) as db:
        assert db.put(MATMUL) == 1


@pytest.mark.parametrize("kept", [100, 4096, 20_000])
def test_a_truncated_database(file: Path, kept: int) -> None:
    content = file.read_bytes()[:kept]
    file.write_bytes(content)
    for read_only in (False, True):
        with pytest.raises(DatabaseError) as refused:
            TuningDatabase(file, read_only=read_only)
        assert f"database {file} is damaged: it is truncated" in str(refused.value)
    assert file.read_bytes() == content


def test_a_database_overwritten_in_its_middle(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[8192:] = b"\xff" * len(content[8192:])
    file.write_bytes(content)
    with pytest.raises(DatabaseError), TuningDatabase(file) as db:
        db.best(MATMUL.id, CPU)
        db.measurements()
        db.records(type(MATMUL))


def test_somebody_elses_sqlite_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE orders (id)")
    connection.close()
    content = path.read_bytes()
    with pytest.raises(DatabaseError):
        TuningDatabase(path)
    assert path.read_bytes() == content


def test_a_newer_database_is_left_alone(place: str) -> None:
    with TuningDatabase(place) as db:
        db.put(*BASE)
        with db._layers[0].writing() as connection:
            connection.exec_driver_sql("UPDATE tuning_db_revision SET version_num = '9999'")
    for read_only in (False, True):
        with pytest.raises(DatabaseError) as refused:
            TuningDatabase(place, read_only=read_only)
        assert "was written by a newer version of Tilewright: its schema is revision 9999" in str(
            refused.value
        )
    with pytest.raises(DatabaseError, match="newer version"):
        TuningDatabase("sqlite://", layers=[place])


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("mysql://localhost/x", "no tuning database on mysql; expected sqlite or postgresql"),
        ("what://", "no tuning database on what; expected sqlite or postgresql"),
        ("://", "does not parse"),
        ("sqlite:///x.db?timeout=long", "timeout is no number"),
        ("sqlite:///x.db?mode=ro", "has the option mode; expected timeout"),
        ("postgresql+nodriver://localhost/x", "needs a driver that is not installed"),
        ("postgresql://localhost:abc/x", "does not parse"),
        ("sqlite:///x.db?timeout=inf", "timeout is inf; expected seconds"),
        ("sqlite:///x.db?timeout=nan", "timeout is nan; expected seconds"),
        ("sqlite:///x.db?timeout=-1", "timeout is -1.0; expected seconds"),
    ],
)
def test_urls_that_mean_nothing(url: str, message: str) -> None:
    with pytest.raises(DatabaseError, match=message):
        TuningDatabase(url)


def test_a_server_that_is_not_there() -> None:
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    with pytest.raises(DatabaseError) as refused:
        TuningDatabase("postgresql+psycopg://me:secret@127.0.0.1:1/none")
    assert "secret" not in str(refused.value)


def test_a_failed_opening_leaves_no_connection_open(new_place: Callable[[], str]) -> None:
    """An open one would be reported as a leak, which fails the test."""
    place = new_place()
    for _ in range(3):
        with pytest.raises(DatabaseError):
            TuningDatabase(place, layers=[new_place()])


def test_a_missing_layer_leaves_no_new_database(tmp_path: Path) -> None:
    with refused(DatabaseError, tmp_path / "missing.db"):
        TuningDatabase(tmp_path / "a.db", layers=[tmp_path / "missing.db"])
    assert list(tmp_path.iterdir()) == []


def test_an_empty_path_is_no_database_in_memory() -> None:
    """As from a variable of the shell that is not set: what is measured would be lost."""
    with pytest.raises(DatabaseError):
        TuningDatabase("")


@pytest.mark.parametrize("read_only", [False, True])
def test_a_database_that_is_deleted_while_it_is_open(file: Path, read_only: bool) -> None:
    with TuningDatabase(file, read_only=read_only) as db:
        assert db.records(Measurement)
        for path in file.parent.glob(f"{file.name}*"):
            path.unlink()
        for _ in range(2):  # nothing is written to a file without a name, nor a new one begun
            with pytest.raises(DatabaseError, match=r"was deleted or replaced|unable to open"):
                db.put(*BASE) if not read_only else db.records(Measurement)
        assert not file.exists()


def test_a_database_that_is_replaced_while_it_is_open(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    with TuningDatabase(other) as db:
        db.put(*BASE)
    with TuningDatabase(file) as db:
        assert db.records(Measurement)
        for side in ("-wal", "-shm"):
            file.with_name(file.name + side).unlink(missing_ok=True)
        other.replace(file)
        with pytest.raises(DatabaseError):
            db.put(*verified(9, 1.0))
        assert db.records(Measurement) == []
        db.put(*verified(9, 1.0))
    with TuningDatabase(file) as db:
        assert len(db.records(Measurement)) == 1


def copied_alone(file: Path) -> list[Measurement]:
    """The measurements in a copy of a database without its log."""
    copy = file.with_name("copy.db")
    shutil.copy(file, copy)
    with TuningDatabase(copy, create=False, read_only=True) as db:
        return db.records(Measurement)


ENDS: dict[str, Callable[[TuningDatabase], object]] = {
    "close": TuningDatabase.close,
    "finish_session": lambda db: db.finish_session(SESSION.id),
    "pin": lambda db: db.pin(MATMUL, CPU, schedule(8)),
    "unpin": lambda db: db.unpin(MATMUL.id, CPU),
    "prune": lambda db: db.prune(),
    "merge": lambda db: db.merge(Path(db.location).with_name("other.db")),
    "import_lines": lambda db: db.import_lines(Path(db.location).with_name("lines.jsonl")),
}


@pytest.mark.parametrize("end", ENDS)
def test_the_file_alone_holds_everything_when_work_has_ended(tmp_path: Path, end: str) -> None:
    """Beside another user of the file, and while the database is open."""
    file = tmp_path / "tuning.db"
    with TuningDatabase(file.with_name("other.db")) as other:
        other.put(*BASE, *verified(10, 3.0))
        other.export_lines(file.with_name("lines.jsonl"))
    with TuningDatabase(file) as beside, TuningDatabase(file) as db:
        db.put(*BASE, *verified(8, 1.0), *verified(9, 2.0))
        with pytest.raises(DatabaseError, match=r"is empty[^\n]*\n  hint: .* log \(FILE-wal\)"):
            copied_alone(file)
        ENDS[end](db)
        kept = {record.id for record in copied_alone(file)}
        assert kept == {record.id for record in beside.records(Measurement)}
        assert kept >= {measurement(8, 1.0).id}


def test_a_reader_of_an_earlier_state_does_not_fail_the_end(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with TuningDatabase(file) as db:
        db.put(*verified(9, 2.0))
        with sqlite3.connect(file) as reader:
            reader.execute("BEGIN")
            (before,) = reader.execute("SELECT count(*) FROM measurement").fetchone()
            db.finish_session(SESSION.id)
            db.put(*verified(10, 3.0))
            db.close()
            assert before == 2
        assert f"still in its log {file}-wal" in caplog.text
    assert len(copied_alone(file)) == 3
