"""The picture of a schedule: its programs as they are now, and its steps with what each changed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import htpy as h

from ...schedule import Schedule
from ...tir.ir import Func
from .page import text
from .program import program
from .trace import steps


def view(schedule: Schedule) -> h.Node:
    """The picture of a schedule."""
    return h.div(".tw-schedule")[
        _programs(schedule),
        _decisions(schedule),
        h.h4["Steps"],
        steps(schedule.trace, [_changed(*pair) for pair in pairwise(schedule.history)]),
    ]


def _programs(schedule: Schedule) -> Iterator[h.Node]:
    several = len(schedule.funcs) > 1
    for name, func in schedule.funcs.items():
        if several:
            here = ", where steps are applied" if func is schedule.func else ""
            yield h.h4[f"Program {text(name)}{here}"]
        yield program(func)


def _changed(before: tuple[Func, ...], after: tuple[Func, ...]) -> tuple[Func, Func]:
    """The program that a step changed, before and after it; any where it changed none."""
    pairs = list(zip(before, after, strict=True))
    return next((pair for pair in pairs if pair[0] is not pair[1]), pairs[0])


def _decisions(schedule: Schedule) -> h.Node:
    """The open decisions of a symbolic schedule, each with its range."""
    if schedule.space is None or not schedule.space.bounds:
        return None
    ranges = [f"{text(v)} from {low} to {high}" for v, (low, high) in schedule.space.bounds.items()]
    return h.p[f"Open decisions: {'; '.join(ranges)}."]
