"""The picture of a program: its highlighted text, badges of loops, and their footprints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import htpy as h

from ...base.text import format_bytes
from ...target import Target
from ...tir.ir import Func
from ...tir.printer import MARK, Mark
from .listing import Kind, Row, pieces, rows, target_of
from .page import text

MOST_LINES = 2000
_TAGS: dict[Kind, str] = {
    "keyword": ".k",
    "call": ".f",
    "string": ".s",
    "comment": ".c",
    "buffer": ".v",
}


def view(func: Func) -> h.Node:
    """The picture of a program, for the target it is written for."""
    return program(func)


def program(func: Func, target: Target | None = None, mark: Mark = None) -> h.Node:
    """The picture of a program for a target; `mark` is a place in it that is pointed out."""
    target = target_of(func) if target is None else target
    shown = rows(func, target, mark)
    return h.div(".tw-program")[
        code(shown, f"program {func.name}"),
        legend(target) if any(row.held for row in shown) else None,
    ]


def code(shown: list[Row], name: str) -> h.Node:
    """Rows as a listing that is read and copied as text, with notes beside the lines of loops."""
    left = len(shown) - MOST_LINES
    return h.pre(".tw-code", tabindex="0", role="group", aria_label=text(name))[
        h.code[(_row(row) for row in shown[:MOST_LINES])],
        h.span(".l.soft")[f"... {left} more lines; print it for all"] if left > 0 else None,
    ]


def _row(row: Row) -> Iterable[h.Node]:
    marked = row.line.text.endswith(MARK)
    yield h.span(".l.here" if marked else ".l")[highlighted(row.line.text)]
    if row.badge is not None or row.held:
        yield h.span(".n")[
            # The spaces are of the text, which is read aloud; places in the grid are as without.
            [h.b(class_=f"tw-badge {_kind(row.badge)}")[row.badge], " "] if row.badge else None,
            h.span[", ".join(held.total for held in row.held)],
            " ",
            h.span[", ".join(map(text, _buffers(row)))],
        ]
    yield "\n"


def _buffers(row: Row) -> Iterator[str]:
    """What a loop touches of each buffer."""
    for held in row.held:
        yield from (f"{name} {format_bytes(size)}" for name, size in held.buffers)


def _kind(badge: str) -> str:
    """The class of a badge: the axes of a GPU share two."""
    return badge.partition(".")[0]


def highlighted(line: str) -> Iterator[h.Node]:
    """A line of a program as text with its pieces marked."""
    for kind, piece in pieces(text(line)):
        yield h.i(_TAGS[kind])[piece] if kind else piece


def legend(target: Target) -> h.Node:
    """What the notes beside loops say."""
    sizes = ", ".join(f"{name} {format_bytes(size)}" for name, size in target.caches.items())
    where = f" ({text(target)}: {sizes})" if sizes else f" ({text(target)})"
    return h.p(".caption")[
        "Beside a loop: how it runs, what one iteration touches, and the nearest memory that holds"
        f" it{where}."
    ]
