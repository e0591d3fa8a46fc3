"""The picture of an error: what does not hold, where in the program, what clashes, what helps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import htpy as h

from ...base.errors import ScheduleError, TilewrightError
from ...tir.ir import Func
from ...tir.printer import MARK, Line, listing
from .listing import Row
from .page import text
from .program import code, highlighted
from .tables import codes, facts

MOST_ROWS = 24
"""Lines of a program around the place in it."""


def view(error: TilewrightError) -> h.Node:
    """The picture of an error; of a refused step with its program."""
    first, *rest = str(error).split("\n")
    head = h.p(".tw-refusal")[h.b(".bad")[f"{type(error).__name__}: "], text(first)]
    if isinstance(error, ScheduleError) and error.asked is not None:
        return h.div(".tw-error")[head, _step(error), _program(error)]
    more = "\n".join(rest)
    name = f"more about the {type(error).__name__}"
    return h.div(".tw-error")[
        head,
        h.pre(tabindex="0", role="group", aria_label=name)[h.code[text(more)]] if more else None,
    ]


def _step(error: ScheduleError) -> h.Node:
    """The refused step, and what its error knows."""
    handles = ", ".join(f"{ref} is {name}" for ref, name in error.handles.items())
    number = "" if error.step is None else f"step {error.step}, "
    data = error.as_data()
    return facts(
        {
            "Refused": [
                number, h.code(".tw-code")[highlighted(str(error.asked))], f" {text(handles)}",
            ],
            "Expected": _compared(data["found"], data["expected"]),
            "What clashes": text(data["example"] or ""),
            "What helps": text(data["hint"] or ""),
            "Would be legal": codes([str(value) for value in data["alternatives"]]),
            "Handle": text(error.ended or ""),
        }
    )  # fmt: skip


def _compared(found: object, expected: object) -> str:
    if expected is None:
        return ""
    return text(expected if found is None else f"{expected}; found {found}")


def _program(error: ScheduleError) -> h.Node:
    """The program with the place marked; an error of another process has its text alone."""
    func = error.func
    if isinstance(func, Func):
        lines = listing(func, error.place).lines
    else:
        lines = [Line(line) for line in (error.program or "").split("\n")]
    return code(list(_around([Row(line) for line in lines])), "the program, with the place marked")


def _around(rows: Sequence[Row]) -> Iterator[Row]:
    """The rows around the marked one, else the first ones."""
    marked = next((n for n, row in enumerate(rows) if row.line.text.endswith(MARK)), 0)
    first = max(0, min(marked - MOST_ROWS * 2 // 3, len(rows) - MOST_ROWS))
    if first:
        yield Row(Line(f"… {first} lines"))
    yield from rows[first : first + MOST_ROWS]
    if first + MOST_ROWS < len(rows):
        yield Row(Line(f"… {len(rows) - first - MOST_ROWS} lines"))
