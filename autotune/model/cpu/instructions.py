"""The instructions that a processor takes for the operations of a block."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from ....base import dtypes
from ....tir.ir import Binary, Cast, Op
from ..profile import PRODUCTS, Operation, Visit

HALVES = frozenset({"float16", "bfloat16"})
_SHIFTED = ("bfloat16", "float32")
ROUNDED = 4
"""Instructions of an operation on bfloat16: its operands are widened and its result is rounded."""


class Converting(NamedTuple):
    """The instructions that compute from what one access reads alone.

    They take place once `each` vector that it reads, and as often as `shared` for each element that
    all lanes share. Those that are `multiplying` need the units for floats; the others shift and
    shuffle.
    """

    each: int
    shared: int
    multiplying: int


class Instructions(NamedTuple):
    """The instructions of one visit of a block.

    Those `converting` are by the number of an access. The `other` ones take place for each vector
    of results.
    """

    other: int
    converting: Mapping[int, Converting]


def instructions_of(visit: Visit) -> Instructions:
    """The instructions of a visit, those of expensive functions left out."""
    if visit.instruction is not None:
        return Instructions(1 + visit.accumulates, {})
    slots, shifting, scalar = Counter[int | None](), Counter[int](), Counter[int]()
    for (operation, access), times in visit.computed.items():
        slots[access] += times * _taken(operation)
        if access is not None and _is_widening(operation):
            shifting[access] += times * _taken(operation)
            scalar[access] += times * (operation.source == "bfloat16")
    other = slots.pop(None, 0)
    # An element that lanes share is no operand from memory then: it is moved to all of them. What
    # shifts it works on integers.
    converting = {
        n: Converting(of_one, of_one - scalar[n] + 1, of_one - shifting[n])
        for n, of_one in slots.items()
        if n is not None
    }
    return Instructions(other, converting)


def _is_widening(operation: Operation) -> bool:
    """Whether an operation is a cast that moves bits alone, or copies signs."""
    if operation.node is not Cast:
        return False
    floats = [dtypes.is_float(d) for d in (operation.source, operation.dtype)]
    return floats == [False, False] or (operation.source, operation.dtype) == _SHIFTED


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
