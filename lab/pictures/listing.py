"""A program by lines with what people want to know beside them: kinds of loops, and footprints."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple, TypeAlias

from ...autotune.model.loop_footprints import LoopFootprint, footprints
from ...base.text import format_bytes
from ...codegen.detect import resolve
from ...schedule.find import loops_in
from ...target import Target
from ...tir.ir import Buffer, For, ForKind, Func, Var
from ...tir.printer import Line, Mark, decisions, listing

BADGES: Mapping[ForKind, str] = {
    ForKind.PARALLEL: "parallel",
    ForKind.VECTOR: "vector",
    ForKind.UNROLL: "unrolled",
}


_NEAREST = ("register", "local", "shared", "global")
"""The scopes of buffers, those that threads reach soonest first."""


class Held(NamedTuple):
    """What an iteration of a loop touches of buffers that share a memory, and which holds it all.

    `buffers` are the names and bytes of each, the largest first.
    """

    memory: str
    bytes: int
    buffers: tuple[tuple[str, int], ...]

    @property
    def total(self) -> str:
        """`1.5 KiB in L1`."""
        return f"{format_bytes(self.bytes)} in {self.memory}"


class Row(NamedTuple):
    """A line of a program, the badge of its loop, and what an iteration of that touches."""

    line: Line
    badge: str | None = None
    held: tuple[Held, ...] = ()


def badge(loop: For) -> str | None:
    """The word for how a loop runs, where it is not one iteration after the other."""
    return loop.thread if loop.kind is ForKind.THREAD else BADGES.get(loop.kind)


def rows(func: Func, target: Target | None = None, mark: Mark = None) -> list[Row]:
    """The lines of a program; footprints are for a target, by default the one it is written for.

    A program with open decisions has none.
    """
    lines, names = listing(func, mark)
    touched: Mapping[Var, Mapping[Buffer, LoopFootprint]] = {}
    target = target_of(func) if target is None else target
    if not decisions(func):
        touched = footprints(func, target)
    found = []
    for line in lines:
        loop = line.loop
        if loop is None:
            found.append(Row(line))
        else:
            counts = {b: f.bytes for b, f in touched.get(loop.var, {}).items()}
            held = tuple(held_in(counts, names, target))
            found.append(Row(line, badge(loop), held))
    return found


def target_of(func: Func) -> Target:
    """The target that a program is looked at for: a GPU if its loops are bound, or this machine."""
    if any(loop.kind is ForKind.THREAD for loop in loops_in(func.body)):
        return Target.parse("cuda")
    return resolve("cpu")


def held_in(
    touched: Mapping[Buffer, int], names: Mapping[object, str], target: Target
) -> Iterator[Held]:
    """Bytes of buffers by the memory that those of their scopes are in at best."""
    groups: dict[str, list[Buffer]] = {}
    for buffer in sorted(touched, key=lambda b: _NEAREST.index(b.scope)):
        groups.setdefault(target.memory_for(0, buffer.scope), []).append(buffer)
    for buffers in groups.values():
        buffers.sort(key=lambda b: -touched[b])
        total = sum(touched[b] for b in buffers)
        parts = tuple((names.get(b, b.name), touched[b]) for b in buffers)
        yield Held(target.memory_for(total, buffers[0].scope), total, parts)


# The text of programs in pieces of one kind each, for highlighting.

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
