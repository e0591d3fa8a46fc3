"""What a step changed in a program: lines taken away and lines added, as a picture and as text."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Literal, NamedTuple, TypeAlias

import htpy as h

from ...tir.ir import Func
from ...tir.printer import listing
from .page import LINE, text
from .program import highlighted

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
