"""The decisions of schedules by the names that the lab gives them, and a picture of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import htpy as h

from ...base.durations import format_seconds
from ...base.errors import TilewrightError
from ...schedule import Trace
from ...tir.ir import Func
from ...tir.parser import parse
from ...tuning_db import Workload
from ..workbench.slider_steps import sliders_of
from .parallel import parallel


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
