"""The pictures of a tuning database, of its records, and of what lookups return."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import htpy as h

from ...base.durations import format_seconds
from ...base.errors import ScheduleError
from ...base.text import count, format_si, short_id
from ...schedule import Trace
from ...tuning_db import (
    AnyRecord,
    Best,
    Explanation,
    Outcome,
    ScheduleRecord,
    TuningDatabase,
    Workload,
    to_plain,
)
from ...tuning_db.explain import choice_text, comparison_text
from ...tuning_db.gains import Gains, gain_cell, gains_text
from ...tuning_db.values import KINDS, NOT_CALM
from .bars import bars
from .page import text
from .programs import Contents, Tuned
from .tables import Cell, Column, Row, table
from .trials import finals, lead, remarks
from .tuning import trace

MOST_ROWS = 50
"""Rows of a table in a notebook."""
_LONG = 200
"""Characters of a value in a table of a record."""
_DIGEST = 64
_LAST = float("inf")
"""The key of cells without a number, which are sorted last."""


def view(value: TuningDatabase | Best | Explanation | AnyRecord) -> h.Node:
    """The picture of a database, a record of one, or the result of a lookup."""
    match value:
        case TuningDatabase():
            return _database(value)
        case Best():
            return best(value)
        case Explanation():
            return _explanation(value)
        case _:
            return record(value)


def _database(database: TuningDatabase) -> h.Node:
    contents = Contents(database)
    groups = contents.programs()
    return h.section(".result")[
        h.h3[text(database.location)],
        summary(contents, len(groups)),
        programs_table([contents.tuned(group) for group in groups[:MOST_ROWS]], len(groups)),
        sessions_table(contents, MOST_ROWS),
        outcomes_table(contents),
    ]


def summary(contents: Contents, programs: int) -> h.Node:
    """How much there is in a database."""
    measurements, trials = contents.measurements, contents.outcomes.total()
    if not measurements and not contents.sessions:
        return lead("no measurements")
    parts = (
        f"{count(measurements, 'measurement')}, of which {count(trials, 'trial')}",
        count(programs, "program"),
        count(len(contents.sessions), "session"),
    )
    return lead(parts[0], *parts[1:])


def programs_table(
    rows: Sequence[Tuned], total: int, names: Sequence[h.Node] | None = None, more: str = ""
) -> h.Node:
    """Programs with their best times and gains; `names` stand for their names.

    `more` says how to see the programs beyond those of the rows.
    """
    if not rows:
        return None
    columns = [
        Column("program"),
        Column("target"),
        Column("compiler"),
        Column("best", number=True),
        Column("rate", number=True),
        Column("vs written", number=True),
        Column("vs untuned", number=True),
        Column("trials", number=True),
        Column("failed", number=True),
    ]
    shown = names or [text(row.name) for row in rows]
    body: list[Row] = [_program(name, row) for name, row in zip(shown, rows, strict=True)]
    return [
        table(_caption("Programs", len(rows), total), columns, body, sortable=True),
        h.p(".soft")[more] if len(rows) < total and more else None,
    ]


def sessions_table(contents: Contents, most: int, more: str = "") -> h.Node:
    """The last sessions of a database; `more` says how to see the others."""
    if not contents.sessions:
        return None
    found = sorted(contents.sessions.values(), key=lambda s: s.started, reverse=True)
    by_session: dict[str, list[int]] = {}
    for tally in contents.tallies:
        pair = by_session.setdefault(tally.session, [0, 0])
        pair[tally.outcome is not Outcome.OK] += tally.trials
    columns = [
        Column("session"),
        Column("program", sentence=True),
        Column("target"),
        Column("status"),
        Column("started"),
        Column("took", number=True),
        Column("trials ok", number=True),
        Column("failed", number=True),
    ]
    body: list[Row] = [
        (
            short_id(s.id),
            _with_remark(text(contents.name(s.workload), _LONG), text(s.noise or "")),
            text(contents.target(s.target), _LONG),
            s.status.value,
            Cell(moment(s.started), s.started.timestamp()),
            seconds_cell(s.duration),
            *map(str, by_session.get(s.id, [0, 0])),
        )
        for s in found[:most]
    ]
    return [
        table(_caption("Sessions", len(body), len(found)), columns, body, sortable=True),
        h.p(".soft")[more] if len(body) < len(found) and more else None,
    ]


def _with_remark(name: str, remark: str) -> Cell:
    """The name of a program, with what is to be said of its session below."""
    return Cell([name, h.div(".soft")[remark] if remark else None], name)


def outcomes_table(contents: Contents) -> h.Node:
    """How many trials had each outcome."""
    counts = contents.outcomes
    if not counts:
        return None
    rows = [(outcome.value, count) for outcome, count in counts.most_common()]
    return bars("Outcomes of trials", rows, head=("outcome", "trials"), write="{:,.0f}".format)


def best(found: Best, gained: Gains | None = None, noise: str | None = None) -> h.Node:
    """The result of a lookup, with its gains and what disturbed its session where it is known."""
    inexact = f"inexact: {found.schedule.inexact}" if found.schedule.inexact else None
    origin = f"schedule {short_id(found.schedule.id)}"
    facts = (origin, choice_text(found), inexact, f"from {found.layer}")
    compared = comparison_text(found) or ""
    return h.section(".result")[
        lead(str(found.time or "no usable time"), *facts),
        remarks(gains_text(gained or {}), f"{compared[:1].upper()}{compared[1:]}"),
        remarks(noise, kind="bad"),
        finals(found.comparison),
        schedule(found.schedule),
    ]


def _explanation(story: Explanation) -> h.Node:
    name = "a workload never seen" if story.name is None else story.name
    refused = [Column("reason"), Column("records", number=True), Column("at best", number=True)]
    near = [Column("shape"), Column("usable", number=True), Column("at best", number=True)]
    reasons: list[Row] = [
        (
            text(f"{group.reason.value}{f': {group.detail}' if group.detail else ''}", _LONG),
            str(group.count),
            seconds_cell(group.seconds),
            text(", ".join(map(short_id, group.examples))),
        )
        for group in story.refused
    ]
    others: list[Row] = [
        (text(n.shape, _LONG), str(n.count), seconds_cell(n.seconds), _kinship(n.relative))
        for n in story.near
    ]
    return h.section(".result")[
        h.h3[text(f"{name} ({short_id(story.workload)})")],
        h.p(".soft")[text(f"{story.target}, searched: {', '.join(story.layers)}")],
        lead("nothing usable")
        if story.best is None
        else best(story.best, story.gains, story.noise),
        table("Records that are not the choice", [*refused, Column("such as")], reasons)
        if reasons
        else None,
        table("Near shapes", [*near, Column("")], others) if others else None,
    ]


def _kinship(relative: bool | None) -> str:
    return {True: "the same program", False: "another program", None: ""}[relative]


def record(value: AnyRecord) -> h.Node:
    """The fields of a record; of a schedule its steps, of a workload its program."""
    plain = {name: field for name, field in to_plain(value).items() if name not in _BODIES}
    body: list[Row] = [(name, text(_field(name, field), _LONG)) for name, field in plain.items()]
    columns = [Column("field"), Column("value")]
    title = f"{value.kind} {short_id(value.id)}"
    more: h.Node = None
    if isinstance(value, ScheduleRecord):
        more = schedule(value)
    elif isinstance(value, Workload):
        more = h.pre(tabindex="0", role="group", aria_label="program")[h.code[text(value.ir)]]
    return h.section(".result")[table(title, columns, body), more]


_BODIES = ("ir", "trace")
"""Fields that are shown as programs."""


def _field(name: str, value: object) -> object:
    """The field of a record; ids of other records are short."""
    if name in KINDS and isinstance(value, str) and len(value) == _DIGEST:
        return short_id(value)
    return "" if value is None else value


def schedule(found: ScheduleRecord) -> h.Node:
    """The steps of a schedule, folded; or why they cannot be read."""
    try:
        steps = Trace.from_json(found.trace, older=True)
    except ScheduleError as error:
        return h.p(".bad")[text(f"its trace cannot be read: {error}")]
    return trace(steps, found.generator)


def _program(name: h.Node, row: Tuned) -> Row:
    found = row.best
    time: h.Node | Cell = Cell("", _LAST)
    if found is not None:
        words = f"{found.time or 'pinned'}{'' if row.noise is None else f', {NOT_CALM}'}"
        time = Cell(words, _LAST if found.seconds is None else found.seconds)
    gains = (row.gains.get(name) for name in ("written", "untuned"))
    return (
        name,
        text(row.target, _LONG),
        text(row.generation, _LONG),
        time,
        Cell("", 0) if row.rate is None else Cell(format_si(row.rate, "FLOP/s"), row.rate),
        *(Cell("", 0) if gain is None else Cell(gain_cell(gain), gain.ratio) for gain in gains),
        Cell(f"{row.trials:,}", row.trials),
        Cell(f"{row.failed:,}", row.failed),
    )


def seconds_cell(seconds: float | None) -> Cell:
    """A time of a table; nothing for none."""
    return Cell("", _LAST) if seconds is None else Cell(format_seconds(seconds), seconds)


def moment(when: datetime) -> str:
    """A time to the minute, in UTC."""
    return f"{when:%Y-%m-%d %H:%M}"


def _caption(what: str, shown: int, total: int) -> str:
    return what if shown == total else f"{what}: {shown:,} of {total:,}"
