"""The part of an assembly text that a kernel spends its time in, as far as the text tells.

Loops are found by back edges: a branch to a label above it. The texts are those that LLVM and the
compilers of CUDA write: x86-64 (AT&T), AArch64 and PTX.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from .program_loops import ProgramLoops

_LABEL = re.compile(r"\s*([.$\w]+):")
_BRANCH = re.compile(
    r"""
    \s* (?:@!?%?\w+\s+)?                                   # the predicate of PTX
    (?:j\w+ | b(?:\.\w+)? | cbn?z | tbn?z | bra(?:\.\w+)?) \s+
    (?:.*[\s,])? ([.$\w]+) \s* ;? \s* (?:[#/].*)? $        # the label is the last operand
    """,
    re.VERBOSE,
)
# Of several elements by one instruction; moves, shuffles and logic do no arithmetic.
_VECTOR = re.compile(
    r"""
    \s* (?:@!?%?\w+\s+)? (?:
        v?(?:fn?m(?:add|sub)\d* | fm(?:addsub|subadd)\d* | add | sub | mul | div | max | min | sqrt
           | rsqrt\w* | rcp\w*) p[sdh] \b
      | v?p(?:add | sub | mul | madd | max | min | abs | dp)\w+
      | vdpbf16ps | tdp\w+
      | (?:f?[su]?(?:mla|mls|add|sub|mul|div|max|min|maxnm|minnm|dot|sqrt)|\w*mmla|bfdot) \s+ v\d+\.
      | (?:wgmma|mma|wmma\.mma)\.\w+
    )
    """,
    re.VERBOSE,
)
_SCALAR = re.compile(
    r"""
    \s* (?:@!?%?\w+\s+)? (?:
        v?(?:fn?m(?:add|sub)\d* | add | sub | mul | div | max | min | sqrt) s[sdh] \b
      | f(?:n?m(?:add|sub) | add | sub | mul | div | max | min | sqrt) \s+ [hsd]\d
      | (?:fma | add | sub | mul | div | max | min | sqrt | ex2 | rcp | rsqrt) (?:\.\w+)* \.b?f\d+
      | dp4a
    )
    """,
    re.VERBOSE,
)


class _Loop(NamedTuple):
    """The lines from a label to the last branch back to it."""

    first: int
    last: int


def hot_block(
    assembly: str, loops: Sequence[int | None] | None = None, program: ProgramLoops | None = None
) -> range | None:
    """The lines of the innermost loop with the most vector arithmetic, counted from 0.

    Where no innermost loop has any, scalar arithmetic of floats counts. PTX is the code of one
    thread: products of matrices are its vectors. `None` if no loop computes.

    `loops` has for each line the number of the loop of `program` that runs it. With them it is that
    of the program's loops whose arithmetic, of vectors and of scalars, is carried out most often.
    """
    lines = assembly.split("\n")
    vectors, scalars = (
        list(accumulate((found.match(line) is not None for line in lines), initial=0))
        for found in (_VECTOR, _SCALAR)
    )
    best: dict[int | None, tuple[_Loop, tuple[int, int]]] = {}  # by the loop of the program
    for loop in _innermost(_loops(lines)):
        count = (
            vectors[loop.last + 1] - vectors[loop.first],
            scalars[loop.last + 1] - scalars[loop.first],
        )
        number = loops[loop.first] if loops is not None else None
        if count > (best[number][1] if number in best else (0, 0)):
            best[number] = loop, count
    if not best:
        return None
    runs: dict[int, int] = {}
    if loops is not None and program is not None:
        runs = program.iterations(n for n in loops if n is not None)

    def work(number: int | None) -> int:
        return sum(best[number][1]) * (1 if number is None else runs.get(number, 1))

    first, last = best[max(best, key=work)][0]
    return range(first, last + 1)


def _loops(lines: list[str]) -> list[_Loop]:
    """The loops in order of their labels."""
    labels: dict[str, int] = {}
    last: dict[int, int] = {}
    for n, line in enumerate(lines):
        label = _LABEL.match(line)
        if label is not None:
            labels[label[1]] = n
            continue
        branch = _BRANCH.match(line)
        if branch is not None and branch[1] in labels:
            last[labels[branch[1]]] = n
    return [_Loop(first, last[first]) for first in sorted(last)]


def _innermost(loops: list[_Loop]) -> Iterator[_Loop]:
    """The loops in which no other begins."""
    for n, loop in enumerate(loops):
        if n + 1 == len(loops) or loops[n + 1].first > loop.last:
            yield loop
