"""The command `watch`: a session that runs anywhere, live, as its database has it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from ..base.errors import DatabaseError
from ..base.text import masked_url
from .options import DatabaseArgument, DatabaseOption, database_named

if TYPE_CHECKING:
    from ..autotune.show.display import LiveDisplay
    from ..autotune.show.recorded_run import RecordedRun


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
