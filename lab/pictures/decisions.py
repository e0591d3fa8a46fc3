"""The decisions of schedules by the names that the lab gives them, and a picture of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from textwrap import wrap

import htpy as h

from ...base.durations import format_seconds
from ...base.errors import TilewrightError
from ...schedule import Trace
from ...tir.ir import Func
from ...tir.parser import parse
from ...tuning_db import Workload
from ..workbench.slider_steps import sliders_of
from .charts import figure, number, svg
from .page import text
from .scales import Axis, Scale, plottable
from .tables import Column, table


class DecisionNames:
    """Names decisions of schedules of a program as the sliders of the lab: `split(i) factors[1]`.

    The schedules of a sketch have the names that one of them gives. Where no program is known, or
    the schedule does not apply to it, names are those of the printed trace: `t3`.
    """

    def __init__(self, func: Func | None) -> None:
        self._func = func
        self._labels: dict[str, Mapping[str, str]] = {}

    @staticmethod
    def of(workload: Workload | None) -> DecisionNames:
        """Those of the program of a record, if that can be read."""
        try:
            return DecisionNames(None if workload is None else parse(workload.ir))
        except TilewrightError:
            return DecisionNames(None)

    def decisions(self, trace: Trace) -> dict[str, int]:
        """What sampling steps chose, by name; open decisions are left out."""
        labels = self._labels_of(trace)
        return {labels.get(n, n): choice for n, choice in printed_decisions(trace).items()}

    def uses(self, trace: Trace) -> dict[str, str]:
        """The first step that uses each decision, as the trace prints it."""
        labels = self._labels_of(trace)
        return {labels.get(n, n): use for n, use in _printed_uses(trace).items()}

    def _labels_of(self, trace: Trace) -> Mapping[str, str]:
        """Labels by the names of the printed trace."""
        if self._func is None:
            return {}
        sketch = trace.opened().to_json(notes=False)
        if sketch not in self._labels:
            self._labels[sketch] = _labels(self._func, trace)
        return self._labels[sketch]


def _labels(func: Func, trace: Trace) -> dict[str, str]:
    try:
        sliders = sliders_of(func, trace)
    except TilewrightError:  # of another program, or of a version with other primitives
        return {}
    return {f"t{s.drawn.index}": s.label for s in sliders if s.drawn is not None}


def printed_decisions(trace: Trace) -> dict[str, int]:
    """What sampling steps chose, by the names that the printed trace gives: `t3`.

    Open decisions are left out.
    """
    found: dict[str, int] = {}
    number = 0
    for step in trace.steps:
        sampled = [number + k for k, kind in enumerate(step.outputs) if kind == "t"]
        number += len(step.outputs)
        if len(sampled) == len(step.decision):
            taken = zip(sampled, step.decision, strict=True)
            found |= {f"t{n}": choice for n, choice in taken if choice is not None}
    return found


def _printed_uses(trace: Trace) -> dict[str, str]:
    names = printed_decisions(trace)
    uses: dict[str, str] = {}
    for line in str(trace).splitlines():
        made, equals, call = line.partition(" = ")
        for name in re.findall(r"\bt\d+\b", call if equals else made):
            if name in names:
                uses.setdefault(name, call if equals else made)
    return uses


def decisions_chart(
    candidates: Iterable[tuple[Trace, float]], title: str, names: DecisionNames
) -> h.Node:
    """Parallel coordinates of candidates of one sketch: their traces and times.

    There is none where no decision took several values.
    """
    ordered = sorted(candidates, key=lambda c: c[1])
    rows = [(names.decisions(trace), seconds) for trace, seconds in ordered]
    choices = {choice for decisions, _ in rows for choice in decisions.items()}
    if len(choices) == len({name for name, _ in choices}):
        return None
    return parallel(title, rows, format_seconds, meanings=names.uses(ordered[0][0]))


# Parallel coordinates: the decisions of candidates, and their times, one line for each candidate.
#
# Every decision is an axis with its distinct values in their order, at even distances. The fastest
# candidates are drawn strong, the fastest of all with the words of its values.

_HEIGHT, _TOP, _BOTTOM = 320, 64, 16
_SIDE = 56
_STEP = 78
"""Pixels between two axes."""
_LABELS = 9
"""Values of an axis that are written."""
_LINES = 300
_STRONG = 6
_WORDS = 11
"""Characters of a value on an axis."""
_NAME, _NAME_LINES, _LINE = 13, 3, 13
"""Characters of a line of the name of an axis, lines of it, and pixels of a line."""

Choices = Mapping[str, int | float | str]


def parallel(
    title: str,
    rows: Sequence[tuple[Choices, float]],
    write: Callable[[float], str],
    *,
    label: str = "time",
    meanings: Mapping[str, str] | None = None,
) -> h.Element:
    """A figure of decisions by name and the time that each choice of them took.

    Decisions that all rows agree on are left out and named in a remark. `meanings` say in the table
    what decisions are for.
    """
    known = sorted((r for r in rows if plottable(r[1], logarithmic=True)), key=lambda row: row[1])
    names = list(dict.fromkeys(name for choices, _ in known for name in choices))
    places = {name: _places([c[name] for c, _ in known if name in c]) for name in names}
    open_names = [name for name in names if len(places[name]) > 1]
    if not known or not open_names:
        return figure(title, None, "There is nothing to show.")
    kept = _kept(known)
    width = 2 * _SIDE + _STEP * len(open_names)
    end = width - _SIDE
    time = Axis(label, write, logarithmic=True)
    scale = Scale.around([seconds for _, seconds in known], _HEIGHT - _BOTTOM, _TOP, time)
    at = {name: _SIDE + _STEP * k for k, name in enumerate(open_names)}
    lines = [_line(choices, seconds, at, places, scale, end) for choices, seconds in kept]
    strong = min(_STRONG, max(1, len(kept) // 10))
    drawn = [
        h.path(".line.faint", d="".join(lines[strong:])) if lines[strong:] else None,
        h.path(".line.strong", d="".join(lines[1:strong])) if lines[1:strong] else None,
        h.path(".line.best", d=lines[0]),
        h.g(".axes.names")[[_axis(name, at[name], places[name]) for name in open_names]],
        h.g(".axes")[
            h.path(d=f"M{end} {_TOP}V{_HEIGHT - _BOTTOM}"),
            _words(end, _TOP - 14, label),
        ],
        h.g(".axes.names")[
            [_words(end + 5, scale(v) + 4, write(v), "start") for v in scale.ticks(28)]
        ],
    ]
    best, seconds = known[0]
    chosen = ", ".join(f"{name} = {best[name]}" for name in open_names if name in best)
    description = (
        f"{title}: {len(known):,} candidates; the fastest takes {write(seconds)}: {chosen}"
    )
    notes = ["The fastest is the thick line, the next ones are dark."]
    if len(kept) < len(known):
        notes.append(f"{len(kept):,} of {len(known):,} candidates are drawn, evenly by rank.")
    same = [f"{name} = {next(iter(places[name]))}" for name in names if name not in open_names]
    if same:
        notes.append(f"The same in all: {', '.join(same)}.")
    columns = [Column("decision"), Column("of the fastest", number=True), Column("used in")]
    told = meanings or {}
    values = [(text(n), text(best.get(n, "")), text(told.get(n, ""))) for n in names]
    picture = svg(description, _HEIGHT, drawn, width=width)
    return figure(
        title,
        picture,
        *notes,
        table=table("Decisions of the fastest", columns, values),
        broad=True,
    )


def _places(values: Sequence[int | float | str]) -> dict[int | float | str, float]:
    """The distinct values in their order, and their heights."""
    distinct = sorted(set(values), key=lambda v: (isinstance(v, str), v))
    step = (_HEIGHT - _BOTTOM - _TOP) / max(1, len(distinct) - 1)
    return {value: _HEIGHT - _BOTTOM - step * k for k, value in enumerate(distinct)}


def _kept(known: Sequence[tuple[Choices, float]]) -> list[tuple[Choices, float]]:
    """The fastest, and the others at even distances of their ranks."""
    stride = -(-len(known) // _LINES)
    return [*known[:_STRONG], *known[_STRONG::stride]]


def _line(
    choices: Choices,
    seconds: float,
    at: Mapping[str, float],
    places: Mapping[str, Mapping[int | float | str, float]],
    scale: Scale,
    end: float,
) -> str:
    points = [(at[name], places[name][choices[name]]) for name in at if name in choices]
    points.append((end, scale(seconds)))
    return "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points)


def _axis(name: str, at: float, places: Mapping[int | float | str, float]) -> h.Node:
    stride = -(-len(places) // _LABELS)
    shown = list(places.items())[::stride]
    return [
        h.path(d=f"M{number(at)} {_TOP}V{_HEIGHT - _BOTTOM}"),
        [
            _words(at, _TOP - 14 - _LINE * above, line, most=_NAME)
            for above, line in enumerate(reversed(name_lines(name, _NAME)))
        ],
        [_words(at - 5, y + 4, str(value), "end") for value, y in shown],
    ]


def name_lines(name: str, most: int) -> list[str]:
    """The name of an axis in a few lines of `most` characters at most, the last of which is cut."""
    shown = text(name, _NAME_LINES * most)
    lines = wrap(shown, most, break_on_hyphens=False, max_lines=_NAME_LINES, placeholder="…")
    return lines or [""]


def _words(x: float, y: float, words: str, anchor: str = "middle", most: int = _WORDS) -> h.Element:
    return h.text(x=number(x), y=number(y), text_anchor=anchor)[text(words, most)]
