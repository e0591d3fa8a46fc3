"""The command `report`: a page of a database, for people."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ..base.errors import DatabaseError
from ..base.files import whole_file
from ..base.text import format_bytes
from .options import DatabaseArgument, DatabaseOption, database_named, open_database

_HTML = b"<!doctype html>"


def report(
    database: DatabaseArgument = None,
    db: DatabaseOption = None,
    out: Annotated[
        str, typer.Option("-o", "--out", help="The file; `-` is standard output.")
    ] = "report.html",
    session: Annotated[
        str | None, typer.Option(help="A session by the first digits of its id; default all.")
    ] = None,
) -> None:
    """Write a page of a database, or of one session, as one file to read and to mail.

    It needs no network and no other file. A page that is there is replaced; another file is not.
    """
    from ..lab.report import report as page_of
    from ..tuning_db import Session

    with open_database(database_named(database, db)) as opened:
        only = None if session is None else opened.find(session, Session)
        page = page_of(opened, only)
    if out == "-":
        sys.stdout.buffer.write(page.encode())
        sys.stdout.buffer.flush()
        return
    _replace(Path(out), page.encode())
    typer.echo(f"{out}: {format_bytes(len(page.encode()))}", err=True)


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
