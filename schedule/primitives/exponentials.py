"""Recognise sums of exponentials relative to a maximum."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...tir.ir import Binary, Block, Buffer, Call, Cast, Expr, Func, Load, Op, Var, load
from ...tir.reduction import lowest
from ...tir.structure import same
from ...tir.visit import rewrite_children
from ..blocks import writers_of
from ..reductions import match_reduction
from ..require import require
from .pieces import Statistic, in_variables_of


class Exponentials(NamedTuple):
    """A sum of exp(x - shift), where `shift` is the maximum of the row in the dtype of x."""

    largest: Statistic
    shift: Expr


def exponentials(fn: Func, block: Block) -> Exponentials:
    """Match a sum of exponentials relative to a maximum. Raises `ScheduleError` if it is none."""
    label = block.label
    found = match_reduction(block)
    value = None if found is None else found.value
    inner = value.args[0] if type(value) is Call and value.fn == "exp" else None
    shift = inner.b if type(inner) is Binary and inner.op is Op.SUB else None
    largest = shift.value if type(shift) is Cast else shift
    require(
        found is not None and found.combiner.name == "sum" and type(largest) is Load,
        "block {0} must sum exp(x - m), with a maximum m from a buffer",
        label.name,
        at=label,
        hint="compute_inline puts the exponentials into the sum",
    )
    assert type(inner) is Binary
    assert shift is not None
    assert type(largest) is Load
    require(
        lowest(shift.dtype).value == float("-inf"),
        "the exponentials of block {0} are of {1}, which has no infinity",
        label.name,
        shift.dtype,
        at=label,
    )
    writers = writers_of(fn, largest.buffer)
    matched = match_reduction(writers[0]) if len(writers) == 1 else None
    require(
        matched is not None and matched.combiner.name == "max",
        "block {0} subtracts {1}; expected a maximum that one block computes",
        label.name,
        largest.buffer.name,
        at=label,
    )
    assert matched is not None
    x = inner.a
    if type(x) is Cast and not same(in_variables_of(block, writers[0], matched.value), x):
        x = x.value
    statistic = Statistic("maximum", writers[0], matched, x, largest.indices)
    return Exponentials(statistic, shift)


def at_pieces(node: Any, whole: Buffer, pieces: Buffer, piece: Var) -> Any:
    """`node` with the elements of `pieces` in place of those of `whole`."""
    if type(node) is Load and node.buffer is whole:
        return load(pieces, (*node.indices, piece))
    return rewrite_children(node, lambda n: at_pieces(n, whole, pieces, piece))
