"""The bytes of each buffer that one iteration of a loop touches: for people, and for sliders.

The terms of accesses are those of the profile that estimates are made of, so the figures are those
of the search. Where several accesses touch a buffer, what they share counts once here.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from operator import add, mul
from typing import NamedTuple, TypeAlias

from ...base import dtypes
from ...target import Target
from ...tir.columns import Column, Number, Tape, maximum, minimum
from ...tir.ir import Buffer, Dim, Func, Var, as_expr
from ...tir.structure import key_of
from .cpu.footprints import Evaluated
from .profile import StridedAccess, Term, Visit, profile

Bytes: TypeAlias = "dict[Var, dict[Buffer, Number]]"


class LoopFootprint(NamedTuple):
    """The bytes of a buffer that an iteration of a loop touches, and the memory that holds them.

    `memory` is the nearest cache of the target that they fit (`L1`), or `memory`; `registers` for
    buffers in registers. On GPUs it is where the scope of the buffer is.
    """

    bytes: int
    memory: str


def footprints(func: Func, target: Target) -> dict[Var, dict[Buffer, LoopFootprint]]:
    """What one iteration of each loop of a concrete program touches, by loop and buffer.

    An internal buffer counts with what is live at once. Regions are boxes that cover what is
    touched, as in the estimate, and indices that depend on data may take every value.
    """
    by_loop: dict[Var, dict[Buffer, LoopFootprint]] = {}
    for loop, touched in loop_bytes(Evaluated(profile(func), Tape())).items():
        by_loop[loop] = {}
        for buffer, number in touched.items():
            assert not isinstance(number, Column), "a concrete program has plain numbers"
            nbytes = int(number)
            memory = target.memory_for(nbytes, buffer.scope)
            by_loop[loop][buffer] = LoopFootprint(nbytes, memory)
    return by_loop


def loop_bytes(data: Evaluated) -> Bytes:
    """What `footprints` has, as numbers on the tape: for many rows of a sketch at once."""
    boxes: dict[Var, dict[Buffer, dict[object, _Boxes]]] = {}
    for n in data.visits:
        for access in n.visit.accesses:
            for loop, key, box in _boxes(data, n.visit, access):
                groups = boxes.setdefault(loop, {}).setdefault(access.buffer, {})
                groups.setdefault(key, _Boxes(data, access)).add(box)
    return {
        loop: {
            buffer: _elements(data, buffer, list(groups.values())) * dtypes.nbytes(buffer.dtype)
            for buffer, groups in buffers.items()
        }
        for loop, buffers in boxes.items()
    }


def _elements(data: Evaluated, buffer: Buffer, groups: list[_Boxes]) -> Number:
    """The elements in groups of boxes, of which nothing is known that they share."""
    whole = functools.reduce(mul, map(data.column, buffer.shape), 1.0)
    return minimum(functools.reduce(add, [group.elements() for group in groups]), whole)


Box: TypeAlias = "tuple[tuple[Number, Number], ...]"
"""The first and the last index of each dimension."""


class _Boxes:
    """Boxes of a buffer that move together: those of accesses that differ by constants alone."""

    def __init__(self, data: Evaluated, access: StridedAccess) -> None:
        self._sizes = [maximum(data.column(size), 1.0) for size in access.sizes]
        self._boxes: dict[Box, None] = {}

    def add(self, box: Box) -> None:
        self._boxes[box] = None

    def elements(self) -> Number:
        """The elements in the boxes: what they have together, or those of a box around them."""
        total = functools.reduce(add, [self._volume(box) for box in self._boxes])
        if len(self._boxes) == 1:
            return total
        around = tuple(
            (
                functools.reduce(minimum, [low for low, _ in ranges]),
                functools.reduce(maximum, [high for _, high in ranges]),
            )
            for ranges in zip(*self._boxes, strict=True)
        )
        return minimum(total, self._volume(around))

    def _volume(self, box: Box) -> Number:
        sides = [
            minimum(high - low + 1.0, size)
            for (low, high), size in zip(box, self._sizes, strict=True)
        ]
        return functools.reduce(mul, sides, 1.0)


def _boxes(
    data: Evaluated, visit: Visit, access: StridedAccess
) -> Iterator[tuple[Var, object, Box]]:
    """For each loop around a block, what the access touches in an iteration, and what moves that.

    The box is relative to the place that the loops around and the data move it to.
    """
    fixed, starts = zip(*map(_start, access.start), strict=True) if access.start else ((), ())
    box: Box = tuple((start, start) for start in starts)
    for level in range(len(visit.extents) - 1, -1, -1):
        if level < len(visit.loops):
            moved = tuple(
                tuple(_key(visit, t) for t in terms if t.loop <= level) for terms in access.terms
            )
            sizes = tuple(map(_dim_key, access.sizes))
            yield visit.loops[level].var, (sizes, fixed, moved), box
        box = tuple(
            _swept(data, side, [t for t in terms if t.loop == level])
            for side, terms in zip(box, access.terms, strict=True)
        )


def _swept(
    data: Evaluated, side: tuple[Number, Number], terms: list[Term]
) -> tuple[Number, Number]:
    """The indices of a dimension while the loop of these terms runs."""
    low, high = side
    for t in terms:
        reach = data.column(t.step) * maximum(data.column(t.values) - 1.0, 0.0)
        low, high = low + minimum(reach, 0.0), high + maximum(reach, 0.0)
    return low, high


def _start(start: object) -> tuple[object, float]:
    """The constant of what no loop moves of an index, and the rest."""
    assert isinstance(start, frozenset)
    constant = sum(c for factors, c in start if not factors)
    return frozenset((factors, c) for factors, c in start if factors), float(constant)


def _key(visit: Visit, term: Term) -> object:
    return visit.loops[term.loop].var, *map(_dim_key, (term.step, term.values, term.period))


def _dim_key(dim: Dim) -> object:
    return dim if isinstance(dim, int) else key_of(as_expr(dim))
