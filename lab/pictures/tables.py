"""Tables: a header for each column and row, and what a script needs to sort and filter them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import htpy as h

from .page import text


@dataclass(frozen=True)
class Column:
    """The title of a column; numbers stand to the right, and sentences go on in the next line."""

    title: str
    number: bool = False
    sentence: bool = False

    @property
    def kind(self) -> str | None:
        """The class of its cells, if they have one."""
        return "num" if self.number else "prose" if self.sentence else None


class Cell(NamedTuple):
    """What a cell shows, and the number or text that it is sorted by where that is another one."""

    shown: h.Node
    key: float | str


Row: TypeAlias = Sequence[h.Node | Cell]


def table(
    caption: str,
    columns: Sequence[Column],
    rows: Sequence[Row],
    *,
    foot: Row = (),
    sortable: bool = False,
) -> h.Element:
    """A table whose first column names the rows; it scrolls sideways where it is too wide.

    Texts must be safe (`page.text`). A `sortable` one can be sorted and filtered by the script of
    the report page.
    """
    kinds = [column.kind for column in columns]
    heads = [
        h.th(scope="col", class_=kind)[text(column.title)]
        for column, kind in zip(columns, kinds, strict=True)
    ]
    return h.div(
        class_=["wide", {"tall": sortable}], tabindex="0", role="group", aria_label=text(caption)
    )[
        h.table(class_="sortable" if sortable else None)[
            h.caption[text(caption)],
            h.thead[h.tr[heads]],
            h.tbody[[_row(row, kinds) for row in rows]],
            h.tfoot[_row(foot, kinds)] if foot else None,
        ]
    ]


def _row(cells: Row, kinds: Sequence[str | None]) -> h.Element:
    return h.tr[[_cell(n, cell, kinds[n]) for n, cell in enumerate(cells)]]


def _cell(position: int, cell: h.Node | Cell, kind: str | None) -> h.Element:
    shown, key = (cell.shown, str(cell.key)) if isinstance(cell, Cell) else (cell, None)
    if position == 0:
        return h.th(scope="row", class_=kind, data_key=key)[shown]
    return h.td(class_=kind, data_key=key)[shown]


def facts(known: Mapping[str, h.Node]) -> h.Node:
    """A list of names and values, without those that are `None` or empty.

    Values are text of ours or nodes: what is foreign comes through `page.text`.
    """
    kept = {name: value for name, value in known.items() if value not in (None, "", [], ())}
    if not kept:
        return None
    return h.dl(".tw-facts")[((h.dt[text(name)], h.dd[value]) for name, value in kept.items())]


def codes(values: list[str]) -> h.Node:
    """Short pieces of code beside each other."""
    return [[h.code[text(value)], " "] for value in values] or None
