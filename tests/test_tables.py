"""The tables of the shell at three widths: golden files, written anew with `pytest --update`."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tilewright.cli.main import main as command_line
from tilewright.cli.table import print_table, table_lines
from tilewright.tuning_db import Session, TuningDatabase

from .golden import check_golden
from .table_records import fill

GOLDENS = Path(__file__).parent / "tables"
WIDTHS = (40, 80, 200)
COMMANDS = {
    "list": "list",
    "list-wide": "list --wide --workload conv2d",
    "best": "best",
    "best-inexact": "best --tolerance 1e-3",
    "stats": "stats",
    "prune": "prune --damaged",
    "delete": "delete {schedule} {session}",
    "diff-measurements": "diff {measurement} {other}",
    "diff-sessions": "diff {session} {empty}",
    "diff-databases": "diff tables.db other.db",
    "show-measurement": "show {measurement}",
    "show-schedule": "show {schedule}",
}
Run = Callable[..., tuple[str, str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two databases."""
    path = tmp_path_factory.mktemp("tables")
    fill(path / "tables.db").close()
    with TuningDatabase(path / "other.db") as other:
        other.merge(path / "tables.db")
        other.delete(other.measurements()[0].id)
    return path


@pytest.fixture
def db(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TuningDatabase]:
    monkeypatch.chdir(folder)
    with TuningDatabase("tables.db") as opened:
        yield opened


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run a command on a terminal of a width; return what it prints, and its errors."""

    def run(*words: object, width: int) -> tuple[str, str]:
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setattr(sys, "argv", ["tilewright", "db", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            command_line()
        assert (ended.value.code or 0) == 0
        return capfd.readouterr()

    return run


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", COMMANDS)
def test_golden(
    name: str, width: int, db: TuningDatabase, run: Run, request: pytest.FixtureRequest
) -> None:
    first, other, *_ = db.measurements()
    empty = next(s for s in db.records(Session) if s.id != first.session)
    ids = {
        "measurement": first.id[:12],
        "other": other.id[:12],
        "schedule": first.schedule[:12],
        "session": first.session[:12],
        "empty": empty.id[:12],
    }
    text, err = run(*COMMANDS[name].format(**ids).split(), "--db", "tables.db", width=width)
    text = re.sub(r"(?m)^size .*", "size ...", text)  # it depends on SQLite's version
    assert not err
    lines = text.splitlines()
    assert max(map(cell_len, lines)) <= width
    assert all(c.isprintable() for line in lines for c in line), "no control characters"
    update = request.config.getoption("--update")
    check_golden(GOLDENS / f"{name}-{width}.txt", text, update=update)


def test_each_golden_has_its_command() -> None:
    names = {f"{name}-{width}" for name in COMMANDS for width in WIDTHS} | {"best-ascii"}
    assert {path.stem for path in GOLDENS.iterdir()} == names


def test_a_terminal_that_knows_ascii_alone(
    db: TuningDatabase, request: pytest.FixtureRequest
) -> None:
    plain = {"PYTHONIOENCODING": "ascii", "TERM": "dumb", "NO_COLOR": "1", "COLUMNS": "80"}
    done = subprocess.run(
        [Path(sys.executable).with_name("tilewright"), "db", "best", "--db", db.location],
        env={**os.environ, **plain},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    update = request.config.getoption("--update")
    check_golden(GOLDENS / "best-ascii.txt", done.stdout.decode("ascii"), update=update)


def test_a_name_of_10_mb_is_set_aside(
    tmp_path: Path, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    """Its program is called by its id."""
    path = tmp_path / "hostile.db"
    fill(path).close()
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("UPDATE workload SET name = ? WHERE id LIKE '1111%'", ("y" * 10_000_000,))
    out, err = run("list", "--db", path, width=80)
    assert out.startswith("111111111111\ncpu -threads=2\nid  ")
    assert len(out) < 4000
    assert not err
    assert "workload 111111111111" in caplog.text
    assert len(caplog.text) < 1000


@given(
    st.lists(st.lists(st.text(), min_size=4, max_size=4), min_size=1, max_size=4),
    st.integers(40, 200),
)
def test_any_texts_fit(rows: list[list[str]], width: int) -> None:
    """What has to fit in one line fits; a long word in a list of facts is divided."""
    for row in rows:
        row[0] = row[0][:8]
    lines = list(table_lines((">id", "~name", "?session", "error"), rows, width))
    assert max(map(cell_len, lines), default=0) <= width


def test_columns_without_a_text_are_left_out() -> None:
    lines = list(table_lines(("a", ">b", "c"), [["1", "", "x"], ["2", "", ""]], 80))
    assert lines == ["a  c", "-  -", "1  x", "2"]


def test_room_is_shared_by_what_may_be_wrapped() -> None:
    columns = ("~one", "~two", "id")
    lines = list(table_lines(columns, [["a b " * 20, "c" * 18, "0" * 12]], 60))
    assert lines[2].endswith("  cccccccccccccccccc  000000000000")
    assert cell_len(lines[2]) == 60
    assert lines[3].startswith("b a b a")


def test_rows_are_lists_of_facts_where_there_is_no_room() -> None:
    lines = list(table_lines(("id", "?when", "name"), [["1" * 12, "now", "x" * 40]] * 2, 40))
    facts = ["id    111111111111", "when  now", "name  " + "x" * 34, "      " + "x" * 6]
    assert lines == [*facts, "", *facts]


def test_no_rows(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("id",), [], "nothing \x1b[2J")
    assert capsys.readouterr().out == "nothing \ufffd[2J\n"
