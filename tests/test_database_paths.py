"""A path is accepted wherever a database is: in the functions of the package, and in the shell."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from tilewright.autotune.measure.pack import write_pack
from tilewright.autotune.measure.pack_import import import_results
from tilewright.base.errors import ArtifactError, DatabaseError
from tilewright.cli.main import app, main
from tilewright.tuning_db import TuningDatabase

from .lab.databases import FUNC, tuned
from .refusals import refused

TARGET = "cpu -mcpu=x86-64 -threads=1"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    tuned(tmp_path / "tuning.db").close()
    return tmp_path / "tuning.db"


def functions() -> dict[str, Callable[..., Any]]:
    """The public functions that take a database, by name."""
    plots = {f"plot.{name}": getattr(tw.plot, name) for name in tw.plot.__all__}
    public = {name: getattr(tw, name) for name in tw.__all__}
    more = {"write_pack": write_pack, "import_results": import_results}
    callables = {n: f for n, f in {**public, **plots, **more}.items() if inspect.isroutine(f)}
    return {
        name: function
        for name, function in callables.items()
        if {"database", "source"} & set(inspect.signature(function).parameters)
    }


def test_every_function_that_takes_a_database_takes_its_path() -> None:
    declared = {
        name: inspect.signature(function).parameters[parameter].annotation
        for name, function in functions().items()
        for parameter in ("database", "source")
        if parameter in inspect.signature(function).parameters
    }
    assert {"tune", "build", "build_all", "build_library", "explain", "open_run"} <= set(declared)
    assert {"plot.convergence", "plot.pairs", "write_pack", "import_results"} <= set(declared)
    kinds = {str(annotation).removesuffix(" | None") for annotation in declared.values()}
    assert kinds == {"DatabaseOrPath", "Source"}


@pytest.mark.part(1)
@pytest.mark.parametrize("form", ["path", "text", "url"])
def test_what_reads_opens_it_read_only(form: str, path: Path, tmp_path: Path) -> None:
    places: dict[str, Path | str] = {
        "path": path,
        "text": str(path),
        "url": f"sqlite:///{path}",
    }
    place = places[form]
    with TuningDatabase(path) as opened:
        origin = tw.build(FUNC, TARGET, opened).origin
        assert str(tw.explain(FUNC, TARGET, place)) == str(tw.explain(FUNC, TARGET, opened))
        assert tw.open_run(place).session == tw.open_run(opened).session
    assert tw.build(FUNC, TARGET, place).origin == origin
    assert [module.origin for module in tw.build_all([FUNC], TARGET, place)] == [origin]
    library = tw.build_library(FUNC, tmp_path / "f.o", TARGET, place, object_file=True)
    assert library.origin == origin


@pytest.mark.parametrize(
    "call",
    [
        lambda place: tw.build(FUNC, TARGET, place),
        lambda place: tw.build_all([FUNC], TARGET, place),
        lambda place: tw.explain(FUNC, TARGET, place),
        tw.open_run,
        lambda place: write_pack(FUNC, TARGET, place.with_name("pack"), database=place),
    ],
    ids=["build", "build_all", "explain", "open_run", "write_pack"],
)
def test_what_reads_makes_none(call: Callable[[Path], object], tmp_path: Path) -> None:
    with refused(DatabaseError, tmp_path / "missing.db"):
        call(tmp_path / "missing.db")
    assert list(tmp_path.iterdir()) == []


def test_what_writes_makes_one(tmp_path: Path) -> None:
    pytest.importorskip("anywidget", reason="anywidget is not installed")
    tw.lab(FUNC, "cpu -mcpu=x86-64-v3 -threads=1", tmp_path / "lab.db").close()
    assert TuningDatabase(tmp_path / "lab.db", create=False).measurements() == []


def test_nothing_is_made_for_what_is_refused(tmp_path: Path) -> None:
    with refused(tw.TuningError, "trials", "0"):
        tw.tune(FUNC, database=tmp_path / "tuning.db", trials=0)
    (tmp_path / "results.jsonl").write_text("no results")
    with pytest.raises(ArtifactError):
        import_results(tmp_path / "results.jsonl", tmp_path / "tuning.db")
    assert [p.name for p in tmp_path.iterdir()] == ["results.jsonl"]


# The shell

ABOUT_A_DATABASE = {
    "report": ("report", "--out", "-"),
    "watch": ("watch", "--once"),
    "list": ("db", "list", "--json"),
    "prune": ("db", "prune", "--json"),
}
"""Commands that take a database alone: as an argument, or by `--db`."""


@pytest.fixture
def shell(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Callable[..., tuple[int, str]]:
    """Run a command; return its status and what it prints."""

    def run(*words: object) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["tilewright", *map(str, words)])
        status = 0
        try:
            main()
        except SystemExit as ended:
            status = int(ended.code or 0)
        out, err = capfdbinary.readouterr()
        return status, (out or err).decode()

    return run


@pytest.mark.parametrize("name", ABOUT_A_DATABASE)
def test_a_database_is_an_argument_or_an_option(
    name: str,
    path: Path,
    shell: Callable[..., tuple[int, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = ABOUT_A_DATABASE[name]
    expected = shell(*words, path)
    assert expected[0] == 0
    assert without_the_moment(shell(*words, "--db", path)) == without_the_moment(expected)
    status, said = shell(*words, path, "--db", "other.db")
    assert status == 2
    assert "expected one; leave one out" in " ".join(said.split())
    monkeypatch.setenv("TILEWRIGHT_DB", str(path.with_name("missing.db")))
    assert without_the_moment(shell(*words, path)) == without_the_moment(expected)
    assert without_the_moment(shell(*words, "--db", path)) == without_the_moment(expected)
    assert shell(*words) == (1, shell(*words, path.with_name("missing.db"))[1])
    monkeypatch.setenv("TILEWRIGHT_DB", str(path))
    assert without_the_moment(shell(*words)) == without_the_moment(expected)


def without_the_moment(told: tuple[int, str]) -> tuple[int, str]:
    """What is told, without when the page was made."""
    return told[0], re.sub(r"read at [-0-9 :]+", "", told[1])


def test_every_command_that_opens_a_database_has_the_option() -> None:
    groups = [app, *(g.typer_instance for g in app.registered_groups if g.typer_instance)]
    commands = [c.callback for group in groups for c in group.registered_commands if c.callback]
    parameters = {f"{c.__module__}.{c.__name__}": inspect.signature(c).parameters for c in commands}
    opening = {name: p for name, p in parameters.items() if {"db", "database"} & set(p)}
    assert len(opening) >= 15
    assert [name for name, p in opening.items() if "db" not in p] == []
