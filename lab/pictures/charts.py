"""Charts as inline SVG: they need no library to be seen, follow the theme, and read without colour.

A chart has two axes and layers: lines, steps, clouds of many marks, and points with a name each.

    chart("Best so far", Axis("wall-clock"), Axis("time of a call", format_seconds, True),
          Layer("trials", trials, "cloud"), Layer("best so far", best, "steps"))

Layers differ by dashes and by the shapes of marks, besides colours. Lines carry their names. A text
of the figure's content is there for screen readers, and the points that have names or form a line
are also in a folded table.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import atan2, degrees
from typing import Literal, NamedTuple

import htpy as h

from ...base.text import count
from .page import text
from .scales import Axis, Scale, labelled, plottable, width_of
from .tables import Column
from .tables import table as table_of

WIDTH, HEIGHT = 440, 260
_TOP, _BOTTOM, _RIGHT = 26, 38, 12
_LINE = 13
"""Pixels between the baselines of two labels."""
_APART = 80
"""Pixels between the beginnings of names on neighbouring slanted lines."""
_ABOVE = 5
"""Pixels between a line and the name over it."""
_NAME = 40
"""Characters of a name on a chart."""
_MARKS = 1200
"""Marks of a cloud that are drawn; where there are more, those that nearly coincide are one."""
_ROWS = 24
"""Rows of the folded table of a line."""
_SHAPES = ("h0", "m-2.5 2.5h5l-2.5-5z", "m-2.5-2.5l5 5m0-5l-5 5", "m-3 0h6m-3-3v6", "m-2-2h4v4h-4z")
"""Marks as paths from their middle: a dot, a triangle, a cross, a plus and a square."""
_STYLES = 5

Kind = Literal["steps", "line", "cloud", "points"]
Point = tuple[float, float]


@dataclass(frozen=True)
class Layer:
    """Points of a chart in the units of its axes, and how they are drawn.

    `steps` are a line that keeps a value until the next point. Each of the `points` has a name of
    `names`, and the last `labels` of them stand beside their marks; all are in the folded table.
    `slanted`: the name of a line stands at its beginning and follows it.
    """

    name: str
    points: Sequence[Point]
    kind: Kind = "line"
    names: Sequence[str] = ()
    slanted: bool = False
    labels: int = 12

    @property
    def is_line(self) -> bool:
        return self.kind in ("steps", "line")


class _Plot(NamedTuple):
    """The scales of a chart, and the words of its axes."""

    x: Scale
    y: Scale
    x_axis: Axis
    y_axis: Axis


def chart(
    title: str,
    x: Axis,
    y: Axis,
    *layers: Layer,
    diagonal: bool = False,
    notes: Sequence[str] = (),
    empty: str = "There is nothing to show.",
) -> h.Element:
    """A figure of the layers; with `diagonal` the line where both axes have the same value.

    `notes` are sentences below it, and `empty` is the one that stands there without any points.
    """
    shown = [_plottable(layer, x, y) for layer in layers]
    missing = sum(len(a.points) - len(b.points) for a, b in zip(layers, shown, strict=True))
    remarks = [*notes]
    if missing:
        remarks.append(f"{count(missing, 'point')} without a finite value not shown.")
    points = [point for layer in shown for point in layer.points]
    if not points:
        return figure(title, None, empty, *remarks)
    xs, ys = [p[0] for p in points], [p[1] for p in points]
    if diagonal:
        xs = ys = xs + ys
    plot = _plot(xs, ys, x, y)
    drawn: list[h.Node] = [_grid(plot)]
    if diagonal:
        drawn.append(_diagonal(plot))
    for layer, style in zip(shown, _styles(shown), strict=True):
        node, note = _layer(plot, layer, style, behind=_behind(layer, shown))
        drawn.append(node)
        remarks += [note] if note else []
    drawn.append(_names(plot, shown))
    summary = f"{y.label} against {x.label}. {' '.join(_words(layer, x, y) for layer in shown)}"
    return figure(
        title,
        svg(f"{title}: {summary}", HEIGHT, drawn),
        *remarks,
        legend=_legend(shown),
        table=_table(title, shown, x, y),
    )


def figure(
    title: str,
    picture: h.Node,
    *notes: str,
    legend: h.Node = None,
    table: h.Node = None,
    broad: bool = False,
) -> h.Element:
    """A picture with its title, a legend, remarks, and a folded table of what it shows.

    A `broad` one may be as wide as the page, and scrolls where it is wider.
    """
    if broad:
        picture = h.div(".wide", tabindex="0", role="group", aria_label=text(title))[picture]
    return h.figure(class_=["chart", {"broad": broad}])[
        h.figcaption[text(title)],
        picture,
        legend,
        [h.p(".soft")[text(note)] for note in notes],
        h.details[h.summary["As a table"], table] if table is not None else None,
    ]


def svg(description: str, height: float, content: h.Node, width: float = WIDTH) -> h.Element:
    """A drawing of `width` by `height` pixels, which screen readers take as one image."""
    described = text(description)
    return h.svg(
        viewBox=f"0 0 {width:g} {height:g}",
        width=f"{width:g}",
        role="img",
        aria_label=described,
    )[h.title[described], content]


def mark(style: int, *, behind: bool = False) -> h.Element:
    """The mark of a cloud, for a legend."""
    return h.svg(".mark", viewBox="0 0 12 12", aria_hidden="true")[
        h.path(class_=["cloud", _colour(style, behind=behind)], d=f"M6 6{_SHAPES[style]}")
    ]


def number(value: float) -> str:
    """A coordinate with a digit after the point, as short as it can be."""
    short = f"{value:.1f}".removesuffix(".0")
    return "0" if short == "-0" else short


def thinned(points: Sequence[Point], most: int = _MARKS) -> list[Point]:
    """Pixels of marks, each once; if there are more than `most`, near ones are taken as one."""
    cell = 1.0
    while True:
        kept = {(round(x / cell), round(y / cell)): (x, y) for x, y in points}
        if len(kept) <= most:
            return list(kept.values())
        cell *= 1.25


def spread(wanted: Sequence[float], low: float, high: float, least: float = _LINE) -> list[float]:
    """Positions near the wanted ones, in their order, `least` apart where there is room."""
    order = sorted(range(len(wanted)), key=lambda k: wanted[k])
    placed = [0.0] * len(wanted)
    at = low - least
    for k in order:
        at = placed[k] = max(wanted[k], at + least)
    limit = high + least
    for k in reversed(order):
        limit = placed[k] = max(low, min(placed[k], limit - least))
    return placed


def _styles(layers: Sequence[Layer]) -> list[int]:
    """The number of the style of each layer: lines and marks are counted apart."""
    lines, marks = itertools.count(), itertools.count()
    return [next(lines if layer.is_line else marks) % _STYLES for layer in layers]


def _behind(layer: Layer, layers: Sequence[Layer]) -> bool:
    """Whether it is a cloud that is drawn in grey, because lines are the matter of the chart."""
    return layer.kind == "cloud" and any(other.is_line for other in layers)


def _colour(style: int, *, behind: bool) -> str:
    return f"c{style} quiet" if behind else f"c{style}"


def _plottable(layer: Layer, x: Axis, y: Axis) -> Layer:
    keep = [
        plottable(a, logarithmic=x.logarithmic) and plottable(b, logarithmic=y.logarithmic)
        for a, b in layer.points
    ]
    if all(keep):
        return layer
    names = [n for n, k in zip(layer.names, keep, strict=True) if k] if layer.names else ()
    points = [p for p, k in zip(layer.points, keep, strict=True) if k]
    return replace(layer, points=points, names=names)


def _plot(xs: Sequence[float], ys: Sequence[float], x: Axis, y: Axis) -> _Plot:
    down = Scale.around(ys, HEIGHT - _BOTTOM, _TOP, y)
    widest = max((width_of(y.write(v)) for v in down.ticks(2 * _LINE)), default=0)
    along = Scale.around(xs, widest + 8, WIDTH - _RIGHT, x)
    return _Plot(along, down, x, y)


def _grid(plot: _Plot) -> h.Node:
    """Lines at ticks with their values, and the words of the axes."""
    left, right, low = plot.x.begin, plot.x.end, plot.y.begin
    across = labelled(plot.y.ticks(2 * _LINE), plot.y_axis, plot.y, lambda _: _LINE)
    along = labelled(plot.x.ticks(60), plot.x_axis, plot.x, lambda t: width_of(t) + 10)
    lines = [f"M{number(left)} {number(at)}H{number(right)}" for at, _ in across]
    lines += [f"M{number(at)} {number(low)}v4" for at, _ in along]
    return h.g(".axes")[
        h.path(d="".join(lines)),
        [_text(left - 6, at + 4, label, "end") for at, label in across],
        [
            _text(min(at, WIDTH - width_of(label) / 2), low + 16, label, "middle")
            for at, label in along
        ],
        _text(0, 11, text(plot.y_axis.label)),
        _text(right, HEIGHT - 6, text(plot.x_axis.label), "end"),
    ]


def _diagonal(plot: _Plot) -> h.Node:
    return h.path(".diagonal", d=_line([(plot.x(v), plot.y(v)) for v in (plot.x.low, plot.x.high)]))


def _layer(plot: _Plot, layer: Layer, style: int, *, behind: bool) -> tuple[h.Node, str | None]:
    """The drawing of a layer, and a remark where not all marks are drawn."""
    at = [(plot.x(x), plot.y(y)) for x, y in layer.points]
    if not at:
        return None, None
    if layer.is_line:
        return h.path(class_=f"line c{style} d{style}", d=_line(at, layer.kind)), None
    marks = thinned(at)
    path = "".join(f"M{number(x)} {number(y)}{_SHAPES[style]}" for x, y in marks)
    pixels = len({(round(x), round(y)) for x, y in at})
    note = None
    if len(marks) < pixels:
        note = f"{len(marks):,} marks stand for {len(at):,} {layer.name}; near ones are one mark."
    return h.path(class_=[layer.kind, _colour(style, behind=behind)], d=path), note


def _line(at: Sequence[Point], kind: Kind = "line") -> str:
    (x, y), *rest = at
    parts = [f"M{number(x)} {number(y)}"]
    for a, b in rest:
        if kind == "line":
            parts.append(f"L{number(a)} {number(b)}")
        else:
            parts.append(f"H{number(a)}" if number(b) == number(y) else f"H{number(a)}V{number(b)}")
        y = b
    if len(at) == 1:
        parts.append("m-4 0h8")
    return "".join(parts)


def _names(plot: _Plot, layers: Sequence[Layer]) -> h.Node:
    """The names of lines at their ends, those of points beside them, none over another."""
    nodes: list[h.Node] = []
    flat: list[tuple[float, float, str, str]] = []
    slanted = any(layer.slanted for layer in layers)
    for layer in layers:
        at = [(plot.x(x), plot.y(y)) for x, y in layer.points]
        if layer.is_line and at:
            name = shortened(layer.name)
            if layer.slanted:  # alternately near and far, for lines that are close together
                nodes.append(_along(at, name, 6 + len(nodes) % 2 * _APART))
            else:
                x = max(at[-1][0], plot.x.begin + width_of(name))
                flat.append((x, at[-1][1] - _ABOVE, name, "end"))
        for (x, y), n in list(zip(at, layer.names, strict=False))[-layer.labels :]:
            name, wide = shortened(n), width_of(shortened(n))
            if (
                slanted and x + 8 + wide <= plot.x.end
            ):  # what rises from the left has its names there
                flat.append((x + 8, y + 4, name, "start"))
            else:
                flat.append((max(x - 6, plot.x.begin + wide), y - 6, name, "end"))
    # Names make room upwards, as below are the line and the marks that they name.
    heights = spread([-y for _, y, *_ in flat], 4 - plot.y.begin, _ABOVE - plot.y.end)
    nodes += [_text(x, -y, n, side) for (x, _, n, side), y in zip(flat, heights, strict=True)]
    return h.g(".names")[nodes]


def _along(at: Sequence[Point], name: str, start: float) -> h.Node:
    """A name on a line, from so many pixels after its beginning on."""
    (x, y), (to_x, to_y) = at[0], at[-1]
    angle = degrees(atan2(to_y - y, to_x - x))
    turned = f"rotate({number(angle)} {number(x)} {number(y)})"
    return h.text(x=number(x + start), y=number(y - 4), transform=turned)[name]


def shortened(name: str) -> str:
    """A name as it is written on a chart."""
    return text(name, _NAME)


def _text(x: float, y: float, words: str, anchor: str | None = None) -> h.Element:
    return h.text(x=number(x), y=number(y), text_anchor=anchor)[words]


def _legend(layers: Sequence[Layer]) -> h.Node:
    """The marks of clouds by name, if there is more than one layer; of named points likewise."""
    if len(layers) < 2:
        return None
    named = [layer for layer in layers if layer.names]
    items = [
        h.li[mark(style, behind=_behind(layer, layers)), shortened(layer.name)]
        for layer, style in zip(layers, _styles(layers), strict=True)
        if not layer.is_line and layer.points and (len(named) > 1 or not layer.names)
    ]
    return h.ul(".legend")[items] if items else None


def _words(layer: Layer, x: Axis, y: Axis) -> str:
    """The content of a layer in a sentence."""
    if not layer.points:
        return f"{layer.name}: nothing."
    ys = [b for _, b in layer.points]
    if layer.is_line:
        ends = f"from {y.write(ys[0])} at {x.write(layer.points[0][0])}"
        return f"{layer.name}: {ends} to {y.write(ys[-1])} at {x.write(layer.points[-1][0])}."
    if layer.names:
        each = (f"{n} {y.write(b)}" for n, b in zip(layer.names, ys, strict=True))
        return f"{layer.name}: {', '.join(list(each)[:_ROWS])}."
    return (
        f"{layer.name}: {len(layer.points):,} marks, from {y.write(min(ys))} to {y.write(max(ys))}."
    )


def _table(title: str, layers: Sequence[Layer], x: Axis, y: Axis) -> h.Node:
    rows = [
        (name, a, b)
        for layer in layers
        if layer.is_line or layer.names
        for name, (a, b) in _named(layer)
    ]
    if not rows:
        return None
    columns = [Column(""), Column(x.label, number=True), Column(y.label, number=True)]
    body = [(text(name), x.write(a), y.write(b)) for name, a, b in rows]
    return table_of(title, columns, body)


def _named(layer: Layer) -> list[tuple[str, Point]]:
    names = layer.names or [layer.name] * len(layer.points)
    rows = list(zip(names, layer.points, strict=True))
    stride = -(-len(rows) // _ROWS)
    return rows[: len(rows) - 1 : stride] + rows[-1:] if stride > 1 else rows
