"""Assembly with its hot block marked: all of a short text, of a long one what is around that."""

from __future__ import annotations

from collections.abc import Iterator

import htpy as h

from ..codegen.hot_block import hot_block
from .assembly_lines import where
from .page import LINE, text

MOST_LINES = 100
"""Lines of a text that are shown."""


def window(count: int, hot: range | None) -> range:
    """The lines that are shown of so many: those with the hot block in the middle."""
    middle = 0 if hot is None else (hot.start + min(hot.stop, hot.start + MOST_LINES)) // 2
    first = max(0, min(middle - MOST_LINES // 2, count - MOST_LINES))
    return range(first, min(count, first + MOST_LINES))


def assembly(source: str, name: str) -> h.Node:
    """An assembly text, folded, with its lines numbered; `name` says what it is of."""
    lines = source.rstrip().split("\n")
    hot = hot_block(source)
    return h.details[
        h.summary[f"Assembly: {len(lines)} lines, {where(hot)}"],
        h.pre(".tw-code.tw-asm", tabindex="0", role="group", aria_label=text(name))[
            h.code[_lines(lines, hot)]
        ],
    ]


def _lines(lines: list[str], hot: range | None) -> Iterator[h.Node]:
    shown = window(len(lines), hot)
    if shown.start:
        yield h.span(".l.soft")[f"… {shown.start} lines"]
    for n in shown:
        is_hot = hot is not None and n in hot
        yield h.span(".l.here" if is_hot else ".l")[_columns(n, lines[n], is_hot)]
        yield "\n"
    if shown.stop < len(lines):
        yield h.span(".l.soft")[f"… {len(lines) - shown.stop} lines"]


def _columns(number: int, line: str, is_hot: bool) -> h.Node:
    """The number of a line, a mark of the hot block that is no colour, and the line."""
    shown = text(line.expandtabs(8), LINE)
    return [h.i[f"{number + 1:5} {'>' if is_hot else ' '} "], shown]
