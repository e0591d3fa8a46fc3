"""The loop that each line of PTX is of, as far as the compiler tells.

With line information the compiler writes, before an instruction, the line of CUDA C++ that it is
made of (`.loc 1 10 3`). A loop of PTX is that of the program whose `for` is on the line of the
branches back to its first block. A line of PTX is of the loop whose iterations run it; a loop that
was unrolled has no lines of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

_LOCATION = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)\s+\d+(,?)")
_ADDED = re.compile(r"\s*(?:\.loc|\.file|//|\$L__(?:tmp|func|pack)\w*:)")
_TABLE = re.compile(r"\s*\.section\s+\.debug")
_LABEL = re.compile(r"\s*(\$L__BB\d+_\d+):")
_BRANCH = re.compile(r"\s*(@!?%\w+\s+)?bra(?:\.uni)?\s+(\$L__BB\d+_\d+)\s*;")
_END = re.compile(r"\s*(@!?%\w+\s+)?(?:ret|exit|trap|brx\S*)\b")
_CHOSEN = re.compile(r"^\s*brx", re.MULTILINE)


class _Line(NamedTuple):
    """A line of PTX, and that of CUDA C++ that it is made of where it is known."""

    text: str
    source: int | None


@dataclass(eq=False)
class _Block:
    """Lines that run one after the other, and the blocks that may run after them.

    `back` is the line of CUDA C++ of the branch at its end.
    """

    lines: list[int] = field(default_factory=list)
    label: str | None = None
    jump: str | None = None
    back: int | None = None
    falls: bool = True
    after: list[_Block] = field(default_factory=list)


@dataclass(eq=False)
class _Loop:
    """A loop of PTX: its blocks, those that branch back, and the loop of the program that it is."""

    body: set[_Block]
    latches: list[_Block]
    number: int | None = None


def loops_of_lines(
    plain: str, located: str, fors: Mapping[int, int], around: Sequence[tuple[int, ...]]
) -> list[int | None] | None:
    """For each line of PTX the number of the innermost loop that runs it.

    `located` is the same code with line information, `fors` are the loops of the program by the
    line of CUDA C++ that each begins at, and `around` are the loops around each. `None` if the two
    are not the same code, or branch to places that are only known when they run.
    """
    lines = list(_lines(located))
    wanted = [n for n, line in enumerate(plain.split("\n")) if line.strip() and not _added(line)]
    texts = plain.split("\n")
    if [texts[n].strip() for n in wanted] != [line.text.strip() for line in lines]:
        return None
    if _CHOSEN.search(plain):
        return None
    blocks = _blocks(lines)
    found: list[int | None] = [None] * len(texts)
    loops = _loops(blocks)
    for loop in loops:
        numbers = {fors.get(b.back) if b.back is not None else None for b in loop.latches}
        loop.number = numbers.pop() if len(numbers) == 1 else None
    for loop in loops:  # the largest first: those around a loop are known
        outer = next((o.number for o in _around(loop, loops) if o.number is not None), None)
        if loop.number is None or (outer is not None and outer not in around[loop.number]):
            loop.number = outer
        for block in loop.body:
            for n in block.lines:
                found[wanted[n]] = loop.number
    return found


def _added(line: str) -> bool:
    """Whether line information may add or change a line, which is no code."""
    return _ADDED.match(line) is not None


def _lines(located: str) -> Iterator[_Line]:
    """The lines that are there without line information as well."""
    source: int | None = None
    for line in located.split("\n"):
        location = _LOCATION.match(line)
        if _TABLE.match(line):
            return  # names of functions, behind all code
        if location is not None:
            is_ours = location[1] == "1" and not location[3]  # not of a function that was inlined
            source = int(location[2]) if is_ours else None
        elif line.strip() and not _added(line):
            yield _Line(line, source)


def _blocks(lines: Sequence[_Line]) -> list[_Block]:
    """The blocks in the order of the text, with the edges between them."""
    blocks = [_Block()]
    for n, (text, source) in enumerate(lines):
        label, branch, end = _LABEL.match(text), _BRANCH.match(text), _END.match(text)
        if label is not None:
            blocks.append(_Block(label=label[1]))
        blocks[-1].lines.append(n)
        if branch is not None:
            blocks[-1].jump, blocks[-1].back = branch[2], source
            blocks[-1].falls = branch[1] is not None
        elif end is not None:
            blocks[-1].falls = end[1] is not None
        if branch is not None or end is not None:
            blocks.append(_Block())
    labels = {block.label: block for block in blocks if block.label is not None}
    for n, block in enumerate(blocks):
        if block.falls and n + 1 < len(blocks):
            block.after.append(blocks[n + 1])
        if block.jump is not None and block.jump in labels:
            block.after.append(labels[block.jump])
    return blocks


def _loops(blocks: Sequence[_Block]) -> list[_Loop]:
    """The natural loops, the largest first."""
    before: dict[_Block, list[_Block]] = {block: [] for block in blocks}
    for block in blocks:
        for after in block.after:
            before[after].append(block)
    entries = [block for block in blocks if not before[block]]
    latches: dict[_Block, list[_Block]] = {}
    for latch, header in _retreating(entries):
        latches.setdefault(header, []).append(latch)
    found = []
    for header, ends in latches.items():
        body, pending = {header}, list(ends)
        while pending:
            block = pending.pop()
            if block not in body:
                body.add(block)
                pending += before[block]
        if body.isdisjoint(entries):  # else it has several first blocks
            found.append(_Loop(body, ends))
    return sorted(found, key=lambda loop: -len(loop.body))


def _retreating(entries: Sequence[_Block]) -> Iterator[tuple[_Block, _Block]]:
    """The edges to a block that is on the way to where they begin."""
    seen: set[_Block] = set()
    for entry in entries:
        seen.add(entry)
        way = {entry}
        stack = [(entry, iter(entry.after))]
        while stack:
            block, rest = stack[-1]
            following = next(rest, None)
            if following is None:
                way.discard(block)
                stack.pop()
            elif following in way:
                yield block, following
            elif following not in seen:
                seen.add(following)
                way.add(following)
                stack.append((following, iter(following.after)))


def _around(loop: _Loop, loops: Sequence[_Loop]) -> Iterator[_Loop]:
    """The loops around a loop, the smallest first."""
    return (o for o in reversed(loops) if o is not loop and o.body > loop.body)
