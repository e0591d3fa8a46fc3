"""A large export is read by several processes as one process reads it."""

from __future__ import annotations

import dataclasses
import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tilewright.base.errors import DatabaseError
from tilewright.tuning_db import TuningDatabase, range_reader

from .samples import ONE_OF_EACH, measurement, verified

Process = subprocess.Popen[bytes]
OWN = 2


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Process]]:
    """The processes that were started: the smallest file is read by some, in short ranges."""
    processes: list[Process] = []

    class Noted(Process):
        def __init__(self, *arguments: object, **options: object) -> None:
            super().__init__(*arguments, **options)  # type: ignore[call-overload]
            processes.append(self)

    monkeypatch.setattr(range_reader, "SMALLEST", 0)
    monkeypatch.setattr(range_reader, "RANGE", 2000)
    monkeypatch.setattr(range_reader, "OWN", OWN)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr("subprocess.Popen", Noted)
    yield processes
    assert all(process.returncode is not None for process in processes), "none is left"


@pytest.fixture(scope="module")
def text() -> str:
    """An export of schedules and of measurements, of more ranges than there are processes."""
    odd = dataclasses.replace(
        measurement(8, 3.0), trial=True, elapsed=0.5, resources={"k\u00e9": {"registers": 3}}
    )
    with TuningDatabase("sqlite://") as db:
        db.put(*ONE_OF_EACH, *(r for n in range(1, 40) for r in verified(n, 1.0 + n)), odd)
        return exported(db)


def exported(db: TuningDatabase) -> str:
    file = io.StringIO()
    db.export_lines(file)
    return file.getvalue()


def test_the_database_is_the_same(
    new_place: Callable[[], str], text: str, tmp_path: Path, started: list[Process]
) -> None:
    file = tmp_path / "records.jsonl"
    file.write_text(text)
    with TuningDatabase(new_place()) as db:
        counts = db.import_lines(file)
        assert len(started) == 2
        assert sum(counts.values()) == text.count("\n") - 2
        assert exported(db) == text
        assert sum(db.import_lines(file).values()) == 0


@pytest.mark.parametrize("size", [100, 700])
def test_lines_longer_than_a_range(
    size: int, text: str, tmp_path: Path, started: list[Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_reader, "RANGE", size)
    (tmp_path / "records.jsonl").write_text(text)
    with TuningDatabase("sqlite://") as db:
        db.import_lines(tmp_path / "records.jsonl")
        assert exported(db) == text
    assert len(started) == 2


def twice(lines: list[str]) -> None:
    """Each line is there again, in another range."""
    lines[1:-1] = lines[1:-1] * 2
    lines[-1] = f'{{"end":{len(lines) - 2}}}'


def other_state(lines: list[str]) -> None:
    """The last record is that of a schedule which is there, and now has an inexact step."""
    place = next(n for n, line in enumerate(lines) if '"kind":"schedule"' in line)
    lines[-1:] = [lines[place].replace('"inexact":""', '"inexact":"winograd"')]
    lines.append(f'{{"end":{len(lines) - 1}}}')


@pytest.mark.parametrize("change", [twice, other_state])
def test_what_is_there_twice(
    change: Callable[[list[str]], None],
    text: str,
    tmp_path: Path,
    started: list[Process],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = text.splitlines()
    change(lines)
    file = tmp_path / "records.jsonl"
    file.write_text("\n".join([*lines, ""]))
    with TuningDatabase("sqlite://") as one, TuningDatabase("sqlite://") as other:
        counts = one.import_lines(file)
        assert len(started) == 2
        monkeypatch.setattr(range_reader, "SMALLEST", 1 << 30)
        assert other.import_lines(file) == counts
        assert len(started) == 2
        assert exported(one) == exported(other)


def test_an_open_file_is_read_by_processes_when_it_is_there(
    text: str, started: list[Process]
) -> None:
    with TuningDatabase("sqlite://") as db:
        db.import_lines(io.StringIO(text))
        assert exported(db) == text
    assert len(started) == 2


def swap(lines: list[str], place: int, old: str, new: str) -> None:
    assert old in lines[place]
    lines[place] = lines[place].replace(old, new)


def without_environment(lines: list[str]) -> None:
    lines.pop(next(n for n, line in enumerate(lines) if '"kind":"environment"' in line))


def swap_both(lines: list[str]) -> None:
    for place in (-9, -2):
        swap(lines, place, '{"id"', '{"ib"')


BROKEN: dict[str, Callable[[list[str]], object]] = {
    "an early line": lambda lines: swap(lines, 2, '"', "'"),
    "a late line": lambda lines: swap(lines, -3, '"outcome":"ok"', '"outcome":"fine"'),
    "two lines": swap_both,
    "a digest": lambda lines: swap(lines, -3, '"seconds":', '"seconds": 1'),
    "a reference": without_environment,
    "the count": lambda lines: lines.pop(-2),
    "no end": lambda lines: lines.pop(),
    "more": lambda lines: lines.append(lines[3]),
    "no text": lambda lines: swap(lines, -4, '{"id"', '{"\udcff"'),
    "an empty line": lambda lines: lines.insert(-20, ""),
}


@pytest.mark.parametrize("name", BROKEN)
def test_the_first_bad_line_is_named(
    name: str, text: str, tmp_path: Path, started: list[Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is that of one process, and nothing was written."""
    lines = text.splitlines()
    BROKEN[name](lines)
    file = tmp_path / "records.jsonl"
    file.write_text("\n".join([*lines, ""]), "utf-8", "surrogateescape")
    errors = []
    for smallest in (0, 1 << 40):
        monkeypatch.setattr(range_reader, "SMALLEST", smallest)
        with TuningDatabase("sqlite://") as db:
            with pytest.raises(DatabaseError) as refused:
                db.import_lines(file)
            errors.append((str(refused.value), refused.value.data))
            assert exported(db).count("\n") == 2
    assert len(started) == 2
    assert errors[0] == errors[1]


@pytest.mark.parametrize(
    ("executable", "count", "told"),
    [
        ("/bin/false", 2, "records.jsonl: a process that reads it ended"),
        ("/nowhere/python", 0, "/nowhere/python"),
    ],
)
def test_processes_that_die_or_do_not_start_are_not_needed(
    executable: str,
    count: int,
    told: str,
    text: str,
    tmp_path: Path,
    started: list[Process],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "records.jsonl").write_text(text)
    monkeypatch.setattr("sys.executable", executable)
    with TuningDatabase("sqlite://") as db:
        db.import_lines(tmp_path / "records.jsonl")
        assert exported(db) == text
    assert len(started) == count
    assert caplog.text.count(told) == max(count, 1)


@pytest.mark.parametrize("smallest", [0, 1 << 40])
def test_a_first_line_that_is_no_header_is_refused(
    smallest: int, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    header, _, rest = text.partition("\n")
    path = tmp_path / "records.jsonl"
    path.write_text(f"{header:<{range_reader._HEADER}}, and more\n{rest}")
    monkeypatch.setattr(range_reader, "SMALLEST", smallest)
    with TuningDatabase("sqlite://") as db, pytest.raises(DatabaseError) as refused:
        db.import_lines(path)
    assert refused.value.data["line"] == 1


def test_an_interrupted_import_writes_nothing(
    text: str, tmp_path: Path, started: list[Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "records.jsonl").write_text(text)
    heard = range_reader._heard
    rest = iter([heard, heard])

    def interrupt(replies: io.BufferedReader) -> Iterator[dict[str, object]]:
        yield from next(rest)(replies)

    monkeypatch.setattr(range_reader, "_heard", interrupt)
    with TuningDatabase("sqlite://") as db:
        with pytest.raises(RuntimeError):  # of the third range: `next` has no more
            db.import_lines(tmp_path / "records.jsonl")
        assert exported(db).count("\n") == 2
    assert len(started) == 2


KILLED = """
import sys, time
import psutil
from tilewright.tuning_db import TuningDatabase, range_reader

range_reader.SMALLEST, range_reader.RANGE, range_reader.OWN = 0, 2000, 2
range_reader._PIPE = 4096  # they wait for it to be read
heard = range_reader._heard
taken = []

def slowly(replies):
    yield from heard(replies)
    taken.append(replies)
    if len(taken) == 3:
        print(*(child.pid for child in psutil.Process().children()), flush=True)
        time.sleep(600)

range_reader._heard = slowly
with TuningDatabase(sys.argv[1]) as db:
    db.import_lines(sys.argv[2])
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor")
def test_a_killed_import_leaves_nothing(text: str, tmp_path: Path) -> None:
    """Neither records nor the processes that read."""
    (tmp_path / "records.jsonl").write_text(text)
    names = (str(tmp_path / "tuning.db"), str(tmp_path / "records.jsonl"))
    command = [sys.executable, "-c", KILLED, *names]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as importing:
        assert importing.stdout is not None
        readers = [psutil.Process(int(pid)) for pid in importing.stdout.readline().split()]
        importing.kill()
    assert len(readers) == 2
    assert psutil.wait_procs(readers, timeout=60)[1] == []
    with TuningDatabase(tmp_path / "tuning.db", create=False) as db:
        assert exported(db).count("\n") == 2
