"""No password of a server's URL is printed, raised or logged, whatever is done with the URL."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url
from typer.main import get_command

import tilewright as tw
from tilewright.base import text
from tilewright.cli.main import app, main
from tilewright.tuning_db import TuningDatabase, connect, to_plain
from tilewright.tuning_db.values import KINDS

from .samples import BASE, CPU, MATMUL, schedule, verified

OPTIONS = {"password": "hush", "sslpassword": "hush", "passfile": "/hush"}
NOWHERE = "postgresql+psycopg://me:hush@127.0.0.1:1/none?password=hush&sslpassword=hush"
PROGRAM = f"{Path(__file__).parents[2] / 'examples' / 'matmul.py'}:matmul"


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not hasattr(command, "commands"):
        yield path, command
        return
    for name, inner in command.commands.items():
        yield from commands(inner, (*path, name))


def word_for(parameter: Any) -> str:
    return PROGRAM if parameter.name in ("program", "programs") else "absent"


def lines(command: Any, url: str) -> Iterator[list[str]]:
    """Command lines with the URL in the place of each argument and option of text, and of none."""
    texts = [p for p in command.params if str(p.type) == "STRING" and p.name != "out"]
    for chosen in [*texts, None]:
        words = []
        for parameter in command.params:
            if parameter is not chosen and not parameter.required:
                continue
            if parameter.param_type_name == "option":
                words.append(parameter.opts[-1])
            words.append(url if parameter is chosen else word_for(parameter))
        yield words if chosen is not None else [*words, url]


COMMANDS = dict(commands(get_command(app)))


@pytest.fixture
def server(place: str) -> str:
    """The URL of a database with a password in it; skipped where there is no server."""
    if place.startswith("sqlite"):
        pytest.skip("a file has no password")
    with TuningDatabase(place) as db:
        db.put(*BASE, *verified(8, 1.0))
    url = make_url(place).set(password="hush").update_query_dict(OPTIONS)
    return url.render_as_string(hide_password=False)


def run(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["tilewright", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0), "".join(capfd.readouterr())


@pytest.mark.grid
@pytest.mark.parametrize("path", COMMANDS, ids="-".join)
@pytest.mark.parametrize("url", [NOWHERE, NOWHERE.replace("hush@", "h/u?sh@")])
def test_no_command_shows_it(
    path: tuple[str, ...],
    url: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEWRIGHT_DB", url)
    for words in lines(COMMANDS[path], url):
        _, shown = run([*path, *words], monkeypatch, capfd)
        assert "sh@" not in shown + caplog.text, words
        assert "hush" not in shown + caplog.text, words


@pytest.mark.parametrize(
    "words",
    [
        ["db", "list"], ["db", "best"], ["db", "prune"], ["db", "prune", "--json"], ["report"],
        ["watch", "--once"], ["db", "list", "--workload", "absent"],
    ],
)  # fmt: skip
def test_no_command_shows_it_of_a_server_that_answers(
    server: str,
    words: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEWRIGHT_DB", server)
    _, shown = run(words, monkeypatch, capfd)
    pages = "".join(page.read_text() for page in tmp_path.glob("*.html"))
    assert shown
    assert "hush" not in shown + pages
    if words[1:] == ["prune"]:
        assert "***" in shown


def test_nothing_of_an_open_database_shows_it(
    server: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "tilewright")
    with TuningDatabase(server, layers=[server]) as db:
        shown = [repr(db), repr(db._layers), db.location, str(db.prune(dry_run=True))]
        shown += [str(db.explain(MATMUL, CPU)), str(db.compare(server))]
        shown += [str(to_plain(record)) for kind in KINDS.values() for record in db.records(kind)]
        with pytest.raises(tw.DatabaseError) as refused:
            db.find("f" * 12)
        shown += [str(refused.value), repr(refused.value)]
        db.pin(MATMUL, CPU, schedule(8))
        shown.append(str(db.best(MATMUL.id, CPU)))
    assert "hush" not in "".join(shown) + caplog.text


@pytest.mark.parametrize(
    "url",
    [
        NOWHERE,
        "postgresql+psycopg://me:hu/sh@127.0.0.1:1/none",
        "postgresql+psycopg://me:hu@sh@127.0.0.1:1/none",
        "postgresql+psycopg://me:hu?sh@127.0.0.1:1/none",
        "postgresql+psycopg://:hush@127.0.0.1:1/none",
        "postgresql+psycopg://127.0.0.1:1/none?p%61ssword=hush",
        "postgresql://me:hush",
        "postgresql:me:hush@127.0.0.1/none",
        "host=127.0.0.1 password=hush",
        "sqlite:///x.db?password=hush",
        "mysql://me:hush@127.0.0.1/none",
        "nonsense://me:hu sh@127.0.0.1:port/none",
    ],
)
def test_no_error_shows_it(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    func = tw.ops.matmul_func(4, 4, 4)
    calls: list[Callable[[], object]] = [
        lambda: TuningDatabase(url),
        lambda: TuningDatabase("sqlite://", layers=[url]),
        lambda: TuningDatabase("sqlite://", layers=url),
        lambda: TuningDatabase("sqlite://").merge(url),
        lambda: tw.tune(func, database=url, trials=1),
        lambda: tw.tune(func, database=url.encode(), trials=1),  # type: ignore[call-overload]
        lambda: tw.build(func, "cpu", url),
        lambda: tw.open_run(url),
    ]
    for call in calls:
        with pytest.raises(tw.TilewrightError) as refused:
            call()
        shown = f"{refused.value} {refused.value!r}"
        assert "hu" not in shown.replace("thu", ""), shown
        assert "sh@" not in shown, shown
    assert not list(tmp_path.iterdir())


def test_a_url_without_a_password_is_shown_as_it_is() -> None:
    for url in ("postgresql://me@host:5432/db?application_name=a", "sqlite:////data/a:b/t.db"):
        assert text.masked_url(url) == url
    path = "/data/run:1@host/tuning.db"
    assert text.masked(f"database {path} is empty") == f"database {path} is empty"
    opened = connect.open_engine(Path("a@b:c.db"), create=True, read_only=False)
    assert opened.location.endswith("/a@b:c.db")
