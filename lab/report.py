"""The report: one self-contained page of a database, a session or a model, small enough to mail."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import cache
from importlib.resources import files

import htpy as h
from markupsafe import Markup

from .. import __version__
from ..base.errors import TilewrightError
from ..base.text import short_id
from ..graph import Graph
from ..runtime.evidence import Evidence
from ..runtime.model import Model
from ..runtime.partition_evidence import PartitionEvidence
from ..runtime.partitioned import PartitionedModel
from ..tuning_db import Session, utc_now
from ..tuning_db.arguments import opened
from ..tuning_db.store import DatabaseOrPath
from .pictures.database import moment, outcomes_table, programs_table, sessions_table, summary
from .pictures.model import graph_view
from .pictures.page import page, text
from .pictures.programs import Contents, Tuned
from .pictures.session import session_section
from .pictures.tables import Column, table
from .pictures.views import view_of

LIMIT = 800_000
"""Bytes of a page after which no further program is shown in full."""
_PROGRAMS, _SESSIONS = 300, 200
"""Rows of the tables of a database."""
_ROWS, _ROWS_OF_SESSION = 30, 1000
"""Measurements that a table lists, of a program of a database and of a session."""


def report(
    database: DatabaseOrPath | Graph | Model | PartitionedModel,
    session: Session | None = None,
    *,
    now: datetime | None = None,
) -> str:
    """The page of a database, or of a session of it, as HTML; also of a graph or a model.

    The database is read once, at one moment for each session; memory and size are bounded. Raises
    `TilewrightError` for what is no database.
    """
    if isinstance(database, Graph):
        return report_of_model(database, None, now=now)
    if isinstance(database, Model | PartitionedModel):
        return report_of_model(None, database.evidence, now=now)
    store = opened(database, TilewrightError)
    contents = Contents(store)
    if session is not None:
        title, body = f"Session {short_id(session.id)}", _of_session(contents, session)
    else:
        title, body = "Tuning database", list(_of_database(contents))
    return _page(title, f"{store.location}, read", body, now)


def report_of_model(
    graph: Graph | None,
    evidence: Evidence | PartitionEvidence | None,
    *,
    now: datetime | None = None,
) -> str:
    """The page of a graph before and after its passes, and of what a build made of it, as HTML."""
    body: list[h.Node] = []
    if graph is not None:
        rows: list[list[h.Node]] = [
            [h.code[text(name)], str(count)] for name, count in graph.rewrites().items()
        ]
        columns = [Column("rewrite"), Column("times", number=True)]
        body += [
            h.h2["The graph before the passes"],
            graph_view(graph),
            h.h2["The graph after the passes"],
            table("What changed it", columns, rows) if rows else h.p["Nothing changed it."],
            graph_view(graph.optimized()),
        ]
    if evidence is not None:
        body += [h.h2["What the build made of it"], view_of(evidence)]
    names = [graph and graph.name, evidence and evidence.model]
    return _page(f"Model {next(filter(None, names), '')}", "made", body, now)


def _page(title: str, source: str, body: h.Node, now: datetime | None) -> str:
    made = f"{source} at {moment(now or utc_now())} (UTC) by Tilewright {__version__}"
    return page(title, h.h1[text(title)], h.p(".soft")[text(made)], body, script=_script())


def _of_session(contents: Contents, session: Session) -> h.Node:
    tuned = contents.of_session(session)
    heading = h.h2[text(tuned.name)]
    return session_section(
        contents.database, session, tuned, rows=_ROWS_OF_SESSION, heading=heading
    )


def _of_database(contents: Contents) -> Iterator[h.Node]:
    groups = contents.programs()
    rows = [contents.tuned(group) for group in groups[:_PROGRAMS]]
    command = f"tilewright report {shlex.quote(contents.database.location)} --session ID"
    sections, left = _sections(contents, rows)
    names = [_link(n, row, len(sections)) for n, row in enumerate(rows)]
    yield summary(contents, len(groups))
    yield programs_table(rows, len(groups), names, "The others: `tilewright db best`.")
    yield outcomes_table(contents)
    yield sessions_table(contents, _SESSIONS, "The others: `tilewright db list`.")
    yield sections
    if left:
        yield h.p[
            text(f"{left:,} more programs are not shown in full: `{command}` shows a session.")
        ]


def _sections(contents: Contents, rows: Sequence[Tuned]) -> tuple[list[h.Node], int]:
    """The programs in full until the page is full, and how many are left."""
    shown: list[h.Node] = []
    size = 0
    for number, row in enumerate(rows):
        session = contents.sessions.get(row.session)
        if size > LIMIT:
            return shown, len(rows) - number
        heading = h.h2(id=f"program-{number}")[text(row.name)]
        if session is None:
            section: h.Element = h.section[heading, h.p(".bad")["Its session is damaged."]]
        else:
            section = session_section(contents.database, session, row, rows=_ROWS, heading=heading)
        rendered = Markup(str(section))
        size += len(rendered.encode())
        shown.append(rendered)
    return shown, 0


def _link(number: int, row: Tuned, sections: int) -> h.Node:
    """The name of a program, which leads to its section if it has one."""
    name = text(row.name)
    return h.a(href=f"#program-{number}")[name] if number < sections else name


@cache
def _script() -> str:
    return files(__package__).joinpath("report.js").read_text(encoding="utf-8")
