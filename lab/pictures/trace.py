"""The picture of a trace: its steps in order, each folded over the difference that it made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import htpy as h

from ...schedule import Trace
from ...schedule.trace import Step, step_text
from ...tir.ir import Func
from .changes import Change, changes, picture, summary
from .program import highlighted

MOST_COMPARED = 100
"""Steps, the last ones, whose difference is shown."""
MOST_LINES = 40
"""Lines of a step's difference."""


def view(trace: Trace) -> h.Node:
    """The picture of a trace by itself, which knows no program."""
    return steps(trace)


def steps(trace: Trace, programs: Sequence[tuple[Func, Func]] = ()) -> h.Node:
    """The steps of a trace; with the `programs` before and after each of them, what they changed.

    Of a long trace the last steps have their differences.
    """
    changing = [n for n, (before, after) in enumerate(programs) if before is not after]
    known = {n: changes(*programs[n]) for n in changing[-MOST_COMPARED:]}
    lines = statements(trace)
    left = len(changing) - len(known)
    note = f"The differences of the last {len(known)} steps are shown, of {left} others not. "
    return h.div(".tw-trace")[
        h.p(".caption")[
            f"{len(lines)} steps. ",
            note if left > 0 else None,
            "Open a step to see what it changed." if known else None,
        ],
        h.ol(start="0")[(h.li[_step(n, line, known.get(n))] for n, line in enumerate(lines))]
        if lines
        else None,
    ]


def statements(trace: Trace) -> list[str]:
    """The steps as Python statements, those of `Trace.as_python`."""
    return [statement(step, first) for step, first in zip(trace, _firsts(trace), strict=True)]


def statement(step: Step, first: int) -> str:
    """A step as a Python statement, whose results are numbered from `first` on."""
    return step_text(step, [f"{kind}{first + k}" for k, kind in enumerate(step.outputs)])


def _firsts(trace: Trace) -> Iterator[int]:
    count = 0
    for step in trace:
        yield count
        count += len(step.outputs)


def _step(number: int, line: str, found: list[Change] | None) -> h.Node:
    code = h.code(".tw-code")[highlighted(line)]
    if found is None:
        return code
    return h.details[
        h.summary[code, " ", h.span(".soft")[summary(found)]],
        picture(found, f"what step {number} changed", MOST_LINES),
    ]
