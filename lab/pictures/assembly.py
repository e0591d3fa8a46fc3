"""Assembly with its hot block marked: all of a short text, of a long one what is around that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import htpy as h

from ...codegen.hot_block import hot_block
from .assembly_lines import UNKNOWN_LOOPS, Assembly, where
from .page import LINE, text

MOST_LINES = 100
"""Lines of a text that are shown."""
_NAME = 12
"""Characters of the name of a loop beside a line."""


def window(count: int, hot: range | None) -> range:
    """The lines that are shown of so many: those with the hot block in the middle."""
    middle = 0 if hot is None else (hot.start + min(hot.stop, hot.start + MOST_LINES)) // 2
    first = max(0, min(middle - MOST_LINES // 2, count - MOST_LINES))
    return range(first, min(count, first + MOST_LINES))


def assembly(source: str, name: str) -> h.Node:
    """An assembly text, folded, with its lines numbered; `name` says what it is of."""
    return _folded(source.rstrip().split("\n"), hot_block(source), (), name)


def assembly_with_loops(found: Assembly, name: str) -> h.Node:
    """The same with the loop of the program that runs each line beside it."""
    if found.loops is None:
        return [_folded(found.lines, found.hot, (), name), h.p(".soft")[UNKNOWN_LOOPS]]
    return _folded(found.lines, found.hot, [text(n, _NAME) for n in found.names], name)


def _folded(lines: Sequence[str], hot: range | None, loops: Sequence[str], name: str) -> h.Element:
    beside = ", the loop that runs each beside it" if loops else ""
    return h.details[
        h.summary[f"Assembly: {len(lines)} lines, {where(hot)}{beside}"],
        h.pre(".tw-code.tw-asm", tabindex="0", role="group", aria_label=text(name))[
            h.code[_lines(lines, hot, loops)]
        ],
    ]


def _lines(lines: Sequence[str], hot: range | None, loops: Sequence[str]) -> Iterator[h.Node]:
    shown = window(len(lines), hot)
    room = max((len(loops[n]) for n in shown), default=0) if loops else 0
    if shown.start:
        yield h.span(".l.soft")[f"… {shown.start} lines"]
    for n in shown:
        is_hot = hot is not None and n in hot
        yield h.span(".l.here" if is_hot else ".l")[
            _columns(n, lines[n], is_hot, f"{loops[n]:{room}}  " if room else "")
        ]
        yield "\n"
    if shown.stop < len(lines):
        yield h.span(".l.soft")[f"… {len(lines) - shown.stop} lines"]


def _columns(number: int, line: str, is_hot: bool, loop: str) -> h.Node:
    """The number of a line, a mark of the hot block that is no colour, its loop, and the line."""
    shown = text(line.expandtabs(8), LINE)
    return [h.i[f"{number + 1:5} {'>' if is_hot else ' '} {loop}"], shown]
