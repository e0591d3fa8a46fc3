"""The pictures of a trace and of a schedule: steps, each folded over the difference it made."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, takewhile
from typing import Literal, NamedTuple, TypeAlias

import htpy as h

from ...schedule import Schedule, Trace
from ...schedule.trace import Step, step_text
from ...tir.ir import Func
from ...tir.printer import listing
from .page import LINE, text
from .program import highlighted, program

# What a step changed in a program: lines taken away and lines added, as a picture and as text.

Sign: TypeAlias = Literal["-", "+", " ", "…"]
CONTEXT = 1
"""Equal lines that are shown around changed ones."""
_LONG = 2000
"""Lines from which on lines that occur often are no anchors of a comparison."""


class Change(NamedTuple):
    """A line that was taken away or added, or an equal one beside these; `…` stands for others."""

    sign: Sign
    text: str


def changes(before: Func, after: Func) -> list[Change]:
    """The difference of two programs by lines. Lines that are only indented otherwise are equal."""
    return line_changes(*([line.text for line in listing(f).lines] for f in (before, after)))


def line_changes(before: Sequence[str], after: Sequence[str]) -> list[Change]:
    """The difference of two texts by lines.

    Equal ones stand as they are in `after`. Behind lines that were taken away they stand as in
    `before`: what was in a branch that is gone is seen to be of it.
    """
    a, b = [line.strip() for line in before], [line.strip() for line in after]
    same = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False))))
    skip = max(0, same - CONTEXT)  # most steps change little: the equal beginning is not compared
    matcher = difflib.SequenceMatcher(None, a[skip:], b[skip:], autojunk=len(b) > _LONG)
    found: list[Change] = []
    for group in matcher.get_grouped_opcodes(CONTEXT):
        if found:
            found.append(Change("…", ""))
        for tag, a0, a1, b0, b1 in group:
            if tag == "equal":
                behind = CONTEXT if found and found[-1].sign == "-" else 0
                equal = [
                    *before[skip + a0 : skip + a1][:behind],
                    *after[skip + b0 : skip + b1][behind:],
                ]
                found += [Change(" ", line) for line in equal]
                continue
            found += [Change("-", line) for line in before[skip + a0 : skip + a1]]
            found += [Change("+", line) for line in after[skip + b0 : skip + b1]]
    return found


def summary(found: Iterable[Change]) -> str:
    """`-2 +3`: how many lines were taken away, and how many added."""
    signs = [change.sign for change in found]
    return f"-{signs.count('-')} +{signs.count('+')}"


def picture(found: Sequence[Change], name: str, most: int) -> h.Node:
    """The changed lines, `most` of them, with signs; readers hear of deletions and insertions."""
    left = len(found) - most
    return h.pre(".tw-code.tw-diff", tabindex="0", role="group", aria_label=text(name))[
        h.code[
            (_line(change) for change in found[:most]),
            h.span(".l.soft")[f"… {left} more lines"] if left > 0 else None,
        ]
    ]


def _line(change: Change) -> Iterator[h.Node]:
    line = f"{change.sign} ", highlighted(text(change.text, LINE))
    match change.sign:
        case "-":
            yield h.del_(".l")[line]
        case "+":
            yield h.ins(".l")[line]
        case " ":
            yield h.span(".l")[line]
        case "…":
            yield h.span(".l.soft")["…"]
    yield "\n"


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


def schedule_view(schedule: Schedule) -> h.Node:
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
