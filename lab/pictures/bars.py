"""Tables with a picture in each row, and a bar of parts.

The figures are text and the pictures repeat them, so screen readers read the table alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import htpy as h

from .charts import WIDTH, figure, number, shortened, svg
from .page import text
from .scales import Axis, Scale, labelled, plottable, width_of
from .tables import Cell, Column, Row, table

_WIDE, _HIGH = 192, 18
_MIDDLE = _HIGH / 2
_BAR = 22
_NAME = 160
"""Characters of a name that are shown."""


@dataclass(frozen=True)
class Interval:
    """A value of a row between the ends of its interval, if that is known.

    `name` is the row's, `cells` are those of the other columns, and `words` follow the picture. One
    that is `off` the axis is an arrow with its number.
    """

    name: str
    cells: Sequence[h.Node | Cell]
    value: float
    ends: tuple[float, float] | None
    words: str = ""
    off: bool = False


def bars(
    caption: str,
    rows: Sequence[tuple[str, float]],
    *,
    head: tuple[str, str],
    write: Callable[[float], str] = "{:,.4g}".format,
) -> h.Element:
    """A table of names and numbers from 0 on, each with a bar."""
    most = max((value for _, value in rows if plottable(value)), default=0.0) or 1.0
    columns = [Column(head[0]), Column(head[1], number=True), Column("")]
    body = [(text(name, _NAME), write(v), _picture(_bar(v, most))) for name, v in rows]
    return table(caption, columns, body)


def intervals(
    caption: str,
    rows: Sequence[Interval],
    *,
    head: Sequence[Column],
    axis: Axis,
    beside: float,
) -> h.Element:
    """A table of values with their intervals on one scale, which has a line at `beside`.

    `head` are the columns of the name and the cells.
    """
    values = [v for row in rows if not row.off for v in (row.value, *(row.ends or ()))]
    scale = Scale.around([*values, beside], 6, _WIDE - 6, axis)
    line = h.path(".zero", d=f"M{number(scale(beside))} 0V{_HIGH}")
    body: list[Row] = [
        (
            shortened(row.name),
            *row.cells,
            _picture([line, _arrow(row, axis) if row.off else _whiskers(row, scale)]),
            h.span(".words")[text(row.words)],
        )
        for row in rows
    ]
    ticks = labelled(scale.ticks(50), axis, scale, lambda label: width_of(label) + 8)
    labels = [h.text(x=number(at), y="12", text_anchor="middle")[label] for at, label in ticks]
    foot = ("", *("" for _ in head[1:]), _picture(h.g(".axes")[labels]), "")
    columns = [*head, Column(axis.label), Column("")]
    return table(caption, columns, body, foot=foot)


def parts(
    title: str, rows: Sequence[tuple[str, float]], write: Callable[[float], str]
) -> h.Element:
    """A bar divided into parts in the order given, with a table of their values and shares."""
    known = [(name, value) for name, value in rows if plottable(value) and value > 0]
    total = sum(value for _, value in known)
    if not known:
        return figure(title, None, "There is nothing to show.")
    drawn, left = list[h.Node](), 0.0
    for name, value in known:
        wide = WIDTH * value / total
        drawn.append(
            h.rect(x=number(left), y="0", width=number(max(wide - 1, 0.5)), height=str(_BAR))
        )
        label = shortened(name)
        if width_of(label) < wide:
            at = number(left + wide / 2)
            drawn.append(h.text(x=at, y=str(_BAR + 13), text_anchor="middle")[label])
        left += wide
    shares = [(name, write(value), f"{value / total:.0%}") for name, value in known]
    summary = ", ".join(f"{name} {value} ({share})" for name, value, share in shares)
    columns = [Column(""), Column("time", number=True), Column("share", number=True)]
    body = [(text(name), value, share) for name, value, share in shares]
    picture = svg(f"{title}: {summary}", _BAR + 16, h.g(".parts")[drawn])
    return figure(title, picture, table=table(title, columns, body))


def _picture(content: h.Node) -> h.Element:
    return h.svg(".cell", viewBox=f"0 0 {_WIDE} {_HIGH}", aria_hidden="true")[content]


def _bar(value: float, most: float) -> h.Node:
    if not plottable(value) or value <= 0:
        return None
    return h.rect(".bar", x="0", y="4", width=number(max(1.0, _WIDE * value / most)), height="10")


def _arrow(row: Interval, axis: Axis) -> h.Node:
    """An arrow to the right, beside the number that is off the axis."""
    label = h.text(x=str(_WIDE - 22), y="13", text_anchor="end")[axis.write(row.value)]
    return [label, h.path(".whisker", d=f"M{_WIDE - 18} {_MIDDLE:g}h15m-5-4l5 4l-5 4")]


def _whiskers(row: Interval, scale: Scale) -> h.Node:
    """A dot and its interval; the dot is hollow where there is no interval."""
    if not plottable(row.value, logarithmic=scale.logarithmic):
        return None
    whiskers = None
    if row.ends is not None:
        ends = [v for v in row.ends if plottable(v, logarithmic=scale.logarithmic)]
        low, high = (scale(min([*ends, row.value])), scale(max([*ends, row.value])))
        path = f"M{number(low)} 5v8m0-4H{number(high)}m0-4v8"
        whiskers = h.path(".whisker", d=path)
    shape = "at" if row.ends is not None else "at open"
    dot = h.circle(class_=shape, cx=number(scale(row.value)), cy=f"{_MIDDLE:g}", r="3.5")
    return [whiskers, dot]
