"""The loop that each line of an assembly text is of, as far as LLVM tells.

Basic blocks of LLVM IR are named after the loop of the program that they are in (`llvm_text.py`):
`loop-3.17` is the first block of loop 3. LLVM keeps the names, and its verbose assembly has them in
comments, with the loops that its machine code has:

    .LBB1_16:                        # %loop-3.17
                                     #   Parent Loop BB1_15 Depth=1
                                     # =>  This Inner Loop Header: Depth=2
            vfmadd231ps (%r9), ..
    # %bb.17:                        # %done-2.18
                                     #   in Loop: Header=BB1_15 Depth=1

A line is of the loop of the program whose iterations run it. What LLVM moved out of a loop is of a
loop around that; a loop that was unrolled, or is the lanes of vectors, has no lines of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

_LABEL = re.compile(r"(?:\.?L(?P<target>BB\d+_\d+)|(?:#|//) %bb\.\d+|(?P<other>[\w.$]+)):")
_COMMENT = re.compile(r"\s*(?:#|//)")
_NAME = re.compile(r"(?:#|//) %\w+-(\d+)\.[\w.$-]*\s*$")
_HEADER = re.compile(r"=>\s*This (?:Inner )?Loop Header")
_PARENT = re.compile(r"Parent Loop (BB\d+_\d+) ")
_IN_LOOP = re.compile(r"in Loop: Header=(BB\d+_\d+) ")


@dataclass
class _Block:
    """A basic block of machine code.

    `number` is the loop of the program that it is named after, `header` the first block of the
    machine's innermost loop that it is in, and a header has the `parent` of its loop.
    """

    label: str | None
    number: int | None = None
    header: str | None = None
    parent: str | None = None


def loops_of_lines(
    plain: str, verbose: str, around: Sequence[tuple[int, ...]]
) -> list[int | None] | None:
    """For each line of an assembly text the number of the innermost loop that runs it.

    `verbose` is the same code with LLVM's comments, and `around` are the loops around each loop of
    the program. `None` if the two are not the same code.
    """
    commented = list(_lines(verbose))
    loops = _loops([block for _, block in commented if block is not None], around)
    found: list[int | None] = []
    at = 0
    for line in plain.split("\n"):
        if not line.strip():
            found.append(None)
            continue
        if at == len(commented) or not commented[at][0].startswith(line.rstrip()):
            return None
        block = commented[at][1]
        found.append(None if block is None or block.header is None else loops.get(block.header))
        at += 1
    return found if at == len(commented) else None


def _lines(verbose: str) -> Iterator[tuple[str, _Block | None]]:
    """The lines that are no comments, with the block that each is in."""
    block: _Block | None = None
    for line in verbose.split("\n"):
        label = _LABEL.match(line)
        if label is not None:
            block = None if label["other"] else _Block(label["target"])
            name = _NAME.search(line)
            if block is not None and name is not None:
                block.number = int(name[1])
        if block is not None:
            _note(line, block)
        if line.strip() and not _COMMENT.match(line):
            yield line, block


def _note(line: str, block: _Block) -> None:
    """What a comment says of the loops around a block."""
    around, parent = _IN_LOOP.search(line), _PARENT.search(line)
    if around is not None:
        block.header = around[1]
    elif _HEADER.search(line):
        block.header = block.label
    elif parent is not None:
        block.parent = parent[1]  # the last of them is the innermost


def _loops(blocks: Iterable[_Block], around: Sequence[tuple[int, ...]]) -> dict[str, int | None]:
    """The loop of the program that each loop of the machine is, by its first block."""
    headers: dict[str, _Block] = {}
    inside: dict[str, set[int]] = {}
    for block in blocks:
        if block.header is None:
            continue
        if block.header == block.label:
            headers[block.header] = block
        if block.number is not None:
            inside.setdefault(block.header, set()).add(block.number)

    def loop(header: str | None) -> int | None:
        block = None if header is None else headers.get(header)
        if header is None or block is None:
            return None
        if block.number is None or block.number >= len(around):
            return loop(block.parent)
        # LLVM may make one loop of two: what the outer one alone runs is in it too.
        outer = (number for number in around[block.number] if number in inside[header])
        return next(outer, block.number)

    return {header: loop(header) for header in headers}
