"""The text of programs in pieces of one kind each, for highlighting."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["keyword", "call", "string", "comment", "buffer", ""]
Piece: TypeAlias = tuple[Kind, str]

_PIECE = re.compile(
    r"""
    (?P<comment>\#.*)
  | (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
  | (?P<keyword>\b(?:def|for|in|with|as|if|elif|else|pass)\b)
  | (?P<call>@?\b(?:T|tw)(?:\.\w+)+|\brange\b|\bsch(?:\.\w+)+)
  | (?P<buffer>\b[A-Za-z_]\w*(?=\[))
    """,
    re.VERBOSE | re.ASCII,
)


def pieces(line: str) -> Iterator[Piece]:
    """The pieces of a line of a program, which joined are the line."""
    end = 0
    for found in _PIECE.finditer(line):
        if found.start() > end:
            yield "", line[end : found.start()]
        kind: Kind = found.lastgroup  # type: ignore[assignment]  # the groups are named after them
        yield kind, found[0]
        end = found.end()
    if end < len(line):
        yield "", line[end:]
