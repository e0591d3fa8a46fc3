"""The decisions of schedules by their names in the printed trace, and a picture of them."""

from __future__ import annotations

import re
from collections.abc import Iterable

import htpy as h

from ..durations import format_seconds
from ..schedule import Trace
from .parallel import parallel


def decisions_of(trace: Trace) -> dict[str, int]:
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


def uses_of(trace: Trace) -> dict[str, str]:
    """The first step that uses each decision, as the trace prints it."""
    names = decisions_of(trace)
    uses: dict[str, str] = {}
    for line in str(trace).splitlines():
        made, equals, call = line.partition(" = ")
        for name in re.findall(r"\bt\d+\b", call if equals else made):
            if name in names:
                uses.setdefault(name, call if equals else made)
    return uses


def decisions_chart(
    candidates: Iterable[tuple[Trace, float]], title: str = "Decisions against time"
) -> h.Node:
    """Parallel coordinates of candidates of one sketch: their traces and times.

    There is none where no decision took several values.
    """
    ordered = sorted(candidates, key=lambda c: c[1])
    rows = [(decisions_of(trace), seconds) for trace, seconds in ordered]
    choices = {choice for decisions, _ in rows for choice in decisions.items()}
    if len(choices) == len({name for name, _ in choices}):
        return None
    return parallel(title, rows, format_seconds, meanings=uses_of(ordered[0][0]))
