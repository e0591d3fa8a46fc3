"""The instructions that a processor takes for the operations of a block."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from ....tir.ir import Binary, Cast, Op
from ..profile import PRODUCTS, Operation, Visit

HALVES = frozenset({"float16", "bfloat16"})
ROUNDED = 4
"""Instructions of an operation on bfloat16: its operands are widened and its result is rounded."""


class Instructions(NamedTuple):
    """The instructions of one visit of a block.

    Those `converting` what one access reads alone are by its number: they take place once for each
    vector that it reads. The `other` ones take place for each vector of results.
    """

    other: int
    converting: Mapping[int, int]


def instructions_of(visit: Visit) -> Instructions:
    """The instructions of a visit, those of expensive functions left out."""
    if visit.instruction is not None:
        return Instructions(1 + visit.accumulates, {})
    taken = Counter[int | None]()
    for (operation, access), times in visit.computed.items():
        taken[access] += times * _taken(operation)
    other = taken.pop(None, 0)
    return Instructions(other, {n: of_one for n, of_one in taken.items() if n is not None})


def _taken(operation: Operation) -> int:
    match operation:
        case Operation(node=node, dtype="bfloat16") if node is Binary:
            return ROUNDED
        case Operation(op=Op.MUL, dtype=dtype) if dtype in PRODUCTS:
            return 2
        case Operation(node=node, dtype=dtype, source=source) if node is Cast:
            return 1 if HALVES.isdisjoint((dtype, source)) else 2
        case _:
            return 1
