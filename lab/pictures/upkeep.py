"""The pictures of what the upkeep of a database returns: differences and removals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import htpy as h

from ...base.errors import ScheduleError
from ...base.text import count, short_id
from ...schedule import Trace
from ...tuning_db import AnyRecord, DatabaseDiff, RecordDiff, Removal, ScheduleRecord
from ...tuning_db.removal import counted
from .database import MOST_ROWS
from .page import text
from .tables import Column, Row, facts, table
from .trace import line_changes, picture, statements
from .trials import lead, remarks

MOST_LINES = 40
"""Lines of a difference of programs or steps."""
_LONG = 200
"""Characters of a value in a table."""
_EXAMPLES = 3
"""Ids that stand for all of a kind."""
_BODIES = ("ir", "trace")
"""Fields whose difference is one of lines."""

Upkeep: TypeAlias = RecordDiff | DatabaseDiff | Removal


def view(value: Upkeep) -> h.Node:
    """The picture of what `diff`, `compare` or `prune` returns."""
    match value:
        case RecordDiff():
            return _records(value)
        case DatabaseDiff():
            return _databases(value)
        case Removal():
            return _removal(value)


def _records(diff: RecordDiff) -> h.Node:
    one, two = short_id(diff.first.id), short_id(diff.second.id)
    fields = [(n, pair) for n, pair in diff.fields.items() if n not in _BODIES]
    rows: list[Row] = [
        (text(name, _LONG), *(text("" if v is None else v, _LONG) for v in pair))
        for name, pair in fields[:MOST_ROWS]
    ]
    columns = [Column("field"), Column(one), Column(two)]
    differing = count(len(diff.fields), "field") + " differ" + "s" * (len(diff.fields) == 1)
    return h.section(".result")[
        h.h3[text(f"{diff.first.kind}s {one} and {two}")],
        lead(differing if diff.fields else "the same"),
        remarks(None if diff.times is None else f"Times: {diff.times}."),
        table(_caption("Fields", len(fields)), columns, rows) if rows else None,
        (_body(diff, name) for name in _BODIES if name in diff.fields),
    ]


def _body(diff: RecordDiff, name: str) -> h.Node:
    """The lines that programs or the steps of schedules differ in."""
    found = line_changes(*(_lines(r, name, diff.fields[name][n]) for n, r in enumerate(_two(diff))))
    return [
        h.p(".caption")[text(f"{name}:")],
        picture(found, f"the difference of {name}", MOST_LINES),
    ]


def _two(diff: RecordDiff) -> tuple[AnyRecord, AnyRecord]:
    return diff.first, diff.second


def _lines(record: AnyRecord, name: str, value: object) -> list[str]:
    """The lines of a program, or the steps of a schedule; the text of a trace that cannot be read.

    The steps are Python statements.
    """
    if name == "trace" and isinstance(record, ScheduleRecord):
        try:
            return statements(Trace.from_json(record.trace, older=True))
        except ScheduleError as error:
            return [f"it cannot be read: {error}", str(value)]
    return str(value).splitlines()


def _databases(diff: DatabaseDiff) -> h.Node:
    kinds = list(dict.fromkeys([*diff.only_first, *diff.only_second]))
    rows: list[Row] = [
        (
            kind,
            *(
                cell
                for only in (diff.only_first, diff.only_second)
                for cell in (f"{len(only.get(kind, ())):,}", _examples(only.get(kind, ())))
            ),
        )
        for kind in kinds
    ]
    columns = [
        Column("kind"),
        Column("in the first alone", number=True),
        Column("such as"),
        Column("in the second alone", number=True),
        Column("such as"),
    ]
    pins = f"{count(len(diff.pins), 'pin')} of different schedules" if diff.pins else None
    return h.section(".result")[
        facts({"First": text(diff.first), "Second": text(diff.second)}),
        table("Records of one of them alone", columns, rows) if rows else lead("the same records"),
        h.p[text(f"Both have {pins}: {_examples(diff.pins)}")] if pins else None,
    ]


def _removal(removal: Removal) -> h.Node:
    rows: list[Row] = [
        (text(why.value), kind, f"{len(ids):,}", _examples(ids))
        for why, by_kind in removal.reasons.items()
        for kind, ids in by_kind.items()
    ]
    columns = [Column("reason"), Column("kind"), Column("records", number=True), Column("such as")]
    word = "deleted" if removal.done else "to be deleted"
    return h.section(".result")[
        h.h3[text(removal.location)],
        lead(f"{word}: {counted(removal.counts)}" if rows else "nothing to delete"),
        table("Deleted" if removal.done else "To be deleted", columns, rows) if rows else None,
    ]


def _examples(ids: Sequence[str]) -> str:
    """The first ids, and whether there are more."""
    more = ", …" if len(ids) > _EXAMPLES else ""
    return text(", ".join(map(short_id, ids[:_EXAMPLES])) + more)


def _caption(what: str, total: int) -> str:
    return what if total <= MOST_ROWS else f"{what}: {MOST_ROWS} of {total:,}"
