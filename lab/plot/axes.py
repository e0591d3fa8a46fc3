"""Axes of `tw.plot`: of times, and of rows that have a text on both sides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, isfinite
from typing import TYPE_CHECKING, Literal

from ...base.durations import format_seconds
from ..pictures.page import text
from ..pictures.scales import plottable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FEW_ACROSS, _FEW_DOWN = 30, 1000
"""Up to these ratios of their ends, logarithmic axes have three ticks in a decade, else one."""
_EVEN = 3
"""Up to this ratio of its ends a logarithmic axis has ticks at even distances, as a linear one."""
_TICKS = 5
SMALL = 8.0
"""Points of the texts of rows, at most."""
_CHARACTER = 0.6
"""The mean width of a character over the size of its font; of capitals and digits rather."""
_ROW, _AROUND = 0.21, 1.0
"""The heights in inches of a row, and of what is above and below all of them."""
_BARS = 3.6
"""The width in inches of bars between their texts."""
_PAD = 8.0
"""Points between axes and the texts beside them."""
_SHORTEST, _LONGEST = 8, 120
"""Characters to which a text is cut: at least, and a title or the name of a version."""


def prepared(ax: Axes | None, *, shown: bool, size: tuple[float, float] = (6.4, 4.8)) -> Axes:
    """The axes to draw on, which say so where nothing is `shown`; a new figure is of that size."""
    import matplotlib.pyplot as plt

    if ax is None:
        _, ax = plt.subplots(figsize=size, layout="constrained")
    if not shown:
        ax.text(0.5, 0.5, "There is nothing to show.", ha="center", transform=ax.transAxes)
    return ax


def axes_of_rows(ax: Axes | None, left: Sequence[str], right: Sequence[str], most: int) -> Axes:
    """Axes of rows from the top down, with a text of up to `most` characters on either side.

    A new figure is as large as that takes. In axes that are there, letters are as small as the rows
    are low, and texts are cut where other axes or the edge of the figure begin; a figure with
    `layout="constrained"` makes room itself.
    """
    import matplotlib.pyplot as plt

    if not left:
        return prepared(ax, shown=False)
    size = SMALL
    if ax is None:
        characters = sum(min(most, max(map(len, texts))) for texts in (left, right))
        width = _BARS + characters * SMALL * _CHARACTER / 72
        height = _AROUND + _ROW * max(4, len(left))
        _, ax = plt.subplots(figsize=(width, height), layout="constrained")
        before = behind = most
    else:
        room = [points - _PAD for points in _room(ax)]
        narrow = max(1.0, min(room) / (_SHORTEST * _CHARACTER))
        size = min(size, narrow, 0.8 * _height(ax) / len(left))
        before, behind = (int(min(most, points / (size * _CHARACTER))) for points in room)
    places = range(len(left))
    ax.set_ylim(len(left) - 0.4, -0.6)
    ax.set_yticks(places, [plain(t, max(_SHORTEST, before)) for t in left], fontsize=size)
    values = ax.secondary_yaxis("right")
    values.set_yticks(places, [plain(t, max(_SHORTEST, behind)) for t in right], fontsize=size)
    values.tick_params(length=0)
    return ax


def _height(ax: Axes) -> float:
    return points_of(ax)[1]


def points_of(ax: Axes) -> tuple[float, float]:
    """The width and height of axes in points."""
    box, points = ax.get_window_extent(), 72 / ax.figure.dpi
    return box.width * points, box.height * points


def fitting(texts: Sequence[str], width: float) -> float:
    """The size of letters with which each of some texts is at most that wide, in points."""
    return min(SMALL, width / (_CHARACTER * max(map(len, texts), default=1)))


def thinned(count: int, most: float) -> list[int]:
    """The numbers of so many evenly spaced things of which at most `most` have room, from 0."""
    stride = max(1, ceil((count - 1) / max(1.0, most - 1)))
    return list(range(0, count, stride))


def legend(ax: Axes, *, own: bool) -> None:
    """A legend: in a figure of our `own` beside the axes, else in them, as small as fits."""
    names = ax.get_legend_handles_labels()[1]
    if own:
        ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=SMALL)
        return
    width, height = points_of(ax)
    size = min(fitting(names, 0.8 * width), height / (1.6 * max(1, len(names))))
    ax.legend(fontsize=size)


def _room(ax: Axes) -> tuple[float, float]:
    """The points that are free left and right of axes, half of them where others are beside it."""
    figure = ax.figure
    if figure.get_layout_engine() is not None:
        return float("inf"), float("inf")
    box = ax.get_window_extent()
    others = [other.get_window_extent() for other in figure.axes if other is not ax]
    beside = [b for b in others if b.y0 < box.y1 and box.y0 < b.y1]
    left = [(box.x0 - b.x1) / 2 for b in beside if b.x1 <= box.x0]
    right = [(b.x0 - box.x1) / 2 for b in beside if b.x0 >= box.x1]
    points = 72 / figure.dpi
    free = min(left, default=box.x0), min(right, default=figure.bbox.width - box.x1)
    return free[0] * points, free[1] * points


def drawn(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """The coordinates of the points that can be drawn on logarithmic axes of times."""
    kept = [p for p in points if plottable(p[0]) and plottable(p[1], logarithmic=True)]
    return [x for x, _ in kept], [y for _, y in kept]


def log_seconds(ax: Axes, which: Literal["x", "y"], label: str | None) -> None:
    """Make an axis one of times, on a logarithmic scale."""
    logarithmic(ax, which, format_seconds)
    if label is not None:
        (ax.xaxis if which == "x" else ax.yaxis).set_label_text(label)


def logarithmic(ax: Axes, which: Literal["x", "y"], write: Callable[[float], str]) -> None:
    """Make the scale of an axis logarithmic, with ticks at round values; none without data."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

    axis = ax.xaxis if which == "x" else ax.yaxis
    if not isfinite(ax.dataLim.minposx if which == "x" else ax.dataLim.minposy):
        axis.set_ticks([])
        return
    ax.set(**{f"{which}scale": "log"})
    low, high = ax.get_xlim() if which == "x" else ax.get_ylim()
    few = _FEW_ACROSS if which == "x" else _FEW_DOWN
    if high < _EVEN * low:
        axis.set_major_locator(MaxNLocator(_TICKS))
        axis.set_minor_locator(NullLocator())
    else:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < few * low else (1.0,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: write(value)))
    axis.set_minor_formatter(NullFormatter())


def plain(words: str, most: int = _LONGEST) -> str:
    """Words of a program or a database, cut, which matplotlib would read as formulas in part."""
    return text(words.replace("\n", " "), most).replace("$", r"\$")
