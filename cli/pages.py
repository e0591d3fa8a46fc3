"""The commands `report` and `watch`: a database for people, as a page and live."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..base.errors import DatabaseError
from ..base.files import whole_file
from ..base.text import format_bytes, masked_url
from .graph_options import (
    PROVIDERS,
    Constants,
    Never,
    Placements,
    Providers,
    Shapes,
    sharing,
)
from .graphs import evidence_of, is_built
from .options import (
    WHERE,
    DatabaseArgument,
    DatabaseOption,
    TargetText,
    database_named,
    open_database,
)
from .program_file import Options, load_graph

if TYPE_CHECKING:
    from ..autotune.show.display import LiveDisplay
    from ..autotune.show.recorded_run import RecordedRun

_HTML = b"<!doctype html>"


def report(  # noqa: PLR0913, PLR0917 - each option of a page has a name
    context: typer.Context,
    database: Annotated[
        str | None,
        typer.Argument(
            metavar="[DB|MODEL.onnx|FILE.py:FUNCTION|MODEL.so]",
            help=f"{WHERE}; or a model: its file, the function that makes it, what `build` wrote.",
            show_default=False,
        ),
    ] = None,
    db: Annotated[
        str | None,
        typer.Option(
            "--db",
            metavar="DB",
            show_default=False,
            help="The same database; for a model, where schedules are looked up.",
        ),
    ] = None,
    out: Annotated[
        str, typer.Option("-o", "--out", help="The file; `-` is standard output.")
    ] = "report.html",
    session: Annotated[
        str | None, typer.Option(help="A session by the first digits of its id; default all.")
    ] = None,
    shape: Shapes = None,
    constant: Constants = None,
    target: TargetText = "cpu",
    provider: Providers = None,
    place: Placements = None,
    never: Never = None,
) -> None:
    """Write a page of a database, a session or a model, as one file to read and to mail.

    It needs no network and no other file. A page that is there is replaced; another file is not.
    A model is built; the page has the graph before and after, its groups, kernels and memory.
    """
    sources = ("shape", "constant", "target", "db", "session", "provider", "place", "never")
    built = database is not None and is_built(Path(database), context, *sources)
    model = database is not None and (database.endswith(".onnx") or ".py:" in database)
    if database is not None and (built or model):
        if session is not None:
            raise typer.BadParameter(f"--session is of a database, and {database} is a model")
        if built:
            page = _of_library(Path(database))
        else:
            shared = sharing(provider, place, never)
            options = Options(None, shape, constant, target, foreign=bool(shared))
            page = _of_model(database, options, db, shared)
    else:
        page = _of_database(database_named(database, db), session)
    if out == "-":
        sys.stdout.buffer.write(page.encode())
        sys.stdout.buffer.flush()
        return
    _replace(Path(out), page.encode())
    typer.echo(f"{out}: {format_bytes(len(page.encode()))}", err=True)


def _of_database(location: str, session: str | None) -> str:
    from ..lab.report import report as page_of
    from ..tuning_db import Session

    with open_database(location) as opened:
        return page_of(opened, None if session is None else opened.find(session, Session))


def _of_library(path: Path) -> str:
    from ..lab.report import report_of_model

    return report_of_model(None, evidence_of(path))


def _of_model(name: str, options: Options, db: str | None, shared: dict[str, Any]) -> str:
    from ..building.build import build
    from ..lab.report import report_of_model

    graph = load_graph(name, options)
    with nullcontext() if db is None else open_database(db) as database:
        made = build(graph, options.target, database, **({"providers": PROVIDERS[:1]} | shared))
    return report_of_model(graph, made.evidence)


def _replace(path: Path, page: bytes) -> None:
    """Write the page as a whole.

    Raises `DatabaseError` for what is there and no page, and where writing fails.
    """
    try:
        _require_page(path)
        with whole_file(path) as partial:
            partial.write_bytes(page)
    except (OSError, ValueError) as error:  # a `ValueError` is of a NUL in the path
        raise DatabaseError("cannot write {0}: {1}", path, error) from error


def _require_page(path: Path) -> None:
    """Refuse to replace a file that is no page, such as the database itself."""
    if not path.exists():
        return
    start = _start(path) if path.is_file() else b""
    if start.lower() != _HTML:
        raise DatabaseError(
            "{0} is there, and is no page: it is not replaced", path, hint="name another file"
        )


def _start(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(len(_HTML))


def watch(
    database: DatabaseArgument = None,
    db: DatabaseOption = None,
    session: Annotated[
        str | None,
        typer.Option(help="A session by the first digits of its id; default the newest."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Show it as it is now, and end.")] = False,
    every: Annotated[float, typer.Option(help="Seconds between looks.", min=0.05)] = 1.0,
) -> None:
    """Show a tuning session live, wherever it runs; ends with it. Ctrl-C leaves.

    Begun before the first session of a database, it waits for one.

    Nothing is written into the database. Where output is no terminal, lines are printed.
    """
    from rich.console import Console

    from ..autotune.show.display import LiveDisplay, render
    from ..autotune.show.recorded_run import open_run

    location, console = database_named(database, db), Console()
    if once:
        (picture,) = open_run(location, session).pictures.pictures.values()
        console.print(render(picture, console))
        return
    try:
        with LiveDisplay(console) as display:
            follow(location, session, display, lambda: time.sleep(every))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def follow(
    location: str, session: str | None, display: LiveDisplay, pause: Callable[[], None]
) -> None:
    """Show a session until it ends. What a database lacks for a moment is said, and waited for.

    So is the first session. Raises `DatabaseError` for anything else that is wrong from the
    beginning.
    """
    from ..autotune.session.events import Ended
    from ..autotune.show.recorded_run import open_run

    run: RecordedRun | None = None
    trouble: str | None = None
    opened = False
    while True:
        try:
            if run is not None and (gone := run.gone) is not None:
                display.say(f"{masked_url(location)} {gone}; waiting for a session in it")
                run = None
            run = run or open_run(location, session)
            opened = True
            events = run.poll()
            display.show(events)
            if any(isinstance(event, Ended) for event in events):
                return
            trouble = None
        except DatabaseError as error:
            awaited = session is None and "awaited" in error.data
            if not (opened or awaited):
                raise
            if str(error) != trouble:
                trouble = str(error)
                missing = trouble.partition("\n")[0]
                display.say(
                    f"{missing}; waiting for one, until Ctrl-C"
                    if awaited
                    else f"not readable now, trying again: {trouble}"
                )
        pause()
